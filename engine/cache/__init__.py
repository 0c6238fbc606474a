"""Keys and values of the active sequence and of past prompts.

Owns the cache that the model writes (`kv`; `round` knows what is left where layers have a window),
the prefix cache (`prefix`, whose report is in `reuse`) over its tree of blocks (`tree`), their
memory (`slabs`), the files that outlive the process (`files`), and the active sequence as a file of
its own (`slot`). Knows no tokenizer.
"""
