"""One request in the engine.

Owns the job of a request (`jobs`), the stream of events that comes of it (`stream`, `feed`,
`token_results`), its time limits and the metrics. Knows no wire: events carry what the engine said.
"""
