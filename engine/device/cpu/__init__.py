"""The ops on a CPU, with native kernels.

Read `ops` (what it offers), `program` (a recorded pass), `positions` (keys and values), then
`panel_cache`, `panel_file` and `mapped` (packed weights, kept on disk between starts).
"""
