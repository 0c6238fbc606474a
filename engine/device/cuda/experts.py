"""A mixture of experts on a CUDA device: the op of a step, and the experts of a prompt's chunk.

Owns the tables of addresses, and how the rows of a chunk come to their experts: sorted by expert,
so that each expert's rows are one product. `device/reference.py` says what is computed. Knows no
pass.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..arguments import Expert, Experts
from .activations import activation_of
from .lane import Lane
from .products import activated_rows, normed_rows, product
from .weights import CudaMatrix

# The address of an array of this name with so many numbers, 0 for None.
Vector = Callable[[str, Tensor | None, int], int]
ExpertsOp = Experts[Tensor, CudaMatrix]

_SCORINGS = {
    "softmax": "SOFTMAX",
    "sigmoid": "SIGMOID",
    "chosen_softmax": "CHOSEN_SOFTMAX",
    "sparse_mixer": "SPARSE_MIXER",
}


@dataclass(frozen=True, slots=True)
class ExpertTables:
    """Native descriptions of experts, and the tables that they point to."""

    lane: Lane
    vector: Vector
    tables: list[Tensor] = field(default_factory=list)

    def fields(self, op: ExpertsOp) -> dict[str, Any]:
        """The fields of ExpertsArgs but for rows. Raises ValueError for what no kernel computes."""
        kernels, config, dim = self.lane.kernels, op.config, op.out.shape[1]
        hidden = op.experts.down[0].n_in
        for expert in (op.experts, op.shared):
            if expert is not None:
                _check_shapes(expert, dim)
        n_bytes = kernels.experts_scratch_bytes(
            n_used=config.n_used,
            hidden=hidden,
            dim=dim,
            shared_hidden=0 if op.shared is None else op.shared.down[0].n_in,
        )
        return {
            "norm": self.vector("norm", op.norm, dim),
            "eps": op.eps,
            "router_width": op.router.shape[1],
            "routing": self.routing(op),
            "routed": self._bank(op.experts, dim),
            "shared": self._shared(op.shared, dim),
            "has_shared_gate": config.shared_gate,
            "epilogue": activation_of(kernels, op.activation, gated=True),
            "scale": op.scale,
            "dim": dim,
            "scratch": self.lane.scratch("experts", n_bytes).data_ptr(),
        }

    def routing(self, op: ExpertsOp) -> Any:
        kernels, config = self.lane.kernels, op.config
        for name, n, most in (
            ("n_used", config.n_used, kernels.MAX_USED_EXPERTS),
            ("n_groups", config.n_groups, kernels.MAX_EXPERT_GROUPS),
        ):
            if n > most:
                raise ValueError(f"{name}: the CUDA kernels take at most {most}, not {n}")
        return kernels.routing(
            n_experts=config.n_experts,
            n_used=config.n_used,
            scoring=getattr(kernels.Scoring, _SCORINGS[config.scoring]),
            selection_bias=self.vector("selection_bias", op.selection_bias, config.n_experts),
            expert_scales=self.vector("expert_scales", op.expert_scales, config.n_experts),
            n_groups=config.n_groups,
            n_groups_used=config.n_groups_used,
            group_best=config.group_best,
            is_renormalized=config.renormalized,
            scale=config.scale,
            spread=config.spread,
        )

    def _bank(self, expert: Expert[Tensor, CudaMatrix], dim: int) -> Any:
        n, hidden = len(expert.down), expert.down[0].n_in
        return self.lane.kernels.expert_bank(
            gate_ups=self._table(expert.gate_up),
            downs=self._table(expert.down),
            gate_up_layout=expert.gate_up[0].layout,
            down_layout=expert.down[0].layout,
            gate_up_bias=self.vector("b_gate_up", expert.b_gate_up, n * 2 * hidden),
            down_bias=self.vector("b_down", expert.b_down, n * dim),
            hidden=hidden,
        )

    def _shared(self, expert: Expert[Tensor, CudaMatrix] | None, dim: int) -> Any:
        kernels = self.lane.kernels
        if expert is None:
            return kernels.no_shared_expert()
        gate_up, down = expert.gate_up[0], expert.down[0]
        return kernels.shared_expert(
            gate_up=gate_up.weights.data_ptr(),
            down=down.weights.data_ptr(),
            gate_up_layout=gate_up.layout,
            down_layout=down.layout,
            gate_up_bias=self.vector("b_gate_up", expert.b_gate_up, 2 * down.n_in),
            down_bias=self.vector("b_down", expert.b_down, dim),
            hidden=down.n_in,
            dim=dim,
        )

    def _table(self, matrices: Sequence[CudaMatrix]) -> int:
        """Where the weights of each matrix are, on the device."""
        places = [matrix.weights.data_ptr() for matrix in matrices]
        self.tables.append(torch.tensor(places, dtype=torch.int64, device=self.lane.device))
        return self.tables[-1].data_ptr()


def run_chunk(op: ExpertsOp, lane: Lane, n: int) -> None:
    """The op on `n` rows of a prompt, with products in bfloat16. Waits once for the device, to know
    how many rows each expert has.
    """
    x = normed_rows(lane, op.x, op.norm, op.eps, n)
    chosen, weights = route(op, lane, n)
    flat = chosen.flatten()
    order = flat.argsort(stable=True)  # the pair in each slot
    counts = torch.bincount(flat, minlength=op.config.n_experts).tolist()
    by_slot = _through(op.experts, x[order // op.config.n_used], counts, op.activation, lane)
    by_pair = torch.empty_like(by_slot)
    by_pair[order] = by_slot
    # (n, 1, n_used) times (n, n_used, dim).
    total = torch.bmm(weights.unsqueeze(1), by_pair.view(n, op.config.n_used, -1)).squeeze(1)
    if op.shared is not None:
        shared = _through(op.shared, x, [n], op.activation, lane)
        total += op.router[:n, -1:].sigmoid() * shared if op.config.shared_gate else shared
    total *= op.scale
    op.out[:n].copy_(total if op.residual is None else op.residual[:n] + total)


def route(op: ExpertsOp, lane: Lane, n: int) -> tuple[Tensor, Tensor]:
    """The experts, int32 (n, n_used), and their weights: the same bits as in a step."""
    shape, device = (n, op.config.n_used), op.out.device
    chosen = torch.empty(shape, dtype=torch.int32, device=device)
    weights = torch.empty(shape, dtype=torch.float32, device=device)
    tables = ExpertTables(lane, lambda name, array, n: 0 if array is None else array.data_ptr())
    lane.kernels.route(
        router=op.router.data_ptr(),
        router_width=op.router.shape[1],
        routing=tables.routing(op),
        n_rows=n,
        experts=chosen.data_ptr(),
        weights=weights.data_ptr(),
        stream=lane.stream,
    )
    return chosen, weights


def _through(
    expert: Expert[Tensor, CudaMatrix],
    x: Tensor,
    counts: Sequence[int],
    activation: str,
    lane: Lane,
) -> Tensor:
    """What experts make of rows (n, dim) bfloat16, of which `counts` belong to each, as float32."""
    gate_up = x.new_empty(len(x), expert.gate_up[0].n_out)
    for index, rows in _runs(counts):
        bias = _bias(expert.b_gate_up, len(expert.down), index)
        product(lane, x[rows], expert.gate_up[index], bias, out=gate_up[rows])
    inner = x.new_empty(len(x), expert.down[0].n_in)
    activated_rows(lane, gate_up, activation, gated=True, out=inner)
    out = torch.empty(len(x), expert.down[0].n_out, device=x.device)
    for index, rows in _runs(counts):
        bias = _bias(expert.b_down, len(expert.down), index)
        product(lane, inner[rows], expert.down[index], bias, out=out[rows])
    return out


def _runs(counts: Sequence[int]) -> Iterator[tuple[int, slice]]:
    """The experts that have rows, and where these are."""
    begin = 0
    for index, count in enumerate(counts):
        if count:
            yield index, slice(begin, begin + count)
        begin += count


def _bias(of_all: Tensor | None, n: int, index: int) -> Tensor | None:
    return None if of_all is None else of_all.view(n, -1)[index]


def _check_shapes(expert: Expert[Tensor, CudaMatrix], dim: int) -> None:
    gate_up, down = expert.gate_up[0], expert.down[0]
    found = (gate_up.n_out, gate_up.n_in, down.n_out)
    if found != (2 * down.n_in, dim, dim):
        raise ValueError(f"experts: gate_up and down of {found} for {dim} and {down.n_in} columns")
