"""A mixture of experts as csrc/ops.h has it: its matrices, and what the router's numbers mean.

Owns the tables of addresses. Knows no tape.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ...checkpoint.config import ExpertsConfig
from ...native import cpu as native
from ...native.cpu import kernels
from ..arguments import Expert, Experts
from .matrix import CpuMatrix
from .memory import Floats

Addresses = npt.NDArray[np.int64]
# The address of an array of this name with so many numbers, 0 for None.
Vector = Callable[[str, Floats | None, int], int]

_SCORINGS = {
    "softmax": "SOFTMAX",
    "sigmoid": "SIGMOID",
    "chosen_softmax": "CHOSEN_SOFTMAX",
    "sparse_mixer": "SPARSE_MIXER",
}
# By whether there are gates, and the activation.
_EPILOGUES = {
    (True, "silu"): "SILU_GATE",
    (True, "gelu"): "GELU_GATE",
    (True, "gelu_tanh"): "GELU_TANH_GATE",
    (True, "clamped"): "CLAMPED_GATE",
    (False, "gelu"): "GELU",
    (False, "gelu_tanh"): "GELU_TANH",
    (False, "relu2"): "RELU2",
}


@dataclass(frozen=True, slots=True)
class Banks:
    """Native descriptions of experts, and the tables that they point to."""

    vector: Vector
    tables: list[Addresses] = field(default_factory=list)

    def routing(
        self, config: ExpertsConfig, selection_bias: Floats | None, expert_scales: Floats | None
    ) -> kernels.Routing:
        return kernels.Routing(
            n_experts=config.n_experts,
            n_used=config.n_used,
            scoring=getattr(kernels.Scoring, _SCORINGS[config.scoring]),
            selection_bias=self.vector("selection_bias", selection_bias, config.n_experts),
            expert_scales=self.vector("expert_scales", expert_scales, config.n_experts),
            n_groups=config.n_groups,
            n_groups_used=config.n_groups_used,
            group_best=config.group_best,
            is_renormalized=config.renormalized,
            scale=config.scale,
            spread=config.spread,
        )

    def bank(self, expert: Expert[Floats, CpuMatrix] | None, dim: int) -> kernels.ExpertBank:
        """All of the same shape; None: there are none. Raises ValueError for other shapes."""
        if expert is None:
            return _bank()
        gate_up, down, n = expert.gate_up, expert.down, len(expert.down)
        hidden = down[0].n_in
        n_inner = (2 if expert.has_gates else 1) * hidden
        found = (gate_up[0].n_out, gate_up[0].n_in, down[0].n_out)
        if found != (n_inner, dim, dim) or len(down[0].sections) != 1:
            raise ValueError(f"experts: gate_up and down of {found} for {dim} and {hidden} columns")
        gate, *up = (section.place() for section in gate_up[0].sections)
        return _bank(
            gate=gate,
            up=up[0] if up else None,
            down=down[0].sections[0].place(),
            gates=self._table(gate_up, 0),
            ups=self._table(gate_up, 1) if up else 0,
            downs=self._table(down, 0),
            gate_up_bias=self.vector("b_gate_up", expert.b_gate_up, n * n_inner),
            down_bias=self.vector("b_down", expert.b_down, n * dim),
            hidden=hidden,
        )

    def _table(self, matrices: Sequence[CpuMatrix], section: int) -> int:
        """Where the panels of a section of each matrix are."""
        panels = [native.address(matrix.sections[section].panels) for matrix in matrices]
        self.tables.append(np.array(panels, np.int64))
        return native.address(self.tables[-1])


def _bank(
    *,
    gate: kernels.Matrix | None = None,
    up: kernels.Matrix | None = None,
    down: kernels.Matrix | None = None,
    gates: int = 0,
    ups: int = 0,
    downs: int = 0,
    gate_up_bias: int = 0,
    down_bias: int = 0,
    hidden: int = 0,
) -> kernels.ExpertBank:
    nothing = kernels.Matrix(panels=0, n_out=0, n_in=0, layout=kernels.Layout.F32, is_woven=False)
    return kernels.ExpertBank(
        gate=gate or nothing,
        up=up or nothing,
        down=down or nothing,
        gates=gates,
        ups=ups,
        downs=downs,
        gate_up_bias=gate_up_bias,
        down_bias=down_bias,
        hidden=hidden,
    )


def epilogue(op: Experts[Floats, CpuMatrix]) -> kernels.Epilogue:
    """Raises ValueError for an activation without a kernel."""
    name = _EPILOGUES.get((op.experts.has_gates, op.activation))
    if name is None:
        raise ValueError(f"activation: no kernel for {op.activation} in experts")
    found: kernels.Epilogue = getattr(kernels.Epilogue, name)
    return found
