"""Damages model files at random and loads each of them.

`python tests/native/loader_fuzz.py --inputs N --seed S`.

An input may be refused by ModelLoadError (for files of a cache: by their own errors) or accepted.
What is accepted must be sound: the reference reader of safetensors reads the same tensors from it,
sizes agree, and the packed weights are those of their definition. Anything else ends the run with
exit code 1 and says how to repeat the one input. Everything happens in this process, so that a
sanitizer sees it.
"""

import argparse
import json
import logging
import math
import random
import resource
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import safetensors

sys.path[:0] = [str(Path(__file__).parents[2])]

from engine import ChatTemplate, ModelLoadError, TemplateError, Tokenizer  # noqa: E402
from engine.cache.files import PrefixFiles  # noqa: E402
from engine.cache.tree import Block  # noqa: E402
from engine.checkpoint.config_json import model_config  # noqa: E402
from engine.checkpoint.generation_config import GENERATION_FILE, read_generation_config  # noqa: E402
from engine.checkpoint.safetensors import (  # noqa: E402
    INDEX_FILE,
    SINGLE_FILE,
    read_checkpoint,
    read_header,
)
from engine.checkpoint.stored import plain_values  # noqa: E402
from engine.checkpoint.tensors import expected_shapes  # noqa: E402
from engine.device.formats import matrix_bytes, packed_bytes  # noqa: E402
from engine.device.ops import NotFiniteError  # noqa: E402
from engine.native.cpu import MISSING, address  # noqa: E402
from engine.stored_tensor import StoredTensor  # noqa: E402
from tests.native.gguf_fuzz import GgufFiles  # noqa: E402

Json = Any

WEIRD_NUMBERS = (
    0, 1, -1, 2, 3, 7, 8, 64, 2**31 - 1, 2**31, 2**32, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1,
    2**64, 10**30, -0.0, 0.5, 1e-300, 1e300, 1e12,
)  # fmt: skip
WEIRD_TEXTS = (
    "", "F32", "F128", "BOOL", "../../x", "/etc/passwd", "a\0b", "\n", "\ud800", "\u2028",
    "x" * 3000,
    "model.safetensors", "<0x-1>", "<0xZZ>", "<0x41>", "{{ messages }}", "LlamaForCausalLM",
)  # fmt: skip
WEIRD_VALUES: tuple[Json, ...] = (
    *WEIRD_NUMBERS,
    *WEIRD_TEXTS,
    None,
    True,
    False,
    [],
    {},
    [[]],
    {"": {}},
    [0, 0],
)
# What json.dumps never writes.
WEIRD_BYTES = (
    b"NaN", b"-0", b"1e999", b"Infinity", b"\xff", b"\xef\xbb\xbf", b"\\ud800", b"\\u0000", b"\0",
    b"[" * 200, b'{"a":' * 200, b"9" * 5000, b"1.0", b" ", b"\t", b",", b'"', b"}", b"]",
)  # fmt: skip


class UnsoundError(Exception):
    """An input was accepted that should not have been, or gave a wrong result."""


def expect(is_sound: bool, what: str) -> None:
    if not is_sound:
        raise UnsoundError(what)


def mutated_json(rng: random.Random, value: Json) -> Json:
    """`value` with a few places changed: exchanged, removed, doubled, made weird."""
    value = _copied(value)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        weird = _copied(rng.choice(WEIRD_VALUES))
        holders = [holder for holder in _holders(value) if holder]
        if not holders:
            return weird
        holder = rng.choice(holders)
        key = rng.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
        other = rng.choice(holders)
        other_value = rng.choice(list(other.values()) if isinstance(other, dict) else other)
        match rng.randrange(6):
            case 0:
                del holder[key]
            case 1:
                holder[key] = _copied(other_value)
            case 2 if isinstance(holder[key], int) and not isinstance(holder[key], bool):
                holder[key] += rng.choice((-1, 1, 4, -4, 2**32, 2**62))
            case 3 if isinstance(holder, dict):
                holder[rng.choice(WEIRD_TEXTS)] = holder.pop(key)
            case 4 if isinstance(holder, list):
                holder.append(_copied(other_value))
            case _:
                holder[key] = weird
    return value


