"""Fill in the middle: prompts for models that were trained to write between two texts.

Owns the control tokens for it, and the order that each family of models expects. Knows no model:
all that counts is which tokens a tokenizer names for this, or has.
"""

from typing import NamedTuple

from ..errors import InvalidInputError
from .tokenizer import Tokenizer


class FillInTokens(NamedTuple):
    """The tokens before the prefix and before the suffix, and the one that ends the prompt."""

    prefix: str
    suffix: str
    middle: str | None
    """None: the answer directly follows the last text."""
    suffix_first: bool = False


FORMATS = (
    # Qwen2.5-Coder, CodeGemma, Granite 4
    FillInTokens("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
    # StarCoder, StarCoder2, Granite Code, Stable Code
    FillInTokens("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
    # SantaCoder
    FillInTokens("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),
    # DeepSeek-Coder, with U+FF5C and U+2581
    FillInTokens(
        "<\uff5cfim\u2581begin\uff5c>", "<\uff5cfim\u2581hole\uff5c>", "<\uff5cfim\u2581end\uff5c>"
    ),
    # CodeLlama, with U+2581
    FillInTokens("\u2581<PRE>", "\u2581<SUF>", "\u2581<MID>"),
    # Codestral
    FillInTokens("[PREFIX]", "[SUFFIX]", None, suffix_first=True),
)


def fill_in_ids(tokenizer: Tokenizer, prefix: str, suffix: str) -> list[int]:
    """The ids of a prompt whose answer belongs between `prefix` and `suffix`.

    They begin with what the tokenizer puts before every text: its BOS, if it has one. The prefix is
    encoded as the beginning of a text, the suffix as the continuation of one: a SentencePiece
    tokenizer adds no space to it. Neither can become a control token. Raises InvalidInputError if
    the tokenizer has no tokens for filling in the middle.
    """
    own = () if tokenizer.fill_in is None else (FillInTokens(*tokenizer.fill_in),)
    for names in (*own, *FORMATS):
        found = [tokenizer.added_token_id(name) for name in names[:3] if name is not None]
        ids = [token_id for token_id in found if token_id is not None]
        if len(ids) < len(found):
            continue
        before_prefix, before_suffix, *middle = ids
        texts = [
            [before_prefix, *_beginning(tokenizer, prefix)],
            [before_suffix, *tokenizer.encode_continuation(suffix)],
        ]
        if names.suffix_first:
            texts.reverse()
        return [*tokenizer.opening_ids, *texts[0], *texts[1], *middle]
    raise InvalidInputError(
        "a suffix needs a model with tokens for filling in the middle; this tokenizer has none",
        param="suffix",
    )


def _beginning(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False, parse_special=False)
