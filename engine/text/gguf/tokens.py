"""The tokens of a GGUF file: their texts, types and ids, and the ids that have a role.

Owns the checks of these keys. Knows no algorithm that makes tokens of text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from ...gguf.metadata import Metadata

TOKENS = "tokenizer.ggml.tokens"
TYPES = "tokenizer.ggml.token_type"


class TokenType(IntEnum):
    """What a token is, as the file numbers it."""

    NORMAL = 1
    UNKNOWN = 2  # stands for text that has no token
    CONTROL = 3  # a marker that is never shown
    USER_DEFINED = 4  # found whole in any text, and shown
    UNUSED = 5  # an embedding row without a token
    BYTE = 6  # <0x0A>


@dataclass(frozen=True, slots=True)
class Tokens:
    """Every token by id. An empty text is no token."""

    texts: Sequence[str]
    types: npt.NDArray[np.int64]
    """(n,), values of TokenType."""
    ids: Mapping[str, int]
    """By text."""

    def __len__(self) -> int:
        return len(self.texts)

    def of_type(self, *types: TokenType) -> list[int]:
        """The ids of all tokens of these types, in order."""
        return [i for i in np.flatnonzero(np.isin(self.types, types)).tolist() if self.texts[i]]

    def texts_of(self, *types: TokenType) -> list[str]:
        return [self.texts[token_id] for token_id in self.of_type(*types)]

    def pieces(self) -> dict[int, str]:
        """The tokens that can occur, by id."""
        used = dict(zip(self.ids.values(), self.ids.keys(), strict=True))
        for token_id in self.of_type(TokenType.UNUSED):
            del used[token_id]
        return used


def read_tokens(metadata: Metadata) -> Tokens:
    """Raises ModelLoadError: lists that do not fit each other, an unknown type, a token twice."""
    texts = metadata.strings(TOKENS)
    types = metadata.integers(TYPES)
    if len(types) != len(texts):
        metadata.fail(TYPES, types, f"an array of {len(texts)} numbers, one per token")
    is_known = np.isin(types, list(TokenType))
    if not is_known.all():
        wrong = int(np.argmin(is_known))
        metadata.fail(f"{TYPES}[{wrong}]", int(types[wrong]), "a type from 1 to 6")
    ids = {text: token_id for token_id, text in enumerate(texts) if text}
    if len(ids) + texts.count("") != len(texts):
        twice = next(token_id for token_id, text in enumerate(texts) if ids.get(text, 0) > token_id)
        other = ids[texts[twice]]
        metadata.fail(f"{TOKENS}[{twice}]", texts[twice], f"another text than [{other}]")
    return Tokens(texts, types, ids)


def role_id(metadata: Metadata, role: str, tokens: Tokens) -> int | None:
    """The id of the token with a role such as `bos`; None if the file names none."""
    key = f"tokenizer.ggml.{role}_token_id"
    if not metadata.has(key):
        return None
    return metadata.integer(key, low=0, high=len(tokens) - 1)