def _copied(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list) else value


def _holders(value: Json) -> list[Any]:
    if isinstance(value, dict):
        return [value, *(found for item in value.values() for found in _holders(item))]
    if isinstance(value, list):
        return [value, *(found for item in value for found in _holders(item))]
    return []


def mutated_bytes(rng: random.Random, data: bytes) -> bytes:
    """`data` with bits changed, bytes inserted, or a part cut out, moved or repeated."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(changed) + 1)
        n = rng.choice((1, 2, 8, 64))
        match rng.randrange(5):
            case 0 if at < len(changed):
                changed[at] ^= 1 << rng.randrange(8)
            case 1:
                changed[at:at] = rng.choice(WEIRD_BYTES)
            case 2:
                del changed[at : at + n]
            case 3:
                changed[at:at] = changed[at : at + n]
            case _:
                changed[at : at + n] = rng.randbytes(n)
    return bytes(changed)


def written_json(rng: random.Random, value: Json) -> bytes:
    """A mutated value as JSON, whose bytes are sometimes mutated again."""
    data = json.dumps(mutated_json(rng, value) if rng.random() < 0.8 else value).encode()
    if rng.random() < 0.1:
        data = b" " * rng.randrange(9) + data + b" " * rng.randrange(9)
    return mutated_bytes(rng, data) if rng.random() < 0.3 else data


def safetensors_bytes(header: bytes, data: bytes) -> bytes:
    return struct.pack("<Q", len(header)) + header + data


def reference_tensors(data: bytes) -> dict[str, tuple[str, list[int], bytes]]:
    """What the reference reader finds; it raises for what it refuses."""
    found: Json = safetensors.deserialize(data)  # type: ignore[no-untyped-call]
    return {name: (t["dtype"], list(t["shape"]), bytes(t["data"])) for name, t in found}


def check_against_reference(data: bytes, tensors: Mapping[str, StoredTensor]) -> None:
    """Check a file accepted here: the reference accepts it too, and finds the same."""
    try:
        reference = reference_tensors(data)
    except safetensors.SafetensorError as error:
        raise UnsoundError(f"accepted, but the reference says: {error}") from error
    expect(reference.keys() == tensors.keys(), "other names than the reference")
    for name, tensor in tensors.items():
        dtype, shape, stored = reference[name]
        expect((dtype, shape) == (tensor.dtype, list(tensor.shape)), f"{name!r}: other tensor")
        expect(data[tensor.begin : tensor.begin + tensor.n_bytes] == stored, f"{name!r}: place")
        if tensor.dtype in ("F32", "F16", "BF16"):
            expect(plain_values(tensor).tobytes() == stored, f"{name!r}: other values")


class Runs(Protocol):
    """Writes a mutated file and loads it; the result is that of `Target.run`."""

    def run(self, rng: random.Random) -> bool: ...


class Target:
    """One kind of file: `run` writes a mutated one into its own directory and loads it.

    It returns whether the file was accepted, and raises ModelLoadError if it was refused.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()

    def run(self, rng: random.Random) -> bool:
        raise NotImplementedError


class Header(Target):
    """One safetensors file."""

    def run(self, rng: random.Random) -> bool:
        header, size = self._header(rng)
        raw = written_json(rng, header) if rng.random() < 0.9 else json.dumps(header).encode()
        data = safetensors_bytes(raw, rng.randbytes(size))
        if rng.random() < 0.2:
            data = mutated_bytes(rng, data)
        if rng.random() < 0.05:
            data = struct.pack("<Q", rng.choice((0, 1, 2**63, 2**64 - 1, len(raw) + 1))) + data[8:]
        file = self.directory / SINGLE_FILE
        file.write_bytes(data)
        check_against_reference(data, read_header(file))
        return True

    def _header(self, rng: random.Random) -> tuple[dict[str, Json], int]:
        """A sound file of a few tensors, and how many bytes of data it describes."""
        sizes = {"F32": 4, "F16": 2, "BF16": 2, "U8": 1, "I64": 8, "F8_E4M3": 1, "BOOL": 1}
        header: dict[str, Json] = {}
        position = 0
        for i in range(rng.choice((0, 1, 1, 2, 3))):
            dtype = rng.choice(list(sizes))
            shape = [rng.choice((0, 1, 2, 3)) for _ in range(rng.choice((0, 1, 2, 2, 3)))]
            end = position + math.prod(shape) * sizes[dtype]
            header[f"t{i}"] = {"dtype": dtype, "shape": shape, "data_offsets": [position, end]}
            position = end
        if rng.random() < 0.3:
            header["__metadata__"] = {"format": "pt"}
        return header, position


