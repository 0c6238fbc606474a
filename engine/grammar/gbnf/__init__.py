"""GBNF, the grammars of llama.cpp, and their conversion to llguidance's Lark.

Read `syntax` (text to tree), then `positions` and `lexemes` (what the lexer may read as one
piece), then `lark` (what comes out).
"""
