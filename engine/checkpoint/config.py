"""What a checkpoint says about itself, in the words of this project.

Owns the shape of the data only: `families.py` fills it from a Hugging Face config.json,
`weights.py` and `model.py` read it. Knows no file and no tensor.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LinearScaling:
    """Positions are divided by `factor`."""

    factor: float


@dataclass(frozen=True, slots=True)
class Llama3Scaling:
    """Low frequencies are divided by `factor`, high ones kept, those between interpolated."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_seq_len: int


@dataclass(frozen=True, slots=True)
class DynamicScaling:
    """A larger theta for contexts longer than the original one, the larger the longer they are."""

    factor: float
    original_max_seq_len: int


@dataclass(frozen=True, slots=True)
class YarnScaling:
    """Frequencies that turn seldom in the original context are divided by `factor`, those that turn
    often kept. Queries and keys are multiplied by `attention_factor`.
    """

    factor: float
    original_max_seq_len: int
    attention_factor: float
    beta_fast: float  # turns from which on a frequency is kept
    beta_slow: float  # turns up to which it is divided
    truncate: bool  # whether both borders are rounded, away from each other


@dataclass(frozen=True, slots=True)
class LongScaling:
    """A divisor of each frequency (LongRoPE): one list within the original context, another for
    longer ones. Queries and keys are multiplied by `attention_factor`.
    """

    short_factors: tuple[float, ...]
    long_factors: tuple[float, ...]
    original_max_seq_len: int
    attention_factor: float


RopeScaling = LinearScaling | Llama3Scaling | DynamicScaling | YarnScaling | LongScaling


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """Rotary position embedding: pairs (i, i + rotary_dim / 2) of the first `rotary_dim` dims."""

    theta: float
    rotary_dim: int
    scaling: RopeScaling | None = None

    @property
    def unstretched(self) -> int | None:
        """The longest context that turns nothing otherwise than the original one did; None when
        its length makes no difference.
        """
        if isinstance(self.scaling, DynamicScaling | LongScaling):
            return self.scaling.original_max_seq_len
        return None

    def describe(self) -> str:
        """One line for people."""
        theta = f"RoPE theta {self.theta:g}"
        match self.scaling:
            case None:
                return theta
            case LinearScaling(factor):
                return f"{theta}, linear scaling by {factor:g}"
            case Llama3Scaling(factor=factor, original_max_seq_len=original):
                return f"{theta}, llama3 scaling by {factor:g} from {original:,}"
            case YarnScaling(factor, original):
                return f"{theta}, yarn scaling by {factor:g} from {original:,}"
            case DynamicScaling(factor, original):
                return f"{theta}, dynamic scaling by {factor:g} for contexts beyond {original:,}"
            case LongScaling(original_max_seq_len=original):
                return f"{theta}, longrope scaling for contexts beyond {original:,}"

    def stretched_to(self, max_seq_len: int) -> int:
        """The context length that the frequencies depend on; 0 where they do not."""
        unstretched = self.unstretched
        if unstretched is None or max_seq_len <= unstretched:
            return 0
        return max_seq_len if isinstance(self.scaling, DynamicScaling) else unstretched + 1


@dataclass(frozen=True, slots=True)
class LayerConfig:
    """What may differ between the layers of one model.

    `window` 0 is full attention; otherwise key j is visible to query i iff i - j < window.
    """

    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    window: int = 0


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """One decoder: sizes, position embedding, and the layers in order."""

    architecture: str
    n_layers: int
    dim: int
    hidden_dim: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    vocab_size: int
    norm_eps: float
    rope: RopeConfig
    layers: tuple[LayerConfig, ...]
    tie_embeddings: bool
    max_seq_len: int
    eos_token_ids: tuple[int, ...]
    bos_token_id: int | None

    @property
    def usual_seq_len(self) -> int:
        """The longest context that nobody has to ask for: a longer one may cost short texts."""
        return min(self.max_seq_len, self.rope.unstretched or self.max_seq_len)

    @property
    def qkv_dim(self) -> int:
        """Rows of the fused q, k, v projection."""
        return (self.n_heads + 2 * self.n_kv_heads) * self.head_dim

    @property
    def n_params(self) -> int:
        """Parameters of the whole model; a tied head is counted once."""
        heads = 1 if self.tie_embeddings else 2
        return (
            heads * self.vocab_size * self.dim
            + self.dim
            + sum(self._n_layer_params(layer) for layer in self.layers)
        )

    @property
    def n_kv_per_token(self) -> int:
        """Keys and values of one position over all heads and layers, each (head_dim,)."""
        return 2 * self.n_layers * self.n_kv_heads

    def _n_layer_params(self, layer: LayerConfig) -> int:
        q_dim = self.n_heads * self.head_dim
        n = self.dim * (self.qkv_dim + q_dim) + 3 * self.dim * self.hidden_dim + 2 * self.dim
        n += self.qkv_dim if layer.qkv_bias else 0
        n += self.dim if layer.o_bias else 0
        n += 2 * self.hidden_dim + self.dim if layer.mlp_bias else 0
        n += 2 * self.head_dim if layer.qk_norm else 0
        return n
