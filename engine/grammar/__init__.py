"""Constraints on the text, as masks over the next token.

Owns the request for a constraint (`spec`), JSON Schema and GBNF, the compiled constraint
(`constraint`) and the trial of a new grammar in a separate process (`trial`). Only this package
imports llguidance. Knows no model and no sampling.
"""
