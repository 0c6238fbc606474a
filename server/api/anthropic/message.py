"""What a message says of itself, whole and in events: its keys in Anthropic's words.

Owns the reason why it stopped, the counts of its tokens, and where what `include` adds stands.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...answer.finish_reason import FINISH_REASONS
from ...answer.metadata import event_fields, opening_fields
from ...answer.shape import GeneratedAnswer
from ...stream.jobs import Begun, Step, TokenCounts
from ..chat.reply import Reader, ReplyShape
from .blocks import UNSIGNED, Blocks, OpenBlock

_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "content_filter": "refusal"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Message(GeneratedAnswer):
    """The message that answers one request."""

    new_reader: Callable[[], Reader]
    shape: ReplyShape
    is_cut: bool
    """Whether the context leaves less room than the request asks for."""
    omits_thinking: bool = False
    """Whether thinking blocks are empty."""

    @property
    def message(self) -> dict[str, Any]:
        """What every answer begins with."""
        return {
            "id": self.id, "type": "message", "role": "assistant", "model": self.head["model"]
        }  # fmt: skip

    def blocks(self, reader: Reader) -> Blocks:
        """The blocks of the reply that `reader` reads."""
        return Blocks(reader, self.shape, omits_thinking=self.omits_thinking)

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
