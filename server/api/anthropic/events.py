"""The events of a streamed message, in Anthropic's order: message_start, then per block a start,
its deltas and a stop, then message_delta and message_stop.

Owns that order. What a client may not know stands in a ping, or beside the delta.
"""

from collections.abc import Iterator, Sequence
from json.encoder import encode_basestring_ascii
from typing import Any

from ...answer.metadata import closing_fields, control_fields, ending_fields, progress_fields
from ...answer.sse import named_event
from ...stream.jobs import Begun, Controlled, Event, Progress, Step, TokenCounts
from ...stream.stream import CompletionStream
from ..chat.reply import PlainReader
from .blocks import UNSIGNED, OpenBlock, Piece
from .errors import error_event
from .message import Message, begun_block, usage

# Kind of a block -> the type of its deltas, and their key.
_DELTAS = {
    "text": ("text_delta", "text"),
    "thinking": ("thinking_delta", "thinking"),
    "tool_use": ("input_json_delta", "partial_json"),
}


class MessageEvents:
    """The events of one stream, as they come. The last two wait for the end of the stream."""

    def __init__(self, answer: Message) -> None:
        self._answer = answer
        reader = answer.new_reader()
        self._blocks = answer.blocks(reader)
        # Whether a step in the middle of a block adds its text and nothing else.
        self._is_text_alone = isinstance(reader, PlainReader) and answer.shape.is_text_alone
        self._open: OpenBlock | None = None
        self._last: Step | None = None
        self._before = self._after = b""  # around the text of a delta of the open block

    def frames(self, events: Sequence[Event]) -> bytes:
        """The events of one batch after the other."""
        frames: list[bytes] = []
        for event in events:
            if isinstance(event, Step):
                result = event.result
                if self._is_text_alone and self._open is not None and not result.eos:
                    if result.chunk:
                        frames.append(self._delta_of(result.chunk))
                else:
                    frames.extend(self._add(event))
            else:
                frames.extend(self._others(event))
        return b"".join(frames)

    def closing(self, stream: CompletionStream) -> bytes:
        """The end of the message, with the counts."""
        assert self._last is not None, "a stream ends with a step"
        answer, last = self._answer, self._last
        said = {
            "delta": answer.ending(last, self._blocks.reader),
            "usage": usage(stream.counts),
            **ending_fields(last, answer.shape.include),
            **closing_fields(stream, answer.shape.include),
        }
        if self._blocks.held:
            said["logprobs"] = self._blocks.held
        return named_event("message_delta", said) + named_event("message_stop", {})

    def failed(self, error: Exception) -> bytes:
        """The last event of a stream that fails."""
        return error_event(error)

    def _others(self, event: Event) -> Iterator[bytes]:
        if isinstance(event, Begun):
            yield self._start(event)
        elif isinstance(event, Progress):
            n_prompt = len(self._answer.jobs[0].input_ids)
            yield named_event("ping", progress_fields(event, n_prompt))
        elif isinstance(event, Controlled):
            if event.pieces is not None:
                self._blocks.go_back(self._answer.new_reader(), list(event.pieces))
            yield named_event("ping", control_fields(event))

    def _start(self, begun: Begun) -> bytes:
        answer, prefill = self._answer, begun.prefill
        counts = TokenCounts(n_prompt=prefill.n_prompt, n_cached=prefill.n_cached)
        message = {
            **answer.message,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage(counts),
            **answer.opening(begun),
            **answer.once,
        }
        return named_event("message_start", {"message": message})

    def _add(self, step: Step) -> Iterator[bytes]:
        more = self._answer.events_of([step])
        for piece in self._blocks.pieces(step):
            if piece.begins:
                yield from self._close()
                yield self._begin(piece.block)
            if piece.text or piece.logprobs or more:
                yield self._delta(piece, more)
                more = {}
        if more:
            yield named_event("ping", more)
        if step.result.eos:
            self._last = step
            yield from self._close()

    def _begin(self, block: OpenBlock) -> bytes:
        self._open = block
        kind, key = _DELTAS[block.kind]
        mark = {"index": block.index, "delta": {"type": kind, key: ""}}
        self._before, self._after = named_event("content_block_delta", mark).rsplit(b'""', 1)
        said = begun_block(block)
        if block.kind == "thinking":
            said["signature"] = ""  # comes last
        return named_event("content_block_start", {"index": block.index, "content_block": said})

    def _delta(self, piece: Piece, more: dict[str, Any]) -> bytes:
        if not piece.logprobs and not more:
            return self._delta_of(piece.text)
        kind, key = _DELTAS[piece.block.kind]
        said = {"index": piece.block.index, "delta": {"type": kind, key: piece.text}, **more}
        if piece.logprobs:
            said["logprobs"] = piece.logprobs
        return named_event("content_block_delta", said)

    def _delta_of(self, text: str) -> bytes:
        return self._before + encode_basestring_ascii(text).encode("ascii") + self._after

    def _close(self) -> Iterator[bytes]:
        block, self._open = self._open, None
        if block is None:
            return
        if block.kind == "thinking":
            signed = {"type": "signature_delta", "signature": UNSIGNED}
            yield named_event("content_block_delta", {"index": block.index, "delta": signed})
        yield named_event("content_block_stop", {"index": block.index})
