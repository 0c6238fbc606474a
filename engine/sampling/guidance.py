"""Classifier-free guidance: steers away from what a negative prompt would lead to.

Owns the mix of two rows of logits and the check of its scale. Knows no cache and no sampler.
"""

import numpy as np

from ..errors import InvalidInputError
from .logits import Logits

_MAX_SCALE = 100.0


def check_scale(scale: float) -> None:
    """Raises InvalidInputError for a scale out of range."""
    if not -_MAX_SCALE <= scale <= _MAX_SCALE:
        raise InvalidInputError(
            f"cfg_scale must be between {-_MAX_SCALE} and {_MAX_SCALE}, not {scale}",
            param="cfg_scale",
        )


def guided(rows: Logits, negative_rows: Logits, scale: float) -> Logits:
    """scale * log p + (1 - scale) * log p of the negative prompt, as a new array (n, vocab_size).

    Ho and Salimans, arXiv 2207.12598; for language models Sanchez et al., arXiv 2306.17806. Scale 1
    means no guidance.
    """
    s = np.float32(scale)
    return s * log_softmax(rows) + (1 - s) * log_softmax(negative_rows)


def log_softmax(rows: Logits) -> Logits:
    """The logarithms of each row's softmax, as a new array (n, vocab_size)."""
    shifted = rows - rows.max(axis=-1, keepdims=True)
    total = np.exp(shifted).sum(axis=-1, keepdims=True, dtype=np.float64)
    logs: Logits = shifted - np.log(total).astype(np.float32)
    return logs
