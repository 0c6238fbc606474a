"""One row of logits -> one token with its probabilities.

Owns the settings of a request (`settings`), the sampler of a stream (`sampler`) and the op that
draws (`op`), natively or with the reference. Random numbers are keyed by seed and position
(`random_numbers`). Knows no model and no text.
"""
