"""Masks for control texts that a conversation holds, or that a template would complete.

Owns the masks: while the template runs, the caller's characters that control texts are made of are
replaced by others, so that the rendered text shows who wrote what. Knows no template.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ..errors import InvalidInputError
from ..text.tokenizer import Tokenizer
from .messages import Conversation

_PRIVATE_USE = range(0xF0000, 0xFFFFE)
# Keys of the message format: templates read them, so they are never masked.
_STRUCTURE = frozenset({
    "arguments", "content", "description", "function", "id", "items", "name", "parameters",
    "properties", "reasoning_content", "required", "role", "text", "thinking", "title",
    "tool_call_id", "tool_calls", "type",
})  # fmt: skip


class Mask:
    """Unused characters in place of those that control texts are made of."""

    def __init__(self, tokenizer: Tokenizer, conversation: Conversation, rendered: str) -> None:
        self._pattern = tokenizer.control_pattern
        texts = list(_strings_of(conversation))
        characters = {character for text in texts for character in text}
        controls = tokenizer.control_texts
        signs = {sign for text in controls for sign in text if not (sign.isalnum() or sign == "_")}
        signs |= {text[0] for text in controls}
        signs &= characters
        words = {_inside(text) for text in controls} - {""}
        self._words = words.intersection(text.strip() for text in texts)
        hidden = sorted(signs | {word[0] for word in self._words})
        unused = _unused(characters.union(rendered), len(hidden))
        private = dict(zip(hidden, unused, strict=True))
        self._first = {ord(sign): code for sign, code in private.items()}
        self._signs = {ord(sign): private[sign] for sign in signs}
        self._shown = {code: sign for sign, code in private.items()}

    @property
    def is_needed(self) -> bool:
        """Whether the conversation holds anything that could be part of a control text."""
        return bool(self._first)

    def shown(self, text: str) -> str:
        """The text without the mask."""
        return text.translate(self._shown)

    def of_whole_texts(self, conversation: Conversation) -> Conversation:
        """Masks control texts that lie in one string; what the template may look for stays."""
        return _with_texts(conversation, self._hide_whole)

    def of_all_signs(self, conversation: Conversation) -> Conversation:
        """Masks each sign, and each word, from which a control text could be put together."""
        return _with_texts(conversation, self._hide_signs)

    def _hide_whole(self, text: str) -> str:
        return self._pattern.sub(lambda match: self._hide_first(match[0]), text)

    def _hide_signs(self, text: str) -> str:
        if text.strip() in self._words:
            blank = text[: len(text) - len(text.lstrip())]
            return blank + self._hide_first(text.lstrip())
        return text.translate(self._signs)

    def _hide_first(self, text: str) -> str:
        return text[0].translate(self._first) + text[1:]


def unused_character(conversation: Conversation) -> str:
    """A character that the conversation does not hold and that no template would strip."""
    said = {character for text in _strings_of(conversation) for character in text}
    return chr(_unused(said, 1)[0])


def _strings_of(conversation: Conversation) -> Iterator[str]:
    """All strings of the caller, including the keys of objects but not the roles."""
    for message in conversation.messages:
        yield from _strings({key: value for key, value in message.items() if key != "role"})
    yield from _strings(conversation.tools)
    yield from _strings(conversation.documents)
    yield from _strings(conversation.variables)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield key
            yield from _strings(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _strings(item)


def _with_texts(conversation: Conversation, hide: Callable[[str], str]) -> Conversation:
    messages = [
        {**_hidden(message, hide), "role": message["role"]} for message in conversation.messages
    ]
    return replace(
        conversation,
        messages=messages,
        tools=_hidden(conversation.tools, hide),
        documents=_hidden(conversation.documents, hide),
        variables={name: _hidden(value, hide) for name, value in conversation.variables.items()},
    )


def _hidden(value: Any, hide: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return hide(value)
    if isinstance(value, Mapping):
        return {
            key if key in _STRUCTURE else hide(key): (
                item if key == "type" and _is_word(item) else _hidden(item, hide)
            )
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_hidden(item, hide) for item in value]
    return value


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and value.isidentifier()


def _inside(text: str) -> str:
    """The words of a control text, around which a template may write its signs."""
    return re.sub(r"^\W+|\W+$", "", text)


def _unused(used: set[str], n: int) -> list[int]:
    unused = [code for code in _PRIVATE_USE if chr(code) not in used][:n]
    if len(unused) < n:
        raise InvalidInputError("messages hold every private-use character", param="messages")
    return unused
