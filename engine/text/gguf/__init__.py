"""Tokenizers from the metadata of GGUF files.

Read `tokenizer` (which keys make one), `tokens` (the list of tokens and their types), `splits` (how
byte-level vocabularies cut text into words), `sentencepiece` (merges from scores) and `ends` (which
tokens end an answer).
"""
