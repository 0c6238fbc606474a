"""The sampler op: one row of logits in, one token with its probabilities out; always on the CPU.

Owns the choice between the native sampler and the reference in numpy, which defines what is
computed. The types are in `request.py`. Knows no settings and no running state: `sampler.py` has
those.
"""

import numpy as np

from ..native import cpu as native
from ..native.cpu import check
from .logits import Logits
from .request import N_PARAMETERS, SampleRequest, SampleResult, Stage, TraceStep

# Takes a third of the time of SampleResult(*fields).
_new_tuple = tuple.__new__

# As objects, so that comparing a dtype is an identity check: it runs once per token and array.
_FLOAT32 = np.dtype(np.float32)
_FLOAT64 = np.dtype(np.float64)
_INT32 = np.dtype(np.int32)


def sample(logits: Logits, request: SampleRequest, *, work: Logits) -> SampleResult:
    """Draw one token from `logits` (V,); `work` (V,) is overwritten.

    See `reference.op.sample` for the steps. Raises NumericsError if nothing can be drawn from the
    logits, NoTokenError if the request leaves no token, InvalidInputError if it makes a logit
    overflow, ValueError for an array of the wrong type or shape.
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
    # Also reached when the native sampler found a fault: the reference finds it too and words it.
    from .reference import op as sample_ref

    return sample_ref.sample(logits, request, work=work)


def score(logits: Logits, token_id: int, request: SampleRequest) -> SampleResult:
    """What `logits` (V,) say about a token that was not drawn from them: the same numbers as if it
    had been. The sampled probabilities are the raw ones.

    Only the request's `n_top` counts. Raises NumericsError if nothing could be drawn from the
    logits, ValueError for wrong arguments.
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
    """None for a new request, and when the native sampler refuses its arguments."""
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
