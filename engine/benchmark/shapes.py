"""Llama models of standard shapes with random weights, as Hugging Face directories.

Owns the shapes and the files. The weights come from a fixed seed, so that every measured program
gets the same ones. They mean nothing, but all activations stay finite.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, product
from pathlib import Path
from string import ascii_lowercase
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from ..checkpoint.config_json import model_config
from ..checkpoint.tensors import expected_shapes

_SEED = 0
_SPECIALS = ("<unk>", "<s>", "</s>")
_BOS, _EOS = 1, 2
_VOCAB_SIZE = 32_000
_CHUNK = 2**22  # weights drawn at a time

Words = npt.NDArray[np.uint16]


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a Llama model; `name` is only roughly its number of parameters."""

    name: str
    dim: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    hidden_dim: int
    tied: bool  # the head is the embedding

    def config(self) -> dict[str, Any]:
        """The content of config.json."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": self.dim,
            "num_hidden_layers": self.n_layers,
            "num_attention_heads": self.n_heads,
            "num_key_value_heads": self.n_kv_heads,
            "head_dim": self.dim // self.n_heads,
            "intermediate_size": self.hidden_dim,
            "vocab_size": _VOCAB_SIZE,
            "tie_word_embeddings": self.tied,
            "max_position_embeddings": 4096,
            "hidden_act": "silu",
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
            "attention_bias": False,
            "mlp_bias": False,
            "bos_token_id": _BOS,
            "eos_token_id": _EOS,
            "torch_dtype": "bfloat16",
        }


SHAPES = {
    shape.name: shape
    for shape in (
        Shape("15M", 288, 6, 6, 6, 768, tied=True),
        Shape("125M", 768, 12, 12, 4, 2048, tied=True),  # 100.1 million parameters
        Shape("1.1B", 2048, 22, 32, 4, 5632, tied=False),
    )
}


def write_model(shape: Shape, directory: Path) -> None:
    """Writes config, bfloat16 weights, tokenizer and generation config into `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    _write_json(directory / "config.json", shape.config())
    _write_json(directory / "generation_config.json", {"bos_token_id": _BOS, "eos_token_id": _EOS})
    _write_json(
        directory / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "unk_token": _SPECIALS[0],
            "bos_token": _SPECIALS[_BOS],
            "eos_token": _SPECIALS[_EOS],
        },
    )
    _tokenizer().save(str(directory / "tokenizer.json"))
    with (directory / "model.safetensors").open("wb") as file:
        _write_weights(file, expected_shapes(model_config(directory)))


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", "utf-8")


def _tokenizer() -> Tokenizer:
    """Byte-level BPE that merges letters into longer pieces until the vocabulary is full."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    n_merges = _VOCAB_SIZE - len(_SPECIALS) - len(alphabet)
    merges = list(islice(_merges(), n_merges))
    tokens = [*_SPECIALS, *alphabet, *("".join(pair) for pair in merges)]
    tokenizer = Tokenizer(models.BPE({token: id_ for id_, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in _SPECIALS])
    return tokenizer


def _merges() -> Iterator[tuple[str, str]]:
    """Pairs of letters, then triples; then letters, pairs and triples after a space."""
    space, letters = "\u0120", ascii_lowercase  # byte-level BPE writes a space as U+0120
    pairs = ["".join(each) for each in product(letters, letters)]
    threes = ["".join(each) for each in product(pairs, letters)]
    yield from product(letters, letters)
    yield from product(pairs, letters)
    for piece in (*letters, *pairs, *threes):
        yield space, piece


def _write_weights(file: BinaryIO, shapes: dict[str, tuple[int, ...]]) -> None:
    """A safetensors file: the length of a JSON header, the header, then the tensors."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in shapes.items():
        begin, end = end, end + 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little") + text)
    random = np.random.default_rng(_SEED)
    normal = random.standard_normal(2**16).astype(np.float32)
    for shape in shapes.values():
        if len(shape) == 1:
            file.write(_bfloat16(np.ones(shape, np.float32)).tobytes())
            continue
        # With this scale a product keeps the variance of its input. Drawing weights from a table is
        # much faster than computing a normal number for each.
        table = _bfloat16(normal / np.float32(shape[1] ** 0.5))
        for start in range(0, shape[0] * shape[1], _CHUNK):
            n = min(_CHUNK, shape[0] * shape[1] - start)
            file.write(table[random.integers(0, 2**16, n, dtype=np.uint16)].tobytes())


def _bfloat16(values: npt.NDArray[np.float32]) -> Words:
    """The upper halves of the numbers, rounded to nearest, ties to even."""
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
