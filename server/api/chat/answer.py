"""The answer to a chat request, whole or as events.

Owns the order of chunks: per choice the role, the reply in pieces, the reason of its end; then, for
all of them, usage. Knows the replies by what they add, not by what they are made of.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...answer.choices import sampled, told
from ...answer.metadata import closing_fields, progress_fields
from ...answer.sse import DONE, choice_encoder, encode_event, encode_json, text_encoder
from ...answer.usage import usage
from ...stream.jobs import Begun, CompletionJob, Event, Progress, Step, TokenCounts
from ...stream.stream import CompletionStream
from .chunks import ReplyChunks
from .message import WholeReply
from .reply import PlainReader, Reader, ReplyShape


@dataclass(slots=True, kw_only=True)
class ChatAnswer:
    """One request's."""

    head: dict[str, Any]
    warnings: dict[str, Any]
    prompt: dict[str, Any]
    """What is said once of the prompt that all choices share, like the warnings."""
    jobs: Sequence[CompletionJob]
    """One per choice, in order."""
    new_reader: Callable[[], Reader]
    """Of one choice."""
    shape: ReplyShape
    include_usage: bool
    continuous_usage: bool
    n_reasoning: int = 0
    """Tokens of reasoning in all that was told so far."""

    def whole(self, stream: CompletionStream, events: Sequence[Event]) -> bytes:
        choices = []
        for index, one in sorted(told(events).items()):
            reply = WholeReply(self.new_reader(), self.shape)
            choices.append(reply.choice(one, self.jobs[index]))
            self.n_reasoning += reply.n_reasoning
        return encode_json(
            {
                **self.head,
                "choices": choices,
                "usage": self.usage(stream.counts),
                **closing_fields(stream, self.shape.include),
                **self.prompt,
                **self.warnings,
            }
        )

    def encoder(self) -> Callable[[Sequence[Event]], bytes]:
        return _Chunks(self).frames

    def closing(self, stream: CompletionStream) -> bytes:
        last = closing_fields(stream, self.shape.include)
        if self.include_usage:
            last = {"usage": self.usage(stream.counts), **last}
        return encode_event({**self.head, "choices": [], **last}) + DONE if last else DONE

    def usage(self, counts: TokenCounts) -> dict[str, Any]:
        return usage(replace(counts, n_reasoning=self.n_reasoning))


class _Chunks:
    """The chunks of one stream, as its events come."""

    def __init__(self, answer: ChatAnswer) -> None:
        self._answer = answer
        tail: dict[str, Any] = {"usage": None} if answer.include_usage else {}
        self._once = {**answer.prompt, **answer.warnings}  # in the first chunk
        self._encode = choice_encoder(answer.head, {**self._once, **tail})
        self._encode_next = choice_encoder(answer.head, tail)
        self._counts = TokenCounts()  # so far, if every chunk tells them
        self._n_reasoning = 0  # of the replies that have ended
        self._reply: ReplyChunks | None = None  # the running one
        self._encode_text: Callable[[str], bytes] | None = None  # for its content, if told alone
        self._is_plain = False  # whether it is nothing but content

    def frames(self, events: Sequence[Event]) -> bytes:
        """Those of one batch after the other."""
        frames: list[bytes] = []
        for event in events:
            if isinstance(event, Step):
                result, encode_text = event.result, self._encode_text
                if encode_text is None or result.eos or not self._is_plain:
                    frames.extend(self._told(event))
                elif result.chunk:
                    frames.append(encode_text(result.chunk))
            elif isinstance(event, Begun):
                frames.append(self._begin(event))
            else:
                frames.append(self._progress(event))
        return b"".join(frames)

    def _begin(self, begun: Begun) -> bytes:
        answer = self._answer
        self._n_reasoning = answer.n_reasoning
        if begun.choice == 0:
            self._count(n_prompt=begun.prefill.n_prompt, n_cached=begun.prefill.n_cached)
        reader = answer.new_reader()
        self._reply = reply = ReplyChunks(begun.choice, reader, answer.shape)
        frame = self._framed(reply.first(begun, answer.jobs[begun.choice]))
        is_alone = answer.shape.is_text_alone and not answer.continuous_usage
        self._encode_text = text_encoder(self._encode, reply.of_text) if is_alone else None
        self._is_plain = isinstance(reader, PlainReader)
        return frame

    def _told(self, piece: Step) -> list[bytes]:
        reply, encode_text = self._reply, self._encode_text
        assert reply is not None, "a reply begins before its first piece"
        choices = [*reply.choices(piece)]
        self._answer.n_reasoning = self._n_reasoning + reply.n_reasoning
        self._count(n_completion=len(sampled(piece.result)))
        return [
            encode_text(choice)
            if isinstance(choice, str) and encode_text is not None
            else self._framed(reply.of_text(choice) if isinstance(choice, str) else choice)
            for choice in choices
        ]

    def _framed(self, choice: dict[str, Any]) -> bytes:
        answer, encode = self._answer, self._encode
        once = {} if encode is self._encode_next else self._once
        self._encode = self._encode_next
        if not answer.continuous_usage:
            return encode(choice)
        so_far = answer.usage(self._counts)
        return encode_event({**answer.head, "choices": [choice], "usage": so_far, **once})

    def _progress(self, progress: Progress) -> bytes:
        fields = progress_fields(progress, self._answer.jobs[progress.choice])
        return encode_event({**self._answer.head, "choices": [], **fields})

    def _count(self, **more: int) -> None:
        if self._answer.continuous_usage:
            counts = self._counts
            sums = {name: getattr(counts, name) + value for name, value in more.items()}
            self._counts = replace(counts, **sums)
