"""One request in the engine.

Owns the job of a request (`jobs`), its stream of events (`stream`, `feed`, `token_results`), its
time limits and the metrics. Knows no wire format: events carry what the engine returned.
"""
