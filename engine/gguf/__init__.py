"""GGUF files: the container, the types of its tensors, and what their blocks mean.

Read `types` (names and sizes), `blocks` (rows as they are stored), `container` (a file or its
parts, each of which `header` reads), `metadata` and `decode` (blocks as numbers, in numpy). Knows
no model family, no tokenizer and no device.
"""
