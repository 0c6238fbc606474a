"""Measures what the server promises under abuse: one topic per file, one line per goal.

`python -m tests.soak`, or `make soak`, runs all topics. Each starts servers in processes of their
own (`tests.soak.server`) and drives them over raw sockets. Both sides take times from
CLOCK_MONOTONIC, which the processes of one machine share.
"""
