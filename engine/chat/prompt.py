"""Messages -> prompt; message text can never become a control token.

Owns the rule that only the template writes control tokens: "<|end|>" in a message, a tool or a
variable ends nothing. Also owns where a prompt ends that continues a message. Knows the template
and the tokenizer by their interfaces only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Unpack

from ..errors import InvalidInputError
from ..text.tokenizer import Tokenizer
from .masking import Mask, unused_character
from .messages import Conversation, Rendering, conversation
from .template.template import ChatTemplate


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A conversation and the template that renders it."""

    template: ChatTemplate
    said: Conversation
    end: str | None = None
    """The character in the last message at which the prompt ends; None for the whole rendering."""

    @classmethod
    def of(
        cls,
        template: ChatTemplate,
        messages: Sequence[Mapping[str, Any]],
        **rendering: Unpack[Rendering],
    ) -> "ChatPrompt":
        """Raises InvalidInputError, with the path in `param`, for what `conversation` refuses, and
        if there is nothing to continue.
        """
        said = conversation(template, messages, **rendering)
        if not rendering.get("continue_final_message"):
            return cls(template, said)
        end = unused_character(said)
        return cls(template, replace(said, messages=_with_end(said.messages, end)), end)

    def text(self) -> str:
        """The prompt as text. Raises TemplateError if the template fails, refuses the messages or
        exceeds its limits; InvalidInputError if it changes the text to be continued.
        """
        text = self.said.rendered_by(self.template)
        if self.end is None:
            return text
        before, end, _ = text.rpartition(self.end)
        # A template may strip the text, but the end character protects trailing white space.
        if not end or not before.endswith(_last_text(self.said).removesuffix(end).lstrip()):
            raise InvalidInputError(
                "continue_final_message: the chat template leaves out or changes the text of the "
                "last message",
                param="continue_final_message",
            )
        return before

    def token_ids(self, tokenizer: Tokenizer, *, max_seq_len: int | None = None) -> list[int]:
        """The ids of the text, with none added around them.

        Raises the errors of `text`, and ContextLengthError for a text that is certainly too long
        for `max_seq_len` positions.
        """
        plain = self.text()
        if max_seq_len is not None:
            tokenizer.check_length(plain, max_seq_len, param="messages")
        mask = Mask(tokenizer, self.said, plain)
        if not mask.is_needed:
            return tokenizer.encode(plain, add_special_tokens=False)
        # The template's own control texts are those that remain when everything that the caller
        # said is masked.
        controls = tokenizer.control_pattern
        hidden = replace(self, said=mask.of_all_signs(self.said)).text()
        own = controls.findall(hidden)
        if controls.findall(plain) == own:
            return tokenizer.encode(plain, add_special_tokens=False)
        whole = replace(self, said=mask.of_whole_texts(self.said)).text()
        if controls.findall(whole) == own:
            hidden = whole
        return _encoded(tokenizer, hidden, mask.shown(hidden))


def _with_end(messages: Sequence[dict[str, Any]], end: str) -> list[dict[str, Any]]:
    """The messages with `end` after the text of the last one."""
    *earlier, last = messages or [{}]
    content = last.get("content")
    if isinstance(content, str):
        return [*earlier, {**last, "content": content + end}]
    if isinstance(content, list):
        for i in reversed(range(len(content))):
            part = content[i]
            if isinstance(part, dict) and isinstance(part.get("text"), str):
                parts = [*content[:i], {**part, "text": part["text"] + end}, *content[i + 1 :]]
                return [*earlier, {**last, "content": parts}]
    raise InvalidInputError(
        "continue_final_message needs a last message with text", param="continue_final_message"
    )


def _last_text(said: Conversation) -> str:
    content = said.messages[-1]["content"]
    if isinstance(content, str):
        return content
    return next(str(part["text"]) for part in reversed(content) if "text" in part)


def _encoded(tokenizer: Tokenizer, hidden: str, text: str) -> list[int]:
    """The ids of `text`; control texts that are not in `hidden` are spelled."""
    pieces: list[tuple[str, bool]] = []
    position = 0
    for match in tokenizer.control_pattern.finditer(text):
        start, end = match.span()
        if hidden[start:end] != match[0]:
            pieces += [(text[position:start], True), (match[0], False)]
            position = end
    return tokenizer.encode_pieces([*pieces, (text[position:], True)])
