"""POST /v1/completions.

Read `route`, then `prompts` (what the body asks for), `answer` (events -> chunks) and `choice` (one
choice's text and logprobs).
"""
