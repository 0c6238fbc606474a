"""POST /v1/messages: Anthropic's wire, over the same streams.

Owns the path from that body to a ChatTurn (`conversation`, `turn`), the shape of the answer
(`answer`, `events`) and of errors (`errors`).
"""
