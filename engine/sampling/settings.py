"""The sampling settings of a request, their ranges, and the order of the stages.

Owns validation. Knows no logits, no vocabulary and no running state.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..errors import InvalidInputError
from .random_numbers import MAX_SEED
from .request import Stage

Parameters = tuple[float, float, float]

DRY_SEQUENCE_BREAKERS = (*".,!?<>[](){}\n\t", '"')
LARGEST_BIAS = 1e9
MAX_BREAKERS = 64
MAX_BREAKER_LENGTH = 64

# The order unless a request gives another. With `temperature_last` the temperature moves to just
# before the dynamic one.
DEFAULT_ORDER = (
    Stage.SMOOTHING,
    Stage.TEMPERATURE,
    Stage.TOP_N_SIGMA,
    Stage.TOP_K,
    Stage.TOP_P,
    Stage.TOP_A,
    Stage.MIN_P,
    Stage.TFS,
    Stage.TYPICAL,
    Stage.MIROSTAT,
    Stage.DYNAMIC_TEMPERATURE,
    Stage.XTC,
)
STAGE_NAMES = tuple(stage.name.lower() for stage in DEFAULT_ORDER)

_LARGEST_COUNT = 2**31 - 1
_REALS = {
    "temperature": (0.0, 100.0),
    "min_temperature": (0.0, 100.0),
    "max_temperature": (0.0, 100.0),
    "temperature_exponent": (0.0, 100.0),
    "smoothing_factor": (0.0, 100.0),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "top_a": (0.0, 1.0),
    "top_n_sigma": (0.0, 100.0),
    "tfs": (0.0, 1.0),
    "typical_p": (0.0, 1.0),
    "skew": (-10.0, 10.0),
    "mirostat_tau": (0.0, 100.0),
    "mirostat_eta": (0.0, 1.0),
    "xtc_probability": (0.0, 1.0),
    "xtc_threshold": (0.0, 1.0),
    "dry_multiplier": (0.0, 100.0),
    "dry_base": (1.0, 100.0),
    "repetition_penalty": (0.01, 100.0),
    "frequency_penalty": (-2.0, 2.0),
    "presence_penalty": (-2.0, 2.0),
}
_WHOLES = {
    "top_k": (0, _LARGEST_COUNT),
    "dry_allowed_length": (0, 100),
    "dry_range": (0, _LARGEST_COUNT),
    "dry_max_ngram": (1, 100),
    "repetition_range": (-1, _LARGEST_COUNT),
    "repetition_decay": (0, _LARGEST_COUNT),
}


@dataclass(frozen=True, slots=True)
class SamplingSettings:
    """How one token is chosen from the logits. Every default leaves the distribution as it is.

    First the logits are adjusted: penalties, `logit_bias`, DRY, `allowed_tokens`, `banned_tokens`.
    Then the stages run in DEFAULT_ORDER or `sampler_order`. Each sees what the one before it left,
    with probabilities that sum to 1 again; none removes the last candidate. Last comes the draw,
    with `skew`. The formulas are in `sampling/reference/`.

    Raises InvalidInputError, with the field's name, for a value out of range.
    """

    temperature: float = 1.0
    """0 to 100; 1 is neutral. Divides the logits. 0 is greedy: the largest adjusted logit is taken
    and no stage runs.
    """
    temperature_last: bool = False
    """Whether the temperature acts after the filters, just before XTC. A dynamic temperature then
    replaces `temperature`. Cannot be combined with `sampler_order`.
    """
    min_temperature: float = 0.0
    """0 to 100. Lower end of the dynamic temperature."""
    max_temperature: float = 0.0
    """`min_temperature` to 100, or 0. Upper end of the dynamic temperature, which rises with the
    entropy of the candidates. Off unless it is above `min_temperature`.
    """
    temperature_exponent: float = 1.0
    """0 to 100. Exponent of the normalised entropy in the dynamic temperature; 1 is linear."""
    smoothing_factor: float = 0.0
    """0 to 100; 0 is off. A logit at distance d from the best moves to distance factor * d^2."""
    top_k: int = 0
    """0 or more; 0 is off. Keeps the k most likely tokens."""
    top_p: float = 1.0
    """0 to 1; 1 is off. Keeps the fewest most likely tokens whose sum reaches p, the one that
    crosses it included.
    """
    min_p: float = 0.0
    """0 to 1; 0 is off. Keeps tokens of at least this share of the largest probability."""
    top_a: float = 0.0
    """0 to 1; 0 is off. Keeps tokens of at least a times the square of the largest probability."""
    top_n_sigma: float = 0.0
    """0 to 100; 0 is off. Keeps logits within n standard deviations of the largest."""
    tfs: float = 1.0
    """0 to 1; 1 is off. Tail free sampling: cuts where the curve of sorted probabilities has spent
    this share of its bending.
    """
    typical_p: float = 1.0
    """0 to 1; 1 is off. Keeps the fewest tokens whose surprise is nearest to the entropy and whose
    sum reaches p, the one that crosses it included.
    """
    skew: float = 0.0
    """-10 to 10; 0 is neutral. Moves the draw towards unlikely candidates, below 0 towards likely
    ones.
    """
    mirostat: bool = False
    """Mirostat 2: keeps tokens of at most mu bits of surprise; mu adapts with every token."""
    mirostat_tau: float = 1.5
    """0 to 100. The surprise, in bits, that mirostat aims at."""
    mirostat_eta: float = 0.1
    """0 to 1. How fast mirostat adapts; 0: never."""
    xtc_probability: float = 0.0
    """0 to 1; 0 is off. How likely XTC strikes: it then removes all tokens of at least
    `xtc_threshold` but the least likely of them.
    """
    xtc_threshold: float = 0.1
    """0 to 1. XTC ignores tokens below it, tokens with a newline, and special tokens."""
    dry_multiplier: float = 0.0
    """0 to 100; 0 is off. DRY subtracts multiplier * `dry_base` ^ (L - `dry_allowed_length`) from
    the logit of a token that would prolong a repeat of L tokens, if L >= `dry_allowed_length`.
    """
    dry_base: float = 1.75
    """1 to 100. How fast DRY's penalty grows with the length of the repeat; 1: it is constant."""
    dry_allowed_length: int = 2
    """0 to 100. Shorter repeats cost nothing."""
    dry_range: int = 0
    """0 or more. How many of the newest tokens DRY searches; 0: all."""
    dry_max_ngram: int = 20
    """1 to 100. A longer repeat counts as one of this length."""
    dry_sequence_breakers: Sequence[str] = DRY_SEQUENCE_BREAKERS
    """Up to 64 strings of 1 to 64 characters. No repeat reaches across a token that contains one,
    nor across a special token.
    """
    repetition_penalty: float = 1.0
    """0.01 to 100; 1 is neutral. Divides positive logits, and multiplies negative ones, of all
    tokens of prompt and completion.
    """
    repetition_range: int = -1
    """-1 or more. How many of the newest tokens the three penalties see; -1: all, 0: none."""
    repetition_decay: int = 0
    """0 or more. Over how many tokens before these the three penalties fade out; 0: at once."""
    frequency_penalty: float = 0.0
    """-2 to 2; 0 is neutral. Subtracted once per occurrence of a token in the completion (OpenAI).
    """
    presence_penalty: float = 0.0
    """-2 to 2; 0 is neutral. Subtracted once from every token of the completion (OpenAI)."""
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    """Token ids and values added to their logits: -1e9 to 1e9, or -inf, which forbids a token."""
    allowed_tokens: Sequence[int] | None = None
    """At least one id. All other tokens are removed; None: none are."""
    banned_tokens: Sequence[int] = ()
    """Ids of tokens that are removed."""
    sampler_order: Sequence[str] | None = None
    """Names out of STAGE_NAMES in another order: each at most once, and every stage that the
    settings use. None: DEFAULT_ORDER.
    """
    seed: int | None = None
    """-2^63 to 2^64 - 1. The same seed gives the same text; None: drawn when the stream begins."""

    def __post_init__(self) -> None:
        for name, (low, high) in _REALS.items():
            _require(name, getattr(self, name), low, high)
        for name, (lowest, highest) in _WHOLES.items():
            _require_whole(name, getattr(self, name), lowest, highest)
        if self.seed is not None:
            _require_whole("seed", self.seed, -(2**63), MAX_SEED)
        if self.max_temperature:
            _require("max_temperature", self.max_temperature, self.min_temperature, 100.0)
        self._check_biases()
        self._check_breakers()
        self._check_order()

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0

    def stages(self) -> list[tuple[Stage, Parameters]]:
        """The stages that are on and their parameters, in the order in which they run."""
        parameters = self._parameters()
        return [(stage, parameters[stage]) for stage in self._order() if stage in parameters]

    def _parameters(self) -> dict[Stage, Parameters]:
        """Parameters of the stages that are on."""
        is_dynamic = self.max_temperature > self.min_temperature
        has_temperature = self.temperature != 1.0 and not (is_dynamic and self.temperature_last)
        dynamic = (self.min_temperature, self.max_temperature, self.temperature_exponent)
        values = {
            Stage.SMOOTHING: (self.smoothing_factor > 0, (self.smoothing_factor, 0.0, 0.0)),
            Stage.TEMPERATURE: (has_temperature, (self.temperature, 0.0, 0.0)),
            Stage.TOP_N_SIGMA: (self.top_n_sigma > 0, (self.top_n_sigma, 0.0, 0.0)),
            Stage.TOP_K: (self.top_k > 0, (float(self.top_k), 0.0, 0.0)),
            Stage.TOP_P: (self.top_p < 1, (self.top_p, 0.0, 0.0)),
            Stage.TOP_A: (self.top_a > 0, (self.top_a, 0.0, 0.0)),
            Stage.MIN_P: (self.min_p > 0, (self.min_p, 0.0, 0.0)),
            Stage.TFS: (self.tfs < 1, (self.tfs, 0.0, 0.0)),
            Stage.TYPICAL: (self.typical_p < 1, (self.typical_p, 0.0, 0.0)),
            Stage.MIROSTAT: (self.mirostat, (0.0, 0.0, 0.0)),
            Stage.DYNAMIC_TEMPERATURE: (is_dynamic, dynamic),
            Stage.XTC: (self.xtc_probability > 0, (self.xtc_probability, self.xtc_threshold, 0.0)),
        }
        return {stage: parameters for stage, (is_on, parameters) in values.items() if is_on}

    def _order(self) -> list[Stage]:
        if self.sampler_order is not None:
            return [Stage[name.upper()] for name in self.sampler_order]
        order = list(DEFAULT_ORDER)
        if self.temperature_last:
            order.remove(Stage.TEMPERATURE)
            order.insert(order.index(Stage.DYNAMIC_TEMPERATURE), Stage.TEMPERATURE)
        return order

    def _check_biases(self) -> None:
        for token_id, bias in self.logit_bias.items():
            if not (abs(bias) <= LARGEST_BIAS or bias == -math.inf):
                raise InvalidInputError(
                    f"logit_bias of token {token_id} must be between {-LARGEST_BIAS} and "
                    f"{LARGEST_BIAS}, or -inf, not {bias}",
                    param="logit_bias",
                )
        if self.allowed_tokens is not None and not len(self.allowed_tokens):
            raise InvalidInputError(
                "allowed_tokens must hold at least 1 token, not 0", param="allowed_tokens"
            )

    def _check_breakers(self) -> None:
        name, breakers = "dry_sequence_breakers", self.dry_sequence_breakers
        if isinstance(breakers, str):
            raise InvalidInputError(f"{name} must be a sequence of strings, not one", param=name)
        if len(breakers) > MAX_BREAKERS:
            raise InvalidInputError(
                f"{name} must hold 0 to {MAX_BREAKERS} strings, not {len(breakers)}", param=name
            )
        for breaker in breakers:
            if not 1 <= len(breaker) <= MAX_BREAKER_LENGTH:
                raise InvalidInputError(
                    f"each string of {name} must have 1 to {MAX_BREAKER_LENGTH} characters, "
                    f"not {len(breaker)}",
                    param=name,
                )
            if any("\ud800" <= character <= "\udfff" for character in breaker):
                raise InvalidInputError(
                    f"{name} holds a lone surrogate, which is not a valid character", param=name
                )

    def _check_order(self) -> None:
        if self.sampler_order is None:
            return
        message = ""
        names = list(self.sampler_order)
        unknown = [name for name in names if name not in STAGE_NAMES]
        if unknown:
            message = f"must hold names out of {', '.join(STAGE_NAMES)}, not {unknown[0]!r}"
        elif len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            message = f"must hold each name at most once; {twice!r} is repeated"
        elif self.temperature_last:
            message = "cannot be combined with temperature_last: it already places the temperature"
        else:
            used = [stage.name.lower() for stage in self._parameters()]
            missing = [name for name in used if name not in names] if not self.is_greedy else []
            if missing:
                message = f"must hold every stage that the settings use; {missing[0]!r} is missing"
        if message:
            raise InvalidInputError(f"sampler_order {message}", param="sampler_order")


def _require(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:  # NaN fails every comparison
        raise InvalidInputError(f"{name} must be between {low} and {high}, not {value}", param=name)


def _require_whole(name: str, value: int, low: int, high: int) -> None:
    _require(name, value, low, high)
    if value != int(value):
        raise InvalidInputError(
            f"{name} must be a whole number between {low} and {high}, not {value}", param=name
        )
