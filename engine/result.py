"""What a stream says: one record per token, one result per call of stream_ex.

Owns the shape of the answers and nothing else. Probabilities come in two kinds, always both: raw is
the softmax of the model's untouched logits; sampled is the distribution the token was drawn from.
What comes once per token or more often is a named tuple, made in a third of the time of a frozen
dataclass.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt


class TopToken(NamedTuple):
    """One of the most likely tokens at a position, by raw probability."""

    token_id: int
    token_bytes: bytes
    logprob: float
    """Natural logarithm of `p_raw`."""
    p_raw: float
    p_sampled: float
    """0.0 when the sampler removed it."""


class TokenRecord(NamedTuple):
    """One token of the completion."""

    token_id: int
    token_bytes: bytes
    """What it adds to the text; empty for a special token that is not shown."""
    text_start: int
    text_end: int
    """The characters of the completion that its bytes are part of: [text_start, text_end)."""
    logprob: float
    """Natural logarithm of `p_raw`."""
    p_raw: float
    p_sampled: float
    top: tuple[TopToken, ...]
    """As many alternatives as were asked for, most likely first; it may include this token."""
    is_special: bool


@dataclass(frozen=True, slots=True)
class Prefill:
    """How a stream began."""

    n_prompt: int
    n_cached: int
    """Prompt tokens whose keys and values were still in the cache."""
    aborted: bool
    seed: int


# eq=False: comparison is a mapping's, by items.
@dataclass(frozen=True, slots=True, eq=False)
class StreamResult(Mapping[str, Any]):
    """What one call of stream_ex adds; reads as attributes or, as in ExLlamaV2, as a mapping.

    The keys are always the same. Joined over a stream, `chunk` is the completion; the bytes of all
    records in `tokens`, then `dropped`, are the bytes of the completion, then of `dropped_text`.
    """

    chunk: str
    """Text that is safe to show; may be empty while text is held."""
    eos: bool
    eos_reason: str | None
    """stop_token, stop_string, length or aborted, once `eos` is true."""
    stop_string: str | None
    stop_token_id: int | None
    tokens: tuple[TokenRecord, ...]
    """The tokens released by this call. A token that a stop string cuts in two is the last."""
    dropped: tuple[TokenRecord, ...]
    """The stop token, or the tokens wholly inside or behind a stop string."""
    dropped_text: str
    probs: tuple[float, ...] | None
    """Sampled probability per token of `tokens`; None unless return_probabilities."""
    logits: npt.NDArray[np.float32] | None
    """Untouched logits of `tokens` and `dropped`, float32 (n, vocab_size), if return_logits."""

    @property
    def chunk_token_ids(self) -> tuple[int, ...]:
        return tuple(token.token_id for token in self.tokens)

    @property
    def top_tokens(self) -> tuple[tuple[int, ...], ...]:
        """Per token of `tokens` the ids of its alternatives, most likely (raw) first."""
        return tuple(tuple(top.token_id for top in token.top) for token in self.tokens)

    @property
    def top_probs(self) -> tuple[tuple[float, ...], ...]:
        """The sampled probabilities of `top_tokens`."""
        return tuple(tuple(top.p_sampled for top in token.top) for token in self.tokens)

    def __getitem__(self, key: str) -> Any:
        if key not in _KEYS:
            raise KeyError(key)
        return getattr(self, key)

    def __iter__(self) -> Iterator[str]:
        return iter(_KEYS)

    def __len__(self) -> int:
        return len(_KEYS)


_KEYS = (
    "chunk",
    "eos",
    "eos_reason",
    "stop_string",
    "stop_token_id",
    "chunk_token_ids",
    "tokens",
    "dropped",
    "dropped_text",
    "probs",
    "top_tokens",
    "top_probs",
    "logits",
)
