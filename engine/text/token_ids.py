"""Sets of token ids as bit masks, and the check that ids are in the vocabulary.

Owns the format of the masks that constraints, healing and the sampler exchange. Knows no text of a
token.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from ..errors import InvalidInputError

TokenMask = npt.NDArray[np.int32]
"""A set of token ids, (ceil(vocab_size / 32),): id i is bit i % 32 of word i // 32."""


def set_of_ids(token_ids: Iterable[int], vocab_size: int) -> TokenMask:
    """The bit mask of ids below `vocab_size`."""
    bits = np.zeros(-(-vocab_size // 32) * 32, dtype=bool)
    bits[np.fromiter(token_ids, dtype=np.int64)] = True
    return np.packbits(bits, bitorder="little").view("<i4").astype(np.int32, copy=False)


def check_token_ids(name: str, token_ids: Sequence[int], vocab_size: int) -> None:
    """Raises InvalidInputError naming the first id that is not in the vocabulary."""
    # Not `not token_ids`, which fails for an array of numpy.
    if len(token_ids) == 0 or (min(token_ids) >= 0 and max(token_ids) < vocab_size):
        return
    wrong = next(token_id for token_id in token_ids if not 0 <= token_id < vocab_size)
    raise InvalidInputError(
        f"{name} holds token {wrong}; the vocabulary has ids 0 to {vocab_size - 1}", param=name
    )


def members(words: TokenMask, vocab_size: int) -> npt.NDArray[np.bool_]:
    """The mask as bool (vocab_size,)."""
    little = words.astype("<i4").view(np.uint8)
    bits = np.unpackbits(little, count=vocab_size, bitorder="little")
    return bits.astype(bool)
