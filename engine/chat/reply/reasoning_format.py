"""How a model marks its reasoning.

Owns the known tags and which of them a model uses: those that its chat template names, else those
that are tokens. Knows no stream.
"""

from typing import NamedTuple

from .written import Marker, ReplyTokenizer, marker

# Opening and closing tag, in the order in which they are looked for, and what follows the opening
# without being part of the reasoning.
_TAGS = (
    ("<think>", "</think>", ""),
    ("[THINK]", "[/THINK]", ""),
    ("<thinking>", "</thinking>", ""),
    ("<reasoning>", "</reasoning>", ""),
    ("<thought>", "</thought>", ""),
    ("<seed:think>", "</seed:think>", ""),
    ("<|START_THINKING|>", "<|END_THINKING|>", ""),
    ("<|begin_of_thought|>", "<|end_of_thought|>", ""),
    ("<|channel>", "<channel|>", "thought\n"),
)


class ReasoningFormat(NamedTuple):
    open: Marker
    close: Marker
    label: str = ""
    """What follows the opening tag."""


def reasoning_format(source: str, tokenizer: ReplyTokenizer) -> ReasoningFormat | None:
    """`source`: of the chat template."""
    known = [
        ReasoningFormat(marker(opening, tokenizer), marker(closing, tokenizer), label)
        for opening, closing, label in _TAGS
    ]
    named = [tags for tags in known if tags.close.text in source]
    added = [
        tags for tags in known if tags.open.token_id is not None and tags.close.token_id is not None
    ]
    return next(iter((*named, *added)), None)


def after_thought(text: str) -> str:
    """The text without the empty reasoning that some templates write before calls."""
    ends = [text.rfind(close) + len(close) for _, close, _ in _TAGS if close in text]
    return text[max(ends, default=0) :]
