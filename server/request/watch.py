"""From the `watch` of a request to sets of token ids.

Owns that a text stands for the tokens that have exactly this text, and no others.
"""

from collections.abc import Sequence

from engine import Engine

from ..errors import RequestError
from ..http.large_bodies import LargeBodies
from ..request.text import LONG_TEXT, check_text
from ..schema.watch import Watch
from .sampling import check_token_ids

_MOST_SHOWN = 8


async def watched_ids(
    engine: Engine, bodies: LargeBodies, watches: Sequence[Watch] | None
) -> tuple[tuple[int, ...], ...]:
    """The ids of each watch, in order. Raises RequestError and InvalidInputError."""
    if not watches:
        return ()
    _check_names(watches)
    # In a thread with the first text: the vocabulary is sorted by it once.
    size = LONG_TEXT if any(watch.strings for watch in watches) else 0
    return await bodies.run(
        lambda: tuple(_ids(engine, watch, f"watch[{i}]") for i, watch in enumerate(watches)),
        size,
        inline_below=LONG_TEXT,
    )


def _check_names(watches: Sequence[Watch]) -> None:
    seen: dict[str, int] = {}
    for i, watch in enumerate(watches):
        first = seen.setdefault(watch.name, i)
        if first != i:
            raise RequestError(
                f"watch[{i}].name is that of watch[{first}] too: give each a name of its own",
                param=f"watch[{i}].name",
            )


def _ids(engine: Engine, watch: Watch, path: str) -> tuple[int, ...]:
    if watch.token_ids is None and watch.strings is None:
        raise RequestError(f"{path} names no token: send token_ids or strings", param=path)
    check_token_ids(watch.token_ids or (), engine.config.vocab_size, param=f"{path}.token_ids")
    token_ids = dict.fromkeys(watch.token_ids or ())
    for i, text in enumerate(watch.strings or ()):
        token_ids |= dict.fromkeys(_ids_of_text(engine, text, f"{path}.strings[{i}]"))
    return tuple(token_ids)


def _ids_of_text(engine: Engine, text: str, param: str) -> Sequence[int]:
    check_text(text, param=param)
    token_ids = engine.generator.token_ids_of(text)
    added = engine.tokenizer.added_token_id(text)
    if added is not None:
        token_ids = (*token_ids, added)
    if token_ids:
        return token_ids
    parts = engine.tokenizer.encode_continuation(text)
    shown = ", ".join(map(str, parts[:_MOST_SHOWN])) + (", …" if len(parts) > _MOST_SHOWN else "")
    raise RequestError(
        f"{param} is not the text of one token of this model, but {len(parts)} tokens, [{shown}]: "
        "watch one of them by token_ids",
        param=param,
    )
