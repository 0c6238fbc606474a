"""The sampler op in plain numpy, which the native one must equal.

Read `stages` (one formula each), `adjustments` (penalties, bias, bans), `pipeline` (their order),
then `op` (from request to result).
"""
