"""One turn of a conversation, in the engine's terms, whatever the wire.

Owns the turn that a request asks for (`turn`), its prompt (`prompt`), its tools (`tools`) and the
constraint on the reply (`constraint`). Knows no schema: each API makes a turn of its own wire.
"""
