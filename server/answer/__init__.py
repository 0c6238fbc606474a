"""Turns the events of a stream into what goes over the wire.

Owns server-sent events (`sse`), logprobs, metadata of tokens, usage and the order of choices. Knows
no route.
"""
