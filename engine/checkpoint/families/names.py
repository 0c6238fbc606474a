"""Where the tensors of a family are: their names, what is fused, and how they are stored.

Owns the way from names and a configuration to sources. The families and the architectures of GGUF
files fill in the names. Knows no file.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ..config import AttentionConfig, LayerConfig, ModelConfig
from ..sources import LayerSources, ModelSources, Source, Sources
from .expert_names import EXPERT_NAMES, ExpertNames
from .layer_embeddings import LAYER_EMBEDDING_NAMES, LayerEmbeddingNames
from .recurrent_names import RecurrentNames, gated_queries

_ALL = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Names without ".weight" and ".bias"; those of a layer without its prefix. The defaults are
    Llama's in Hugging Face checkpoints. Which of the tensors there are, the configuration says.
    """

    embedding: str = "model.embed_tokens"
    positions: str = ""
    norm: str = "model.norm"
    head: str = "lm_head"
    layer: str = "model.layers.{}."
    qkv: tuple[str, ...] = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    """One name: they are fused, one below the other."""
    fused_per_head: bool = False
    """Whether the fused rows are those of q, k and v of each key head in turn."""
    output: str = "self_attn.o_proj"
    gate_up: tuple[str, ...] = ("mlp.gate_proj", "mlp.up_proj")
    """One name: fused, or up alone if the configuration has no gate."""
    down: str = "mlp.down_proj"
    xielu: tuple[str, ...] = ()
    """All of the names of these numbers."""
    attention_norm: str = "input_layernorm"
    post_attention_norm: str = ""
    mlp_norm: str = "post_attention_layernorm"
    """Empty: a parallel block has one norm."""
    mlp_norm_suffix: str = ".weight"
    """Behind this name."""
    post_mlp_norm: str = ""
    q_norm: str = "self_attn.q_norm"
    """With {}: each head has a tensor of its own."""
    k_norm: str = "self_attn.k_norm"
    sinks: str = "self_attn.sinks"
    """This and the next with all of the name behind the prefix of the layer."""
    factor: str = "layer_scalar"
    norms_plus: float = 0.0
    """Added to the weights of all norms."""
    rope_pairs: bool = False
    """Whether the rows of q and k that are rotated together stand next to each other."""
    transposed: bool = False
    """Whether the matrices of the layers are stored as (n_in, n_out)."""
    experts: ExpertNames = EXPERT_NAMES
    recurrent: RecurrentNames | None = None
    layer_embeddings: LayerEmbeddingNames = LAYER_EMBEDDING_NAMES
    ignored: str = r"(?!)"
    """See ModelSources."""

    def sources(self, config: ModelConfig) -> ModelSources:
        table, dim = (config.vocab_size, config.dim), config.dim
        ends = config.ends
        positions = Source(f"{self.positions}.weight", (ends.n_positions, dim), flattened=True)
        return ModelSources(
            embedding=Source(f"{self.embedding}.weight", table),
            positions=(positions,) if ends.n_positions else (),
            **self.layer_embeddings.of_model(config),
            norm=Source(f"{self.norm}.weight", (dim,), plus=self.norms_plus),
            norm_bias=self._bias(self.norm, dim, config.norm_bias),
            head=Source(f"{self.head}.weight", table),
            head_bias=self._bias(self.head, config.vocab_size, ends.head_bias),
            layers=tuple(
                self._layer(place, layer, config)
                for place, layer in zip(config.stored_places, config.layers, strict=True)
            ),
            ignored="|".join((self.ignored, *self._unused(config))),
        )

    def _unused(self, config: ModelConfig) -> Iterator[str]:
        """Patterns of what a file may store for layers that read the keys of another one."""
        names = [*self.qkv[1:], self.k_norm]
        for place, layer in zip(config.stored_places, config.layers, strict=True):
            if layer.attention.kv_from is not None:
                prefix = re.escape(self.layer.format(place))
                yield rf"{prefix}({'|'.join(map(re.escape, names))})\.(weight|bias)"

    def _layer(self, place: int, layer: LayerConfig, config: ModelConfig) -> LayerSources:
        attention, dim, scale = layer.attention, config.dim, layer.input_scale
        prefix = self.layer.format(place)
        mlp_norm = self.mlp_norm if self.mlp_norm else self.attention_norm
        pre, post = layer.pre_norms and layer.has_mixer, layer.post_norms and layer.has_mixer
        pre_mlp = layer.pre_norms and layer.mlp.exists
        post_mlp = layer.post_norms and layer.mlp.exists
        return LayerSources(
            **self._mixer(prefix, layer, config),
            **self._mlp(prefix, layer, dim),
            **self._experts(prefix, layer, dim),
            **self.layer_embeddings.of_layer(prefix, layer, dim),
            attention_norm=self._norm(prefix + self.attention_norm, dim, pre, scale),
            attention_norm_bias=self._bias(
                prefix + self.attention_norm, dim, pre and config.norm_bias
            ),
            post_attention_norm=self._norm(prefix + self.post_attention_norm, dim, post),
            mlp_norm=self._norm(prefix + mlp_norm, dim, pre_mlp, scale, self.mlp_norm_suffix),
            mlp_norm_bias=self._bias(prefix + mlp_norm, dim, pre_mlp and config.norm_bias),
            post_mlp_norm=self._norm(prefix + self.post_mlp_norm, dim, post_mlp),
            sinks=(Source(prefix + self.sinks, (attention.n_heads,)),) * attention.sinks,
            factor=(Source(prefix + self.factor, (1,)),) * layer.has_factor,
        )

    def _mixer(self, prefix: str, layer: LayerConfig, config: ModelConfig) -> dict[str, Sources]:
        """Attention, or what stands in its place."""
        attention, dim = layer.attention, config.dim
        if not layer.has_mixer:
            return {"wqkv": (), "wo": ()}
        if layer.recurrent is not None:
            assert self.recurrent is not None, "a family with recurrent layers names them"
            return self.recurrent.sources(prefix, layer.recurrent, dim)
        rope = None if attention.rope is None else config.ropes[attention.rope]
        rotated = rope.rotary_dim if rope is not None and self.rope_pairs else 0
        # Heads that are rotated as a whole need no number.
        rotated = _ALL if rotated == attention.head_dim else rotated
        qkv = _Stack(self, prefix, self._qkv(attention), _heads(attention), rotated)
        output = _Stack(self, prefix, (self.output,), [(dim, 0)])
        found = {
            "wqkv": qkv.weights(dim),
            "bqkv": qkv.biases(attention.qkv_bias),
            "wo": output.weights(attention.q_dim),
            "bo": output.biases(attention.o_bias),
            "q_norm": self._head_norm(prefix + self.q_norm, attention, attention.n_heads, rotated),
            "k_norm": (
                self._head_norm(prefix + self.k_norm, attention, attention.n_kv_heads, rotated)
                if attention.kv_from is None
                else ()
            ),
        }
        if attention.output_gate:
            for matrix, gates, n_in in (("wqkv", "w_gate", dim), ("bqkv", "b_gate", None)):
                if found[matrix]:
                    query, gate = gated_queries(prefix + self.qkv[0], attention, n_in)
                    found |= {matrix: (query, *found[matrix][1:]), gates: (gate,)}
        return found

    def _qkv(self, attention: AttentionConfig) -> tuple[str, ...]:
        if attention.kv_from is not None:
            return self.qkv[:1]
        return (*self.qkv[:2], self.qkv[1]) if attention.v_is_k else self.qkv

    def _mlp(self, prefix: str, layer: LayerConfig, dim: int) -> dict[str, Sources]:
        mlp, names, down_name = layer.mlp, self.gate_up, self.down
        # What stands beside experts of another width, too.
        if mlp.experts is not None or (layer.parallel and not layer.has_mixer):
            names, down_name = self.experts.shared_gate_up, self.experts.shared_down
        if not mlp.hidden_dim:
            return {"w_gate_up": (), "w_down": ()}
        gate_up = _Stack(self, prefix, names, [(mlp.hidden_dim, 0)] * (2 if mlp.gated else 1))
        down = _Stack(self, prefix, (down_name,), [(dim, 0)])
        return {
            "w_gate_up": gate_up.weights(dim),
            "b_gate_up": gate_up.biases(mlp.bias),
            "w_down": down.weights(mlp.hidden_dim),
            "b_down": down.biases(mlp.bias),
            "xielu": self._xielu(prefix) if mlp.stores_xielu else (),
        }

    def _xielu(self, prefix: str) -> Sources:
        """Parameters are vectors of one number, constants single numbers."""
        *learned, beta, eps = self.xielu
        return (
            *(Source(prefix + name, (1,)) for name in learned),
            *(Source(prefix + name, (), flattened=True) for name in (beta, eps)),
        )

    def _experts(self, prefix: str, layer: LayerConfig, dim: int) -> dict[str, Sources]:
        experts, names = layer.mlp.experts, self.experts
        if experts is None:
            return {}
        width = experts.width(dim)
        found = {
            "w_router": names.router_of(prefix, experts, dim),
            "b_router": names.router_bias(prefix, experts),
            "selection_bias": names.selection_bias_of(prefix, experts),
            "experts_gate_up": names.gate_up_of(prefix, experts, width, gated=layer.mlp.gated),
            "experts_down": names.down_of(prefix, experts, width, experts.hidden_dim),
            **names.norms_of(prefix, experts, dim),
            **names.latent_of(prefix, experts, dim, bias=layer.mlp.bias),
        }
        if experts.bias:
            gated = layer.mlp.gated
            found["b_experts_gate_up"] = names.gate_up_of(prefix, experts, None, gated=gated)
            found["b_experts_down"] = names.down_of(prefix, experts, width, None)
        return found

    def _norm(
        self, name: str, n: int, exists: bool, scale: float = 1.0, suffix: str = ".weight"
    ) -> Sources:
        source = Source(f"{name}{suffix}", (n,), plus=self.norms_plus, times=scale)
        return (source,) if exists else ()

    def _bias(self, name: str, n: int, exists: bool) -> Sources:
        return (Source(f"{name}.bias", (n,)),) if exists else ()

    def _head_norm(
        self, name: str, attention: AttentionConfig, n_heads: int, rotated: int
    ) -> Sources:
        norm, head_dim, plus = attention.qk_norm, attention.head_dim, self.norms_plus
        if norm is None:
            return ()
        pairs = n_heads if rotated else 0
        match norm.over:
            case "head":
                pairs = min(pairs, 1)
                one = Source(
                    f"{name}.weight",
                    (head_dim,),
                    rope_heads=pairs,
                    rope_rows=max(rotated, 0),
                    plus=plus,
                )
                return (one,) * (1 if norm.is_plain else n_heads)
            case "all":
                shape: tuple[int, ...] = (n_heads * head_dim,)
            case "heads" if "{}" in name:
                return tuple(
                    Source(f"{name.format(head)}.weight", (head_dim,), plus=plus)
                    for head in range(n_heads)
                )
            case _:
                shape = (n_heads, head_dim)
        return (
            Source(
                f"{name}.weight",
                shape,
                flattened=len(shape) > 1,
                rope_heads=pairs,
                rope_rows=max(rotated, 0),
                plus=plus,
            ),
        )


