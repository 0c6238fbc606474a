"""A conversation in the words of the engine, whatever the wire.

Owns messages (`conversation`), the prompt (`prompt`), tools (`tools`) and what constrains the reply
(`constraint`).
"""
