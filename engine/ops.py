"""The only door to the native kernels: one typed method per op, the implementation chosen once per
device.

Owns the choice between native code and `ops_ref`, and the argument checks that the kernels rely on.
Knows nothing of models. Every op writes into `out` or in place and returns None, except `sample`.
What each op computes stands in `ops_ref`.
"""

import logging

import torch
from torch import Tensor

from . import ops_ref
from .ops_ref import SampleRequest, SampleResult

try:
    from . import _native
except ImportError as error:  # no build for this interpreter: the reference path serves
    _NATIVE_MISSING = str(error)
else:
    _NATIVE_MISSING = ""

__all__ = ["Ops", "SampleRequest", "SampleResult"]

logger = logging.getLogger(__name__)

_NATIVE_DTYPES = (torch.float32, torch.bfloat16)


class Ops:
    """The ops of one device: native kernels where there are any, else `ops_ref`.

    Native today: rms_norm and add_rms_norm on the CPU in float32 and bfloat16, and sample (which
    always runs on the CPU). Without the native module one warning is logged and the reference
    serves; `require_native` raises ImportError instead.
    """

    embed = staticmethod(ops_ref.embed)
    linear = staticmethod(ops_ref.linear)
    head_norm_rope = staticmethod(ops_ref.head_norm_rope)
    kv_write = staticmethod(ops_ref.kv_write)
    attention = staticmethod(ops_ref.attention)
    silu_mul = staticmethod(ops_ref.silu_mul)
    add = staticmethod(ops_ref.add)
    logits = staticmethod(ops_ref.logits)

    def __init__(self, device: torch.device | str, *, require_native: bool = False) -> None:
        if _NATIVE_MISSING:
            if require_native:
                raise ImportError(f"engine._native cannot be imported: {_NATIVE_MISSING}")
            logger.warning("native kernels missing, using torch instead: %s", _NATIVE_MISSING)
        self.device = torch.device(device)
        self._native_sample = not _NATIVE_MISSING
        self._native_norm = self._native_sample and self.device.type == "cpu"

    def rms_norm(self, x: Tensor, weight: Tensor, *, eps: float, out: Tensor) -> None:
        """x / sqrt(mean(x^2) + eps) * weight per row: x, out (rows, dim), weight (dim,); `out` may
        be `x`.
        """
        if not self._native_norm or x.dtype not in _NATIVE_DTYPES:
            ops_ref.rms_norm(x, weight, eps=eps, out=out)
            return
        rows, dim = _matrix_shape("x", x)
        _check("x", x, (rows, dim), x.dtype)
        _check("weight", weight, (dim,), x.dtype)
        _check("out", out, (rows, dim), x.dtype)
        _native.rms_norm(
            x.data_ptr(),
            weight.data_ptr(),
            out.data_ptr(),
            rows,
            dim,
            eps,
            x.dtype is torch.bfloat16,
        )

    def add_rms_norm(
        self, residual: Tensor, x: Tensor, weight: Tensor, *, eps: float, out: Tensor
    ) -> None:
        """residual += x, then rms_norm of it: residual, x, out (rows, dim), weight (dim,); `out` is
        not `residual`.
        """
        if not self._native_norm or residual.dtype not in _NATIVE_DTYPES:
            ops_ref.add_rms_norm(residual, x, weight, eps=eps, out=out)
            return
        rows, dim = _matrix_shape("residual", residual)
        dtype = residual.dtype
        _check("residual", residual, (rows, dim), dtype)
        _check("x", x, (rows, dim), dtype)
        _check("weight", weight, (dim,), dtype)
        _check("out", out, (rows, dim), dtype)
        _native.add_rms_norm(
            residual.data_ptr(),
            x.data_ptr(),
            weight.data_ptr(),
            out.data_ptr(),
            rows,
            dim,
            eps,
            dtype is torch.bfloat16,
        )

    def sample(self, logits: Tensor, request: SampleRequest, *, work: Tensor) -> SampleResult:
        """Draw one token from `logits` float32 (V,) of any device; `work` float32 (V,) on the CPU
        is overwritten.

        See `ops_ref.sample` for the order of the steps. Raises NumericsError for logits nothing can
        be drawn from, ValueError for arguments that do not fit.
        """
        logits = logits.cpu()
        vocab_size = logits.numel()
        _check("logits", logits, (vocab_size,), torch.float32)
        _check("work", work, (vocab_size,), torch.float32)
        if not vocab_size:
            raise ValueError("logits: expected at least one, got none")
        _check_request(request)
        if not self._native_sample:
            return ops_ref.sample(logits, request, work=work)
        return _native_sample(logits, request, work)


def _native_sample(logits: Tensor, request: SampleRequest, work: Tensor) -> SampleResult:
    status, token_id, p_raw, p_sampled, logprob_raw, top_ids, top_logprobs, top_p = _native.sample(
        logits.data_ptr(),
        work.data_ptr(),
        logits.numel(),
        request.temperature,
        request.top_k,
        request.top_p,
        request.min_p,
        request.u,
        request.repetition_penalty,
        request.repetition_ids.data_ptr(),
        request.repetition_ids.numel(),
        request.delta_ids.data_ptr(),
        request.deltas.data_ptr(),
        request.delta_ids.numel(),
        request.n_top,
    )
    if status == _native.BAD_ID:
        raise ValueError(
            f"repetition_ids or delta_ids: token {token_id}, allowed: 0 to {logits.numel() - 1}"
        )
    if status != _native.OK:
        # Word the error where the reference does: these find the same token and raise.
        ops_ref.check_finite(logits, ops_ref.RAW_LOGITS)
        ops_ref.check_finite(work, ops_ref.ADJUSTED_LOGITS)
    return SampleResult(
        token_id=token_id,
        p_raw=p_raw,
        p_sampled=p_sampled,
        logprob_raw=logprob_raw,
        top_ids=tuple(top_ids),
        top_logprobs_raw=tuple(top_logprobs),
        top_p_sampled=tuple(top_p),
    )


def _matrix_shape(name: str, tensor: Tensor) -> tuple[int, int]:
    if tensor.dim() != 2 or tensor.shape[1] == 0:
        raise ValueError(f"{name}: expected shape (rows, dim), got {tuple(tensor.shape)}")
    return tensor.shape[0], tensor.shape[1]


def _check(name: str, tensor: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """A kernel trusts its pointers, so every tensor is looked at before its address is taken."""
    if tensor.dtype is not dtype:
        raise ValueError(f"{name}: expected {dtype}, got {tensor.dtype}")
    if tensor.shape != shape:
        raise ValueError(f"{name}: expected shape {shape}, got {tuple(tensor.shape)}")
    if not tensor.is_cpu:
        raise ValueError(f"{name}: expected a tensor on the CPU, got one on {tensor.device}")
    if not tensor.is_contiguous():
        raise ValueError(f"{name}: expected contiguous memory, got strides {tensor.stride()}")


def _check_request(request: SampleRequest) -> None:
    _check("repetition_ids", request.repetition_ids, (request.repetition_ids.numel(),), torch.int32)
    _check("delta_ids", request.delta_ids, (request.delta_ids.numel(),), torch.int32)
    _check("deltas", request.deltas, (request.delta_ids.numel(),), torch.float32)
