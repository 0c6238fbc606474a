"""POST /v1/messages: Anthropic's wire, over the same streams.

Owns the path from that body to a ChatTurn (`conversation`, `turn`), the message that answers
(`message`, whole in `answer`, streamed in `events`) and the shape of errors (`errors`).
"""
