"""The prompts of one request: from text or token ids to what the engine takes.

Owns what each form of `prompt` means, and how an answer shows a prompt as text.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

from engine import Engine, Tokenizer

from ...errors import RequestError
from ...request.options import (
    Options,
    adds_special_tokens,
    check_cut_length,
    prompt_room,
    truncated,
)
from ...request.text import LONG_TEXT, check_text
from ...schema.common import PromptFields
from ...schema.completions import Prompt as PromptField
from ...service import Service


@dataclass(frozen=True)
class Prompt:
    input_ids: Sequence[int]
    given: str | None
    """The text of the request; None if it has token ids, or if only the end is used."""
    tokenizer: Tokenizer

    @cached_property
    def text(self) -> str:
        """The prompt as an answer repeats it."""
        return self._decoded if self.given is None else self.given

    @cached_property
    def n_hidden(self) -> int:
        """Characters of the decoded tokens before the text: of a token that the tokenizer puts
        before every text, or the space of its first word.
        """
        n_hidden = len(self._decoded) - len(self.text)
        return n_hidden if self._decoded.endswith(self.text) else 0

    @cached_property
    def _decoded(self) -> str:
        return self.tokenizer.decode(self.input_ids)


def listed_prompts(prompt: PromptField | None) -> list[str | list[int] | None]:
    """The prompts of a body: texts, token ids, or None for the beginning of a text."""
    if prompt is None or isinstance(prompt, str):
        return [prompt]
    if not prompt:
        raise RequestError("prompt is an empty list", param="prompt")
    if isinstance(prompt[0], int):
        return [prompt]
    return cast(list[str | list[int] | None], prompt)


async def read_prompts(
    service: Service,
    body: PromptFields,
    options: Options,
    prompts: Sequence[str | list[int] | None],
    *,
    default_max_tokens: int,
    suffix: str = "",
) -> list[Prompt]:
    """The prompts of a body, in order. Raises RequestError and InvalidInputError."""
    texts = [prompt for prompt in prompts if isinstance(prompt, str)]
    if suffix and len(texts) < len(prompts):
        raise RequestError("suffix needs a prompt that is text", param="suffix")
    engine, adds = service.engine, adds_special_tokens(body)
    room = prompt_room(
        options, max_seq_len=engine.max_seq_len, default_max_tokens=default_max_tokens
    )

    n_characters = sum(map(len, texts)) + len(suffix) * len(texts)
    check_cut_length(options, n_characters, max_seq_len=engine.max_seq_len, param="prompt")

    def read() -> list[Prompt]:
        for text in texts:
            check_text(text, param="prompt")
        check_text(suffix, param="suffix")
        if options.truncate_prompt_tokens is None:
            for text in texts:
                engine.check_length(text, param="prompt")
                engine.check_length(suffix, param="suffix")
        read = [_prompt(engine, prompt, suffix, adds_special=adds) for prompt in prompts]
        return [_cut(prompt, truncated(prompt.input_ids, options, room=room)) for prompt in read]

    return await service.large_bodies.run(read, n_characters, inline_below=LONG_TEXT)


def _prompt(
    engine: Engine, prompt: str | list[int] | None, suffix: str, *, adds_special: bool
) -> Prompt:
    tokenizer = engine.tokenizer
    if prompt is None:
        # What every text begins with; if that is nothing, what the text before it ends with.
        return Prompt(tokenizer.encode("") or engine.eos_token_ids[:1], "", tokenizer)
    if not isinstance(prompt, str):
        return Prompt(prompt, None, tokenizer)
    if suffix:
        return Prompt(engine.fill_in_ids(prompt, suffix), prompt, tokenizer)
    return Prompt(tokenizer.encode(prompt, add_special_tokens=adds_special), prompt, tokenizer)


def _cut(prompt: Prompt, kept: Sequence[int]) -> Prompt:
    if len(kept) == len(prompt.input_ids):
        return prompt
    return dataclasses.replace(prompt, input_ids=kept, given=None)
