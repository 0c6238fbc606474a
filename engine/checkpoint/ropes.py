"""Position embeddings that rotate, and the ways to stretch them to longer contexts.

Owns the shape of the data and its words for people; `engine/model/rope.py` computes the tables.
Knows no layer and no file.
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
    """Theta grows with the context once that exceeds the original one."""

    factor: float
    original_max_seq_len: int


@dataclass(frozen=True, slots=True)
class YarnScaling:
    """Frequencies with few turns in the original context are divided by `factor`; those with many
    stay. Queries and keys are multiplied by `attention_factor`.
    """

    factor: float
    original_max_seq_len: int
    attention_factor: float
    beta_fast: float  # with at least this many turns a frequency stays
    beta_slow: float  # with at most this many turns it is divided
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
    short_attention_factor: float | None = None
    """The same within the original context; None: no other one."""


@dataclass(frozen=True, slots=True)
class DividedScaling:
    """Each frequency is divided by its own number."""

    divisors: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class ProportionalScaling:
    """The first `n_turning` frequencies are divided by `factor`, the others are 0: those pairs of a
    head stay as they are.
    """

    factor: float
    n_turning: int


RopeScaling = (
    LinearScaling
    | Llama3Scaling
    | DynamicScaling
    | YarnScaling
    | LongScaling
    | DividedScaling
    | ProportionalScaling
)


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """Rotary position embedding: pairs (i, i + rotary_dim / 2) of the first `rotary_dim` dims."""

    theta: float
    rotary_dim: int
    scaling: RopeScaling | None = None

    @property
    def unstretched(self) -> int | None:
        """The longest context with the original frequencies; None if they do not depend on it."""
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
            case DividedScaling(divisors):
                return f"{theta}, each frequency divided by {min(divisors):g} to {max(divisors):g}"
            case ProportionalScaling(n_turning=n_turning):
                return f"{theta}, {2 * n_turning} of {self.rotary_dim} dimensions rotated"

    def stretched_to(self, max_seq_len: int) -> int:
        """The context length that the frequencies depend on; 0 if they do not."""
        unstretched = self.unstretched
        if unstretched is None or max_seq_len <= unstretched:
            return 0
        return max_seq_len if isinstance(self.scaling, DynamicScaling) else unstretched + 1
