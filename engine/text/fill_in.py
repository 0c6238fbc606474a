"""Fill in the middle: prompts for models that were trained to write between two texts.

Owns the control tokens for it, the order that each family of models expects, and where other files
stand. Knows no model:
all that counts is which tokens a tokenizer names for this, or has.
"""

from collections.abc import Sequence
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


# Tokens before the name of a repository and before that of a file, if the model has both.
_FILES = (
    # Qwen2.5-Coder
    ("<|repo_name|>", "<|file_sep|>"),
    # StarCoder2
    ("<repo_name>", "<file_sep>"),
    # Granite 4
    ("<|reponame|>", "<|filename|>"),
)
# Between other files where the model has no tokens for that.
_BETWEEN = "\n\n--- snippet ---\n\n"
_REPOSITORY, _UNNAMED, _OWN = "myproject\n", "tmp", "filename\n"


class Extra(NamedTuple):
    """Another file that the answer may draw on."""

    filename: str | None
    text: str


def fill_in_ids(
    tokenizer: Tokenizer,
    prefix: str,
    suffix: str,
    *,
    begun: str = "",
    extras: Sequence[Extra] = (),
    room: int | None = None,
) -> list[int]:
    """The ids of a prompt whose answer belongs between `prefix` and `suffix`.

    They begin with what the tokenizer puts before every text: its BOS, if it has one. The prefix is
    encoded as the beginning of a text, the suffix as the continuation of one: a SentencePiece
    tokenizer adds no space to it. Neither can become a control token.

    `begun`: the beginning of the answer, behind the prefix. `extras`: other files, before all that,
    as llama-server has them. `room`: the most ids; if there are more, the extras lose their
    beginning first, then the prefix its beginning and the suffix its end: it gets a quarter.
    Raises InvalidInputError if the tokenizer has no tokens for filling in the middle.
    """
    names, (before_prefix, before_suffix, *middle) = _tokens(tokenizer)
    opening, own = tokenizer.opening_ids, _plain(tokenizer, begun) if begun else []
    prefix_ids, suffix_ids = _plain(tokenizer, prefix), tokenizer.encode_continuation(suffix)
    extra_ids = _extra_ids(tokenizer, extras) if extras else []
    if room is not None:
        left = max(0, room - len(opening) - len(own) - 2 - len(middle))
        n_suffix = min(len(suffix_ids), max(left // 4, left - len(prefix_ids)))
        n_prefix = min(len(prefix_ids), left - n_suffix)
        n_extra = min(len(extra_ids), left - n_suffix - n_prefix)
        prefix_ids, suffix_ids = _end(prefix_ids, n_prefix), suffix_ids[:n_suffix]
        extra_ids = _end(extra_ids, n_extra)
    texts = [[before_prefix, *prefix_ids, *own], [before_suffix, *suffix_ids]]
    if names.suffix_first:
        texts.reverse()
    return [*opening, *extra_ids, *texts[0], *texts[1], *middle]


def _tokens(tokenizer: Tokenizer) -> tuple[FillInTokens, list[int]]:
    """What the tokenizer has, as names and as ids."""
    own = () if tokenizer.fill_in is None else (FillInTokens(*tokenizer.fill_in),)
    for names in (*own, *FORMATS):
        wanted = [name for name in names[:3] if name is not None]
        ids = _ids(tokenizer, wanted)
        if ids is not None:
            return names, ids
    raise InvalidInputError(
        "a suffix needs a model with tokens for filling in the middle; this tokenizer has none",
        param="suffix",
    )


def _extra_ids(tokenizer: Tokenizer, extras: Sequence[Extra]) -> list[int]:
    own = () if tokenizer.files is None else (tokenizer.files,)
    found = next((ids for names in (*own, *_FILES) if (ids := _ids(tokenizer, names))), None)
    if found is None:
        between = _plain(tokenizer, _BETWEEN)
        return [
            token_id for extra in extras for token_id in (*between, *_plain(tokenizer, extra.text))
        ]
    repository, file = found
    ids = [repository, *_plain(tokenizer, _REPOSITORY)]
    for extra in extras:
        name = _plain(tokenizer, f"{extra.filename or _UNNAMED}\n")
        ids += [file, *name, *_plain(tokenizer, extra.text)]
    return [*ids, file, *_plain(tokenizer, _OWN)]


def _ids(tokenizer: Tokenizer, names: Sequence[str]) -> list[int] | None:
    """The ids of all of the names; None if one is missing."""
    found = [tokenizer.added_token_id(name) for name in names]
    ids = [token_id for token_id in found if token_id is not None]
    return ids if len(ids) == len(found) else None


def _end(ids: list[int], n: int) -> list[int]:
    return ids[len(ids) - n :]


def _plain(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False, parse_special=False)
