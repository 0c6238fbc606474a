"""An answer made of choices, whole or in chunks: everything around the choices, whatever they are.

Owns the head and tail of every chunk, what only the first one says, the counts of usage, the
progress of the prompt and the last chunk. Knows no wire: each one gives its `Choices`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from typing_extensions import override

from ..stream.jobs import Begun, Controlled, Event, Progress, Step, TokenCounts
from ..stream.stream import CompletionStream
from .choices import sampled
from .metadata import Include, closing_fields, control_fields, progress_fields
from .shape import GeneratedAnswer
from .sse import DONE, choice_encoder, encode_event, encode_json, error_event, text_encoder
from .usage import usage


class Choices(Protocol):
    """One wire's choices: all of them as a whole, or what each event adds to the running one."""

    @property
    def n_reasoning(self) -> int:
        """Tokens of reasoning read so far."""
        ...

    @property
    def is_text_alone(self) -> bool:
        """Whether text in the middle of a choice is said without anything else."""
        ...

    @property
    def is_plain(self) -> bool:
        """Whether all text of the running choice is its content, so that `add` need not look."""
        ...

    def whole(self, events: Sequence[Event]) -> list[dict[str, Any]]:
        """The choices of a whole answer, from all events of its stream."""
        ...

    def begin(self, begun: Begun) -> Iterable[dict[str, Any]]:
        """The next choice; what its first chunk says before any text, if there is such a chunk."""
        ...

    def add(self, step: Step) -> Iterable[dict[str, Any] | str]:
        """What `step` adds, one item per chunk, none while text is held; a text is `of_text`."""
        ...

    def go_back(self, steps: Sequence[Step]) -> None:
        """Of the running choice only `steps` are left; what they say has been said."""
        ...

    def of_text(self, text: str) -> dict[str, Any]:
        """The choice of a chunk that adds `text` and nothing else."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoicesAnswer(GeneratedAnswer):
    """The answer to one request."""

    n: int
    """Streamed choices per prompt; `jobs` has them prompt by prompt."""
    new_choices: Callable[[], Choices]
    """Begins anew: the whole answer, and each walk through its chunks, reads with its own."""
    chunk_object: str
    """The `object` of its chunks."""
    include: Include
    include_usage: bool
    continuous_usage: bool

    @override
    def whole(self, stream: CompletionStream, events: Sequence[Event]) -> bytes:
        choices = self.new_choices()
        listed = choices.whole(events)
        return encode_json(
            {
                **self.head,
                "choices": listed,
                "usage": usage(replace(stream.counts, n_reasoning=choices.n_reasoning)),
                **closing_fields(stream, self.include),
                **self.once,
            }
        )

    @override
    def encoder(self) -> "Chunks":
        return Chunks(self)


class Chunks:
    """The chunks of one stream, as its events come."""

    def __init__(self, answer: ChoicesAnswer) -> None:
        self._answer = answer
        self._choices = answer.new_choices()
        self._head = {**answer.head, "object": answer.chunk_object}
        tail: dict[str, Any] = {"usage": None} if answer.include_usage else {}
        self._once = answer.once
        self._encode = choice_encoder(self._head, {**answer.once, **tail})
        self._encode_next = choice_encoder(self._head, tail)
        self._counts = TokenCounts()  # so far, if every chunk says them
        self._has_chunk = False  # whether the running choice has one already
        # Encodes text of the running choice, once a chunk has shown what is around it.
        self._encode_text: Callable[[str], bytes] | None = None
        # The same for a whole step, if `add` need not look at it.
        self._encode_step: Callable[[str], bytes] | None = None

    def frames(self, events: Sequence[Event]) -> bytes:
        """The chunks of one batch after the other."""
        frames: list[bytes] = []
        for event in events:
            if isinstance(event, Step):
                result, encode_step = event.result, self._encode_step
                if encode_step is None or result.eos:
                    frames.extend(self._add(event))
                elif result.chunk:
                    frames.append(encode_step(result.chunk))
            elif isinstance(event, Begun):
                frames.extend(self._begin(event))
            elif isinstance(event, Progress):
                frames.append(self._progress(event))
            elif isinstance(event, Controlled):
                frames.append(self._controlled(event))
        return b"".join(frames)

    def closing(self, stream: CompletionStream) -> bytes:
        """The frames after those of the last batch."""
        last = closing_fields(stream, self._answer.include)
        if self._answer.include_usage:
            last = {"usage": self._usage(stream.counts), **last}
        return encode_event({**self._head, "choices": [], **last}) + DONE if last else DONE

    def failed(self, error: Exception) -> bytes:
        """The last event of a stream that fails."""
        return error_event(error)

    def _usage(self, counts: TokenCounts) -> dict[str, Any]:
        return usage(replace(counts, n_reasoning=self._choices.n_reasoning))

    def _begin(self, begun: Begun) -> list[bytes]:
        if begun.choice % self._answer.n == 0:
            self._count(n_prompt=begun.prefill.n_prompt, n_cached=begun.prefill.n_cached)
        self._has_chunk, self._encode_text, self._encode_step = False, None, None
        return self._chunks(self._choices.begin(begun))

    def _add(self, step: Step) -> list[bytes]:
        added = self._choices.add(step)
        if self._answer.continuous_usage:
            self._count(n_completion=len(sampled(step.result)))
        return self._chunks(added)

    def _chunks(self, choices: Iterable[dict[str, Any] | str]) -> list[bytes]:
        frames = [self._chunk(choice) for choice in choices]
        if frames and not self._has_chunk:
            self._has_chunk = True
            self._shorten()
        return frames

    def _chunk(self, choice: dict[str, Any] | str) -> bytes:
        if isinstance(choice, str):
            if self._encode_text is not None:
                return self._encode_text(choice)
            choice = self._choices.of_text(choice)
        answer, once, encode = self._answer, self._once, self._encode
        self._once, self._encode = {}, self._encode_next
        if not answer.continuous_usage:
            return encode(choice)
        so_far = self._usage(self._counts)
        return encode_event({**self._head, "choices": [choice], "usage": so_far, **once})

    def _shorten(self) -> None:
        """From the second chunk of a choice on, text may be all that is new."""
        if self._choices.is_text_alone and not self._answer.continuous_usage:
            self._encode_text = text_encoder(self._encode, self._choices.of_text)
            self._encode_step = self._encode_text if self._choices.is_plain else None

    def _progress(self, progress: Progress) -> bytes:
        n_prompt = len(self._answer.jobs[progress.choice].input_ids)
        fields = progress_fields(progress, n_prompt)
        return encode_event({**self._head, "choices": [], **fields})

    def _controlled(self, controlled: Controlled) -> bytes:
        if controlled.pieces is not None:
            self._choices.go_back(controlled.pieces)
        return encode_event({**self._head, "choices": [], **control_fields(controlled)})

    def _count(self, **more: int) -> None:
        counts = self._counts
        sums = {name: getattr(counts, name) + value for name, value in more.items()}
        self._counts = replace(counts, **sums)
