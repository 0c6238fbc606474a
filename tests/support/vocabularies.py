"""The tokenizers for tests of constraints: the bundled one, byte-level, SentencePiece."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from engine import DEFAULT_MODEL, Tokenizer
from engine.text.token_ids import TokenMask
from tests.support.tiny_models import byte_level_tokenizer, save_tokenizer, sentencepiece_tokenizer

NAMES = ("bundled", "byte-level", "sentencepiece")


class Vocabulary(NamedTuple):
    tokenizer: Tokenizer
    size: int  # more rows than tokens, and not a multiple of 32
    eos: tuple[int, ...]


def vocabulary(name: str, path: Path) -> Vocabulary:
    """`path`: a directory for the files of a tiny tokenizer."""
    if name == "bundled":
        tokenizer = Tokenizer.load(DEFAULT_MODEL, 4096)
        return Vocabulary(tokenizer, 4096 + 5, (*tokenizer.eos_token_ids, 0))
    backend = byte_level_tokenizer() if name == "byte-level" else sentencepiece_tokenizer()
    save_tokenizer(path, backend)
    size = backend.get_vocab_size() + 7
    return Vocabulary(Tokenizer.load(path, size), size, (2, 0) if name == "sentencepiece" else (4,))


def ids_in(mask: TokenMask) -> list[int]:
    return np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist()


def joined(tokenizer: Tokenizer, token_ids: Iterable[int]) -> bytes:
    return b"".join(tokenizer.token_bytes(token_id) for token_id in token_ids)
