"""Token healing: which tokens begin with the bytes of the prompt's last token.

Owns the vocabulary sorted by bytes and bit masks over token ids. Knows no model and no constraint.
A prompt is often cut where the tokenizer would have put no border: its last token is taken back,
and the first token of the answer must begin with the bytes that were taken.
"""

from bisect import bisect_left, bisect_right
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from ..errors import InvalidInputError
from .token_ids import Words, set_of_ids

if TYPE_CHECKING:
    from ..grammar.constraint import Constraint

TokenIds = npt.NDArray[np.int32]


class Vocabulary(Protocol):
    """What healing and constraints must know of a tokenizer."""

    def token_bytes(self, token_id: int) -> bytes: ...

    def is_control(self, token_id: int) -> bool: ...


class _Sorted(NamedTuple):
    keys: list[bytes]
    token_ids: TokenIds


class PrefixIndex:
    """The tokens that stand for text, sorted by their bytes; sorted at the first question."""

    def __init__(self, vocabulary: Vocabulary, vocab_size: int) -> None:
        self._vocabulary = vocabulary
        self._vocab_size = vocab_size

    def ids_starting_with(self, prefix: bytes) -> TokenIds:
        """Ids of all tokens whose bytes begin with `prefix`, by bytes. Control tokens never do."""
        start, end = self._span(prefix)
        return self._sorted.token_ids[start:end]

    def keys_starting_with(self, prefix: bytes) -> list[bytes]:
        """The bytes of `ids_starting_with(prefix)`, in the same order."""
        start, end = self._span(prefix)
        return self._sorted.keys[start:end]

    def mask(self, prefix: bytes) -> Words:
        """`ids_starting_with(prefix)` as bits."""
        return set_of_ids(self.ids_starting_with(prefix), self._vocab_size)

    @cached_property
    def _sorted(self) -> _Sorted:
        vocabulary = self._vocabulary
        entries = sorted(
            (data, token_id)
            for token_id in range(self._vocab_size)
            if (data := vocabulary.token_bytes(token_id)) and not vocabulary.is_control(token_id)
        )
        token_ids = np.fromiter((token_id for _, token_id in entries), np.int32, len(entries))
        return _Sorted([data for data, _ in entries], token_ids)

    def _span(self, prefix: bytes) -> tuple[int, int]:
        keys = self._sorted.keys
        start = bisect_left(keys, prefix)
        return start, end_of_prefix(keys, prefix, start)


def end_of_prefix(keys: list[bytes], prefix: bytes, start: int = 0) -> int:
    """Where the run of `keys` (sorted) that begin with `prefix` ends; it begins at `start`."""
    return bisect_right(keys, prefix, start, key=lambda key: key[: len(prefix)])


class Healing:
    """Of one request: its first token begins with the bytes of the prompt's last, in whose place it
    stands.
    """

    def __init__(self, token_id: int, index: PrefixIndex, prefix: bytes) -> None:
        """`token_id`: of the prompt; `prefix`: its bytes."""
        self.token_id = token_id
        self._index = index
        self._prefix = prefix

    def mask(self, constraint: "Constraint | None") -> Words:
        """The tokens that may come first; a constraint holds for their bytes behind the prefix."""
        if constraint is not None:
            return constraint.mask_after(self._index, self._prefix)
        return self._index.mask(self._prefix)

    def behind(self, data: bytes) -> bytes:
        """What the first token, whose bytes are `data`, adds to the text.

        Raises InvalidInputError unless it may stand there, as one that a hook has chosen.
        """
        if not data.startswith(self._prefix):
            raise InvalidInputError(
                f"the first token is {data!r}: with token healing it begins with {self._prefix!r}",
                param="on_token",
            )
        return data[len(self._prefix) :]
