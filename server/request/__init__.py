"""From the words of the wire to those of the engine.

Owns the options, sampling settings and constraints of a request, names that mean the same
(`aliases`), fields that are unknown or do nothing here. Knows schemas, no routes.
"""
