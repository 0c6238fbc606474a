"""The answer of /v1/completions, whole or in chunks: which choice comes when, and what is around
them.
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from engine import PromptToken, StreamResult

from ...answer.choices import best, sampled, told
from ...answer.metadata import closing_fields, progress_fields
from ...answer.sse import DONE, choice_encoder, encode_event, encode_json, text_encoder
from ...answer.usage import usage
from ...stream.jobs import Begun, CompletionJob, Event, Progress, Step, TokenCounts
from ...stream.stream import CompletionStream
from .choice import ChoiceShape, Opening
from .prompts import Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionAnswer:
    """One request's. Its jobs stand prompt after prompt, as many of each."""

    head: dict[str, Any]
    warnings: dict[str, Any]
    prompts: Sequence[Prompt]
    jobs: Sequence[CompletionJob]
    n: int
    """Choices per prompt: the best of its jobs; all of them, where it is streamed."""
    shape: ChoiceShape
    include_usage: bool
    continuous_usage: bool

    def whole(self, stream: CompletionStream, events: Sequence[Event]) -> bytes:
        choices: list[dict[str, Any]] = []
        candidates = [candidate for _, candidate in sorted(told(events).items())]
        n_candidates = len(self.jobs) // len(self.prompts)
        for prompt, start in zip(self.prompts, count(step=n_candidates)):
            of_prompt = candidates[start : start + n_candidates]
            prompt_tokens = of_prompt[0].begun.prefill.prompt_tokens
            if self.n < n_candidates:
                of_prompt = best(of_prompt, self.n)
            for one in of_prompt:
                opening = Opening(self.jobs[one.begun.choice], one.begun, prompt_tokens)
                choices.append(self.shape.choice(len(choices), prompt, one.pieces, opening))
        return encode_json(
            {
                **self.head,
                "choices": choices,
                "usage": usage(stream.counts),
                **closing_fields(stream, self.shape.include),
                **self.warnings,
            }
        )

    def encoder(self) -> Callable[[Sequence[Event]], bytes]:
        return _Chunks(self).frames

    def closing(self, stream: CompletionStream) -> bytes:
        last = closing_fields(stream, self.shape.include)
        if self.include_usage:
            last = {"usage": usage(stream.counts), **last}
        return encode_event({**self.head, "choices": [], **last}) + DONE if last else DONE


class _Chunks:
    """The chunks of one stream, as its events come."""

    def __init__(self, answer: CompletionAnswer) -> None:
        self._answer = answer
        tail: dict[str, Any] = {"usage": None} if answer.include_usage else {}
        self._warnings = answer.warnings  # in the first chunk
        self._encode = choice_encoder(answer.head, {**answer.warnings, **tail})
        self._encode_next = choice_encoder(answer.head, tail)
        self._opening: Opening | None = None  # of the choice whose first chunk is to come
        self._prompt_tokens: Sequence[PromptToken] = ()
        self._counts = TokenCounts()  # so far
        # Encodes the pieces of the running choice, as long as they are text alone.
        self._encode_text: Callable[[str], bytes] | None = None

    def frames(self, events: Sequence[Event]) -> bytes:
        """Those of one batch after the other."""
        frames = []
        for event in events:
            if isinstance(event, Step):
                result, encode_text = event.result, self._encode_text
                if encode_text is None or result.eos:
                    frames.append(self._chunk(event))
                elif result.chunk:
                    frames.append(encode_text(result.chunk))
            elif isinstance(event, Begun):
                self._begin(event)
            else:
                frames.append(self._progress(event))
        return b"".join(frames)

    def _begin(self, begun: Begun) -> None:
        if begun.choice % self._answer.n == 0:
            self._prompt_tokens = begun.prefill.prompt_tokens
            self._count(n_prompt=begun.prefill.n_prompt, n_cached=begun.prefill.n_cached)
        job = self._answer.jobs[begun.choice]
        self._opening = Opening(job, begun, self._prompt_tokens)
        self._encode_text = None

    def _chunk(self, piece: Step) -> bytes:
        """The next chunk of a choice; b"" while there is nothing to say."""
        answer, opening, index = self._answer, self._opening, piece.choice
        shape, encode = answer.shape, self._encode
        if answer.continuous_usage:
            self._count(n_completion=len(sampled(piece.result)))
            encode = self._encode_with_usage
        if not shape.says_something(piece.result) and not (opening and shape.echo):
            return b""
        prompt = answer.prompts[index // answer.n]
        frame = encode(shape.choice(index, prompt, [piece], opening))
        if opening:
            self._opened(index, prompt)
        return frame

    def _opened(self, index: int, prompt: Prompt) -> None:
        """The first chunk of a choice is out, and with the first one of all the warnings."""
        shape, self._opening = self._answer.shape, None
        self._warnings, self._encode = {}, self._encode_next
        if shape.is_text_alone and not self._answer.continuous_usage:
            self._encode_text = text_encoder(
                self._encode, lambda text: shape.choice(index, prompt, [_text_piece(index, text)])
            )

    def _encode_with_usage(self, choice: dict[str, Any]) -> bytes:
        so_far = {"usage": usage(self._counts), **self._warnings}
        return encode_event({**self._answer.head, "choices": [choice], **so_far})

    def _progress(self, progress: Progress) -> bytes:
        fields = progress_fields(progress, self._answer.jobs[progress.choice])
        return encode_event({**self._answer.head, "choices": [], **fields})

    def _count(self, **more: int) -> None:
        counts = self._counts
        self._counts = dataclasses.replace(
            counts, **{name: getattr(counts, name) + value for name, value in more.items()}
        )


def _text_piece(index: int, text: str) -> Step:
    return Step(index, StreamResult({"chunk": text}), 0.0)
