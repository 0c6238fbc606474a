"""The answer of /v1/messages: the message as a whole, and the keys that its events share with it.

Owns Anthropic's keys and words. What `include` adds stands at the top, or beside the text of a
block.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from ...answer.choices import by_choice
from ...answer.finish_reason import FINISH_REASONS
from ...answer.metadata import closing_fields, ending_fields, event_fields, opening_fields
from ...answer.shape import GeneratedAnswer
from ...answer.sse import encode_json
from ...stream.jobs import Begun, Event, Step, TokenCounts
from ...stream.stream import CompletionStream
from ..chat.reply import Reader, ReplyShape
from .blocks import UNSIGNED, Blocks, OpenBlock

if TYPE_CHECKING:
    from .events import MessageEvents

_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "content_filter": "refusal"}


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageAnswer(GeneratedAnswer):
    """The answer to one request."""

    new_reader: Callable[[], Reader]
    shape: ReplyShape
    is_cut: bool
    """Whether the context leaves less room than the request asks for."""

    @override
    def whole(self, stream: CompletionStream, events: Sequence[Event]) -> bytes:
        (choice,) = by_choice(events).values()
        blocks, listed = Blocks(self.new_reader(), self.shape), list[OpenBlock]()
        for step in choice.pieces:
            for piece in blocks.pieces(step):
                if piece.begins:
                    listed.append(piece.block)
                piece.block.texts.append(piece.text)
                piece.block.logprobs += piece.logprobs
        last = choice.pieces[-1]
        return encode_json(
            {
                **self.message,
                "content": [self._block(block) for block in listed],
                **self.ending(last, blocks.reader),
                "usage": usage(stream.counts),
                **self.opening(choice.begun),
                **self.events_of(choice.pieces),
                **ending_fields(last, self.shape.include),
                **closing_fields(stream, self.shape.include),
                **self.once,
            }
        )

    @override
    def encoder(self) -> "MessageEvents":
        from .events import MessageEvents

        return MessageEvents(self)

    @property
    def message(self) -> dict[str, Any]:
        """What every answer begins with."""
        return {
            "id": self.id, "type": "message", "role": "assistant", "model": self.head["model"]
        }  # fmt: skip

    def opening(self, begun: Begun) -> dict[str, Any]:
        """Keys that say how the reply began."""
        (job,) = self.jobs
        return opening_fields(begun, job, self.shape.tokenizer, self.shape.include)

    def events_of(self, steps: Sequence[Step]) -> dict[str, Any]:
        """Keys that say what happened on the way to the text of `steps`."""
        results = [step.result for step in steps]
        return event_fields(results, self.shape.tokenizer, self.shape.include)

    def ending(self, last: Step, reader: Reader) -> dict[str, Any]:
        """Why the reply ended with the step `last`. A call that was cut off is not to be made."""
        reason = _STOP_REASONS[FINISH_REASONS[str(last.result.eos_reason)]]
        if last.result.stop_string is not None:
            reason = "stop_sequence"
        elif reason == "end_turn" and reader.n_calls and reader.call_complete:
            reason = "tool_use"
        elif reason == "max_tokens" and self.is_cut:
            reason = "model_context_window_exceeded"
        return {"stop_reason": reason, "stop_sequence": last.result.stop_string}

    def _block(self, block: OpenBlock) -> dict[str, Any]:
        text = "".join(block.texts)
        said = begun_block(block)
        if block.kind == "tool_use":
            said |= _input(text)
        else:
            said[block.kind] = text
        if self.shape.logprobs:
            said["logprobs"] = block.logprobs
        return said


def begun_block(block: OpenBlock) -> dict[str, Any]:
    """A block without its text."""
    if block.kind == "tool_use":
        return {"type": "tool_use", "id": block.call_id, "name": block.name, "input": {}}
    if block.kind == "thinking":
        return {"type": "thinking", "thinking": "", "signature": UNSIGNED}
    return {"type": "text", "text": ""}


def usage(counts: TokenCounts) -> dict[str, int]:
    """Tokens, as Anthropic counts them: those of the prompt that were cached stand apart."""
    return {
        "input_tokens": counts.n_prompt - counts.n_cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": counts.n_cached,
        "output_tokens": counts.n_completion,
    }


def _input(text: str) -> Mapping[str, Any]:
    """The input of a call; if it was cut off, as far as it came."""
    try:
        value = json.loads(text or "{}")
    except ValueError:
        value = None
    return {"input": value} if isinstance(value, dict) else {"input": {}, "partial_json": text}
