"""Input and output of the sampler op: a request, and the drawn token with its probabilities.

Owns the types of the op and the codes of its stages, which native code shares. Knows no
implementation and no settings.
"""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from ..text.token_ids import TokenMask
from .logits import Ids, Logits

N_PARAMETERS = 3
# Divided by a smaller temperature, a distance of 0 could become NaN.
LOWEST_TEMPERATURE = 1e-300


class Stage(IntEnum):
    """The steps of sampling; the native sampler uses the same codes.

    First come the adjustments of the logits, always in this order: a request sets them by its
    fields, and only the trace names them. Then the stages, in the order of the request, each with
    up to N_PARAMETERS numbers.
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
    MIN_P = 22  # share of the largest probability
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

    The caller validates the values. Not frozen: a sampler updates what differs from token to token,
    which is u, u_xtc, context, mask, banned_ids and mirostat_mu. The rest must stay as it was when
    the request was first used.
    """

    u: float  # uniform in [0, 1): the draw
    u_xtc: float = 0.0  # uniform in [0, 1): whether XTC strikes
    greedy: bool = False  # take the arg-max of the adjusted logits; no stage runs
    n_top: int = 0  # alternatives to report
    want_trace: bool = False

    context: Ids = field(default_factory=_no_ids)  # (n,): prompt, then completion
    n_prompt: int = 0
    repetition_penalty: float = 1.0  # on prompt and completion; 1 = off
    frequency_penalty: float = 0.0  # on the completion only
    presence_penalty: float = 0.0  # on the completion only
    repetition_range: int = -1  # newest tokens that the three penalties see; -1 = all
    repetition_decay: int = 0  # tokens before these over which the penalties fade
    bias_ids: Ids = field(default_factory=_no_ids)  # (m,), unique
    bias_deltas: Logits = field(default_factory=_no_floats)  # (m,), added to the logits of bias_ids
    dry_multiplier: float = 0.0  # 0 = off
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_range: int = 0  # how many of the newest tokens are searched; 0 = all
    dry_max_ngram: int = 20  # longer repeats count as this long
    dry_breakers: TokenMask | None = None  # tokens that no repeat reaches across
    mask: TokenMask | None = None  # the allowed tokens; None = all
    banned_ids: Ids = field(default_factory=_no_ids)

    stages: npt.NDArray[np.int32] = field(default_factory=_no_ids)  # (s,), codes of Stage
    parameters: npt.NDArray[np.float64] = field(default_factory=_no_parameters)  # (s, N_PARAMETERS)
    mirostat_mu: float = 0.0  # bits
    xtc_protected: TokenMask | None = None  # tokens that XTC neither counts nor removes
    skew: float = 0.0  # > 0 favours unlikely candidates, < 0 likely ones

    native: Any = field(default=None, init=False, repr=False)  # its native sampler, made once


class TraceStep(NamedTuple):
    """What one adjustment or stage did."""

    stage: str
    """The name of its Stage, in lower case."""
    n_removed: int
    """How many candidates it removed."""
    removed_argmax: bool
    """Whether they included the most likely token of the raw logits."""


class SampleResult(NamedTuple):
    """The drawn token with its probabilities, and the most likely tokens by raw logit.

    raw = softmax of the untouched logits; sampled = the distribution drawn from. There are fewer
    than n_top alternatives if fewer tokens have a finite logit.
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
    """The token's rank among the raw logits: 0 is the largest; ties go to the lower id."""
    entropy: float
    """Entropy of the raw distribution, in nats."""
    margin: float
    """Raw probability of the most likely token minus that of the second."""
    kept_mass: float
    """The mass of the tokens that the stages kept, in the softmax of the adjusted logits; 1.0 if
    they removed none, and for a greedy request.
    """
    trace: tuple[TraceStep, ...]
    """One step per adjustment and stage that ran, in order; empty unless `want_trace`."""


class Draw(Protocol):
    """`op.sample`, or its equivalent for rows on a device."""

    def __call__(self, logits: Any, request: SampleRequest, /, *, work: Logits) -> SampleResult: ...
