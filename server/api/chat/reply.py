"""What an answer says about a reply besides its text: logprobs, ids, how it began and ended.

Owns what chunks and whole answers have in common, so that both say the same. Knows no model's way
to mark reasoning and calls: the engine's reader finds them.
"""

import secrets
import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from engine import ReplyDelta, StreamResult, Tokenizer, TokenRecord

from ...answer.choices import sampled
from ...answer.finish_reason import FINISH_REASONS, stop_reason
from ...answer.logprobs import TokenNames, chat_entries
from ...answer.metadata import (
    Include,
    ending_fields,
    event_fields,
    opening_fields,
    with_metadata,
)
from ...stream.jobs import Begun, CompletionJob, Step

_ALPHANUMERIC = string.ascii_letters + string.digits

_CHANNELS = {
    "content": "content",
    "reasoning": "reasoning_content",
    "tool_name": "tool_calls",
    "tool_arguments": "tool_calls",
}


class Reader(Protocol):
    """Separates content, reasoning and tool calls, result by result."""

    @property
    def n_calls(self) -> int: ...
    @property
    def call_complete(self) -> bool: ...
    def read(self, result: StreamResult) -> Sequence[ReplyDelta]: ...


class PlainReader:
    """Everything is content."""

    n_calls = 0
    call_complete = True

    def read(self, result: StreamResult) -> Sequence[ReplyDelta]:
        return (ReplyDelta("content", result.chunk, 0, result.tokens),)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyShape:
    """What the request wants to see of a reply, and in which form."""

    tokenizer: Tokenizer
    eos_token_ids: Sequence[int]
    names: TokenNames
    logprobs: bool
    token_ids: bool
    legacy_call: bool
    """A call is answered as `function_call`, not as one of `tool_calls`."""
    include: Include

    @property
    def is_text_alone(self) -> bool:
        """Whether a piece in the middle of a reply is its text and nothing else."""
        return not self.describes_tokens and not self.include.wants_events

    @property
    def describes_tokens(self) -> bool:
        """Whether a piece says something of each of its tokens."""
        return self.logprobs or self.token_ids

    def opening(self, begun: Begun, job: CompletionJob) -> dict[str, Any]:
        """Keys of a choice that say how it began."""
        return opening_fields(begun, job, self.tokenizer, self.include)

    def ending(self, piece: Step, reader: Reader) -> dict[str, Any]:
        """Keys of a choice that say why it ended with `piece`."""
        return {
            "finish_reason": self._finish_reason(str(piece.result.eos_reason), reader),
            "stop_reason": stop_reason(piece.result, self.eos_token_ids),
            **ending_fields(piece, self.include),
        }

    def events(self, pieces: Sequence[Step]) -> dict[str, Any]:
        """Keys of a choice that say what happened on the way to the text of `pieces`."""
        return event_fields([piece.result for piece in pieces], self.tokenizer, self.include)

    def ids(self, pieces: Sequence[Step]) -> dict[str, Any]:
        """The key of a choice that lists the tokens of `pieces`, if it is wanted."""
        if not self.token_ids:
            return {}
        records = [record for piece in pieces for record in sampled(piece.result)]
        return {"token_ids": [record.token_id for record in records]}

    def entries(self, records: Sequence[TokenRecord], clock: float) -> list[dict[str, Any]]:
        """The logprobs of tokens that came at the time `clock`."""
        return with_metadata(chat_entries(records, self.names), records, clock, self.include)

    def _finish_reason(self, eos_reason: str, reader: Reader) -> str:
        """A call that was cut off, by the limit or a stop string, is not to be made."""
        reason = FINISH_REASONS[eos_reason]
        if reason == "stop" and reader.n_calls and reader.call_complete:
            return "function_call" if self.legacy_call else "tool_calls"
        return reason


def channel(part: ReplyDelta) -> str:
    """Which list of the logprobs the tokens of `part` are in."""
    return _CHANNELS[part.kind]


def new_call_id() -> str:
    # Nine letters and digits: templates of Mistral's models accept nothing else.
    return "".join(secrets.choice(_ALPHANUMERIC) for _ in range(9))
