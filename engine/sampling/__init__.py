"""One row of logits -> one token with its probabilities.

Owns the settings of a request (`settings`), the sampler of a stream (`sampler`) and the op that
draws (`op`), in native code or as the reference. Random numbers depend only on seed and position
(`random_numbers`). Knows no model and no text.
"""
