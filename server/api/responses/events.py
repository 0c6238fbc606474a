"""The events of a streamed response, in OpenAI's order: it is created and in progress, then per
item its beginning, its deltas and its end, then the response as a whole.

Owns that order and the numbers, from 0 on. What a client may not know stands beside a delta, or in
another `response.in_progress`.
"""

from collections.abc import Iterator, Sequence
from json.encoder import encode_basestring_ascii
from typing import Any

from ...answer.metadata import control_fields, progress_fields
from ...answer.sse import named_event
from ...errors import UnavailableError, error_body
from ...stream.jobs import Begun, Controlled, Event, Progress, Step
from ...stream.stream import CompletionStream
from ..chat.reply import PlainReader
from .items import Piece
from .output import OpenItem, begun_item, output_text, reasoning_part, shown_item
from .response import ResponseBase
from .spliced import SplicedLogprobs

# Kind of an item -> the name of its deltas, without `.delta`. A command has none.
_TEXTS = {
    "message": "output_text",
    "reasoning": "reasoning_text",
    "summary": "reasoning_summary_text",
    "function_call": "function_call_arguments",
    "custom_tool_call": "custom_tool_call_input",
}
_NUMBER = b'"sequence_number":'


def broken_off(envelope: dict[str, Any]) -> dict[str, Any]:
    """Keys of the event `error`, from the envelope {"error": {message, type, param, code}}."""
    return {name: envelope["error"][name] for name in ("code", "message", "param")}


