"""What a checkpoint says about itself, in the words of this project.

Owns the shape of the data only: `config_json.py` and the families fill it from a Hugging Face
config.json, `engine/model/` reads it. Knows no file and no tensor.
"""

from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from .activation import Activation, Xielu
from .recurrent import Recurrent, StateShape
from .ropes import RopeConfig


@dataclass(frozen=True, slots=True)
class QkNorm:
    """A norm of queries and keys. As it is without options, attention itself computes it."""

    over: Literal["head", "heads", "all"] = "head"
    """What shares a weight and a mean: `head`: each head is normed with the same weights, `heads`:
    each with its own, `all`: all heads together.
    """
    centered: bool = False
    """LayerNorm: the mean is taken away first."""
    after_rope: bool = False

    @property
    def is_plain(self) -> bool:
        return self == QkNorm()


@dataclass(frozen=True, slots=True)
class QueryScaling:
    """Queries at position i are multiplied by 1 + beta * ln(1 + floor(i / original))"""

    beta: float
    original_max_seq_len: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionConfig:
    """Attention of one layer. Query heads share keys and values in groups of equal size."""

    n_heads: int
    n_kv_heads: int
    head_dim: int
    window: int = 0
    """Keys that a query sees: key j is visible to query i iff i - j < window. 0: all."""
    rope: int | None = 0
    """Which of the model's `ropes` it uses; None: no position embedding."""
    qkv_bias: bool = False
    o_bias: bool = False
    qk_norm: QkNorm | None = None
    scale: float | None = None
    """Multiplies the products of queries and keys; None: 1 / sqrt(head_dim)."""
    softcap: float = 0.0
    """Scores become softcap * tanh(score / softcap); 0: they stay."""
    query_scaling: QueryScaling | None = None
    sinks: bool = False
    """Whether each head has a learned score that takes part in every softmax, without a value."""
    v_norm: bool = False
    """RMSNorm of each head of the values, without weights."""
    v_is_k: bool = False
    """Whether keys and values are projected by the same matrix. Norm and rope are those of each."""
    kv_from: int | None = None
    """The earlier layer whose keys and values it reads; None: it has its own."""
    output_gate: bool = False
    """Whether the output of each head is multiplied by the sigmoid of a projection of its own."""

    def __post_init__(self) -> None:
        if self.query_scaling is not None and self.qk_norm == QkNorm():
            raise ValueError("query_scaling: the norm inside attention would undo it")

    @property
    def score_scale(self) -> float:
        return self.head_dim**-0.5 if self.scale is None else self.scale

    @property
    def q_dim(self) -> int:
        """Width of all queries, and of the output."""
        return self.n_heads * self.head_dim

    @property
    def kv_dim(self) -> int:
        """Width of all keys, and of all values."""
        return self.n_kv_heads * self.head_dim

    @property
    def qkv_dim(self) -> int:
        """Rows of the fused q, k, v projection; of q alone where another layer has k and v."""
        return self.q_dim + (2 * self.kv_dim if self.kv_from is None else 0)

    def n_params(self, dim: int) -> int:
        n_stored = self.qkv_dim - (self.kv_dim if self.v_is_k and self.kv_from is None else 0)
        n_stored += self.q_dim if self.output_gate else 0
        n = dim * (n_stored + self.q_dim)
        n += n_stored if self.qkv_bias else 0
        n += dim if self.o_bias else 0
        n += self.n_heads if self.sinks else 0
        return n if self.qk_norm is None else n + self._norm_params(self.qk_norm)

    def _norm_params(self, norm: QkNorm) -> int:
        of_queries, of_keys = (
            (self.head_dim, self.head_dim) if norm.over == "head" else (self.q_dim, self.kv_dim)
        )
        return of_queries + (of_keys if self.kv_from is None else 0)


NO_ATTENTION = AttentionConfig(n_heads=0, n_kv_heads=0, head_dim=0, rope=None)
"""Of a layer that has something else in its place."""


