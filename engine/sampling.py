"""What to sample with, and the per-request sampler.

Owns the validated settings, the counter-based random numbers and the running state of the
penalties. Knows token ids and one row of logits; knows no text, no cache and no HTTP. The
arithmetic on the logits themselves is in `sample.py`.

The order is fixed: repetition penalty; frequency and presence penalties and logit bias, added;
temperature; softmax; top_k; top_p; min_p; draw.
"""

import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from .errors import InvalidInputError
from .sample import SampleRequest, SampleResult, sample

_MAX_SEED = 2**64 - 1
_WORD = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class SamplingSettings:
    """How one token is chosen. Every field's default leaves the distribution as it is.

    `temperature` 0 means greedy. `repetition_penalty` divides the positive logits (multiplies the
    negative ones) of all tokens of prompt and completion (Keskar et al., arXiv 1909.05858);
    `frequency_penalty` (per occurrence) and `presence_penalty` (once) are subtracted for tokens of
    the completion alone, as OpenAI defines them. `logit_bias` maps token ids to values added to
    their logits; -inf forbids a token. `seed` None draws a seed when the stream begins.

    Raises InvalidInputError, with the field's name, for a value out of range.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None

    def __post_init__(self) -> None:
        _require("temperature", self.temperature, 0.0, 100.0)
        _require("top_k", self.top_k, 0, 2**31 - 1)
        _require("top_p", self.top_p, 0.0, 1.0)
        _require("min_p", self.min_p, 0.0, 1.0)
        _require("repetition_penalty", self.repetition_penalty, 0.01, 100.0)
        _require("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        _require("presence_penalty", self.presence_penalty, -2.0, 2.0)
        if self.seed is not None:
            _require("seed", self.seed, -(2**63), _MAX_SEED)
        for token_id, bias in self.logit_bias.items():
            if math.isnan(bias) or bias == math.inf:
                raise InvalidInputError(
                    f"logit_bias of token {token_id} must be a number or -inf, not {bias}",
                    param="logit_bias",
                )


def _require(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:  # NaN fails every comparison, so it ends here too
        raise InvalidInputError(f"{name} must be between {low} and {high}, not {value}", param=name)


def random_seed() -> int:
    """A seed for a request that brings none; small enough for every JSON reader (< 2**53)."""
    return secrets.randbits(53)


def uniform(seed: int, position: int) -> float:
    """A uniform number in [0, 1) with 53 random bits, a pure function of (seed, position).

    Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): the text
    of a seed depends neither on what was drawn before nor on how many tokens one step yields.
    """
    key0, key1 = seed & _WORD, (seed >> 32) & _WORD
    c0, c1, c2, c3 = position & _WORD, (position >> 32) & _WORD, 0, 0
    for _ in range(10):
        product0, product1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (
            (product1 >> 32) ^ c1 ^ key0,
            product1 & _WORD,
            (product0 >> 32) ^ c3 ^ key1,
            product0 & _WORD,
        )
        key0, key1 = (key0 + 0x9E3779B9) & _WORD, (key1 + 0xBB67AE85) & _WORD
    return float(((c0 >> 5) << 26) | (c1 >> 6)) / float(1 << 53)


class Sampler:
    """The sampler of one request: settings, seed and the counts that the penalties need.

    The arrays that the op reads grow by at most one slot per token, so a step costs the same at any
    length of the text.
    """

    def __init__(
        self,
        settings: SamplingSettings,
        *,
        prompt_ids: Sequence[int],
        work: npt.NDArray[np.float32],
        n_top: int,
    ) -> None:
        """`work`: scratch for the op, float32 (vocab_size,). Raises InvalidInputError for a biased
        token id outside the vocabulary."""
        vocab_size = work.shape[0]
        for token_id in settings.logit_bias:
            if not 0 <= token_id < vocab_size:
                raise InvalidInputError(
                    f"logit_bias names token {token_id}; "
                    f"the vocabulary has ids 0 to {vocab_size - 1}",
                    param="logit_bias",
                )
        self.seed = random_seed() if settings.seed is None else settings.seed & _MAX_SEED
        self._settings = settings
        self._work = work
        self._repetition = _IdList(vocab_size)
        self._deltas = _DeltaList(vocab_size)
        for token_id, bias in settings.logit_bias.items():
            self._deltas.add(token_id, bias)
        if settings.repetition_penalty != 1.0:
            for token_id in prompt_ids:
                self._repetition.add(token_id)
        self._request = SampleRequest(
            temperature=settings.temperature,
            top_k=settings.top_k,
            top_p=settings.top_p,
            min_p=settings.min_p,
            u=0.0,
            n_top=n_top,
            repetition_penalty=settings.repetition_penalty,
            repetition_ids=self._repetition.ids(),
            delta_ids=self._deltas.ids(),
            deltas=self._deltas.values(),
        )

    def sample(self, logits: npt.NDArray[np.float32], position: int) -> SampleResult:
        """Choose the token at absolute `position` from logits, float32 (vocab_size,), untouched.

        Raises NumericsError when the logits are not numbers.
        """
        if self._settings.temperature > 0:
            self._request.u = uniform(self.seed, position)
        return sample(logits, self._request, work=self._work)

    def accept(self, token_id: int) -> None:
        """Count a token that was added to the completion."""
        settings = self._settings
        if settings.repetition_penalty != 1.0:
            self._repetition.add(token_id)
            self._request.repetition_ids = self._repetition.ids()
        if settings.frequency_penalty or settings.presence_penalty:
            self._deltas.count(
                token_id,
                first=settings.presence_penalty + settings.frequency_penalty,
                again=settings.frequency_penalty,
            )
            self._request.delta_ids = self._deltas.ids()
            self._request.deltas = self._deltas.values()


class _IdList:
    """Distinct token ids in an int32 array that only grows."""

    def __init__(self, capacity: int) -> None:
        self._slot: dict[int, int] = {}
        self._ids = np.empty(capacity, dtype=np.int32)

    def add(self, token_id: int) -> int:
        slot = self._slot.get(token_id)
        if slot is None:
            slot = self._slot[token_id] = len(self._slot)
            self._ids[slot] = token_id
        return slot

    def ids(self) -> npt.NDArray[np.int32]:
        return self._ids[: len(self._slot)]


class _DeltaList:
    """What is added to the logits of distinct token ids: the bias less the penalties."""

    def __init__(self, capacity: int) -> None:
        self._ids = _IdList(capacity)
        self._values = np.zeros(capacity, dtype=np.float32)
        self._counted: set[int] = set()

    def add(self, token_id: int, delta: float) -> None:
        self._values[self._ids.add(token_id)] += delta

    def count(self, token_id: int, *, first: float, again: float) -> None:
        seen = token_id in self._counted
        self._counted.add(token_id)
        self.add(token_id, -(again if seen else first))

    def ids(self) -> npt.NDArray[np.int32]:
        return self._ids.ids()

    def values(self) -> npt.NDArray[np.float32]:
        return self._values[: self._ids.ids().shape[0]]
