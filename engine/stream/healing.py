"""Token healing: the first token begins with the bytes of the prompt's last.

A prompt often ends in the middle of what the tokenizer would make one token. So its last token is
taken back, and the first token of the answer must begin with the same bytes. Owns that rule; the
index of the vocabulary is in text/prefix_index.py.
"""

from ..errors import InvalidInputError
from ..grammar.constraint import Constraint
from ..text.prefix_index import PrefixIndex
from ..text.token_ids import TokenMask


class Healing:
    """The healing of one request: its first token replaces the last token of the prompt."""

    def __init__(self, token_id: int, index: PrefixIndex, prefix: bytes) -> None:
        """`token_id`: the last token of the prompt; `prefix`: its bytes."""
        self.token_id = token_id
        self._index = index
        self._prefix = prefix

    def mask(self, constraint: Constraint | None) -> TokenMask:
        """The tokens that may come first; a constraint holds for their bytes after the prefix."""
        if constraint is not None:
            return constraint.mask_after(self._index, self._prefix)
        return self._index.mask(self._prefix)

    def added(self, data: bytes) -> bytes:
        """What the first token, whose bytes are `data`, adds to the text.

        Raises InvalidInputError if it does not begin with the prefix: a hook may have chosen it.
        """
        if not data.startswith(self._prefix):
            raise InvalidInputError(
                f"the first token is {data!r}; with token healing it must begin with "
                f"{self._prefix!r}",
                param="on_token",
            )
        return data[len(self._prefix) :]
