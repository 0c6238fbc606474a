"""POST /v1/chat/completions.

Read `route`, then `answer` (events -> chunks), `reply` (which part of the reply a piece belongs
to), `chunks` (streamed) and `message` (whole).
"""
