"""The sampler op in plain numpy, which the native sampler must equal.

Read `stages` (a formula each), `adjustments` (penalties, bias, bans), `pipeline` (their order),
then `op` (from request to result).
"""
