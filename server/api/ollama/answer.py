"""The answer on Ollama's wire, whole or line by line.

Owns its keys. A call is said as a whole, once it is complete. What `include` adds of a token stands
in its logprobs, all else at the top.
"""

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from json.encoder import encode_basestring_ascii
from typing import Any

from typing_extensions import override

from ...answer.choices import by_choice
from ...answer.finish_reason import FINISH_REASONS
from ...answer.metadata import (
    closing_fields,
    ending_fields,
    event_fields,
    opening_fields,
    progress_fields,
)
from ...answer.shape import GeneratedAnswer
from ...answer.sse import encode_json
from ...stream.jobs import Begun, Event, Progress, Step
from ...stream.stream import CompletionStream
from ..chat.reply import PlainReader, Reader, ReplyShape
from .errors import error_line


@dataclass(frozen=True, slots=True, kw_only=True)
class OllamaAnswer(GeneratedAnswer):
    """The answer to one request."""

    new_reader: Callable[[], Reader]
    shape: ReplyShape
    is_chat: bool
    """Whether the text is a message, and not a `response`."""

    @override
    def whole(self, stream: CompletionStream, events: Sequence[Event]) -> bytes:
        (choice,) = by_choice(events).values()
        lines = OllamaLines(self)
        pieces = [piece for step in choice.pieces for piece in lines.pieces(step)]
        joined: dict[str, Any] = {"content": ""}
        for piece in pieces:
            for name, value in piece.items():
                joined[name] = joined[name] + value if name in joined else value
        return encode_json(
            {
                **self.line(joined),
                **self.opening(choice.begun),
                **self.events_of(choice.pieces),
                **lines.ending(choice.pieces[-1], stream),
                **self.once,
            }
        )

    @override
    def encoder(self) -> "OllamaLines":
        return OllamaLines(self)

    def line(self, said: dict[str, Any], *, done: bool = False) -> dict[str, Any]:
        """One line; `said`: its content, and what else there is of thinking, calls and logprobs."""
        begin = {"model": self.head["model"], "created_at": now()}
        logprobs = {"logprobs": said.pop("logprobs")} if "logprobs" in said else {}
        said.setdefault("content", "")
        if self.is_chat:
            return {**begin, "message": {"role": "assistant", **said}, **logprobs, "done": done}
        content = said.pop("content")
        said.pop("tool_calls", None)
        return {**begin, "response": content, **said, **logprobs, "done": done}

    def opening(self, begun: Begun) -> dict[str, Any]:
        """Keys that say how the reply began."""
        (job,) = self.jobs
        return opening_fields(begun, job, self.shape.tokenizer, self.shape.include)

    def events_of(self, steps: Sequence[Step]) -> dict[str, Any]:
        """Keys that say what happened on the way to the text of `steps`."""
        results = [step.result for step in steps]
        return event_fields(results, self.shape.tokenizer, self.shape.include)


