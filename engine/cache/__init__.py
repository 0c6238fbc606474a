"""Keys and values of the active sequence and of past prompts.

Owns the cache that the model writes (`kv`) with the states of recurrent layers (`states`), and what
is left of it where layers have a window (`round`); the prefix cache (`prefix`) with its report
(`reuse`) over its tree of blocks (`tree`), their memory (`slabs`), copies of states
(`saved_states`), and the files that outlive the process (`files`); and the active sequence as a
file of its own (`slot`). Knows no tokenizer.
"""