class ResponseEvents:
    """The events of one stream, as they come. The last one waits for the end of the stream."""

    def __init__(self, answer: ResponseBase) -> None:
        self._answer = answer
        self._items = answer.items()
        shape = answer.shape
        # Whether a step in the middle of an item adds its text and nothing else.
        self._is_text_alone = isinstance(self._items.reader, PlainReader) and shape.is_text_alone
        self._begun: Begun | None = None
        self._steps: list[Step] = []  # those that the last event says something of
        self._open: OpenItem | None = None
        self._logprobs = SplicedLogprobs()
        self._before = self._after = b""  # around the number and the text of a delta
        self._n = 0

    def frames(self, events: Sequence[Event]) -> bytes:
        """The events of one batch after the other."""
        frames: list[bytes] = []
        for event in events:
            if isinstance(event, Step):
                result = event.result
                if self._is_text_alone and self._open is not None and not result.eos:
                    if result.chunk:
                        self._open.texts.append(result.chunk)
                        frames.append(self._delta_of(result.chunk))
                else:
                    frames.extend(self._add(event))
            else:
                frames.extend(self._others(event))
        return b"".join(frames)

    def closing(self, stream: CompletionStream) -> bytes:
        """The response as a whole."""
        said = self._answer.ended(stream, self._items, self._begun, self._steps)
        return self._state(said["status"], said)

    def failed(self, error: Exception) -> bytes:
        """The last event of a stream that fails. If the server breaks off, that says nothing of the
        response: one that is stored may go on.
        """
        if isinstance(error, UnavailableError):
            return self._event("error", broken_off(error_body(error)))
        return self._state("failed", self._answer.failed(error, self._items, self._begun))

    def _others(self, event: Event) -> Iterator[bytes]:
        if isinstance(event, Begun):
            self._begun = event
            said = self._answer.begun(event)
            yield self._state("created", said)
            yield self._state("in_progress", said)
        elif isinstance(event, Progress):
            n_prompt = len(self._answer.jobs[0].input_ids)
            yield self._aside(progress_fields(event, n_prompt))
        elif isinstance(event, Controlled):
            if event.pieces is not None:
                self._go_back(event.pieces)
            yield self._aside(control_fields(event))

    def _go_back(self, steps: Sequence[Step]) -> None:
        """Of the reply only `steps` are left, which have been told."""
        self._items, self._steps = self._answer.items(), []
        self._items.read(steps)
        self._logprobs = SplicedLogprobs()
        for item in self._items.listed:
            self._logprobs.take(item, item.logprobs)
        if self._answer.shape.include.wants_events:
            self._steps = [*steps]
        if self._items.open is None:
            self._open = None
        else:
            self._go_on(self._items.open)

    def _add(self, step: Step) -> Iterator[bytes]:
        more = self._answer.events_of([step])
        if step.result.eos or self._answer.shape.include.wants_events:
            self._steps.append(step)
        for piece in self._items.pieces(step):
            if piece.begins:
                yield from self._close(None)
                yield from self._begin(piece.item)
            if piece.item.kind not in _TEXTS:
                self._logprobs.take(piece.item, piece.logprobs)
            elif piece.text or piece.logprobs or more:
                yield self._delta(piece, more)
                more = {}
        if more:
            yield self._aside(more)
        if step.result.eos:
            if not self._items.listed:
                yield from self._begin(self._items.begin_empty())
            yield from self._close(step)

    def _begin(self, item: OpenItem) -> Iterator[bytes]:
        in_summary = self._answer.in_summary
        said = begun_item(item, in_summary=in_summary)
        yield self._event("response.output_item.added", {"output_index": item.index, "item": said})
        self._go_on(item)
        if item.kind == "message":
            yield self._part("content_part.added", item, output_text("", []))
        elif item.kind == "reasoning":
            name = "reasoning_summary_part" if in_summary else "content_part"
            part = reasoning_part("", in_summary=in_summary)
            yield self._part(f"{name}.added", item, part)

    def _go_on(self, item: OpenItem) -> None:
        """Deltas are those of `item` from now on."""
        self._open = item
        if item.kind not in _TEXTS:
            return
        said = {**self._place(item), "sequence_number": 0, "delta": ""}
        if item.kind == "message":
            said = {"logprobs": [], **said}
        mark = named_event(f"response.{self._text_name(item)}.delta", said)
        head, tail = mark.rsplit(_NUMBER + b"0", 1)
        self._before, self._after = head + _NUMBER, tail.removesuffix(b'""}\n\n')

    def _delta(self, piece: Piece, more: dict[str, Any]) -> bytes:
        item = piece.item
        if not piece.logprobs and not more:
            return self._delta_of(piece.text)
        said = {**self._place(item), "delta": piece.text, **more}
        frame = self._event(f"response.{self._text_name(item)}.delta", said)
        if not piece.logprobs and item.kind != "message":
            return frame
        entries = self._logprobs.take(item, piece.logprobs)
        return b'%b,"logprobs":%b}\n\n' % (frame.removesuffix(b"}\n\n"), entries)

    def _delta_of(self, text: str) -> bytes:
        number, self._n = self._n, self._n + 1
        said = encode_basestring_ascii(text).encode("ascii")
        return b"%b%d%b%b}\n\n" % (self._before, number, self._after, said)

    def _close(self, last: Step | None) -> Iterator[bytes]:
        """The end of the open item. `last`: the step that ends the reply with it; None if another
        item follows.
        """
        item, self._open = self._open, None
        if item is None:
            return
        yield from self._text_done(item)
        answer, index = self._answer, item.index
        status = "completed" if last is None else answer.status_of(self._items, index, last)
        shown = shown_item(item, status, in_summary=answer.in_summary)
        said = {"output_index": index, "item": shown}
        yield self._spliced(self._event("response.output_item.done", said))

    def _text_done(self, item: OpenItem) -> Iterator[bytes]:
        in_summary, text = self._answer.in_summary, item.text
        place, name = self._place(item), f"response.{self._text_name(item)}.done"
        if item.kind == "message":
            said = {**place, "text": text, "logprobs": item.logprobs}
            yield self._spliced(self._event(name, said))
            part = output_text(text, item.logprobs)
            yield self._spliced(self._part("content_part.done", item, part))
        elif item.kind == "reasoning":
            yield self._event(name, {**place, "text": text})
            part = reasoning_part(text, in_summary=in_summary)
            kind = "reasoning_summary_part" if in_summary else "content_part"
            yield self._part(f"{kind}.done", item, part)
        elif item.kind == "function_call":
            assert item.call is not None, "a call has a name first"
            yield self._event(name, {**place, "name": item.call.name, "arguments": text})
        elif item.kind == "custom_tool_call":
            yield self._event(name, {**place, "input": text})

    def _text_name(self, item: OpenItem) -> str:
        kind = item.kind
        if kind == "reasoning" and self._answer.in_summary:
            kind = "summary"
        return _TEXTS.get(kind, "")

    def _place(self, item: OpenItem) -> dict[str, Any]:
        said: dict[str, Any] = {"item_id": item.id, "output_index": item.index}
        if item.kind == "message" or (item.kind == "reasoning" and not self._answer.in_summary):
            said["content_index"] = 0
        elif item.kind == "reasoning":
            said["summary_index"] = 0
        return said

    def _part(self, name: str, item: OpenItem, part: dict[str, Any]) -> bytes:
        return self._event(f"response.{name}", {**self._place(item), "part": part})

    def _aside(self, fields: dict[str, Any]) -> bytes:
        """Something to know that adds no text."""
        said = {"response": self._answer.begun(self._begun), **fields}
        return self._event("response.in_progress", said)

    def _state(self, name: str, response: dict[str, Any]) -> bytes:
        return self._spliced(self._event(f"response.{name}", {"response": response}))

    def _spliced(self, frame: bytes) -> bytes:
        """The frame of something that is complete."""
        return self._logprobs.put_into(frame)

    def _event(self, name: str, said: dict[str, Any]) -> bytes:
        number, self._n = self._n, self._n + 1
        return named_event(name, {"sequence_number": number, **said})
