"""Answers that outlive their connection: numbered events, and what each stream is.

Owns who may see a stream, how long and in how much memory it is kept, and its readers. Knows no
wire: an answer is a shape that writes itself. In reading order: log, steps, kept, keeper, registry.
"""
