"""The prompt and the continuations of a request to /v1/score, in token ids.

Owns where the tokens of the prompt end and those of a continuation begin. Texts are encoded as
lm-evaluation-harness does it: white space at the end of the prompt belongs to the continuation, and
prompt and continuation are encoded together, so that the tokens are those of the joined text.
Unlike there, a continuation is encoded alone if the tokenizer would join it with the end of the
prompt into one token: else a part of it would not be scored.
"""

from collections.abc import Sequence
from typing import NamedTuple

from engine import ContextLengthError, Engine, InvalidInputError

from ...chat.prompt import prompt_ids
from ...errors import RequestError
from ...request.options import adds_special_tokens
from ...request.sampling import check_token_ids
from ...request.text import LONG_TEXT, check_text
from ...schema.score import ScoreRequest
from ...service import Service
from ..chat.turn import template_turn

# The prompt is encoded with each continuation.
MAX_ENCODED_CHARACTERS = 8 * 1024 * 1024
# A score is kept until it is read.
MAX_SCORED_TOKENS = 2**19


class ScoredText(NamedTuple):
    """What to score, in token ids and as the answer says it."""

    input_ids: Sequence[int]
    continuations: Sequence[Sequence[int]]
    texts: Sequence[str]


async def read_texts(service: Service, body: ScoreRequest, *, n_body: int) -> ScoredText:
    """Raises RequestError, InvalidInputError and TemplateError whose `param` is the field."""
    engine = service.engine
    if body.messages is not None:
        if body.prompt is not None:
            raise RequestError("prompt and messages exclude each other: send one", param="prompt")
        turn = await template_turn(service.large_bodies, body, body.messages, n_body=n_body)
        input_ids: Sequence[int] = await prompt_ids(service, turn)
        size = _n_characters(body.continuations)
    else:
        input_ids = body.prompt if isinstance(body.prompt, list) else ()
        size = _encoded_characters(body)
    read = await service.large_bodies.run(
        lambda: _read(engine, body, input_ids), max(size, n_body), inline_below=LONG_TEXT
    )
    _check(engine, read, prompt_param="prompt" if body.messages is None else "messages")
    return read


def _n_characters(continuations: Sequence[str | list[int]]) -> int:
    return sum(map(len, continuations))


def _encoded_characters(body: ScoreRequest) -> int:
    """How many characters are to be encoded. Raises RequestError if they are too many."""
    n = _n_characters(body.continuations)
    if not isinstance(body.prompt, str):
        return n
    n += len(body.prompt)
    if isinstance(body.continuations[0], str):
        n += len(body.prompt) * len(body.continuations)
    if n > MAX_ENCODED_CHARACTERS:
        raise RequestError(
            f"prompt and {len(body.continuations)} continuations are {n:,} characters to encode, "
            f"because each is encoded together with the prompt; the limit is "
            f"{MAX_ENCODED_CHARACTERS:,}: send fewer continuations, or token ids",
            param="prompt",
        )
    return n


def _read(engine: Engine, body: ScoreRequest, input_ids: Sequence[int]) -> ScoredText:
    """`input_ids`: of the prompt, if it is no text."""
    tokenizer = engine.tokenizer
    prompt = body.prompt if isinstance(body.prompt, str) else ""
    check_text(prompt, param="prompt")
    engine.check_length(prompt, param="prompt")
    for i, continuation in enumerate(body.continuations):
        if not continuation:
            raise RequestError(
                f"continuations[{i}] is empty: it needs at least one token",
                param=f"continuations[{i}]",
            )
    is_text = body.messages is None and not isinstance(body.prompt, list)
    if not isinstance(body.continuations[0], str):
        ids = body.continuations
        for i, continuation in enumerate(ids):
            check_token_ids(continuation, engine.config.vocab_size, param=f"continuations[{i}]")
        if is_text:
            input_ids = _prompt_ids(engine, prompt, body)
        return ScoredText(input_ids, ids, [tokenizer.decode(each) for each in ids])
    texts = body.continuations
    for i, text in enumerate(texts):
        check_text(text, param=f"continuations[{i}]")
        engine.check_length(text, param=f"continuations[{i}]")
    if is_text:
        return _encoded_together(engine, prompt, texts, body)
    return ScoredText(input_ids, [*map(tokenizer.encode_continuation, texts)], texts)


def _encoded_together(
    engine: Engine, prompt: str, texts: Sequence[str], body: ScoreRequest
) -> ScoredText:
    context = prompt.rstrip()
    moved = prompt[len(context) :]
    input_ids = _prompt_ids(engine, context, body)
    # Without special tokens: those behind a text would be taken for tokens of it.
    encode = engine.tokenizer.encode
    alone = encode(context, add_special_tokens=False) if context else []
    continuations = []
    for text in texts:
        whole = encode(context + moved + text, add_special_tokens=False)
        if whole[: len(alone)] == alone and len(whole) > len(alone):
            continuations.append(whole[len(alone) :])
        else:
            continuations.append(engine.tokenizer.encode_continuation(moved + text))
    return ScoredText(input_ids, continuations, texts)


def _prompt_ids(engine: Engine, text: str, body: ScoreRequest) -> list[int]:
    """The ids of a prompt that is text; of none, what every text begins with, or what the text
    before it ends with.
    """
    token_ids = engine.tokenizer.encode(text, add_special_tokens=adds_special_tokens(body))
    return token_ids or engine.tokenizer.encode("") or list(engine.eos_token_ids[:1])


def _check(engine: Engine, read: ScoredText, *, prompt_param: str) -> None:
    if not read.input_ids:
        raise InvalidInputError(
            "the prompt is empty: it needs at least one token", param=prompt_param
        )
    check_token_ids(read.input_ids, engine.config.vocab_size, param=prompt_param)
    n_prompt, limit = len(read.input_ids), engine.max_seq_len
    for i, continuation in enumerate(read.continuations):
        if n_prompt >= limit or n_prompt + len(continuation) > limit:
            param = prompt_param if n_prompt >= limit else f"continuations[{i}]"
            raise ContextLengthError(n_prompt + len(continuation), limit, param=param)
    n_scored = sum(map(len, read.continuations))
    if n_scored > MAX_SCORED_TOKENS:
        raise RequestError(
            f"the continuations have {n_scored:,} tokens; the limit is {MAX_SCORED_TOKENS:,} per "
            "request: send them in several",
            param="continuations",
        )
