"""/v1/responses: OpenAI's newer wire, over the same streams.

Owns the path from that body to a ChatTurn (`history`, `conversation`, `tools`, `turn`, `fitting`),
the response that answers (`items`, `output`, `response`; whole in `answer`, streamed in `events`),
and the routes of those that are stored (`stored`).
"""