def _heads(attention: AttentionConfig) -> Sequence[tuple[int, int]]:
    """Rows of q, and of k and v if it has them, and how many heads of them are rotated."""
    of_queries = (attention.q_dim, attention.n_heads)
    if attention.kv_from is not None:
        return (of_queries,)
    return of_queries, (attention.kv_dim, attention.n_kv_heads), (attention.kv_dim, 0)


@dataclass(frozen=True, slots=True)
class _Stack:
    """Parts that are stacked to one matrix, from a tensor each or all from one."""

    family: Names
    prefix: str
    names: Sequence[str]
    parts: Sequence[tuple[int, int]]
    """Rows, and how many heads of them are rotated."""
    rotated: int = 0
    """Rows of each of these heads that are stored in pairs, or _ALL."""

    def weights(self, n_in: int) -> Sources:
        return self._sources("weight", n_in)

    def biases(self, has_bias: bool) -> Sources:
        return self._sources("bias", None) if has_bias else ()

    def _sources(self, kind: str, n_in: int | None) -> Sources:
        transposed = self.family.transposed and n_in is not None

        def source(
            name: str, n: int, heads: int, rows: tuple[int, int] | None, n_all: int
        ) -> Source:
            shape = (n_all,) if n_in is None else (n_in, n_all) if transposed else (n_all, n_in)
            return Source(
                f"{self.prefix}{name}.{kind}",
                shape,
                transposed=transposed,
                groups=self._n_groups if rows else 1,
                rows=rows,
                rope_heads=heads if self.rotated else 0,
                rope_rows=max(self.rotated, 0) if heads else 0,
            )

        if len(self.names) == len(self.parts):
            return tuple(
                source(name, n, heads, None, n)
                for name, (n, heads) in zip(self.names, self.parts, strict=True)
            )
        (name,) = self.names
        ends = np.cumsum([0, *(n // self._n_groups for n, _ in self.parts)]).tolist()
        return tuple(
            source(name, n, heads, rows, ends[-1] * self._n_groups)
            for (n, heads), rows in zip(self.parts, pairwise(ends), strict=True)
        )

    @property
    def _n_groups(self) -> int:
        """Of a fused tensor: one for each key head, or one of all."""
        return self.parts[1][1] if self.family.fused_per_head and len(self.parts) == 3 else 1
