"""The sampler of a CUDA device: the row of logits stays there, and one token's numbers come back.

Owns which requests the device can sample, and the memory for it. `sampling/op.py` draws the others
from a copy of the row. Knows no settings, no cache and no model.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...sampling.op import sample
from ...sampling.request import LOWEST_TEMPERATURE, SampleRequest, SampleResult, Stage

# Limits of the kernels' arguments; csrc/cuda/sample.h has the same numbers.
MOST_TOP = 64
MOST_FILTERS = 8

_FILTERS = {Stage.TOP_K: "TOP_K", Stage.TOP_P: "TOP_P", Stage.MIN_P: "MIN_P"}

# With a lower temperature after a filter, tokens lose all their mass between the two, which the
# filters after it would not see.
_LOWEST_LATE_TEMPERATURE = 0.05


class _Filter(NamedTuple):
    stage: Stage
    is_tempered: bool  # it comes after the temperature
    parameter: float


def supports(request: SampleRequest) -> bool:
    """Whether the kernels can do what the request asks for: greedy, or temperature, top_k, top_p
    and min_p in any order; penalties that do not fade, biases, a mask, banned ids.
    """
    fades = request.repetition_range >= 0 and request.repetition_decay > 0
    if request.want_trace or request.n_top > MOST_TOP or (fades and _penalizes(request)):
        return False
    if request.dry_multiplier != 0:
        return False
    return request.greedy or (request.skew == 0 and _supports_stages(request))


class DeviceSampler:
    """Samples rows of one device, one after the other.

    `begin` and `result` are for one thread at a time, and for one stream: that of the thread's
    `torch.cuda.current_stream()`, on which the row was written and the state is read. `begin`
    only launches (three kernels, and copies of lists that are new to the device); other threads run
    while `result` waits. The device of the row must be torch's current one.
    """

    def __init__(
        self, kernels: Any, vocab_size: int, *, max_context: int, device: str | torch.device
    ) -> None:
        """`kernels`: the native module; `max_context`: the longest context of penalties."""
        self._kernels = kernels
        self.device = torch.device(device)
        is_cuda = self.device.type == "cuda"
        n_bytes = kernels.sampler_bytes(vocab_size, max_context)
        self._memory = torch.empty(n_bytes, dtype=torch.uint8, device=self.device)
        self._report = torch.zeros(kernels.report_bytes, dtype=torch.uint8, pin_memory=is_cuda)
        self._row = torch.empty(vocab_size, dtype=torch.float32, pin_memory=is_cuda)
        self._native = kernels.Sampler(
            vocab_size,
            max_context,
            self._memory.data_ptr(),
            self._report.data_ptr(),
            (self._memory, self._report, self._row),
        )
        self._fits = vocab_size <= kernels.LARGEST_VOCABULARY
        self._request: SampleRequest | None = None
        self._is_supported = False
        self._is_on_device = False

    def supports(self, request: SampleRequest) -> bool:
        """Whether `begin` samples on the device, if the request's arrays fit."""
        if request is not self._request:
            self._request = request
            self._is_supported = self._fits and supports(request)
            if self._is_supported:
                self._set(request)
        return self._is_supported

    def begin(self, row: Tensor, request: SampleRequest, *, state: int | None = None) -> bool:
        """Start to draw a token from `row`, float32 (V,) on the device.

        The row is read until the last kernel has ended: work launched on the stream afterwards may
        overwrite it. Neither the row's memory nor the request may change before `result`. The
        result of an earlier `begin` is lost.

        `state`: the address of the StepState of csrc/cuda/ops.h; the token becomes that of the next
        pass, at the next position, in its one row. If no token can be drawn it does not change.
        Returns whether the device draws, and so writes the state. Raises ValueError for a row that
        does not fit.
        """
        vocab_size = self._row.numel()
        if row.dtype != torch.float32 or row.shape != (vocab_size,) or not row.is_contiguous():
            raise ValueError(
                f"row: expected contiguous float32 ({vocab_size},), got {row.dtype} "
                f"{tuple(row.shape)}"
            )
        stream = self._stream()
        self._is_on_device = self.supports(request) and self._native.begin(
            row.data_ptr(),
            request.u,
            request.context,
            request.mask,
            request.banned_ids,
            state or 0,
            stream,
        )
        if not self._is_on_device:
            self._native.copy_logits(row.data_ptr(), self._row.data_ptr(), stream)
        return self._is_on_device

    def result(self) -> SampleResult:
        """Waits for what `begin` started. Raises what `sample` in sampling/op.py raises."""
        if self._request is None:
            raise RuntimeError("result: nothing was begun")
        if self._is_on_device:
            fields = self._native.result()
            if fields is not None:
                return SampleResult(*fields)
            # The kernels have saved the row at the beginning of their memory.
            self._native.copy_logits(self._memory.data_ptr(), self._row.data_ptr(), self._stream())
        self._native.wait()
        logits = self._row.numpy()
        return sample(logits, self._request, work=torch.empty_like(self._row).numpy())

    def _stream(self) -> int:
        if self.device.type != "cuda":
            return 0
        return int(torch.cuda.current_stream(self.device).cuda_stream)

    def _set(self, request: SampleRequest) -> None:
        temperature, filters = _stages(request)
        kinds = self._kernels.Filter
        self._native.set(
            greedy=request.greedy,
            temperature=temperature,
            filters=[
                (getattr(kinds, _FILTERS[stage]), is_tempered, parameter)
                for stage, is_tempered, parameter in filters
            ],
            n_top=request.n_top,
            n_prompt=request.n_prompt,
            repetition_penalty=request.repetition_penalty,
            frequency_penalty=request.frequency_penalty,
            presence_penalty=request.presence_penalty,
            repetition_range=request.repetition_range,
            bias_ids=request.bias_ids.tolist(),
            bias_deltas=request.bias_deltas.tolist(),
        )


def _penalizes(request: SampleRequest) -> bool:
    return (
        request.repetition_penalty != 1
        or request.frequency_penalty != 0
        or request.presence_penalty != 0
    )


def _supports_stages(request: SampleRequest) -> bool:
    known = {*_FILTERS, Stage.TEMPERATURE}
    codes = request.stages.tolist()
    if not known.issuperset(codes) or codes.count(Stage.TEMPERATURE) > 1:
        return False
    temperature, filters = _stages(request)
    if any(not each.is_tempered for each in filters) and temperature < _LOWEST_LATE_TEMPERATURE:
        return False
    return len(filters) <= MOST_FILTERS and all(map(_is_in_range, filters))


def _is_in_range(each: _Filter) -> bool:
    return each.parameter >= 1 if each.stage == Stage.TOP_K else 0 <= each.parameter <= 1


def _stages(request: SampleRequest) -> tuple[float, list[_Filter]]:
    """The temperature, and the filters in their order. A greedy request has neither."""
    temperature, is_tempered = 1.0, False
    filters: list[_Filter] = []
    if request.greedy:
        return temperature, filters
    for code, parameters in zip(request.stages.tolist(), request.parameters.tolist(), strict=True):
        if code == Stage.TEMPERATURE:
            temperature, is_tempered = max(parameters[0], LOWEST_TEMPERATURE), True
        else:
            filters.append(_Filter(Stage(code), is_tempered, parameters[0]))
    return temperature, filters
