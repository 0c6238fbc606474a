"""Experts that stand beside what all tokens go through, with norms of their own, as in Gemma 4.

Owns their ops. Knows no other part of a layer.
"""

from dataclasses import dataclass

from ..checkpoint.activation import Activation
from ..checkpoint.config import ExpertsConfig
from ..device.arguments import AddNorm, Array, Expert, Experts, NormLinear
from ..device.ops import Program
from .weights import ExpertNorms, ExpertWeights


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelExperts:
    """Those of one layer."""

    weights: ExpertWeights
    norms: ExpertNorms
    config: ExpertsConfig
    activation: Activation
    eps: float

    def append(
        self, program: Program, *, x: Array, shared: Array, numbers: Array, added: Array
    ) -> None:
        """shared = norm(shared) + norm(what the chosen experts make of norm(x)).

        `numbers`: of the router; they and `added` are overwritten.
        """
        norms, weights, eps = self.norms, self.weights, self.eps
        program.append(
            AddNorm(x=shared, norm=norms.post_shared, eps=eps, residual=None, out=shared)
        )
        program.append(
            NormLinear(
                residual=x,
                norm=norms.router,
                eps=eps,
                matrix=weights.router,
                bias=weights.b_router,
                scale=self.config.router_scale,
                out=numbers,
            )
        )
        program.append(
            Experts(
                x=x,
                norm=norms.experts,
                eps=eps,
                router=numbers,
                config=self.config,
                selection_bias=weights.selection_bias,
                expert_scales=weights.scales,
                experts=Expert(
                    gate_up=weights.gate_up,
                    b_gate_up=weights.b_gate_up,
                    down=weights.down,
                    b_down=weights.b_down,
                ),
                activation=self.activation,
                residual=None,
                out=added,
            )
        )
        program.append(
            AddNorm(x=added, norm=norms.post_experts, eps=eps, residual=shared, out=shared)
        )
