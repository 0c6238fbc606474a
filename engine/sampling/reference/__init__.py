"""The sampler op in plain numpy: what the native one must equal.

Read `stages` (a formula each), `adjustments` (penalties, bias, bans), `pipeline` (their order),
then `op` (from request to result).
"""
