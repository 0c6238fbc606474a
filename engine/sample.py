"""The sampler op: one row of logits in, one token with its probabilities out; always on the CPU.

Owns the types of the op and the choice between the native sampler and its twin in numpy, whose
docstring says what it computes. Knows no settings and no running state: `sampling.py` has those.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from . import native
from .errors import NumericsError
from .native import address, check

# How the errors call the logits before and after penalties and biases.
RAW_LOGITS = "logits"
ADJUSTED_LOGITS = "logits after penalties and biases"

Logits = npt.NDArray[np.float32]

# As objects, because comparing a dtype with one is an identity, and runs once per token and array.
_FLOAT32 = np.dtype(np.float32)
_INT32 = np.dtype(np.int32)


@dataclass(slots=True, eq=False)
class SampleRequest:
    """What to do with one row of logits. The values are validated by whoever builds it.

    Not frozen: a sampler changes in place what differs from one token to the next.
    """

    temperature: float  # 0 = greedy
    top_k: int  # 0 = off
    top_p: float  # 1 = off
    min_p: float  # 0 = off
    u: float  # uniform in [0, 1)
    n_top: int  # alternatives wanted
    repetition_penalty: float
    repetition_ids: npt.NDArray[np.int32]  # (n,), unique
    delta_ids: npt.NDArray[np.int32]  # (m,), unique
    deltas: npt.NDArray[np.float32]  # (m,), added to the logits of delta_ids


class SampleResult(NamedTuple):
    """The drawn token with its probabilities, and the most likely tokens by raw logit.

    raw = softmax of the untouched logits; sampled = the distribution drawn from. Fewer than n_top
    alternatives come back when fewer tokens have a finite logit.
    """

    token_id: int
    p_raw: float
    p_sampled: float
    logprob_raw: float  # natural logarithm
    top_ids: tuple[int, ...]
    top_logprobs_raw: tuple[float, ...]
    top_p_sampled: tuple[float, ...]


def sample(logits: Logits, request: SampleRequest, *, work: Logits) -> SampleResult:
    """Draw one token from `logits` (V,); `work` (V,) is overwritten.

    See `sample_ref.sample` for the order of the steps. Raises NumericsError for logits nothing can
    be drawn from, ValueError for arguments that do not fit.
    """
    vocab_size = logits.size
    check("logits", logits, (vocab_size,), _FLOAT32)
    check("work", work, (vocab_size,), _FLOAT32)
    if not vocab_size:
        raise ValueError("logits: expected at least one, got none")
    _check_request(request)
    if native.MISSING:
        from . import sample_ref

        return sample_ref.sample(logits, request, work=work)
    return _native_sample(logits, request, work)


def check_finite(logits: Logits, name: str) -> None:
    """Raise NumericsError, naming the first offending token, unless `logits` (V,) can be sampled
    from.
    """
    bad = np.flatnonzero(np.isnan(logits) | (logits == np.inf))
    if bad.size:
        token_id = int(bad[0])
        raise NumericsError(
            f"{name}: {logits[token_id]} at token {token_id}, allowed: finite or -inf"
        )
    if not np.isfinite(logits).any():
        raise NumericsError(f"{name}: none of {logits.size} is finite, at least one must be")


def _native_sample(logits: Logits, request: SampleRequest, work: Logits) -> SampleResult:
    kernels = native.kernels
    status, token_id, p_raw, p_sampled, logprob_raw, top_ids, top_logprobs, top_p = kernels.sample(
        address(logits),
        address(work),
        logits.size,
        request.temperature,
        request.top_k,
        request.top_p,
        request.min_p,
        request.u,
        request.repetition_penalty,
        address(request.repetition_ids),
        request.repetition_ids.size,
        address(request.delta_ids),
        address(request.deltas),
        request.delta_ids.size,
        request.n_top,
    )
    if status == kernels.BAD_ID:
        raise ValueError(
            f"repetition_ids or delta_ids: token {token_id}, allowed: 0 to {logits.size - 1}"
        )
    if status != kernels.OK:
        # Word the error where the reference does: these find the same token and raise.
        check_finite(logits, RAW_LOGITS)
        check_finite(work, ADJUSTED_LOGITS)
    return SampleResult(
        token_id=token_id,
        p_raw=p_raw,
        p_sampled=p_sampled,
        logprob_raw=logprob_raw,
        top_ids=tuple(top_ids),
        top_logprobs_raw=tuple(top_logprobs),
        top_p_sampled=tuple(top_p),
    )


def _check_request(request: SampleRequest) -> None:
    check("repetition_ids", request.repetition_ids, (request.repetition_ids.size,), _INT32)
    check("delta_ids", request.delta_ids, (request.delta_ids.size,), _INT32)
    check("deltas", request.deltas, (request.delta_ids.size,), _FLOAT32)
