"""Translates the fields of a request into the engine's terms.

Owns a request's options, sampling settings and constraints, alternative names (`aliases`), and
fields that are unknown or have no effect. Knows schemas, no routes.
"""