Scoring = Literal["softmax", "sigmoid", "chosen_softmax", "sparse_mixer"]
"""What a router's numbers become; chosen_softmax is the softmax of the chosen experts' numbers.
sparse_mixer is the softmax, for each chosen expert in turn, of those that are left and close to it:
(number - other) / max(|other|, number) is at most `spread`.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertsConfig:
    """Feed-forward parts from which a router chooses some for each token."""

    n_experts: int
    n_used: int
    """Of each token."""
    hidden_dim: int
    scoring: Scoring = "softmax"
    selection_bias: bool = False
    """Whether a bias is added to the scores for the choice alone."""
    n_groups: int = 1
    """Equal groups of experts, of which the best `n_groups_used` take part in the choice."""
    n_groups_used: int = 1
    group_best: int = 1
    """A group is as good as the sum of the scores of so many of its experts."""
    renormalized: bool = False
    """Whether the weights of the chosen experts are divided by their sum."""
    scale: float = 1.0
    """Multiplies these weights."""
    spread: float = 0.0
    """Of sparse_mixer."""
    router_bias: bool = False
    bias: bool = False
    """Of all matrices of the experts."""
    shared_gate: bool = False
    """Whether what is shared is multiplied by the sigmoid of one more number of the router."""
    own_norms: bool = False
    """Whether the experts and the router each have a norm of their own before them, and what is
    shared and what the experts add each have one behind them.
    """
    router_scale: float = 1.0
    """Multiplies the router's numbers."""
    expert_scales: bool = False
    """Whether a stored number of each expert multiplies its weight in the end."""
    latent_dim: int = 0
    """Width of what they read and give, between two projections; 0: that of the model. The decoder
    then has what all tokens go through in a layer of its own.
    """

    def __post_init__(self) -> None:
        if not 1 <= self.n_used <= self.n_experts:
            raise ValueError(f"n_used: {self.n_used} of {self.n_experts} experts")
        if self.n_experts % self.n_groups or not 1 <= self.n_groups_used <= self.n_groups:
            raise ValueError(f"n_groups: {self.n_groups_used} of {self.n_groups} equal groups")
        if self.n_used > self.n_groups_used * (self.n_experts // self.n_groups):
            raise ValueError(f"n_groups_used: too few experts for {self.n_used}")

    def width(self, dim: int) -> int:
        """Of what an expert reads and gives in a model of this width."""
        return self.latent_dim or dim

    @property
    def router_dim(self) -> int:
        """Rows of the router's matrix, with that of the shared gate."""
        return self.n_experts + self.shared_gate

    def n_params(self, dim: int, *, gated: bool) -> int:
        """Of the router and all experts; `gated`: whether these have gates."""
        n_inner = (2 if gated else 1) * self.hidden_dim
        width = self.width(dim)
        each = width * (n_inner + self.hidden_dim) + (n_inner + width if self.bias else 0)
        biases = self.n_experts * (self.selection_bias + self.router_bias + self.expert_scales)
        norms = 4 * dim if self.own_norms else 0
        projections = 2 * dim * self.latent_dim
        return self.router_dim * dim + biases + norms + projections + self.n_experts * each


@dataclass(frozen=True, slots=True)
class MlpConfig:
    """The feed-forward part of one layer: down(activation(gate) * up), or down(activation(up)).

    With `experts` it is what all tokens go through besides theirs, and may be 0 wide.
    """

    hidden_dim: int
    bias: bool = False
    """Of all matrices."""
    activation: Activation = "silu"
    gated: bool = True
    experts: ExpertsConfig | None = None
    xielu: Xielu | None = None
    """Of the activation of this name; None: a checkpoint has tensors of them."""

    @property
    def stores_xielu(self) -> bool:
        return self.activation == "xielu" and self.xielu is None

    @property
    def exists(self) -> bool:
        return self.hidden_dim > 0 or self.experts is not None

    @property
    def inner_dim(self) -> int:
        """Rows of gate and up together, or of up alone."""
        return (2 if self.gated else 1) * self.hidden_dim

    def n_params(self, dim: int) -> int:
        n = dim * (self.inner_dim + self.hidden_dim)
        n += self.inner_dim + dim if self.bias else 0
        n += 4 if self.stores_xielu else 0
        return n if self.experts is None else n + self.experts.n_params(dim, gated=self.gated)


NO_MLP = MlpConfig(0)
"""Of a layer without a feed-forward part."""


@dataclass(frozen=True, slots=True)
class LayerConfig:
    """One layer: attention, or something recurrent in its place, and feed-forward, each of which
    adds to the residual; one of both may be missing. Norms stand before both, or
    behind both, or on both sides.
    """

    attention: AttentionConfig
    mlp: MlpConfig
    pre_norms: bool = True
    post_norms: bool = False
    parallel: bool = False
    """Whether its last part reads what the part before it read: feed-forward what attention reads,
    or the one part of a layer what the layer before it read, through the same norm.
    """
    continues: bool = False
    """Whether a checkpoint stores it and the layer before it as one."""
    input_scale: float = 1.0
    """Multiplies what the norms before its parts give."""
    two_norms: bool = False
    """Whether a parallel layer that may have one norm or two has two."""
    residual_scale: float = 1.0
    """Multiplies what attention and feed-forward add."""
    has_factor: bool = False
    """Whether a stored number multiplies its output."""
    recurrent: Recurrent | None = None
    """What stands in the place of attention, which is then NO_ATTENTION."""
    embedding_dim: int = 0
    """Width of the embedding that it adds behind the feed-forward part; 0: there is none."""

    def __post_init__(self) -> None:
        if self.recurrent is not None and self.attention != NO_ATTENTION:
            raise ValueError("recurrent: a layer has this or attention, not both")
        if self.has_factor and not self.post_norms:
            raise ValueError("has_factor: only the op that norms what is added has a factor")
        experts = self.mlp.experts
        if experts is not None and experts.own_norms and not (self.pre_norms and self.post_norms):
            raise ValueError("own_norms: only in a layer with norms on both sides")

    @property
    def n_norms(self) -> int:
        n_own = self.n_halves - (self.parallel and self.n_halves == 1)
        return n_own * (self.pre_norms + self.post_norms)

    @property
    def has_mixer(self) -> bool:
        """Attention, or what stands in its place."""
        return self.recurrent is not None or self.attention != NO_ATTENTION

    @property
    def n_halves(self) -> int:
        return self.has_mixer + self.mlp.exists

    @property
    def in_dim(self) -> int:
        """Rows of the projection in front of attention, or of what stands in its place."""
        return self.attention.qkv_dim if self.recurrent is None else self.recurrent.in_dim

    @property
    def out_dim(self) -> int:
        """Columns of the projection behind it."""
        return self.attention.q_dim if self.recurrent is None else self.recurrent.out_dim

    def n_params(self, dim: int) -> int:
        """Without the norms that `n_norms` counts."""
        recurrent = 0 if self.recurrent is None else self.recurrent.n_params(dim)
        n = self.attention.n_params(dim) + recurrent + self.mlp.n_params(dim) + self.has_factor
        return n + (dim * (2 * self.embedding_dim + 1) if self.embedding_dim else 0)


@dataclass(frozen=True, slots=True)
class LayerEmbeddings:
    """An embedding of each token for every layer: table_scale times a row of a table, plus
    normed_scale times the norm of projection_scale times a product with the token's embedding.
    """

    dim: int
    """Of one layer."""
    table_scale: float
    projection_scale: float
    normed_scale: float

    def n_params(self, vocab_size: int, dim: int, n_layers: int) -> int:
        return (vocab_size + dim) * n_layers * self.dim + self.dim


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """What happens before the first layer and after the last one."""

    embedding_scale: float = 1.0
    n_positions: int = 0
    """Rows of the table of positions that is added to the embedding; 0: there is none."""
    layer_embeddings: LayerEmbeddings | None = None
    head_bias: bool = False
    logit_scale: float = 1.0
    logit_softcap: float = 0.0
    """Scaled logits become softcap * tanh(logit / softcap); 0: they stay."""


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """One decoder: sizes, position embeddings, and the layers in order."""

    architecture: str
    dim: int
    vocab_size: int
    norm_eps: float
    ropes: tuple[RopeConfig, ...]
    layers: tuple[LayerConfig, ...]
    tie_embeddings: bool
    max_seq_len: int
    eos_token_ids: tuple[int, ...]
    bos_token_id: int | None
    centered_norms: bool = False
    """LayerNorm: the mean is taken away before a row is normed."""
    norm_bias: bool = False
    fused_qkv: bool = False
    """Whether a file that may store q, k and v in one tensor does so."""
    experts_in_blocks: bool = False
    """Whether a checkpoint that may store experts in blocks of MXFP4 does so."""
    fused_experts: bool = False
    """Whether a checkpoint that may store gate and up of experts in one tensor does so."""
    ends: Ends = Ends()

    @property
    def n_layers(self) -> int:
        return len(self.layers)

    @property
    def stored_places(self) -> tuple[int, ...]:
        """Per layer, the number of the layer of a checkpoint that it is, or is a part of."""
        return tuple(n - 1 for n in accumulate(not layer.continues for layer in self.layers))

    @property
    def n_stored_layers(self) -> int:
        return self.stored_places[-1] + 1

    @property
    def usual_seq_len(self) -> int:
        """The longest context without asking for more: a longer one may cost short texts."""
        lengths = [rope.unstretched or self.max_seq_len for rope in self.ropes]
        return min([self.max_seq_len, *lengths])

    def stretched_to(self, max_seq_len: int) -> int:
        """The context length that the position embeddings depend on; 0 if they do not."""
        return max((rope.stretched_to(max_seq_len) for rope in self.ropes), default=0)

    @property
    def n_params(self) -> int:
        """Parameters of the whole model; a tied head is counted once."""
        heads, ends = 1 if self.tie_embeddings else 2, self.ends
        n_norms = 1 + sum(layer.n_norms for layer in self.layers)
        of_layers = ends.layer_embeddings
        return (
            heads * self.vocab_size * self.dim
            + (self.vocab_size if ends.head_bias else 0)
            + ends.n_positions * self.dim
            + n_norms * self.dim * (2 if self.norm_bias else 1)
            + (of_layers.n_params(self.vocab_size, self.dim, self.n_layers) if of_layers else 0)
            + sum(layer.n_params(self.dim) for layer in self.layers)
        )

    @property
    def kv_shapes(self) -> tuple[tuple[int, int], ...]:
        """(n_kv_heads, head_dim) of each layer that has keys and values of its own."""
        found = [layer.attention for layer in self.layers]
        attentions = [own for own in found if own != NO_ATTENTION]
        return tuple((own.n_kv_heads, own.head_dim) for own in attentions if own.kv_from is None)

    @property
    def state_shapes(self) -> tuple[StateShape, ...]:
        """Of each recurrent layer."""
        found = [layer.recurrent for layer in self.layers]
        return tuple(own.state_shape for own in found if own is not None)

    @property
    def last_with_kv(self) -> int:
        """The last layer that has keys and values of its own, or states."""
        layers = enumerate(self.layers)
        own = [i for i, each in layers if each.has_mixer and each.attention.kv_from is None]
        return own[-1]

    @property
    def kv_windows(self) -> tuple[int, ...]:
        """The window of each of the `kv_shapes`: the widest of the layers that read it; 0: all."""
        readers: list[list[int]] = [[] for _ in self.kv_shapes]
        for layer, place in zip(self.layers, self.kv_places, strict=True):
            if place is not None:
                readers[place].append(layer.attention.window)
        return tuple(max(windows) if all(windows) else 0 for windows in readers)

    @property
    def kv_places(self) -> tuple[int | None, ...]:
        """Per layer, which of the `kv_shapes` its keys and values have; None: it has none."""
        places: list[int | None] = []
        n_own = 0
        for layer in self.layers:
            if layer.attention == NO_ATTENTION:
                places.append(None)
                continue
            source = layer.attention.kv_from
            places.append(n_own if source is None else places[source])
            n_own += source is None
        return tuple(places)
