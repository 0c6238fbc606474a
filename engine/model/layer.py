"""One layer of the decoder as recorded ops.

Owns the order of a layer's ops. Knows no cache but the keys and values that it is given, and no
logits.
"""

from dataclasses import dataclass
from typing import Any

from ..cache.kv import LayerMemory
from ..checkpoint.activation import Activation, Xielu
from ..checkpoint.config import LayerConfig, ModelConfig, QkNorm
from ..device.arguments import (
    AddNorm,
    Array,
    Attention,
    BranchAttention,
    Expert,
    Experts,
    Gate,
    HeadRows,
    Heads,
    Linear,
    Matrix,
    NormLinear,
    Tails,
)
from ..device.ops import Program
from .buffers import Buffers
from .embeddings import LayerEmbedding
from .parallel_experts import ParallelExperts
from .recurrent import append_recurrent
from .tables import Tables
from .weights import ExpertWeights, LatentWeights, LayerWeights


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """What queries, keys and values of a layer are made of beside its residual."""

    x: Array  # (rows, n)
    matrix: Matrix  # (in_dim, n)
    added: Array  # (rows, in_dim): the residual's part


@dataclass(frozen=True, slots=True)
class Layer:
    """What the ops of one layer are recorded from."""

    weights: LayerWeights
    config: LayerConfig
    tables: Tables
    model: ModelConfig
    buffers: Buffers
    index: int
    beside: Beside | None = None

    @property
    def _ends(self) -> tuple[Array, Array]:
        """The residual in front of the layer, and the other buffer."""
        return self.buffers.ends[self.index]

    @property
    def residual(self) -> Array:
        """In front of the layer."""
        return self.buffers.kept.get(self.index, self._ends[0])

    @property
    def input(self) -> Array:
        """What the layer reads first: the residual, or what the layer before it read."""
        if self.config.parallel and self.config.n_halves == 1:
            return self.buffers.kept.get(self.index - 1, self._ends[1])
        return self.residual

    @property
    def middle(self) -> Array:
        """The residual behind attention, or what stands in its place, if there is either."""
        if not self.config.has_mixer:
            return self.residual
        return self._ends[1] if self.config.mlp.exists else self.end

    @property
    def end(self) -> Array:
        """The residual behind the layer."""
        return self.buffers.kept.get(self.index + 1, self._ends[self.config.n_halves % 2])

    @property
    def heads(self) -> Array:
        """The outputs of all heads, or of what stands in their place."""
        return self.buffers.heads[self.config.out_dim]

    @property
    def mixed(self) -> Array:
        """Queries, keys and values, or what recurrent layers read."""
        return self.buffers.mixed[self.config.in_dim]

    @property
    def gated(self) -> Array:
        """The MLP's inner activations."""
        return self.buffers.gated[self.config.mlp.hidden_dim]

    @property
    def has_places(self) -> bool:
        """Whether an op before attention depends on the positions of the rows."""
        norm = self.config.attention.qk_norm
        return self.tables.q_scales is not None or (norm is not None and norm.after_rope)

    def append_attention(
        self, program: Program, memory: LayerMemory, tails: Tails | None = None
    ) -> None:
        """Up to the outputs of the heads. `tails`: of rows that are branches."""
        weights, attention, recurrent = self.weights, self.config.attention, self.config.recurrent
        if not self.config.has_mixer:
            return
        self._append_qkv(program)
        if recurrent is not None:
            assert memory is not None, "a recurrent layer has states"
            assert not isinstance(memory, tuple), "not keys and values"
            assert weights.recurrent is not None, "and weights of its own"
            append_recurrent(
                program,
                recurrent,
                weights.recurrent,
                memory,
                x=self.mixed,
                out=self.heads,
                eps=self.model.norm_eps,
            )
            return
        assert isinstance(memory, tuple), "attention has keys and values"
        self._append_attention_op(program, memory, tails)
        if attention.output_gate:
            gates = self.buffers.gates[attention.q_dim]
            self._append_projection(program, weights.w_gate, weights.b_gate, gates)
            program.append(Gate(x=self.heads, gate=gates))

    def _append_qkv(self, program: Program) -> None:
        weights, beside = self.weights, self.beside
        out = self.mixed if beside is None else beside.added
        self._append_projection(program, weights.wqkv, weights.bqkv, out)
        if beside is not None:
            program.append(
                Linear(x=beside.x, matrix=beside.matrix, residual=beside.added, out=self.mixed)
            )

    def _append_projection(
        self, program: Program, matrix: Matrix, bias: Array | None, out: Array
    ) -> None:
        """A product with the normed input of attention."""
        program.append(
            NormLinear(
                residual=self.input,
                norm=self.weights.attention_norm,
                norm_bias=self.weights.attention_norm_bias,
                centered=self.model.centered_norms,
                eps=self.model.norm_eps,
                matrix=matrix,
                bias=bias,
                out=out,
            )
        )

    def _append_attention_op(
        self, program: Program, kv: tuple[HeadRows, HeadRows], tails: Tails | None
    ) -> None:
        weights, attention = self.weights, self.config.attention
        qkv, (k_cache, v_cache), tables = self.mixed, kv, self.tables
        norm = attention.qk_norm
        has_plain_norm = norm is not None and norm.is_plain
        is_prepared = tables.q_scales is not None or tables.ones is not None
        if is_prepared or not (norm is None or has_plain_norm):
            self._append_heads(program, qkv, None if has_plain_norm else norm)
        cos, sin = tables.none if norm is not None and norm.after_rope else tables.rope
        op = Attention(
            qkv=qkv,
            k_cache=k_cache,
            v_cache=v_cache,
            n_heads=attention.n_heads,
            q_norm=weights.q_norm if has_plain_norm else None,
            k_norm=weights.k_norm if has_plain_norm else None,
            eps=self.model.norm_eps,
            cos=cos,
            sin=sin,
            window=attention.window,
            scale=attention.score_scale,
            softcap=attention.softcap,
            sinks=weights.sinks,
            common_keys=weights.common_keys,
            stores=attention.kv_from is None,
            out=self.heads,
        )
        program.append(op if tails is None else BranchAttention(attention=op, tails=tails))

    def _append_heads(self, program: Program, qkv: Array, norm: QkNorm | None) -> None:
        """What attention itself does not do with queries and keys."""
        weights, attention = self.weights, self.config.attention
        cos, sin = self.tables.rope if norm is not None and norm.after_rope else (None, None)
        program.append(
            Heads(
                qkv=qkv,
                n_heads=attention.n_heads,
                n_kv_heads=attention.n_kv_heads,
                head_dim=attention.head_dim,
                q_norm=None if norm is None else weights.q_norm,
                k_norm=None if norm is None else weights.k_norm,
                v_norm=self.tables.ones,
                has_keys=attention.kv_from is None,
                eps=self.model.norm_eps,
                over_all=norm is not None and norm.over == "all",
                centered=norm is not None and norm.centered,
                cos=cos,
                sin=sin,
                q_scales=self.tables.q_scales,
            )
        )

    def append_rest(self, program: Program) -> None:
        """Output projection and MLP; each adds to the residual."""
        weights = self.weights
        if self.config.has_mixer:
            self._append_added(
                program,
                x=self.heads,
                matrix=weights.wo,
                bias=weights.bo,
                norm=weights.post_attention_norm,
                residual=self.residual,
                out=self.middle,
            )
        if not self.config.mlp.exists:
            return
        if weights.experts is None or weights.experts.norms is not None:
            self._append_mlp(program)
        elif weights.experts.latent is not None:
            self._append_latent_experts(program, weights.experts, weights.experts.latent)
        else:
            self._append_experts(program, weights.experts)
        if weights.embedding is not None:
            self._append_embedding(program)

    def _append_mlp(self, program: Program) -> None:
        """What all tokens go through; experts may stand beside it."""
        weights, mlp = self.weights, self.config.mlp
        self._append_normed(
            program,
            matrix=weights.w_gate_up,
            bias=weights.b_gate_up,
            gated=mlp.gated,
            activation=mlp.activation,
            xielu=mlp.xielu or weights.xielu,
            out=self.gated,
        )
        self._append_added(
            program,
            x=self.gated,
            matrix=weights.w_down,
            bias=weights.b_down,
            norm=weights.post_mlp_norm,
            residual=self.middle,
            factor=weights.factor if weights.embedding is None else None,
            experts=weights.experts,
            out=self.end,
        )

    def _append_embedding(self, program: Program) -> None:
        """The embedding of this layer, added behind everything else."""
        buffers, weights = self.buffers, self.weights
        assert weights.embedding is not None
        assert buffers.layer_embeddings is not None
        embedding = LayerEmbedding(
            weights=weights.embedding,
            rows=buffers.layer_embeddings,
            index=self.index,
            activation=self.config.mlp.activation,
            eps=self.model.norm_eps,
        )
        embedding.append(program, residual=self.end, added=buffers.added, factor=weights.factor)

    def _append_beside(self, program: Program, experts: ExpertWeights) -> None:
        """What experts add to the output of the MLP, before the norm of both."""
        config, buffers = self.config.mlp.experts, self.buffers
        assert config is not None
        assert experts.norms is not None
        parallel = ParallelExperts(
            weights=experts,
            norms=experts.norms,
            config=config,
            activation=self.config.mlp.activation,
            eps=self.model.norm_eps,
        )
        parallel.append(
            program,
            x=self.mlp_input,
            shared=buffers.added,
            numbers=buffers.router[config.router_dim],
            added=buffers.experts_added,
        )

    def _append_normed(
        self,
        program: Program,
        *,
        matrix: Matrix,
        bias: Array | None,
        out: Array,
        gated: bool = False,
        activation: Activation | None = None,
        xielu: Xielu | None = None,
    ) -> None:
        """A product with the normed input of the MLP."""
        program.append(
            NormLinear(
                residual=self.mlp_input,
                norm=self.weights.mlp_norm,
                norm_bias=self.weights.mlp_norm_bias,
                centered=self.model.centered_norms,
                eps=self.model.norm_eps,
                matrix=matrix,
                bias=bias,
                gated=gated,
                activation=activation,
                xielu=xielu,
                out=out,
            )
        )

    def _append_experts(self, program: Program, experts: ExpertWeights) -> None:
        """The router's numbers, then what the chosen experts add."""
        config, buffers, weights = self.config.mlp.experts, self.buffers, self.weights
        assert config is not None
        numbers = buffers.router[config.router_dim]
        self._append_normed(program, matrix=experts.router, bias=experts.b_router, out=numbers)
        shared = None
        if weights.w_down.n_out:
            shared = Expert(
                gate_up=(weights.w_gate_up,),
                b_gate_up=weights.b_gate_up,
                down=(weights.w_down,),
                b_down=weights.b_down,
            )
        norm, scale, eps = weights.post_mlp_norm, self.config.residual_scale, self.model.norm_eps
        op = Experts(
            x=self.mlp_input,
            norm=weights.mlp_norm,
            norm_bias=weights.mlp_norm_bias,
            centered=self.model.centered_norms,
            eps=eps,
            router=numbers,
            config=config,
            selection_bias=experts.selection_bias,
            experts=_all(experts),
            shared=shared,
            activation=self.config.mlp.activation,
            residual=self.middle if norm is None else None,
            scale=scale if norm is None else 1.0,
            out=self.end if norm is None else buffers.added,
        )
        program.append(op)
        if norm is not None:
            program.append(
                AddNorm(
                    x=buffers.added,
                    norm=norm,
                    eps=eps,
                    residual=self.middle,
                    scale=scale,
                    out=self.end,
                )
            )

    def _append_latent_experts(
        self, program: Program, experts: ExpertWeights, latent: LatentWeights
    ) -> None:
        """The router's numbers, and what the chosen experts add between two projections."""
        config, buffers, weights = self.config.mlp.experts, self.buffers, self.weights
        assert config is not None
        assert not self.config.mlp.hidden_dim, "what is shared is a layer of its own"
        numbers, rows = buffers.router[config.router_dim], buffers.latent[config.latent_dim]
        self._append_normed(program, matrix=experts.router, bias=experts.b_router, out=numbers)
        self._append_normed(program, matrix=latent.w_in, bias=latent.b_in, out=rows)
        program.append(
            Experts(
                x=rows,
                norm=None,
                eps=self.model.norm_eps,
                router=numbers,
                config=config,
                selection_bias=experts.selection_bias,
                experts=_all(experts),
                activation=self.config.mlp.activation,
                residual=None,
                out=rows,
            )
        )
        self._append_added(
            program,
            x=rows,
            matrix=latent.w_out,
            bias=latent.b_out,
            norm=weights.post_mlp_norm,
            residual=self.middle,
            out=self.end,
        )

    @property
    def mlp_input(self) -> Array:
        """What the MLP's norm reads."""
        return self.input if self.config.parallel else self.middle

    def _append_added(
        self,
        program: Program,
        *,
        x: Array,
        matrix: Matrix,
        bias: Array | None,
        norm: Array | None,
        residual: Array,
        out: Array,
        factor: Array | None = None,
        experts: ExpertWeights | None = None,
    ) -> None:
        """out = residual + the product, which may be normed and scaled first; times the factor.
        `experts` stand beside the product.
        """
        scale, added = self.config.residual_scale, self.buffers.added
        if norm is None:
            program.append(
                Linear(x=x, matrix=matrix, bias=bias, residual=residual, scale=scale, out=out)
            )
            return
        program.append(Linear(x=x, matrix=matrix, bias=bias, out=added))
        if experts is not None:
            self._append_beside(program, experts)
        eps = self.model.norm_eps
        program.append(
            AddNorm(
                x=added,
                norm=norm,
                eps=eps,
                residual=residual,
                scale=scale,
                factor=factor,
                out=out,
            )
        )


def _all(experts: ExpertWeights) -> Expert[Any, Any]:
    """Those that the router chooses from."""
    return Expert(
        gate_up=experts.gate_up,
        b_gate_up=experts.b_gate_up,
        down=experts.down,
        b_down=experts.b_down,
    )
