"""POST /completion: llama-server's own form of a completion.

The body has the fields of /v1/completions. Read `route`, then `generation` (what the body asks for)
and `answer` (events -> what llama-server's clients read).
"""