class Index(Target):
    """A model in shards: the index, or what takes the place of a shard."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._files = {
            name: safetensors_bytes(
                json.dumps(
                    {
                        tensor: {"dtype": "F32", "shape": [1], "data_offsets": [4 * i, 4 * i + 4]}
                        for i, tensor in enumerate(tensors)
                    }
                ).encode(),
                bytes(4 * len(tensors)),
            )
            for name, tensors in {"a.safetensors": "xy", "b.safetensors": "z"}.items()
        }
        for name, data in self._files.items():
            (directory / name).write_bytes(data)
        self._index = {
            "metadata": {"total_size": 12},
            "weight_map": {"x": "a.safetensors", "y": "a.safetensors", "z": "b.safetensors"},
        }

    def run(self, rng: random.Random) -> bool:
        (self.directory / INDEX_FILE).write_bytes(written_json(rng, self._index))
        tensors = read_checkpoint(self.directory).tensors
        for file, data in self._files.items():
            own = {name: tensor for name, tensor in tensors.items() if tensor.file.name == file}
            expect(not own or len(own) == len(reference_tensors(data)), "a part of a shard")
        expect({t.file.parent for t in tensors.values()} <= {self.directory}, "another directory")
        return True


class Config(Target):
    """config.json and generation_config.json."""

    _CONFIG: ClassVar[dict[str, Json]] = {
        "architectures": ["Qwen3ForCausalLM"],
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "intermediate_size": 96,
        "vocab_size": 320,
        "max_position_embeddings": 256,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        },
        "use_sliding_window": True,
        "sliding_window": 9,
        "layer_types": ["full_attention", "sliding_attention"],
        "tie_word_embeddings": True,
        "eos_token_id": [4, 0],
        "bos_token_id": 0,
    }
    _GENERATION: ClassVar[dict[str, Json]] = {
        "do_sample": True,
        "temperature": 0.7,
        "top_k": 20,
        "top_p": 0.9,
        "min_p": 0.1,
        "repetition_penalty": 1.1,
        "eos_token_id": [4],
    }

    def run(self, rng: random.Random) -> bool:
        architecture = rng.choice(("Llama", "Mistral", "Qwen2", "Qwen3"))
        config = {**self._CONFIG, "architectures": [f"{architecture}ForCausalLM"]}
        if rng.random() < 0.5:
            config = {**config, "rope_scaling": None}
        (self.directory / "config.json").write_bytes(written_json(rng, config))
        (self.directory / GENERATION_FILE).write_bytes(written_json(rng, self._GENERATION))
        read = model_config(self.directory)
        heads = [layer.attention for layer in read.layers]
        expect(all(each.n_heads % each.n_kv_heads == 0 for each in heads), "heads")
        expect(all(0 <= i < read.vocab_size for i in read.eos_token_ids), "end tokens")
        if read.n_layers < 10:
            expect(all(n > 0 for s in expected_shapes(read).values() for n in s), "shapes")
        read_generation_config(self.directory, read.vocab_size)
        return True


class TokenizerFile(Target):
    """tokenizer.json and tokenizer_config.json."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        pieces = ["<unk>", "<s>", "</s>", "<0x41>", "<0x42>", "<0x0A>", *"\u2581abAB", "ab"]
        added = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
        self._tokenizer = {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [
                {"id": i, "content": pieces[i], "special": True, **added} for i in range(3)
            ],
            "normalizer": {"type": "Prepend", "prepend": "\u2581"},
            "pre_tokenizer": {
                "type": "Split",
                "pattern": {"Regex": "a+b?|."},
                "behavior": "Isolated",
                "invert": False,
            },
            "post_processor": {
                "type": "TemplateProcessing",
                "single": [
                    {"SpecialToken": {"id": "<s>", "type_id": 0}},
                    {"Sequence": {"id": "A", "type_id": 0}},
                ],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}],
                "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
            },
            "decoder": {
                "type": "Sequence",
                "decoders": [
                    {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
                    {"type": "ByteFallback"},
                    {"type": "Fuse"},
                ],
            },
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": "<unk>",
                "continuing_subword_prefix": None,
                "end_of_word_suffix": None,
                "fuse_unk": True,
                "byte_fallback": True,
                "ignore_merges": False,
                "vocab": {piece: i for i, piece in enumerate(pieces)},
                "merges": [["a", "b"]],
            },
        }
        self._config = {"bos_token": "<s>", "eos_token": {"content": "</s>"}}

    def run(self, rng: random.Random) -> bool:
        n_rows = 20
        (self.directory / "tokenizer.json").write_bytes(written_json(rng, self._tokenizer))
        config = written_json(rng, self._config)
        (self.directory / "tokenizer_config.json").write_bytes(config)
        tokenizer = Tokenizer.load(self.directory, n_rows)
        expect(tokenizer.vocab_size <= n_rows, "tokens beyond the embedding")
        for token_id in range(n_rows):
            tokenizer.token_bytes(token_id)
        return True


