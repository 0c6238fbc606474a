"""Separates a growing reply into content, reasoning and tool calls.

Owns the spelling of special tokens and the shortcut for plain text. Knows no server: ids of calls,
finish reasons and the format of answers are not its business. What a model's text means is found by
`tagged_reply` or `harmony_reply`.
"""

from collections.abc import Sequence
from typing import Protocol

from ...stream.result import StreamResult, TokenRecord
from ..tools import Tool
from .format import ReplyFormat
from .harmony_reply import HarmonyReply
from .markers import Spelling
from .tagged_reply import TaggedReply
from .tokens import Channel, ReplyDelta, ReplyTokens

# Reasons for the end of a reply that might have continued.
_CUTS = ("length", "aborted")


class _Parts(Protocol):
    """Decides, character by character, which part of the reply the text belongs to."""

    n_calls: int
    call_complete: bool

    def plain_channel(self, chunk: str) -> Channel | None:
        """The channel of a chunk in which no character can be part of a tag; None if one can."""

    def pass_plain(self, chunk: str) -> None:
        """Take note of a chunk that had a plain channel and came out in it."""

    def step(self, character: str) -> None: ...

    def finish(self, *, was_cut: bool) -> None: ...


class ReplyReader:
    """Returns what each StreamResult of one reply adds to its content, reasoning and calls.

    Calls must name one of the given tools. A call of another name, or one whose name never comes,
    is text; but if the reply was cut off, half a tagged call is not shown. Arguments come as the
    model writes them, valid or not; those that are not JSON are turned into it.

    Tags that are special tokens are recognised by the ids of the records.
    """

    def __init__(
        self,
        form: ReplyFormat,
        *,
        in_reasoning: bool = False,
        tools: Sequence[Tool] = (),
        decode_special_tokens: bool = False,
    ) -> None:
        """`in_reasoning`: whether the prompt has opened the reasoning. `tools`: the tools that may
        be called; without any, calls are not looked for. `decode_special_tokens`: as in the options
        of the stream; if so, every tag is text.
        """
        spelling = Spelling(in_text=decode_special_tokens)
        self._spellings = spelling.by_id
        self._tokens = ReplyTokens()
        self._n_read = 0  # characters of the completion
        self._n_spelled = 0  # tags so far that have no text in the completion
        kind = HarmonyReply if form.tools.style == "harmony" else TaggedReply
        self._parts: _Parts = kind(
            form, spelling, self._tokens, in_reasoning=in_reasoning, tools=tools
        )

    @property
    def n_calls(self) -> int:
        """Number of calls that have begun."""
        return self._parts.n_calls

    @property
    def call_complete(self) -> bool:
        """Whether the last call was closed; the end of the reply may have cut it off."""
        return self._parts.call_complete

    def read(self, result: StreamResult) -> list[ReplyDelta]:
        """What the result adds, in order; with the last result also all that is held.

        Every record of `result.tokens` comes out once, in order; those of a tag in the channel that
        it opens or closes.
        """
        whole = self._whole(result)
        if whole is not None:
            return [whole]
        for character in self._spelled(result.chunk, result.tokens):
            self._parts.step(character)
        if result.eos:
            self._parts.finish(was_cut=result.eos_reason in _CUTS)
        return self._tokens.take()

    def _whole(self, result: StreamResult) -> ReplyDelta | None:
        """The result as one delta if no character can be part of a tag, as in most results."""
        chunk, records = result.chunk, result.tokens
        end = self._n_read + len(chunk)
        if result.eos or not chunk or not records or records[-1].text_end > end:
            return None
        if records[-1].text_start == records[-1].text_end:
            return None  # it belongs to the character after it
        known = self._spellings
        if known and any(record.token_id in known for record in records):
            return None
        channel = self._parts.plain_channel(chunk)
        if channel is None or not self._tokens.skip(len(chunk), channel):
            return None
        self._n_read = end
        self._parts.pass_plain(chunk)
        return ReplyDelta(channel.kind, chunk, channel.call, records)

    def _spelled(self, chunk: str, records: Sequence[TokenRecord]) -> str:
        """The text with the spellings of special tags. Its tokens wait until it is decided."""
        pieces, done = [], 0
        for record in records:
            spelling = self._spellings.get(record.token_id)
            start, end = record.text_start + self._n_spelled, record.text_end + self._n_spelled
            if spelling is not None:
                cut = max(done, record.text_start - self._n_read)
                pieces += [chunk[done:cut], spelling]
                done = cut
                self._n_spelled += 1
                end = start + 1
            self._tokens.push(record, start, end)
        self._n_read += len(chunk)
        return "".join((*pieces, chunk[done:])) if pieces else chunk
