"""Token healing: the first token begins with the bytes of the prompt's last.

A prompt is often cut where the tokenizer would have put no border: its last token is taken back,
and the first token of the answer must begin with the bytes that were taken. Owns that rule; the
index of the vocabulary is text/prefix_index.py's.
"""

from ..errors import InvalidInputError
from ..grammar.constraint import Constraint
from ..text.prefix_index import PrefixIndex
from ..text.token_ids import TokenMask


class Healing:
    """Of one request: its first token begins with the bytes of the prompt's last, in whose place it
    stands.
    """

    def __init__(self, token_id: int, index: PrefixIndex, prefix: bytes) -> None:
        """`token_id`: of the prompt; `prefix`: its bytes."""
        self.token_id = token_id
        self._index = index
        self._prefix = prefix

    def mask(self, constraint: Constraint | None) -> TokenMask:
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