class OllamaLines:
    """The lines of one stream, as its events come. The last waits for the end of the stream."""

    def __init__(self, answer: OllamaAnswer) -> None:
        self._answer = answer
        self._reader = answer.new_reader()
        self._call: tuple[str, list[str]] | None = None  # the name, the pieces of its arguments
        self._n_calls = 0
        self._last: Step | None = None
        self._logprobs: list[dict[str, Any]] = []  # of tokens whose text has not come yet
        is_text_alone = isinstance(self._reader, PlainReader) and answer.shape.is_text_alone
        # Encodes a step in the middle of the text, if it is its text and nothing else.
        self._encode = _text_encoder(answer) if is_text_alone else None

    def frames(self, events: Sequence[Event]) -> bytes:
        """The lines of one batch after the other."""
        lines: list[bytes] = []
        for event in events:
            if not isinstance(event, Step):
                lines += self._others(event)
            elif self._encode is not None and not event.result.eos:
                if event.result.chunk:
                    lines.append(self._encode(event.result.chunk))
            else:
                lines += self._add(event)
        return b"".join(lines)

    def closing(self, stream: CompletionStream) -> bytes:
        """The last line, with the counts."""
        assert self._last is not None, "a stream ends with a step"
        answer = self._answer
        last = {**answer.line({}), **self.ending(self._last, stream), **answer.once}
        return encode_json(last) + b"\n"

    def failed(self, error: Exception) -> bytes:
        """The last line of a stream that fails."""
        return error_line(error)

    def _others(self, event: Event) -> Iterator[bytes]:
        """A line without text, if there is something to say of the prompt."""
        said: dict[str, Any] = {}
        if isinstance(event, Begun):
            said = self._answer.opening(event)
        elif isinstance(event, Progress):
            said = progress_fields(event, len(self._answer.jobs[0].input_ids))
        if said:
            yield self._line({}, said)

    def _add(self, step: Step) -> Iterator[bytes]:
        more = self._answer.events_of([step])
        for piece in self.pieces(step):
            yield self._line(piece, more)
            more = {}
        if more:
            yield self._line({}, more)

    def _line(self, said: dict[str, Any], more: dict[str, Any]) -> bytes:
        return encode_json({**self._answer.line(said), **more}) + b"\n"

    def pieces(self, step: Step) -> Iterator[dict[str, Any]]:
        """What `step` adds: content, thinking, or a call that is complete."""
        shape = self._answer.shape
        for part in self._reader.read(step.result):
            if part.tokens and shape.logprobs:
                self._logprobs += shape.entries(part.tokens, step.clock)
            if not part.text:
                continue
            if part.kind == "tool_arguments":
                assert self._call is not None, "a call has a name first"
                self._call[1].append(part.text)
                continue
            yield from self._complete()
            if part.kind == "tool_name":
                self._call = part.text, []
            else:
                name = "thinking" if part.kind == "reasoning" else "content"
                yield {name: part.text, **self._told_logprobs()}
        if step.result.eos:
            self._last = step
            yield from self._complete()
            if self._logprobs:  # of marks behind the last text
                yield self._told_logprobs()

    def ending(self, last: Step, stream: CompletionStream) -> dict[str, Any]:
        """What the last line, or the whole answer, says of the end."""
        counts, clocks, include = stream.counts, stream.clocks, self._answer.shape.include
        reason = FINISH_REASONS[str(last.result.eos_reason)]
        return {
            "done": True,
            "done_reason": "length" if reason == "length" else "stop",
            "total_duration": _ns(clocks.queued_s + clocks.prefill_s + clocks.decode_s),
            "load_duration": _ns(clocks.queued_s),
            "prompt_eval_count": counts.n_prompt,
            "prompt_eval_duration": _ns(clocks.prefill_s),
            "eval_count": counts.n_completion,
            "eval_duration": _ns(clocks.decode_s),
            **ending_fields(last, include),
            **closing_fields(stream, include),
        }

    def _complete(self) -> Iterator[dict[str, Any]]:
        """The call that has come to its end; none that was cut off."""
        call, self._call = self._call, None
        if call is None:
            return
        try:
            arguments = json.loads("".join(call[1]) or "{}")
        except ValueError:
            return
        function = {"index": self._n_calls, "name": call[0], "arguments": arguments}
        self._n_calls += 1
        yield {"tool_calls": [{"function": function}], **self._told_logprobs()}

    def _told_logprobs(self) -> dict[str, Any]:
        if not self._answer.shape.logprobs:
            return {}
        told, self._logprobs = self._logprobs, []
        return {"logprobs": told}


def _text_encoder(answer: OllamaAnswer) -> Callable[[str], bytes]:
    """Encodes a line that adds this text: all else but the time is encoded here, once."""
    time, text = uuid.uuid4().hex, uuid.uuid4().hex
    line = encode_json({**answer.line({"content": text}), "created_at": time}) + b"\n"
    before, rest = line.split(time.encode())
    between, after = rest.split(b'"%b"' % text.encode())

    def encode(chunk: str) -> bytes:
        said = encode_basestring_ascii(chunk)
        return b"%b%b%b%b%b" % (before, now().encode(), between, said.encode(), after)

    return encode


def now() -> str:
    """The time as Ollama writes it."""
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


def _ns(seconds: float) -> int:
    return round(1e9 * seconds)
