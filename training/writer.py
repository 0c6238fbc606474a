"""Generates text with the project's own engine, so that samples match what a server sends.

Owns the dialogue with the engine. Knows nothing of what is measured on the answers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from engine import Engine, SamplingSettings, TokenRecord
from training.measures import Answer, Completion, Conversation, Turn

GREEDY = SamplingSettings(temperature=0.0)


@dataclass(frozen=True, slots=True)
class Written:
    """An answer and its tokens."""

    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    """Includes the stop token."""
    answer: Answer


class Writer:
    """A loaded model; what it writes depends only on the prompt, the settings and the seed."""

    def __init__(self, directory: Path) -> None:
        self._engine = Engine.load(directory, device="cpu")

    @property
    def defaults(self) -> SamplingSettings:
        """The settings that the model ships with."""
        return self._engine.default_settings

    def complete(self, prompt: str, seed: int, max_tokens: int) -> Completion:
        settings = replace(self.defaults, seed=seed)
        return Completion(prompt, seed, self.continue_text(prompt, settings, max_tokens).answer)

    def chat(self, turns: Sequence[str], seed: int, max_tokens: int) -> Conversation:
        settings = replace(self.defaults, seed=seed)
        written = self.converse(turns, settings, max_tokens)
        answered = zip(turns, written, strict=True)
        return Conversation(tuple(Turn(user, one.answer) for user, one in answered), seed)

    def continue_text(self, prompt: str, settings: SamplingSettings, max_tokens: int) -> Written:
        return self._write(self._engine.tokenizer.encode(prompt), settings, max_tokens)

    def converse(
        self, turns: Sequence[str], settings: SamplingSettings, max_tokens: int
    ) -> list[Written]:
        """Plays the user's turns one after the other and returns the answer to each."""
        messages: list[Mapping[str, str]] = []
        answers = []
        for turn in turns:
            messages.append({"role": "user", "content": turn})
            written = self._write(self._engine.encode_chat(messages), settings, max_tokens)
            messages.append({"role": "assistant", "content": written.answer.text})
            answers.append(written)
        return answers

    def _write(self, prompt: list[int], settings: SamplingSettings, max_tokens: int) -> Written:
        generator = self._engine.generator
        generator.begin_stream_ex(prompt, settings, max_new_tokens=max_tokens)
        chunks: list[str] = []
        records: list[TokenRecord] = []
        while True:
            result = generator.stream_ex()
            chunks.append(result.chunk)
            records += (*result.tokens, *result.dropped)
            if result.eos:
                break
        ended = result.eos_reason == "stop_token"
        answer = Answer(
            text="".join(chunks),
            n_tokens=len(records),
            ended=ended,
            n_control=sum(record.is_special for record in records) - ended,
        )
        return Written(tuple(prompt), tuple(record.token_id for record in records), answer)
