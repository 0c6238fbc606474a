"""A BPE tokenizer, put together from the parts of its tokenizer.json.

The library reads such a file into a tree of its own first, and lists the vocabulary piece by piece
afterwards. Python's parser reads it in less than half the time, and its vocabulary is the list.
Owns which files can be read so; of others, and of broken ones, the library reads the whole.
"""

import json
from typing import Any, NamedTuple

import tokenizers
from tokenizers import AddedToken, models

from ..errors import is_panic

# What the library's BPE takes beside vocabulary and merges.
_OPTIONS = {
    "byte_fallback", "continuing_subword_prefix", "dropout", "end_of_word_suffix", "fuse_unk",
    "ignore_merges", "unk_token",
}  # fmt: skip
_EMPTY_MODEL = {"type": "BPE", "vocab": {}, "merges": []}


class AssembledTokenizer(NamedTuple):
    """A tokenizer, and its vocabulary: ids by piece, those of added tokens among them."""

    backend: tokenizers.Tokenizer
    vocabulary: dict[str, int]


def assembled(data: bytes) -> AssembledTokenizer | None:
    """The tokenizer of a tokenizer.json, the same that the library reads; None if it is no BPE, has
    parts that are not known here, or is broken, which the library then says best.
    """
    try:
        return _assembled(json.loads(data))
    except BaseException as error:
        if not isinstance(error, Exception) and not is_panic(error):
            raise
        return None


def _assembled(document: dict[str, Any]) -> AssembledTokenizer | None:
    model, added = document["model"], document["added_tokens"]
    options = {name: value for name, value in model.items() if value is not None}
    kind, vocabulary = options.pop("type", None), options.pop("vocab")
    merges = _pairs(options.pop("merges"))
    if kind != "BPE" or not options.keys() <= _OPTIONS:
        return None
    rest = {**document, "model": _EMPTY_MODEL, "added_tokens": []}
    backend = tokenizers.Tokenizer.from_str(json.dumps(rest))
    backend.model = models.BPE(vocabulary, merges, **options)
    # These get their ids now: those of the vocabulary, or the next after it.
    backend.add_tokens([_added_token(**entry) for entry in added])
    ids = {entry["content"]: entry["id"] for entry in added}
    found = backend.get_added_tokens_decoder()
    if {token.content: token_id for token_id, token in found.items()} != ids:
        return None
    return AssembledTokenizer(backend, {**vocabulary, **ids})


def _pairs(merges: list[Any]) -> list[tuple[str, str]]:
    """Older files have merges as "a b", newer ones as ["a", "b"]."""
    if merges and isinstance(merges[0], str):
        return [(left, right) for left, right in (merge.split(" ") for merge in merges)]
    return [(left, right) for left, right in merges]


def _added_token(
    *,
    id: int,
    content: str,
    single_word: bool,
    lstrip: bool,
    rstrip: bool,
    normalized: bool,
    special: bool,
) -> AddedToken:
    return AddedToken(
        content,
        single_word=single_word,
        lstrip=lstrip,
        rstrip=rstrip,
        normalized=normalized,
        special=special,
    )
