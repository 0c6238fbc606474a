"""Bytes, characters and token ids.

Owns the tokenizer (`tokenizer`, from `tokenizer_json` or `gguf`), the bytes of tokens
(`token_bytes`, `token_bound`), checked lists of ids (`token_ids`), text as it streams
(`text_stream` over `matcher`: UTF-8, stop strings, banned strings), the tokens that begin with a
given text (`prefix_index`) and fill-in-the-middle (`fill_in`). Knows no model and no chat.
"""
