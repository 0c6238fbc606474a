"""The questions about a token that other packages ask. Knows no implementation."""

from typing import Protocol


class Vocabulary(Protocol):
    """The tokens of a model, by id."""

    def token_bytes(self, token_id: int) -> bytes: ...

    def is_special(self, token_id: int) -> bool:
        """Whether it is marked as special, so that it is not part of the text."""
        ...

    def is_control(self, token_id: int) -> bool:
        """Whether it is a marker and not text, such as the end of a turn."""
        ...
