"""Tokenizers from the metadata of GGUF files.

Read `tokenizer` (the kinds), `tokens` (texts and types), `roles` (tokens by their role), `splits`
(how byte-level vocabularies cut text into words), `sentencepiece` (merges from scores) and `ends`
(which tokens end an answer).
"""
