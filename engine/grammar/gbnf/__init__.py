"""Conversion of GBNF, llama.cpp's grammars, to llguidance's Lark.

Read `syntax` (text to tree), then `positions` and `lexemes` (what the lexer may read as one
piece), then `lark` (the output).
"""
