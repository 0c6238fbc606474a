"""What the sampler op takes and gives: a request, and the drawn token with its probabilities.

Owns the types of the op and the codes of its stages, which native code shares. Knows neither who
computes nor the settings behind a request.
"""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from ..text.token_ids import TokenMask
from .logits import Ids, Logits

N_PARAMETERS = 3
# So that no division by a temperature of (nearly) 0 turns a distance of 0 into no number.
LOWEST_TEMPERATURE = 1e-300


class Stage(IntEnum):
    """What happens to the candidates; the codes are those of the native sampler.

    First the adjustments of the logits, always in this order; a request says them by its fields,
    and only the trace names them. Then the stages, in the order of the request, with their
    parameters: up to N_PARAMETERS numbers each.
    """

    PENALTIES = 1
    BIAS = 2
    DRY = 3
    MASK = 4
    BANNED = 5

    SMOOTHING = 16  # factor
    TEMPERATURE = 17  # temperature
    TOP_N_SIGMA = 18  # n
    TOP_K = 19  # k
    TOP_P = 20  # p
    TOP_A = 21  # a
    MIN_P = 22  # share of the largest
    TFS = 23  # z
    TYPICAL = 24  # mass
    MIROSTAT = 25  # none: `mirostat_mu` of the request
    DYNAMIC_TEMPERATURE = 26  # lowest, highest, exponent
    XTC = 27  # probability, threshold


def _no_ids() -> Ids:
    return np.empty(0, dtype=np.int32)


def _no_floats() -> Logits:
    return np.empty(0, dtype=np.float32)


def _no_parameters() -> npt.NDArray[np.float64]:
    return np.empty((0, N_PARAMETERS))


@dataclass(slots=True, eq=False)
class SampleRequest:
    """What to do with one row of V logits; the defaults draw from their softmax.

    The values are validated by whoever builds it. Not frozen: a sampler changes in place what
    differs from one token to the next, which is u, u_xtc, context, mask, banned_ids and
    mirostat_mu; the rest stays as it was when the request was first used.
    """

    u: float  # uniform in [0, 1): the draw
    u_xtc: float = 0.0  # uniform in [0, 1): whether XTC strikes
    greedy: bool = False  # the arg-max of the adjusted logits; no stage runs
    n_top: int = 0  # alternatives wanted
    want_trace: bool = False

    context: Ids = field(default_factory=_no_ids)  # (n,): prompt, then completion
    n_prompt: int = 0
    repetition_penalty: float = 1.0  # of prompt and completion; 1 = off
    frequency_penalty: float = 0.0  # of the completion alone
    presence_penalty: float = 0.0  # of the completion alone
    repetition_range: int = -1  # newest tokens that the three penalties see; -1 = all
    repetition_decay: int = 0  # tokens before these over which the penalties fade
    bias_ids: Ids = field(default_factory=_no_ids)  # (m,), unique
    bias_deltas: Logits = field(default_factory=_no_floats)  # (m,), added to the logits of bias_ids
    dry_multiplier: float = 0.0  # 0 = off
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_range: int = 0  # newest tokens that are searched; 0 = all
    dry_max_ngram: int = 20  # longest repeat that is told from longer ones
    dry_breakers: TokenMask | None = None  # tokens that no repeat reaches across
    mask: TokenMask | None = None  # the allowed tokens; None = all
    banned_ids: Ids = field(default_factory=_no_ids)

    stages: npt.NDArray[np.int32] = field(default_factory=_no_ids)  # (s,), codes of Stage
    parameters: npt.NDArray[np.float64] = field(default_factory=_no_parameters)  # (s, N_PARAMETERS)
    mirostat_mu: float = 0.0  # bits
    xtc_protected: TokenMask | None = None  # tokens that XTC neither counts nor removes
    skew: float = 0.0  # > 0 towards the unlikely of the candidates, < 0 towards the likely

    native: Any = field(default=None, init=False, repr=False)  # what the native sampler keeps


class TraceStep(NamedTuple):
    """What one adjustment or stage did."""

    stage: str
    """The name of its Stage, in lower case."""
    n_removed: int
    """Candidates that it removed."""
    removed_argmax: bool
    """Whether the most likely token of the raw logits was among them."""


class SampleResult(NamedTuple):
    """The drawn token with its probabilities, and the most likely tokens by raw logit.

    raw = softmax of the untouched logits; sampled = the distribution drawn from. Fewer than n_top
    alternatives come back when fewer tokens have a finite logit.
    """

    token_id: int
    p_raw: float
    p_sampled: float
    logprob_raw: float
    """Natural logarithm."""
    top_ids: tuple[int, ...]
    top_logprobs_raw: tuple[float, ...]
    top_p_sampled: tuple[float, ...]
    rank: int
    """Of the token among the raw logits: 0 is the largest; among equals the lower id first."""
    entropy: float
    """Of the raw distribution, in nats."""
    margin: float
    """Raw probability of the most likely token less that of the second."""
    kept_mass: float
    """What the softmax of the adjusted logits gives to the tokens that the stages kept; 1.0 when
    they removed none, and when greedy.
    """
    trace: tuple[TraceStep, ...]
    """One per adjustment and stage that ran, in their order; empty unless wanted."""


class Draw(Protocol):
    """`sample`, or what does the same for rows that lie elsewhere."""

    def __call__(self, logits: Any, request: SampleRequest, /, *, work: Logits) -> SampleResult: ...
