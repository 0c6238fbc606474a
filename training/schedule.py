"""The warm-up, stable, decay schedule, by tokens seen.

Owns the learning-rate factor, when rows grow long and when the mix of corpora changes. Knows
nothing of optimizers or of the corpora.
"""

from dataclasses import dataclass

DECAY_SHARE = 0.35
LONG_SHARE = 0.15
LATE_MIX_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class Schedule:
    """What happens when, over `total_tokens`.

    Warm-up is a fixed number of tokens and everything else lies in the last part of the run, so
    the total may be changed on resume until the decay begins.
    """

    total_tokens: int
    warmup_tokens: int = 100_000
    short_context: int = 256
    long_context: int = 1024

    @property
    def decay_begins(self) -> int:
        return round(self.total_tokens * (1 - DECAY_SHARE))

    @property
    def long_begins(self) -> int:
        return round(self.total_tokens * (1 - LONG_SHARE))

    @property
    def late_mix_begins(self) -> int:
        return round(self.total_tokens * (1 - LATE_MIX_SHARE))

    def lr_factor(self, tokens: int) -> float:
        warm = min(1.0, (tokens + 1) / max(1, min(self.warmup_tokens, self.total_tokens // 10)))
        if tokens < self.decay_begins:
            return warm
        remaining = (self.total_tokens - tokens) / (self.total_tokens - self.decay_begins)
        return warm * max(0.0, remaining)

    def context(self, tokens: int) -> int:
        return self.long_context if tokens >= self.long_begins else self.short_context

    def is_late_mix(self, tokens: int) -> bool:
        return tokens >= self.late_mix_begins
