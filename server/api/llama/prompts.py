"""The prompts of /completion and /infill: from llama-server's forms to token ids.

Owns what each form means, and how much of two texts around a gap is used.
"""

from collections.abc import Sequence

from engine import Extra, InvalidInputError, Tokenizer

from ...errors import NotServedError, RequestError
from ...request.options import Options, prompt_room
from ...request.text import LONG_TEXT, check_text
from ...schema.llama_completion import InfillRequest, LlamaPrompt, PromptText
from ...service import Service
from ..completions.prompts import Prompt

Listed = str | Sequence[int | str] | None
# Of the context, where the request does not say how much is to be written.
_SHARE_TO_WRITE = 8
# Characters of a text beyond so many per token of the context are not looked at.
_CHARACTERS_PER_TOKEN = 16


def listed(prompt: LlamaPrompt | None) -> list[Listed]:
    """The prompts of a body: a list is one prompt if a number is among its items."""
    if prompt is None or isinstance(prompt, str):
        return [prompt]
    if isinstance(prompt, PromptText):
        return [_text(prompt)]
    if not prompt:
        raise RequestError("prompt is an empty list", param="prompt")
    pieces = [item for item in prompt if isinstance(item, int | str)]
    if any(isinstance(item, int) for item in prompt):
        if len(pieces) < len(prompt):
            raise RequestError(
                "prompt mixes token ids with prompts: a list of prompts holds each in a list of "
                "its own",
                param="prompt",
            )
        return [pieces]
    return [_listed(item) for item in prompt]


def plain(prompts: Sequence[Listed], tokenizer: Tokenizer) -> list[str | list[int] | None]:
    """The same, those of ids and texts as ids."""
    return [
        each if each is None or isinstance(each, str) else _ids(each, tokenizer) for each in prompts
    ]


def n_characters(prompts: Sequence[Listed]) -> int:
    """Of the texts that stand between ids."""
    mixed = (each for each in prompts if isinstance(each, list))
    return sum(len(piece) for each in mixed for piece in each if isinstance(piece, str))


async def infill_prompt(service: Service, body: InfillRequest, options: Options) -> Prompt:
    """Raises NotServedError for a model that has no tokens for this."""
    engine = service.engine
    length = engine.max_seq_len
    most = _CHARACTERS_PER_TOKEN * length
    prefix, suffix = body.input_prefix[-most:], body.input_suffix[:most]
    extras = [Extra(extra.filename, extra.text[:most]) for extra in body.input_extra or ()]
    texts = [prefix, suffix, body.prompt or "", *(extra.text for extra in extras)]
    room = prompt_room(options, max_seq_len=length, default_max_tokens=length // _SHARE_TO_WRITE)

    def read() -> Prompt:
        for text in (*texts, *(extra.filename or "" for extra in extras)):
            check_text(text, param="input_prefix")
        engine.check_length(body.prompt or "", param="prompt")
        try:
            ids = engine.fill_in_ids(
                prefix, suffix, begun=body.prompt or "", extras=extras, room=room
            )
        except InvalidInputError as error:
            raise NotServedError(
                "infill is not supported by this model: its tokenizer has no tokens for filling in "
                "the middle"
            ) from error
        return Prompt(ids, None, engine.tokenizer)

    return await service.large_bodies.run(read, sum(map(len, texts)), inline_below=LONG_TEXT)


def _listed(prompt: str | int | PromptText | list[int | str]) -> Listed:
    assert not isinstance(prompt, int), "a number makes the list one prompt"
    return _text(prompt) if isinstance(prompt, PromptText) else prompt


def _text(prompt: PromptText) -> str:
    if prompt.multimodal_data:
        raise RequestError("multimodal_data must be empty: this model reads text", param="prompt")
    return prompt.prompt_string


def _ids(pieces: Sequence[int | str], tokenizer: Tokenizer) -> list[int]:
    ids: list[int] = []
    for i, piece in enumerate(pieces):
        if isinstance(piece, int):
            ids.append(piece)
        else:
            check_text(piece, param="prompt")
            ids += tokenizer.encode(piece, add_special_tokens=i == 0)
    return ids
