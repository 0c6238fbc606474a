"""A reply as messages, each with a channel and perhaps a recipient: OpenAI's Harmony format.

    <|channel|>analysis<|message|>...<|end|>
    <|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{...}<|call|>
    <|start|>assistant<|channel|>final<|message|>...<|return|>

Owns the headers of messages and what their channels mean. The prompt has begun the first header.
"""

import re
from collections.abc import Sequence

from ...text.matcher import StringMatcher
from ..tools import Tool
from .format import ReplyFormat
from .json_call import SPACE, JsonValue
from .markers import Spelling, without_spelled
from .tokens import CONTENT, REASONING, Channel, ReplyTokens
from .tool_format import HARMONY_TAGS

_MAX_HEADER = 1024
_FUNCTIONS = "functions."
_BETWEEN_MESSAGES = "\n\n"
"""Separates two messages of one channel, which a client sees as one text."""


class HarmonyReply:
    """Analysis is reasoning; commentary to nobody and what is final are content.

    A message to a function is a call if the function is one of the tools; otherwise its header and
    its text are content. Text that stands outside of messages is content, too.
    """

    def __init__(
        self,
        form: ReplyFormat,
        spelling: Spelling,
        tokens: ReplyTokens,
        *,
        in_reasoning: bool,
        tools: Sequence[Tool],
    ) -> None:
        """The parts of the reply go to `tokens`."""
        tags = dict(zip(HARMONY_TAGS, map(spelling.of, form.tools.inner), strict=True))
        start, channel, message = tags["<|start|>"], tags["<|channel|>"], tags["<|message|>"]
        self._start, self._message = start, message
        ends = [tags["<|end|>"], tags["<|call|>"], tags["<|return|>"]]
        self._in_header = StringMatcher([start, message, *ends])
        self._in_body = StringMatcher([start, channel, *ends])
        self._firsts = {text[0] for text in (start, channel, *ends)}
        inner = f"{re.escape(channel)}|{re.escape(tags['<|constrain|>'])}"
        self._recipient = re.compile(rf"to=((?:(?!{inner})\S)+)")
        self._channel_name = re.compile(rf"{re.escape(channel)}\s*(\w+)")
        self._begins = (channel, message, start)
        # What a header may begin with; () means anything.
        self._beginnings: tuple[str, ...] = (*self._begins, " to=")
        self._tokens = tokens
        self._names = {tool.name for tool in tools}
        self._is_in_body = in_reasoning
        self._channel = REASONING if in_reasoning else CONTENT  # of the last message
        self._held = ""  # a header, or what may become a tag
        self._arguments: JsonValue | None = None  # of the call that is being read
        self._gap = ""  # what separates this message from the text before it
        self._shown: set[Channel] = set()
        self.n_calls = 0
        self.call_complete = False

    def plain_channel(self, chunk: str) -> Channel | None:
        if not self._is_in_body or self._held or self._gap or self._arguments is not None:
            return None
        return None if not self._firsts.isdisjoint(chunk) else self._channel

    def pass_plain(self, chunk: str) -> None:
        self._shown.add(self._channel)

    def step(self, character: str) -> None:
        self._held += character
        if self._is_in_body:
            self._step_body(character)
        else:
            self._step_header(character)

    def finish(self, *, was_cut: bool) -> None:
        if not self._is_in_body and (was_cut or not self._held.strip(SPACE)):
            self._hide(len(self._held))
        else:
            self._show(self._held)
        call = self._arguments
        if call is not None and not call.has_begun and not was_cut:
            self._end_call()
        elif call is not None:
            self.call_complete = call.is_over
        self._tokens.finish(self._channel)

    # Headers

    def _step_header(self, character: str) -> None:
        tag = self._in_header.step(character)
        if tag is None:
            if not self._may_be_header() or len(self._held) > _MAX_HEADER:
                self._begin_body(CONTENT)
                self._replay()
            return
        header = self._held[: -len(tag)]
        if tag == self._message:
            self._read_header(header)
        elif tag == self._start:
            self._hide(len(self._held))
            self._beginnings = ()
        else:
            self._begin_body(CONTENT)
            self._end_body(tag)

    def _may_be_header(self) -> bool:
        if not self._beginnings:
            return True
        # Between messages white space means nothing; at the beginning a recipient follows a space.
        texts = (self._held, self._held.lstrip(SPACE))
        return any(
            text.startswith(known) or known.startswith(text)
            for known in self._beginnings
            for text in texts
        )

    def _read_header(self, header: str) -> None:
        recipient = self._recipient.search(header)
        found = self._channel_name.search(header)
        channel = REASONING if found is not None and found[1] == "analysis" else CONTENT
        name = recipient[1].removeprefix(_FUNCTIONS) if recipient is not None else ""
        if name in self._names:
            self._begin_call(name)
            return
        self._begin_body(channel)
        if recipient is not None and channel is CONTENT:
            text, self._held = self._held, ""
            self._say(text, without_spelled(text.removesuffix(self._message)))
        else:
            self._hide(len(self._held))

    def _begin_body(self, channel: Channel) -> None:
        self._is_in_body = True
        self._channel = channel
        self._gap = _BETWEEN_MESSAGES if channel in self._shown else ""
        self._in_body.rollback(0)

    def _begin_call(self, name: str) -> None:
        named = Channel("tool_name", self.n_calls)
        self._tokens.decide(len(self._held), named)
        self._tokens.decide(0, named, name)
        self._held = ""
        self._begin_body(Channel("tool_arguments", self.n_calls))
        self._arguments = JsonValue()
        self.n_calls += 1
        self.call_complete = False

    def _replay(self) -> None:
        """Read what was taken for a header as text."""
        text, self._held = self._held, ""
        for character in text:
            self.step(character)

    # Bodies

    def _step_body(self, character: str) -> None:
        tag = self._in_body.step(character)
        if tag is not None:
            self._end_body(tag)
        else:
            self._show(self._held[: len(self._held) - self._in_body.n_partial])

    def _end_body(self, tag: str) -> None:
        """End the message with what is held, the last of which is the tag."""
        self._show(self._held[: -len(tag)])
        if self._arguments is not None:
            self._end_call()
        self._is_in_body = False
        self._in_header.rollback(0)
        self._beginnings = self._begins
        if tag == self._start:
            self._beginnings = ()
            self._hide(len(tag))
        elif tag in self._begins:
            self._replay()  # it begins the next header
        else:
            self._hide(len(tag))

    def _end_call(self) -> None:
        call, self._arguments = self._arguments, None
        if call is not None and not call.has_begun:
            self._tokens.decide(0, self._channel, "{}")
        self.call_complete = True

    def _show(self, text: str) -> None:
        """Show the first of the held characters, which are `text`."""
        self._held = self._held[len(text) :]
        if self._arguments is not None:
            for character in text:
                self._show_argument(self._arguments, character)
        elif text:
            self._say(text, without_spelled(text))

    def _say(self, text: str, shown: str) -> None:
        self._tokens.decide(len(text), self._channel, self._gap + shown if shown else "")
        if shown:
            self._gap = ""
            self._shown.add(self._channel)

    def _show_argument(self, value: JsonValue, character: str) -> None:
        is_around = not value.has_begun or value.is_over
        if is_around and character in SPACE:
            self._tokens.decide(1, self._channel)
            return
        if not value.is_over:
            value.step(character)
        self._tokens.decide(1, self._channel, without_spelled(character))

    def _hide(self, n: int) -> None:
        self._tokens.decide(n, self._channel)
        self._held = self._held[n:]
