"""Damaged GGUF files, for `loader_fuzz.py`.

Owns how a sound file is damaged (numbers of the header become others, pieces are cut out, repeated
or lost, bits turn) and what must be true of one that is read all the same.
"""

import random
import struct
from itertools import pairwise
from pathlib import Path

import numpy as np

from engine.checkpoint.stored import plain_values
from engine.gguf.types import READ
from engine.model_files import ModelFiles
from tests.support import gguf_bytes as raw
from tests.support.gguf_bytes import BOOL, F32, STRING, U32, Entry

WILD = (
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 16, 31, 32, 33, 255, 256, 2**16, 2**31 - 1, 2**31,
    2**32 - 1, 2**32, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 32, 2**64 - 1,
)  # fmt: skip
_DIM, _N_TOKENS = 32, 40
DIVISORS = np.ones(_DIM // 4, np.float32)
_TYPES = ("F32", "F16", "BF16", "Q4_0", "Q5_1", "Q8_0", "IQ4_NL", "MXFP4")


class GgufFiles:
    """One GGUF file with a model of one layer."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self._file = directory / "model.gguf"

    def run(self, rng: random.Random) -> bool:
        """Whether it is read. Raises ModelLoadError if it is refused, AssertionError if what was
        read is not sound.
        """
        whole, header_end, numbers = _sound_file(rng)
        data = bytearray(whole)
        for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
            _damage(rng, data, header_end, numbers)
        self._file.write_bytes(data)
        files = ModelFiles.open(self._file)
        assert files.gguf is not None
        spans = sorted((t.begin, t.begin + t.n_bytes) for t in files.gguf.tensors.values())
        assert all(end <= begin for (_, end), (begin, _) in pairwise(spans)), "tensors overlap"
        assert not spans or (spans[0][0] >= 0 and spans[-1][1] <= len(data)), "past the end"
        for tensor in files.tensors().values():
            values = plain_values(tensor)
            assert values.shape == tensor.shape
            assert tensor.dtype != "F32" or values.tobytes() == bytes(
                data[tensor.begin : tensor.begin + tensor.n_bytes]
            )
        files.tokenizer().encode("the otter")
        files.generation()
        return True


def _sound_file(rng: random.Random) -> tuple[bytes, int, list[tuple[int, int]]]:
    """The file, the end of its header, and the places (begin, bytes) of numbers in the header."""
    entries, offset = [], 0
    for name, sizes in _tensors():
        type_ = READ[rng.choice(_TYPES) if len(sizes) > 1 else "F32"]
        entries.append(Entry(name, sizes, type_.id, offset))
        n_bytes = type_.row_bytes(sizes[0]) * int(np.prod(sizes[1:]))
        offset += n_bytes + -n_bytes % 32
    head = raw.gguf(_pairs(), entries, b"", alignment=1)
    values = bytearray(rng.randbytes(offset))
    for entry in entries:
        if entry.name == "rope_freqs.weight":
            values[entry.offset : entry.offset + 4 * entry.sizes[0]] = DIVISORS.tobytes()
    return head + bytes(-len(head) % 32) + bytes(values), len(head), _numbers(head)


def _tensors() -> list[tuple[str, tuple[int, ...]]]:
    square, vector = (_DIM, _DIM), (_DIM,)
    names = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    return [
        ("token_embd.weight", (_DIM, _N_TOKENS)),
        ("output_norm.weight", vector),
        ("rope_freqs.weight", (_DIM // 4,)),
        *((f"blk.0.{name}.weight", square) for name in names),
        *((f"blk.0.{name}.weight", vector) for name in ("attn_norm", "ffn_norm")),
    ]


def _pairs() -> list[bytes]:
    tokens = [*"abcdefghijklmnopqrstuvwxyz", "ab", *(f"{i:02}" for i in range(_N_TOKENS - 27))]
    return [
        raw.pair("general.architecture", STRING, "llama"),
        raw.pair("general.alignment", U32, 32),
        raw.pair("llama.block_count", U32, 1),
        raw.pair("llama.context_length", U32, 64),
        raw.pair("llama.embedding_length", U32, _DIM),
        raw.array("llama.feed_forward_length", U32, [_DIM]),
        raw.pair("llama.attention.head_count", U32, 2),
        raw.pair("llama.attention.layer_norm_rms_epsilon", F32, 1e-5),
        raw.pair("tokenizer.ggml.model", STRING, "gpt2"),
        raw.pair("tokenizer.ggml.pre", STRING, "gpt-2"),
        raw.array("tokenizer.ggml.tokens", STRING, tokens),
        raw.array("tokenizer.ggml.token_type", U32, [1] * _N_TOKENS),
        raw.array("tokenizer.ggml.merges", STRING, ["a b"]),
        raw.pair("tokenizer.ggml.add_bos_token", BOOL, 0),
        raw.array("some.flags", BOOL, [0, 1]),
    ]


def _numbers(head: bytes) -> list[tuple[int, int]]:
    """Where the counts, lengths, types, dimensions and offsets of a sound header are."""
    places, at = [(4, 4), (8, 8), (16, 8)], 24
    n_entries, n_pairs = struct.unpack_from("<QQ", head, 8)

    def number(size: int) -> int:
        nonlocal at
        places.append((at, size))
        at += size
        return int.from_bytes(head[at - size : at], "little")

    def string() -> None:
        nonlocal at
        length = number(8)
        at += length

    def value(kind: int) -> None:
        if kind == STRING:
            string()
        else:
            number({BOOL: 1}.get(kind, 4))

    for _ in range(n_pairs):
        string()
        kind = number(4)
        if kind == raw.ARRAY:
            kind = number(4)
            for _ in range(number(8)):
                value(kind)
        else:
            value(kind)
    for _ in range(n_entries):
        string()
        for _ in range(number(4)):
            number(8)
        number(4)
        number(8)
    assert at == len(head)
    return places


def _damage(
    rng: random.Random, data: bytearray, header_end: int, numbers: list[tuple[int, int]]
) -> None:
    begin = rng.randrange(max(1, min(header_end, len(data))))
    end = min(len(data), begin + rng.choice((1, 4, 8, 40, 400)))
    match rng.randrange(10):
        case 0 | 1 | 2 | 3 | 4:
            place, size = rng.choice(numbers)
            wild = rng.choice((rng.choice(WILD), rng.randrange(300), rng.getrandbits(64)))
            data[place : place + size] = wild.to_bytes(8, "little")[:size]
        case 5 if begin < len(data):
            data[begin] ^= 1 << rng.randrange(8)
        case 6:
            data[begin:end] = rng.randbytes(end - begin)
        case 7:
            data[begin:begin] = data[begin:end]
        case 8:
            del data[begin:end]
        case _:
            del data[rng.randrange(len(data) + 1) :]
