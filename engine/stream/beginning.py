"""What a stream of a model may begin with: its prompts and the snapshot that it goes on from.

Owns the checks that come before any work. Knows no cache.
"""

from collections.abc import Sequence

from ..errors import ContextLengthError, InvalidInputError
from ..model.model import Model
from ..sampling.guidance import check_scale
from ..text.token_ids import check_token_ids
from .options import IdArray
from .prompt_ids import checked_prompt
from .snapshot import Snapshot


def prompt_of(
    input_ids: Sequence[int] | IdArray, model: Model, *, param: str = "input_ids"
) -> list[int]:
    """Raises InvalidInputError and ContextLengthError, for `param`."""
    return _checked(input_ids, "prompt", model, param)


def negative_prompt_of(negative_ids: Sequence[int] | IdArray, model: Model) -> list[int]:
    """Raises as `prompt_of` does."""
    return _checked(negative_ids, "negative prompt", model, "negative_ids")


def guiding_ids(
    negative_ids: Sequence[int] | IdArray | None, cfg_scale: float, model: Model
) -> list[int]:
    """The negative prompt; empty without guidance. Raises InvalidInputError."""
    check_scale(cfg_scale)
    if negative_ids is None:
        if cfg_scale != 1.0:
            raise InvalidInputError(
                f"cfg_scale {cfg_scale} needs a negative prompt", param="cfg_scale"
            )
        return []
    token_ids = negative_prompt_of(negative_ids, model)
    return [] if cfg_scale == 1.0 else token_ids


def check_snapshot(snapshot: Snapshot, model: Model, fingerprint: str) -> None:
    """Raises InvalidInputError unless an engine of this fingerprint can go on from it."""
    if snapshot.fingerprint != fingerprint:
        raise InvalidInputError(
            f"the snapshot was taken with the model {snapshot.fingerprint!r}; this one is "
            f"{fingerprint!r}, which computes other logits",
            param="snapshot",
        )
    prompt = prompt_of(snapshot.prompt_ids, model, param="snapshot")
    vocab_size = model.config.vocab_size
    check_token_ids("snapshot", snapshot.token_ids, vocab_size)
    for segment in snapshot.segments:
        segment.options.check(vocab_size)
    n_tokens, most = len(prompt) + snapshot.n_tokens, model.max_seq_len
    if n_tokens > most:
        raise ContextLengthError(n_tokens, most, param="snapshot")


def _checked(input_ids: Sequence[int] | IdArray, name: str, model: Model, param: str) -> list[int]:
    vocab_size, most = model.config.vocab_size, model.max_seq_len
    return checked_prompt(input_ids, name, param=param, vocab_size=vocab_size, most=most)