class Template(Target):
    """A chat template, compiled and rendered."""

    _SOURCE = (
        b"{%- set ns = namespace(n=0) %}{% macro f(x) %}[{{ x|upper }}]{% endmacro %}"
        b"{% for m in messages %}{% if loop.index > 3 %}{% break %}{% endif %}"
        b"<|{{ m.role }}|>{{ m['content'] | trim }}{{ f(m.content[1:2]) }}{{ 'a' * 3 + 'b' ~ 1 }}"
        b"{% set ns.n = ns.n + 1 %}{% generation %}{{ [1, {'a': m}]|tojson }}{% endgeneration %}"
        b"{% endfor %}{{ '%s' % ns.n }}{{ '{:>3}'.format(1) }}{{ 'x'.split(',')[0] if tools }}"
    )

    def run(self, rng: random.Random) -> bool:
        source = mutated_bytes(rng, self._SOURCE) if rng.random() < 0.9 else self._SOURCE
        (self.directory / "chat_template.jinja").write_bytes(source)
        template = ChatTemplate.load(self.directory)
        expect(template is not None, "no template")
        assert template is not None
        try:
            template.render([{"role": "user", "content": "hello"}])
        except TemplateError:
            return False
        return True


class Panels(Target):
    """A file of packed matrices; half of the inputs get correct checksums again."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        from engine.device.cpu.matrix import PanelMatrix
        from engine.device.cpu.panel_file import PanelWriter

        self._file = directory / "file.panels"
        panels = np.random.default_rng(0)
        with self._file.open("wb") as stream:
            writer = PanelWriter(stream, "key")
            for name, n_out, n_in, format_ in (("a", 16, 32, "8bit"), ("b c", 17, 32, "4bit")):
                n_bytes = matrix_bytes(format_, n_out, n_in)
                values = panels.integers(0, 256, n_bytes, np.uint8)
                writer.append(name, PanelMatrix(values, n_out, n_in, format_, is_woven=False))
            writer.finish()
        self._data = self._file.read_bytes()

    def run(self, rng: random.Random) -> bool:
        from engine.device.cpu.panel_cache import PanelCache
        from engine.device.cpu.panel_file import PanelFileError, read_panels

        data = self._data
        if rng.random() < 0.6:
            data = self._with_other_index(rng)
        if rng.random() < 0.5:
            data = mutated_bytes(rng, data)
        self._file.write_bytes(data)
        try:
            matrices = read_panels(self._file, "key")
        except PanelFileError:
            return False
        expect(all(address(m.panels) % 64 == 0 for m in matrices.values()), "not aligned")
        kept = PanelCache(matrices)
        for rows, format_ in (([16], "8bit"), ([9, 8], "4bit")):
            names = "a" if len(rows) == 1 else "bc"
            matrix = kept.get(" ".join(names), [(n, 32) for n in rows], format_)
            n_bytes = matrix_bytes(format_, sum(rows), 32)
            expect(matrix is None or matrix.n_bytes == n_bytes, "another size")
        return True

    def _with_other_index(self, rng: random.Random) -> bytes:
        from engine.native.cpu import kernels

        trailer = struct.Struct("<8sQQ")
        kind, n_bytes, _ = trailer.unpack(self._data[-trailer.size :])
        end = len(self._data) - trailer.size
        index = json.loads(self._data[end - n_bytes : end])
        raw = np.frombuffer(written_json(rng, index), np.uint8)
        checksum = kernels.checksum(address(raw), raw.size)
        rest = self._data[: end - n_bytes]
        return rest + raw.tobytes() + trailer.pack(kind, raw.size, checksum)


class Prefixes(Target):
    """A kept prefix: one file of keys and values."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        block = Block(bytes(16), np.arange(8, dtype=np.int32).tobytes())
        self._files().write(block, np.arange(64, dtype=np.uint8))
        (self._file,) = directory.iterdir()
        self._data = self._file.read_bytes()

    def _files(self) -> PrefixFiles:
        return PrefixFiles(
            self.directory,
            b"m" * 16,
            n_bytes=lambda block: 8 * block.n_tokens,
            budget=2**20,
            on_lost=lambda _: None,
        )

    def run(self, rng: random.Random) -> bool:
        data = mutated_bytes(rng, self._data) if rng.random() < 0.9 else self._data
        self._file.write_bytes(data)
        files, out = self._files(), np.zeros(64, np.uint8)
        is_read = [files.read(chunk, out) for chunk in files.scan()]
        expect(is_read in ([], [False]) or data == self._data, "a damaged file was used")
        return any(is_read)


