"""The samplers once more, as loops over Python lists, one token at a time.

The oracle of the sampler's tests. It shares only the names of the stages with the engine.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.sampling.request import Stage

Weighted = list[tuple[int, float]]
"""(token, value), the most likely first."""


@dataclass
class Plain:
    """The remaining tokens, with values whose softmax is their distribution, and how close a call
    it was.
    """

    tokens: Weighted
    closest: float = math.inf
    removed: list[int] = field(default_factory=list)

    def probabilities(self) -> list[float]:
        largest = max(value for _, value in self.tokens)
        masses = [math.exp(value - largest) for _, value in self.tokens]
        total = math.fsum(masses)
        return [mass / total for mass in masses]

    def compare(self, value: float, threshold: float) -> bool:
        """value >= threshold, noting how close it was."""
        if threshold != math.inf:
            self.closest = min(self.closest, abs(value - threshold))
        return value >= threshold

    def keep(self, places: Sequence[int]) -> None:
        kept = set(places) or {0}
        self.removed.append(len(self.tokens) - len(kept))
        self.tokens = [token for i, token in enumerate(self.tokens) if i in kept]

    def reweight(self, values: list[float]) -> None:
        self.removed.append(0)
        tokens = [token for token, _ in self.tokens]
        self.tokens = list(zip(tokens, values, strict=True))

    def drop_massless(self) -> None:
        largest = max(value for _, value in self.tokens)
        self.tokens = [(token, v) for token, v in self.tokens if v - largest > -700]


def entropy(p: Sequence[float]) -> float:
    return -math.fsum(x * math.log(x) for x in p if x > 0)


def plain_stages(
    adjusted: Sequence[float],
    stages: Sequence[tuple[Stage, Sequence[float]]],
    *,
    mu: float = 0.0,
    u_xtc: float = 0.0,
    protected: frozenset[int] = frozenset(),
) -> Plain:
    """The distribution from which a token is drawn."""
    finite = [(token, value) for token, value in enumerate(adjusted) if value > -math.inf]
    plain = Plain(sorted(finite, key=lambda one: (-one[1], one[0])))
    for stage, parameters in stages:
        if stage not in (Stage.SMOOTHING, Stage.TEMPERATURE, Stage.TOP_N_SIGMA):
            plain.drop_massless()
        run_stage(plain, stage, parameters, mu=mu, u_xtc=u_xtc, protected=protected)
    plain.drop_massless()
    return plain


def run_stage(
    plain: Plain,
    stage: Stage,
    parameters: Sequence[float],
    *,
    mu: float,
    u_xtc: float,
    protected: frozenset[int],
) -> None:
    first = parameters[0] if parameters else 0.0
    values = [value for _, value in plain.tokens]
    p = plain.probabilities()
    n = len(p)
    if stage == Stage.SMOOTHING:
        plain.reweight([-first * (value - values[0]) ** 2 for value in values])
    elif stage == Stage.TEMPERATURE:
        plain.reweight([value / first for value in values])
    elif stage == Stage.DYNAMIC_TEMPERATURE:
        low, high, exponent = parameters
        share = entropy(p) / math.log(n) if n > 1 else 0.0
        temperature = low + (high - low) * share**exponent
        plain.reweight([(value - values[0]) / temperature if n > 1 else 0.0 for value in values])
    elif stage == Stage.TOP_N_SIGMA:
        mean = math.fsum(values) / n
        sigma = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / n)
        floor = values[0] - first * sigma
        plain.keep([i for i in range(n) if sigma == 0 or plain.compare(values[i], floor)])
    elif stage == Stage.TOP_K:
        plain.keep([i for i in range(n) if i < first])
    elif stage == Stage.TOP_P:
        plain.keep(until(plain, p, range(n), first))
    elif stage == Stage.TOP_A:
        plain.keep([i for i in range(n) if plain.compare(p[i], first * p[0] ** 2)])
    elif stage == Stage.MIN_P:
        plain.keep([i for i in range(n) if plain.compare(p[i] / p[0], first)])
    elif stage == Stage.TFS:
        plain.keep(tail_free(plain, p, first))
    elif stage == Stage.TYPICAL:
        distance = [abs(-math.log(x) - entropy(p)) for x in p]
        for a in range(n):
            for b in range(a):
                if p[a] != p[b]:
                    plain.compare(distance[a], distance[b])
        plain.keep(until(plain, p, sorted(range(n), key=lambda i: (distance[i], i)), first))
    elif stage == Stage.MIROSTAT:
        plain.keep([i for i in range(n) if plain.compare(p[i], 2**-mu)])
    elif stage == Stage.XTC:
        probability, threshold = parameters[:2]
        above = [
            i
            for i in range(n)
            if plain.tokens[i][0] not in protected and plain.compare(p[i], threshold)
        ]
        strikes = u_xtc < probability and len(above) >= 2
        plain.keep([i for i in range(n) if not strikes or i not in above[:-1]])
    else:
        raise AssertionError(stage)


def until(plain: Plain, p: list[float], order: Sequence[int], mass: float) -> list[int]:
    """The fewest tokens, in this order, that have the mass together."""
    kept: list[int] = []
    for i in order:
        kept.append(i)
        if plain.compare(math.fsum(p[j] for j in kept), mass):
            break
    return kept


def tail_free(plain: Plain, p: list[float], z: float) -> list[int]:
    slopes = [p[i] - p[i + 1] for i in range(len(p) - 1)]
    bends = [abs(slopes[i] - slopes[i + 1]) for i in range(len(slopes) - 1)]
    total = math.fsum(bends)
    if total < 1e-12:
        if bends:
            plain.closest = 0.0  # this test does not ask whether rounding makes a bend
        return list(range(len(p)))
    for i in range(len(bends)):
        if plain.compare(math.fsum(bends[: i + 1]) / total, z):
            return list(range(i + 1))
    return list(range(len(p)))


def penalized(logits: Sequence[float], context: Sequence[int], **settings: Any) -> list[float]:
    """As in ExLlamaV2: backwards, with penalties that fade step by step beyond the range."""
    n_prompt: int = settings.get("n_prompt", 0)
    range_: int = settings.get("repetition_range", -1)
    decay: int = settings.get("repetition_decay", 0)
    repetition: float = settings.get("repetition_penalty", 1.0)
    frequency: float = settings.get("frequency_penalty", 0.0)
    presence: float = settings.get("presence_penalty", 0.0)
    values = list(logits)
    taken = [0.0] * len(values)
    seen: set[int] = set()
    weight = 1.0
    for distance in range(len(context)):
        position = len(context) - 1 - distance
        if 0 <= range_ <= distance:
            weight = (decay - (distance - range_)) / decay if decay else 0.0
            if weight <= 0:
                break
        token = context[position]
        of_completion = position >= n_prompt
        if token not in seen:
            seen.add(token)
            r = 1 + (repetition - 1) * weight
            values[token] = values[token] / r if values[token] > 0 else values[token] * r
            taken[token] += presence * weight if of_completion else 0.0
        taken[token] += frequency * weight if of_completion else 0.0
    return [value - less for value, less in zip(values, taken, strict=True)]


def dried(logits: Sequence[float], context: Sequence[int], **settings: Any) -> list[float]:
    """DRY by comparing every end of the context with every place before it."""
    range_: int = settings.get("dry_range", 0)
    longest_counted: int = settings.get("dry_max_ngram", 20)
    allowed: int = settings.get("dry_allowed_length", 2)
    breakers: frozenset[int] = settings.get("breakers", frozenset())
    text = list(context)[-range_:] if range_ else list(context)
    values = list(logits)
    for token in range(len(values)):
        longest = 0
        for place in range(len(text)):  # a token whose predecessors may equal the end of the text
            if text[place] != token or token in breakers:
                continue
            for length in range(1, min(place, longest_counted) + 1):
                suffix = text[len(text) - length :]
                if text[place - length : place] == suffix and not breakers & set(suffix):
                    longest = max(longest, length)
        if longest and longest >= allowed:
            values[token] -= settings["dry_multiplier"] * settings["dry_base"] ** (
                longest - allowed
            )
    return values
