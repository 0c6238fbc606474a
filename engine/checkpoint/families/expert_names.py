"""Where the experts of a layer are: their names, what is fused, and how they are stored.

Owns the way from names and a configuration to sources. The families fill in the names. Knows no
file.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ..config import ExpertsConfig
from ..sources import Source, Sources


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertNames:
    """Names without the prefix of the layer, and without ".weight" and ".bias". The defaults are
    those of most Hugging Face checkpoints.

    A name with {} is that of one expert; without it, all are in one tensor (n_experts, ...).
    """

    router: str = "mlp.gate"
    selection_bias: str = ""
    """The whole name."""
    gate_up: tuple[str, ...] = ("mlp.experts.{}.gate_proj", "mlp.experts.{}.up_proj")
    """One name: they are fused, one below the other, or up alone if there are no gates."""
    down: str = "mlp.experts.{}.down_proj"
    takes_turns: bool = False
    """Whether the rows of fused gates and ups take turns."""
    transposed: bool = False
    """Whether matrices of experts are stored as (n_in, n_out)."""
    weight: str = ".weight"
    bias: str = ".bias"
    shared_gate_up: tuple[str, ...] = ("mlp.shared_expert.gate_proj", "mlp.shared_expert.up_proj")
    shared_down: str = "mlp.shared_expert.down_proj"
    shared_gate: str = "mlp.shared_expert_gate"
    shared_gate_is_vector: bool = False
    latent_in: str = ""
    latent_out: str = ""
    expert_scales: str = ""
    """This and the norms with all of the name."""
    router_norm: str = ""
    norm: str = ""
    post_norm: str = ""
    post_shared_norm: str = ""

    def router_of(self, prefix: str, experts: ExpertsConfig, dim: int) -> Sources:
        """The matrix (router_dim, dim)."""
        router = Source(f"{prefix}{self.router}.weight", (experts.n_experts, dim))
        if not experts.shared_gate:
            return (router,)
        shape = (dim,) if self.shared_gate_is_vector else (1, dim)
        name = f"{prefix}{self.shared_gate}.weight"
        return router, Source(name, shape, as_row=self.shared_gate_is_vector)

    def router_bias(self, prefix: str, experts: ExpertsConfig) -> Sources:
        if not experts.router_bias:
            return ()
        return (Source(f"{prefix}{self.router}.bias", (experts.n_experts,)),)

    def selection_bias_of(self, prefix: str, experts: ExpertsConfig) -> Sources:
        if not experts.selection_bias:
            return ()
        return (Source(prefix + self.selection_bias, (experts.n_experts,), flattened=True),)

    def norms_of(self, prefix: str, experts: ExpertsConfig, dim: int) -> dict[str, Sources]:
        """The norms that experts and router have for themselves, and the scales of experts."""
        found: dict[str, Sources] = {}
        if experts.own_norms:
            for field, name in (
                ("router_norm", self.router_norm),
                ("experts_norm", self.norm),
                ("post_experts_norm", self.post_norm),
                ("post_shared_norm", self.post_shared_norm),
            ):
                found[field] = (Source(prefix + name, (dim,)),)
        if experts.expert_scales:
            found["expert_scales"] = (Source(prefix + self.expert_scales, (experts.n_experts,)),)
        return found

    def latent_of(
        self, prefix: str, experts: ExpertsConfig, dim: int, *, bias: bool
    ) -> dict[str, Sources]:
        """The projections before and behind experts of another width."""
        found: dict[str, Sources] = {}
        if experts.latent_dim:
            shape_in, shape_out = (experts.latent_dim, dim), (dim, experts.latent_dim)
            for field, name, shape in (
                ("latent_in", self.latent_in, shape_in),
                ("latent_out", self.latent_out, shape_out),
            ):
                found[f"w_{field}"] = (Source(f"{prefix}{name}.weight", shape),)
                found[f"b_{field}"] = (Source(f"{prefix}{name}.bias", shape[:1]),) * bias
        return found

    def gate_up_of(
        self, prefix: str, experts: ExpertsConfig, n_in: int | None, *, gated: bool
    ) -> Sources:
        """Gate, then up of each expert, or up alone; the biases if `n_in` is None."""
        hidden, n = experts.hidden_dim, experts.n_experts
        if len(self.gate_up) == 2 or not gated:
            return tuple(
                self._source(prefix + name, experts, index, (hidden, n_in))
                for index in range(n)
                for name in self.gate_up
            )
        (name,) = self.gate_up
        groups = hidden if self.takes_turns else 1
        part = 1 if self.takes_turns else hidden
        return tuple(
            self._source(
                prefix + name, experts, index, (2 * hidden, n_in), rows=rows, groups=groups
            )
            for index in range(n)
            for rows in ((0, part), (part, 2 * part))
        )

    def down_of(self, prefix: str, experts: ExpertsConfig, dim: int, n_in: int | None) -> Sources:
        """Of each expert; the biases if `n_in` is None."""
        return tuple(
            self._source(prefix + self.down, experts, index, (dim, n_in))
            for index in range(experts.n_experts)
        )

    def _source(
        self,
        name: str,
        experts: ExpertsConfig,
        index: int,
        shape: Sequence[int | None],
        *,
        rows: tuple[int, int] | None = None,
        groups: int = 1,
    ) -> Source:
        whole = tuple(n for n in shape if n is not None)
        transposed = self.transposed and len(whole) == 2
        stored = whole[::-1] if transposed else whole
        is_one = "{}" in name
        return Source(
            name.format(index) + (self.weight if len(whole) == 2 else self.bias),
            stored if is_one else (experts.n_experts, *stored),
            expert=None if is_one else index,
            transposed=transposed,
            groups=groups,
            rows=rows,
        )


EXPERT_NAMES = ExpertNames()