class Pack(Target):
    """Stored weights of any shape and place, packed by native code."""

    def run(self, rng: random.Random) -> bool:
        from engine.device.cpu.ops import FORMATS, CpuOps
        from tests.support.panels import LAYOUTS, as_float32, unpack

        formats = dict(zip(FORMATS, LAYOUTS, strict=True))
        format_ = rng.choice(list(formats))
        dtype = np.dtype(rng.choice(("<f4", "<f2", "<u2")))
        n_in = rng.choice((1, 2, 31, 32, 33, 64, 100))
        shapes = [(rng.choice((1, 2, 15, 16, 17, 40)), n_in) for _ in range(rng.choice((1, 1, 2)))]
        parts = [_weights(rng, dtype, shape) for shape in shapes]
        gated = len(parts) == 2 and shapes[0] == shapes[1] and rng.random() < 0.5
        try:
            matrix = CpuOps(format_, n_threads=1).matrix(parts, format_, gated=gated)
        except NotFiniteError as error:
            row, column = error.index
            value = np.concatenate([as_float32(part) for part in parts])[row, column]
            expect(not np.isfinite(value), f"{value} is finite")
            return False
        n_bytes = packed_bytes(format_, [len(part) for part in parts], n_in, gated=gated)
        expect(matrix.n_bytes == n_bytes, "bytes")
        if format_ == "float32" and not gated:
            values = unpack(matrix.sections[0].panels, formats[format_], matrix.n_out, n_in)
            expect(np.array_equal(values, np.concatenate([as_float32(p) for p in parts])), "values")
        return True


