"""POST /v1/score.

Read `route`, then `scoring` (body -> job), `tokens` (what prompt and continuations are in token
ids) and `answer` (events -> scores).
"""
