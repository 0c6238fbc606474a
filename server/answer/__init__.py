"""From events of a stream to what the wire says.

Owns server-sent events (`sse`), logprobs, metadata of tokens, usage and the order of choices. Knows
no route.
"""
