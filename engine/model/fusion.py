"""What stands between the token ids and the layer of a block that follows a model.

Owns the interface between `model.py` and the blocks that draft. Knows no weights.
"""

from typing import Protocol

from ..checkpoint.config import ModelConfig
from ..device.ops import Program
from .buffers import Buffers
from .embeddings import Embedding
from .layer import Beside


class Fusion(Protocol):
    """Mixes the embeddings with what the block reads of the model."""

    @property
    def beside(self) -> Beside | None:
        """What the layer reads beside its residual."""
        ...

    def append(
        self, program: Program, embedding: Embedding, config: ModelConfig, buffers: Buffers
    ) -> None:
        """Up to the residual in front of the layer."""
