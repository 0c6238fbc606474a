"""What a drafter asks of a block that follows the model's passes.

Owns the interface. The blocks themselves are in `engine/model/`: a predictor, which comes with the
model's checkpoint, and an EAGLE-3 head, which has a folder of its own.
"""

from collections.abc import Sequence
from typing import Protocol

from ..model.calibration import Floats
from ..model.model import Model


class Block(Protocol):
    """A model of one layer that reads the model's outputs beside its tokens."""

    @property
    def model(self) -> Model:
        """Runs the passes. A row of its logits may be shorter than the vocabulary."""
        ...

    def read(self, outputs: Sequence[Floats]) -> None:
        """The rows of the next pass come after these outputs of the model, (n,) each."""

    def read_own(self, row: int) -> None:
        """The next pass has one row, which comes after the block's own output of a row of the last
        pass.
        """

    def drop_weights(self) -> None:
        """Frees their memory. Nothing can be run until they are there again."""

    def token_id(self, index: int) -> int:
        """The token of an entry of the logits."""
        ...
