"""GGUF files that hold a tokenizer and no tensors, written by the `gguf` package."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import tokenizers

from engine.gguf.container import read_gguf
from engine.gguf.metadata import Metadata
from engine.text.gguf.tokenizer import gguf_tokenizer
from engine.text.tokenizer import Tokenizer

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
PREFIX = "tokenizer.ggml."

Keys = Mapping[str, Any]
"""What follows PREFIX in a key -> its value."""


def written(file: Path, keys: Keys, **others: str | list[str]) -> Path:
    """Writes a file with these keys. `others`: keys below `tokenizer.`, with `__` for a dot."""
    writer = gguf.GGUFWriter(file, "llama")
    values = {f"{PREFIX}{key}": value for key, value in keys.items()}
    values |= {f"tokenizer.{key.replace('__', '.')}": value for key, value in others.items()}
    for key, value in values.items():
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        else:
            writer.add_array(key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return file


def metadata_of(directory: Path, keys: Keys, **others: str | list[str]) -> Metadata:
    return read_gguf(written(directory / "model.gguf", keys, **others)).metadata


def tokenizer_of(directory: Path, keys: Keys) -> Tokenizer:
    """Through a file, as a model's tokenizer is loaded."""
    return gguf_tokenizer(metadata_of(directory, keys), len(keys["tokens"]))


def byte_level_keys(backend: tokenizers.Tokenizer, pre: str, **keys: Any) -> dict[str, Any]:
    """Those of a byte-level BPE, as llama.cpp's converter writes them."""
    model = json.loads(backend.to_str())["model"]
    added = backend.get_added_tokens_decoder()
    vocabulary = backend.get_vocab(with_added_tokens=True)
    types = dict.fromkeys(vocabulary.values(), NORMAL)
    types |= {i: CONTROL if token.special else USER_DEFINED for i, token in added.items()}
    return {
        "model": "gpt2",
        "pre": pre,
        "tokens": sorted(vocabulary, key=vocabulary.__getitem__),
        "token_type": [types[token_id] for token_id in range(len(vocabulary))],
        "merges": [" ".join(pair) for pair in model["merges"]],
        **keys,
    }
