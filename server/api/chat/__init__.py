"""POST /v1/chat/completions.

Read `route`, then `turn` (the body in the engine's words, with `messages`, `tools` and
`variables`), `answer` (events -> choices), `reply` (which part of the reply a piece belongs to),
`chunks` (streamed) and `message` (whole).
"""
