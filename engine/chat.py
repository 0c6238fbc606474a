"""Messages -> prompt ids, with everything that a message says kept text.

Owns the rule that only the template writes control tokens: "<|end|>" in a message ends nothing.
Knows the template and the tokenizer by their interfaces only.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .errors import InvalidInputError
from .template import ChatTemplate
from .tokenizer import Tokenizer

ROLES = ("system", "developer", "user", "assistant", "tool")
_PRIVATE_USE = range(0xF0000, 0xFFFFE)


def encode_chat(
    template: ChatTemplate,
    tokenizer: Tokenizer,
    messages: Sequence[Mapping[str, Any]],
    *,
    add_generation_prompt: bool = True,
) -> list[int]:
    """The ids of the rendered messages, none added around them.

    Raises TemplateError when the template fails, InvalidInputError for an unknown role and for
    text that is no Unicode.
    """
    _check(messages)
    plain = template.render(messages, add_generation_prompt=add_generation_prompt)
    mask = _mask(tokenizer, plain, messages)
    if not mask:
        return tokenizer.encode(plain, add_special_tokens=False)
    # The same once more with the first character of every control text masked in the messages.
    # Control texts that are gone then came from a message, or from several that meet.
    masked = template.render(
        _translated(messages, mask), add_generation_prompt=add_generation_prompt
    )
    pattern = tokenizer.control_pattern
    if pattern.findall(plain) == pattern.findall(masked):
        return tokenizer.encode(plain, add_special_tokens=False)
    text = masked.translate({private: first for first, private in mask.items()})
    pieces: list[tuple[str, bool]] = []
    position = 0
    for match in pattern.finditer(text):
        if masked[match.start()] != text[match.start()]:
            pieces += [(text[position : match.start()], True), (match[0], False)]
            position = match.end()
    return tokenizer.encode_pieces([*pieces, (text[position:], True)])


def _check(messages: Sequence[Mapping[str, Any]]) -> None:
    for index, message in enumerate(messages):
        # A role is no text: templates build control tokens from it.
        if message.get("role") not in ROLES:
            raise InvalidInputError(
                f"messages[{index}].role must be one of {', '.join(ROLES)}, "
                f"not {message.get('role')!r}",
                param="messages",
            )
        for text in _strings(message):
            try:
                text.encode()
            except UnicodeEncodeError as error:
                raise InvalidInputError(
                    f"messages[{index}] holds a lone surrogate, which is no character",
                    param="messages",
                ) from error


def _mask(
    tokenizer: Tokenizer, plain: str, messages: Sequence[Mapping[str, Any]]
) -> dict[int, int]:
    """First characters of control texts that occur in the messages -> unused private characters."""
    said = {character for message in messages for text in _strings(message) for character in text}
    firsts = sorted({text[0] for text in tokenizer.control_texts} & said)
    if not firsts:
        return {}
    used = said.union(plain)
    unused = [code for code in _PRIVATE_USE if chr(code) not in used][: len(firsts)]
    if len(unused) < len(firsts):
        raise InvalidInputError("messages hold every private-use character", param="messages")
    return {ord(first): code for first, code in zip(firsts, unused, strict=True)}


def _strings(value: Any) -> Iterator[str]:
    """All texts of a message but its role."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if key != "role":
                yield from _strings(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _strings(item)


def _translated(value: Any, mask: Mapping[int, int]) -> Any:
    """A copy with `mask` applied to every text but the role."""
    if isinstance(value, str):
        return value.translate(mask)
    if isinstance(value, Mapping):
        return {
            key: item if key == "role" else _translated(item, mask) for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_translated(item, mask) for item in value]
    return value
