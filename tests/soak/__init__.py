"""Measures what the server promises under abuse: one topic per file, one line per goal.

`python -m tests.soak` runs them all, `make soak` too. Each topic starts servers in processes of
their own (`tests.soak.server`) and drives them over raw sockets; times of both sides are
CLOCK_MONOTONIC, which processes of one machine share.
"""
