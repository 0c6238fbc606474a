"""The ops on an NVIDIA GPU, with native kernels.

Read `ops` (what it offers), `program` (a recorded pass) and `prefill` (many rows at once), then
`weights`, `attention` and `positions`, `lane` (stream and graph), `sampler`, `load`.
"""
