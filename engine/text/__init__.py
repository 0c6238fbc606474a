"""Bytes, characters and token ids.

Owns the tokenizer (`tokenizer`), what a token's bytes are (`token_bytes`, `token_bound`), checked
lists of ids (`token_ids`), text as it streams (`text_stream` over `matcher`: UTF-8, stop strings,
banned strings), which tokens begin with a text (`prefix_index`) and fill-in-the-middle (`fill_in`).
Knows no model and no chat.
"""
