"""The sampler op: one row of logits in, one token with its probabilities out; always on the CPU.

Owns the types of the op and the choice between the native sampler and its twin in numpy, whose
docstring says what it computes. Knows no settings and no running state: `sampling.py` has those.
"""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from ..errors import InvalidInputError, NoTokenError, NumericsError
from ..native import cpu as native
from ..native.cpu import check
from ..text.token_ids import Words

Logits = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int32]

N_PARAMETERS = 3

# A third of the time that SampleResult(*fields) takes.
_new_tuple = tuple.__new__

# As objects, because comparing a dtype with one is an identity, and runs once per token and array.
_FLOAT32 = np.dtype(np.float32)
_FLOAT64 = np.dtype(np.float64)
_INT32 = np.dtype(np.int32)


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
    dry_breakers: Words | None = None  # tokens that no repeat reaches across
    mask: Words | None = None  # the allowed tokens; None = all
    banned_ids: Ids = field(default_factory=_no_ids)

    stages: npt.NDArray[np.int32] = field(default_factory=_no_ids)  # (s,), codes of Stage
    parameters: npt.NDArray[np.float64] = field(default_factory=_no_parameters)  # (s, N_PARAMETERS)
    mirostat_mu: float = 0.0  # bits
    xtc_protected: Words | None = None  # tokens that XTC neither counts nor removes
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


def sample(logits: Logits, request: SampleRequest, *, work: Logits) -> SampleResult:
    """Draw one token from `logits` (V,); `work` (V,) is overwritten.

    See `sample_ref.sample` for the steps. Raises NumericsError for logits nothing can be drawn
    from, NoTokenError when the request leaves no token, InvalidInputError when it makes a logit
    too large for a number, ValueError for arguments that do not fit.
    """
    result = _native_sample(logits, request, work)
    if result is not None:
        return result
    vocab_size = logits.size
    check("logits", logits, (vocab_size,), _FLOAT32)
    check("work", work, (vocab_size,), _FLOAT32)
    if not vocab_size:
        raise ValueError("logits: expected at least one, got none")
    _check_request(request, vocab_size)
    if not native.MISSING:
        request.native = native.kernels.Sampler(vocab_size, request)
        result = _native_sample(logits, request, work)
        if result is not None:
            return result
    # Here too when the native one has found a fault: the reference finds the same, and words it.
    from .reference import op as sample_ref

    return sample_ref.sample(logits, request, work=work)


def score(logits: Logits, token_id: int, request: SampleRequest) -> SampleResult:
    """What `logits` (V,) say of a token that was not drawn from them: the same numbers as if it had
    been. The sampled probabilities are the raw ones.

    Of the request only `n_top` counts. Raises NumericsError for logits nothing can be drawn from,
    ValueError for arguments that do not fit.
    """
    if request.native is not None:
        fields = request.native.score(logits, token_id)
        if fields is not None:
            return _new_tuple(SampleResult, fields)
    check("logits", logits, (logits.size,), _FLOAT32)
    if not 0 <= token_id < logits.size:
        raise ValueError(f"token_id: {token_id}, allowed: 0 to {logits.size - 1}")
    if request.native is None and not native.MISSING:
        request.native = native.kernels.Sampler(logits.size, request)
        return score(logits, token_id, request)
    from .reference import op as sample_ref

    return sample_ref.score(logits, token_id, n_top=request.n_top)


def _native_sample(logits: Logits, request: SampleRequest, work: Logits) -> SampleResult | None:
    """None when that has to be looked at: at first, and for arguments that do not fit."""
    if request.native is None:
        return None
    fields = request.native.sample(
        logits,
        work,
        request.u,
        request.u_xtc,
        request.context,
        request.mask,
        request.banned_ids,
        request.mirostat_mu,
    )
    if fields is None:
        return None
    if request.want_trace:
        trace = tuple(TraceStep(Stage(code).name.lower(), n, gone) for code, n, gone in fields[-1])
        fields = (*fields[:-1], trace)
    return _new_tuple(SampleResult, fields)


def check_finite(logits: Logits) -> None:
    """Raise NumericsError, naming the first offending token, unless the model's `logits` (V,) can
    be sampled from.
    """
    token_id = _first_unusable(logits)
    if token_id is not None:
        raise NumericsError(
            f"logits: {logits[token_id]} at token {token_id}, allowed: finite or -inf"
        )
    if not np.isfinite(logits).any():
        raise NumericsError(f"logits: none of {logits.size} is finite, at least one must be")


def check_adjusted(logits: Logits, request: SampleRequest) -> None:
    """The same for logits (V,) behind penalties and biases, which are the request's own doing:
    raise InvalidInputError, NoTokenError when no token is left.
    """
    fields = _adjusting(request)
    token_id = _first_unusable(logits)
    if token_id is not None:
        raise InvalidInputError(
            f"{' and '.join(fields)} make the logit of token {token_id} {logits[token_id]}, "
            "allowed: finite or -inf",
            param=fields[0],
        )
    if not np.isfinite(logits).any():
        if _forbids(request):
            fields = ["logit_bias"]
        raise NoTokenError(
            f"{' and '.join(fields)} leave none of {logits.size} tokens to draw", param=fields[0]
        )


def check_any_left(logits: Logits, request: SampleRequest) -> None:
    """Raise NoTokenError when mask and bans left no token of `logits` (V,)."""
    if not np.isfinite(logits).any():
        beside = ", beside logit_bias," if _forbids(request) else ""
        raise NoTokenError(
            f"the allowed and banned tokens{beside} leave none of {logits.size} tokens to draw",
            param="banned_tokens" if request.mask is None else "allowed_tokens",
        )


def _first_unusable(logits: Logits) -> int | None:
    bad = np.flatnonzero(np.isnan(logits) | (logits == np.inf))
    return int(bad[0]) if bad.size else None


def _forbids(request: SampleRequest) -> bool:
    """Whether its biases alone forbid a token."""
    return bool((request.bias_deltas == -np.inf).any())


def _adjusting(request: SampleRequest) -> list[str]:
    """The settings that change logits before mask and bans do, the likeliest culprit first."""
    is_on = {
        "logit_bias": request.bias_ids.size > 0,
        "repetition_penalty": request.repetition_penalty != 1.0,
        "frequency_penalty": request.frequency_penalty != 0.0,
        "presence_penalty": request.presence_penalty != 0.0,
        "dry_multiplier": request.dry_multiplier != 0.0,
    }
    return [name for name, on in is_on.items() if on]


def _check_request(request: SampleRequest, vocab_size: int) -> None:
    n_stages = request.stages.size
    check("context", request.context, (request.context.size,), _INT32)
    check("bias_ids", request.bias_ids, (request.bias_ids.size,), _INT32)
    check("bias_deltas", request.bias_deltas, (request.bias_ids.size,), _FLOAT32)
    check("banned_ids", request.banned_ids, (request.banned_ids.size,), _INT32)
    check("stages", request.stages, (n_stages,), _INT32)
    check("parameters", request.parameters, (n_stages, N_PARAMETERS), _FLOAT64)
    n_words = -(-vocab_size // 32)
    if request.mask is not None:
        check("mask", request.mask, (n_words,), _INT32)
    if request.dry_breakers is not None:
        check("dry_breakers", request.dry_breakers, (n_words,), _INT32)
    if request.xtc_protected is not None:
        check("xtc_protected", request.xtc_protected, (n_words,), _INT32)
