"""A conversation in the words of the engine, whatever the wire.

Owns the turn that a request asks for (`turn`), its prompt (`prompt`), its tools (`tools`) and what
constrains the reply (`constraint`). Knows no schema: each API makes a turn of its own wire.
"""
