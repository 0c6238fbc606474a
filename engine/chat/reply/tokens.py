"""Which part of a reply each token belongs to.

Owns the pairing of decided characters, in order, with the records of their tokens. Knows no tags.
"""

from collections import deque
from typing import Literal, NamedTuple

from ...stream.result import TokenRecord

ReplyKind = Literal["content", "reasoning", "tool_name", "tool_arguments"]


class ReplyDelta(NamedTuple):
    """What a result adds to a reply."""

    kind: ReplyKind
    text: str
    """Empty when only a tag was read."""
    call: int = 0
    """Index of the tool call; 0 for content and reasoning."""
    tokens: tuple[TokenRecord, ...] = ()


class Channel(NamedTuple):
    """Where characters go."""

    kind: ReplyKind
    call: int = 0


CONTENT = Channel("content")
REASONING = Channel("reasoning")


class _Waiting:
    """A token that has not come out yet."""

    __slots__ = ("channel", "end", "is_visible", "record", "start")

    def __init__(self, record: TokenRecord, start: int, end: int, channel: Channel | None) -> None:
        self.record = record
        self.start = start
        self.end = end
        self.channel = channel
        self.is_visible = channel is not None


class ReplyTokens:
    """The parts of a reply as they are decided, with their tokens.

    A token comes out once, with its last character, in the channel of its last visible character;
    a token with no visible character in the channel of its tag. A token without characters comes
    out with the character after it.
    """

    def __init__(self) -> None:
        self._position = 0  # characters decided so far
        self._waiting: deque[_Waiting] = deque()
        self._channel = CONTENT
        self._visible_end = 0
        self._visible_channel = CONTENT
        self._texts: list[str] = []
        self._tokens: list[TokenRecord] = []
        self._deltas: list[ReplyDelta] = []

    def push(self, record: TokenRecord, start: int, end: int) -> None:
        """Add a token with the characters [start, end), the last of which is not decided yet."""
        # If a stop string was possible, some of its characters may have been decided before.
        known = self._visible_channel if start < self._visible_end else None
        self._waiting.append(_Waiting(record, start, end, known))

    def decide(self, n: int, channel: Channel, text: str = "") -> None:
        """The next `n` characters are `text` of `channel`, or hidden in it. With `n` 0 the text is
        only added to the channel.
        """
        end = self._position + n
        self._say(channel, text)
        if not n:
            return
        if text:
            self._visible_end, self._visible_channel = end, channel
        for waiting in self._waiting:
            if waiting.start >= end:
                break
            if text or not waiting.is_visible:
                waiting.channel, waiting.is_visible = channel, bool(text)
        self._position = end
        while (
            self._waiting and self._waiting[0].end <= end and self._waiting[0].channel is not None
        ):
            self._let_go(channel)

    def skip(self, n: int, channel: Channel) -> bool:
        """The next `n` characters are text of `channel` that the caller returns with its tokens.
        False if it may not, because other tokens wait.
        """
        if self._waiting:
            return False
        self._position += n
        self._visible_end, self._visible_channel = self._position, channel
        return True

    def finish(self, channel: Channel) -> None:
        """Release every token; those with nothing decided go to `channel`."""
        while self._waiting:
            self._let_go(channel)

    def take(self) -> list[ReplyDelta]:
        """What has been decided since the last call."""
        self._close_run()
        deltas, self._deltas = self._deltas, []
        return deltas

    def _let_go(self, channel: Channel) -> None:
        waiting = self._waiting.popleft()
        self._say(waiting.channel or channel, "")
        self._tokens.append(waiting.record)

    def _say(self, channel: Channel, text: str) -> None:
        if channel != self._channel:
            self._close_run()
            self._channel = channel
        if text:
            self._texts.append(text)

    def _close_run(self) -> None:
        if self._texts or self._tokens:
            kind, call = self._channel
            delta = ReplyDelta(kind, "".join(self._texts), call, tuple(self._tokens))
            self._deltas.append(delta)
            self._texts.clear()
            self._tokens.clear()
