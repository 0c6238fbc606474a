"""Answers that outlive their connection: numbered events, and what each stream is.

Owns who may see a stream, how long and in how much memory it is kept, its readers, and its file.
Knows no wire: an answer is a shape that writes itself. In reading order: log, steps, streams,
controls, replay, pauses, kept, place, file, files, registry.
"""
