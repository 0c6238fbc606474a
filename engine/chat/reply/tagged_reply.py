"""A reply as text with tags: of the reasoning, and around calls.

Owns what is a tag and what only looks like one. It reads each character once, so the result depends
on the text alone, never on how tokens or results cut it.
"""

from collections.abc import Sequence

from ..tools import Tool
from .format import ReplyFormat
from .gemma_call import GemmaCall
from .json_call import SPACE, CallReader, JsonCall
from .markers import BARE, Place, ReplyMarkers, Spelling, is_spelled, without_spelled
from .mistral_call import MistralCall
from .named_call import NamedCall
from .tagged_call import TaggedCall
from .tokens import CONTENT, REASONING, Channel, ReplyTokens

# How much white space is held until the text after it is known, and how much text until the name of
# a tool is known.
_MAX_SPACE = 256
_MAX_UNNAMED = 16 * 1024
# Characters that may come between two calls, or after one that closes more than it opened.
_BETWEEN_CALLS = {
    "hermes": "]}",
    "llama3": ";,",
    "mistral": ",]",
    "named": "",
    "tagged": "",
    "gemma": "",
}


class TaggedReply:
    """Reasoning is the text between its tags. They open before any content or after a call;
    elsewhere they are text. White space around the tags of reasoning and calls belongs to the tags.

    Llama's bare JSON is a call only at the beginning of the reply. Text is held with its tokens
    until it is known what it is; what turns out not to be a tag is content.
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
        self._form = form.tools
        self._tools = {tool.name: tool for tool in tools}
        self._known = ReplyMarkers(form, spelling, tool_names=self._tools)
        self._tokens = tokens
        self._channel = REASONING if in_reasoning else CONTENT  # of text that is not a tag
        self._has_content = False
        self._is_behind_call = False
        self._is_in_list = False  # a list of calls between one pair of tags
        self._markers = self._known.at(self._place)
        self._held = ""  # white space, then what may become a tag
        self._skipped = SPACE if in_reasoning else ""  # after a tag, until other text comes
        self._tag_channel = self._channel
        self._call: CallReader | None = None
        self._is_named = False
        self._is_tagged = False  # whether a tag, or a call before it, marks it as a call
        self._unnamed = ""  # the text of a call whose name is not known yet
        self._early = ""  # its arguments so far
        self.n_calls = 0
        self.call_complete = False

    def plain_channel(self, chunk: str) -> Channel | None:
        if self._held or self._skipped or self._call is not None:
            return None
        return self._channel if self._markers.is_plain(chunk) else None

    def pass_plain(self, chunk: str) -> None:
        self._note_content(chunk)

    def step(self, character: str) -> None:
        call = self._call
        if call is None:
            self._step_text(character)
            return
        text = None
        if not is_spelled(character) or character in self._known.inner:
            text = call.step(character)
        if self._is_named:
            self._step_named(call, character, text)
        else:
            self._step_unnamed(call, character, text)

    # Text

    @property
    def _place(self) -> Place:
        if self._channel is REASONING:
            return "reasoning"
        if self._has_content:
            return "content"
        if self._is_in_list:
            return "listed"
        return "between" if self._is_behind_call else "start"

    def _step_text(self, character: str) -> None:
        self._held += character
        tag = self._markers.step(character)
        if tag is None:
            self._release(self._markers.n_partial)
            return
        self._release(len(tag))
        if tag in self._markers.meanings:
            self._take_tag(tag)
        else:  # the text before it was content, where it is no tag
            self._release(self._markers.n_partial)

    def _release(self, n_kept: int) -> None:
        """Release what is held, except for the last `n_kept` characters and white space before them
        that may belong to a tag.
        """
        free = self._held[: len(self._held) - n_kept]
        if self._skipped:
            free = self._skip(free)
        if self._markers.holds_space and len(free) <= _MAX_SPACE:
            free = free.rstrip(SPACE)
        if free:
            self._held = self._held[len(free) :]
            self._show(free)

    def _skip(self, text: str) -> str:
        """The text without what belongs to the tag before it."""
        rest = text.lstrip(self._skipped)
        self._hide(len(text) - len(rest), self._tag_channel)
        if rest:
            self._skipped = ""
        return rest

    def _hide(self, n: int, channel: Channel) -> None:
        """Drop the first `n` held characters, which belong to a tag of `channel`."""
        self._tokens.decide(n, channel)
        self._held = self._held[n:]

    def _show(self, text: str) -> None:
        shown = without_spelled(text)
        self._tokens.decide(len(text), self._channel, shown)
        self._note_content(shown)

    def _note_content(self, shown: str) -> None:
        if not self._has_content and self._channel is CONTENT and shown.strip(SPACE):
            self._has_content = True
            self._move()

    def _move(self) -> None:
        """Look for the tags of the current place from now on."""
        self._markers = self._known.at(self._place)
        self._markers.restart(self._held)

    # Tags

    def _take_tag(self, tag: str) -> None:
        """Act on a tag. The held text is the tag, with white space before it."""
        match self._markers.meanings[tag]:
            case "open_reasoning":
                self._enter(REASONING)
            case "close_reasoning":
                self._enter(CONTENT)
            case "open_call":
                self._open_call(tag)
            case "begin_call":
                self._held = self._held[: -len(tag)]
                self._open_call(tag)
                for character in tag:
                    self.step(character)
            case "close_call":
                self._hide(len(self._held), self._tag_channel)
                self._is_in_list = False
                self._skip_between()
                self._move()
            case "open_text":
                self._hide(len(self._held), CONTENT)
                self._has_content = True
                self._move()

    def _enter(self, channel: Channel) -> None:
        """Enter `channel` by a tag of the reasoning, which is the held text."""
        self._hide(len(self._held), REASONING)
        self._channel, self._tag_channel = channel, REASONING
        self._skipped = SPACE
        self._move()

    # Calls

    def _open_call(self, tag: str) -> None:
        self._call = self._new_call()
        self._is_named = False
        self._is_tagged = tag != BARE or self._is_behind_call
        self._unnamed, self._held = self._held, ""
        self._early = ""

    def _new_call(self) -> CallReader:
        close = self._form.close.text if self._form.close is not None else ""
        if self._form.style == "mistral":
            return MistralCall(*self._known.inner)
        if self._known.tags is not None:
            return TaggedCall(self._known.tags, self._tools)
        if self._form.style == "gemma":
            return GemmaCall(*self._known.inner)
        if self._form.style == "named":
            return NamedCall(self._known.middle)
        return JsonCall(
            close if close.startswith("<") else None, may_begin_list=self._form.style == "hermes"
        )

    def _step_unnamed(self, call: CallReader, character: str, text: str | None) -> None:
        """Handle a character, from which a call with no name yet has read `text`."""
        if text is None:
            self._give_up()
            self.step(character)
            return
        self._unnamed += character
        self._early += text
        if call.name is None:
            if len(self._unnamed) > _MAX_UNNAMED or call.is_over:
                self._give_up()
        elif call.name in self._tools:
            self._begin_call(call, call.name)
        else:
            self._give_up()

    def _begin_call(self, call: CallReader, name: str) -> None:
        self._is_named = True
        named = Channel("tool_name", self.n_calls)
        self._tokens.decide(len(self._unnamed), named)
        self._tokens.decide(0, named, name)
        self._tag_channel = Channel("tool_arguments", self.n_calls)
        self._tokens.decide(0, self._tag_channel, self._early)
        self.n_calls += 1
        self.call_complete = False
        if call.is_over:
            self._end_call()

    def _step_named(self, call: CallReader, character: str, text: str | None) -> None:
        if text is None:
            self._tokens.decide(0, self._tag_channel, call.finish())
            self._end_call()
            self.step(character)
            return
        self._tokens.decide(1, self._tag_channel, text)
        if call.is_over:
            self._end_call()

    def _end_call(self) -> None:
        self.call_complete = True
        if isinstance(self._call, JsonCall) and self._call.begins_list:
            self._is_in_list = True
        self._call = None
        self._channel, self._has_content, self._is_behind_call = CONTENT, False, True
        self._skip_between()
        self._move()

    def _skip_between(self) -> None:
        self._skipped = SPACE + _BETWEEN_CALLS[self._form.style] + "," * self._is_in_list

    def _give_up(self) -> None:
        """Treat what looked like a call as text."""
        self._call = None
        self._channel = CONTENT
        text, self._unnamed = self._unnamed, ""
        self._show(text)
        self._move()

    def finish(self, *, was_cut: bool) -> None:
        if self._call is not None and self._is_named:
            self._tokens.decide(0, self._tag_channel, self._call.finish())
        elif self._call is not None and was_cut and self._is_tagged:
            self._tokens.decide(len(self._unnamed), self._tag_channel)
        elif self._call is not None:
            self._give_up()
        if was_cut and self._place == "between":
            self._hide(len(self._held), self._tag_channel)
        self._release_all()
        is_between = self._place in ("between", "listed")
        self._tokens.finish(self._tag_channel if is_between else self._channel)

    def _release_all(self) -> None:
        text = self._skip(self._held) if self._skipped else self._held
        self._held = ""
        if text:
            self._show(text)