def _weights(rng: random.Random, dtype: np.dtype[Any], shape: tuple[int, int]) -> Any:
    n_bytes = shape[0] * shape[1] * dtype.itemsize
    data = rng.randbytes(n_bytes) if rng.random() < 0.3 else b""
    if not data:
        values = np.random.default_rng(rng.getrandbits(32)).standard_normal(shape, np.float32)
        values *= 10.0 ** rng.choice((-38, -3, 0, 3, 4, 37))
        with np.errstate(over="ignore"):
            stored = (values.view(np.uint32) >> 16) if dtype == np.uint16 else values
            data = stored.astype(dtype).tobytes()
    return np.frombuffer(data, dtype).reshape(shape)


TARGETS: dict[str, tuple[Callable[[Path], Runs], int]] = {
    "header": (Header, 43),
    "gguf": (GgufFiles, 10),
    "index": (Index, 8),
    "config": (Config, 14),
    "panels": (Panels, 10),
    "prefixes": (Prefixes, 6),
    "pack": (Pack, 6),
    "tokenizer": (TokenizerFile, 1),
    "template": (Template, 2),
}
"""The targets, and the share of the inputs of each in percent. A tokenizer costs as much as 40
headers.
"""
_NATIVE = ("panels", "pack")
_MEMORY = Path("/dev/shm")  # or a disk would be measured


@dataclass
class Counts:
    """Of one target."""

    accepted: int = 0
    refused: int = 0
    seconds: float = 0.0


class FoundError(Exception):
    """An input that breaks the rules; the message says which, and how to repeat it."""


def fuzz(n_inputs: int, seed: int, *, only: str = "", first: int = 0) -> dict[str, Counts]:
    """Runs inputs `first` to `first + n_inputs` of a seed, of all targets or `only` one."""
    counts = {name: Counts() for name in ([only] if only else TARGETS)}
    logging.disable()  # the warnings of each file
    try:
        with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as root:
            for name, count in counts.items():
                n = n_inputs if only else -(-n_inputs * TARGETS[name][1] // 100)
                if not MISSING or name not in _NATIVE:
                    _fuzz_one(Path(root), name, seed, range(first, first + n), count)
    finally:
        logging.disable(logging.NOTSET)
    return counts


def _fuzz_one(root: Path, name: str, seed: int, inputs: range, count: Counts) -> None:
    target = TARGETS[name][0](root / name)
    begin = time.perf_counter()
    for i in inputs:
        _run(target, name, seed, i, count)
    count.seconds = time.perf_counter() - begin


def _run(target: Runs, name: str, seed: int, i: int, count: Counts) -> None:
    try:
        is_accepted = target.run(random.Random(f"{name} {seed} {i}"))
    except ModelLoadError as error:
        message = str(error)
        if message.isprintable() and len(message) < 5000:
            count.refused += 1
            return
        what = f"{name}: refused with {message[:200]!r}"
        raise FoundError(f"{what} {_again(name, seed, i)}") from error
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        what = f"{name}: {type(error).__name__}: {error}"
        raise FoundError(f"{what} {_again(name, seed, i)}") from error
    if is_accepted:
        count.accepted += 1
    else:
        count.refused += 1


def _limit_memory(n_bytes: int) -> None:
    """Allocating more than this from now on is an error."""
    n_pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
    limit = n_pages * resource.getpagesize() + n_bytes
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _again(name: str, seed: int, i: int) -> str:
    return f"(again: --only {name} --seed {seed} --first {i} --inputs 1)"


def main() -> int:
    parser = argparse.ArgumentParser(description="Damages model files at random and loads them.")
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=TARGETS, default="")
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--memory-mb", type=int, default=0, help="that loading may add (0: any)")
    options = parser.parse_args()
    if options.memory_mb:
        _limit_memory(options.memory_mb * 10**6)
    try:
        counts = fuzz(options.inputs, options.seed, only=options.only, first=options.first)
    except FoundError as error:
        print(f"seed {options.seed}: {error}")
        raise error.__cause__ or error from None
    for name, count in counts.items():
        n = count.accepted + count.refused
        print(
            f"{name:10} {n:9} inputs  {count.accepted:9} accepted  {count.refused:9} refused  "
            f"{n / max(count.seconds, 1e-9):8.0f} /s"
        )
    print(f"seed {options.seed}: nothing found")
    return 0


if __name__ == "__main__":
    sys.exit(main())
