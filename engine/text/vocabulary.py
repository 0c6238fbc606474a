"""What other wings ask about a token. Knows no implementation."""

from typing import Protocol


class Vocabulary(Protocol):
    """The tokens of a model, by id."""

    def token_bytes(self, token_id: int) -> bytes: ...

    def is_special(self, token_id: int) -> bool:
        """Whether it is an added token that is not part of the text."""
        ...

    def is_control(self, token_id: int) -> bool:
        """Whether it stands for no text at all, such as the end of a turn."""
        ...
