"""Translates a conversation from the wire into the engine's terms.

Owns messages (`conversation`), the prompt (`prompt`), tools (`tools`) and the constraint on the
reply (`constraint`). Knows no route.
"""
