"""A GGUF file of a mixture of experts with random weights, in the shape of a model that people run.

    python -m bench.peer.random_experts SHAPE FILE

Owns the shapes. Their vocabulary is that of the default model, and so much smaller than that of the
model that they are like; layers are fewer, so that they fit into the memory of small machines.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from .gguf_file import add_vocabulary

_TOKENIZER = Path(__file__).parents[2] / "engine" / "default_model"
_Q4_0 = gguf.GGMLQuantizationType.Q4_0
# Of a block of 32 codes: weights get a standard deviation of about 0.02.
_SCALE = 0.0043


@dataclass(frozen=True)
class Shape:
    """Sizes of a Qwen 3 MoE."""

    dim: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    n_experts: int
    n_used: int
    hidden_dim: int


SHAPES = {
    # Qwen3-30B-A3B has 48 layers.
    "a3b-12": Shape(2048, 12, 32, 4, 128, n_experts=128, n_used=8, hidden_dim=768),
    "tiny": Shape(256, 2, 4, 1, 64, n_experts=8, n_used=2, hidden_dim=96),
}


def write_random_experts(shape: Shape, file: Path) -> None:
    """All matrices are Q4_0, the routers float32."""
    writer = gguf.GGUFWriter(file, "qwen3moe", use_temp_file=False)
    vocab_size = add_vocabulary(writer, _TOKENIZER)
    _add_sizes(writer, shape, vocab_size)
    generator = np.random.default_rng(1)
    for name, sizes in _matrices(shape, vocab_size):
        writer.add_tensor(name, _blocks(generator, sizes), raw_dtype=_Q4_0)
    for name, sizes in _vectors(shape):
        values = 0.05 * generator.standard_normal(sizes, np.float32)
        writer.add_tensor(name, values + np.float32(len(sizes) == 1))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_sizes(writer: Any, shape: Shape, vocab_size: int) -> None:
    writer.add_name("random weights")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_0)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_vocab_size(vocab_size)
    writer.add_context_length(4096)
    writer.add_embedding_length(shape.dim)
    writer.add_block_count(shape.n_layers)
    writer.add_feed_forward_length(3 * shape.dim)
    writer.add_head_count(shape.n_heads)
    writer.add_head_count_kv(shape.n_kv_heads)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e6)
    writer.add_expert_count(shape.n_experts)
    writer.add_expert_used_count(shape.n_used)
    writer.add_expert_feed_forward_length(shape.hidden_dim)


def _matrices(shape: Shape, vocab_size: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    q_dim, kv_dim = (n * shape.head_dim for n in (shape.n_heads, shape.n_kv_heads))
    yield "token_embd.weight", (vocab_size, shape.dim)
    yield "output.weight", (vocab_size, shape.dim)
    for i in range(shape.n_layers):
        yield f"blk.{i}.attn_q.weight", (q_dim, shape.dim)
        yield f"blk.{i}.attn_k.weight", (kv_dim, shape.dim)
        yield f"blk.{i}.attn_v.weight", (kv_dim, shape.dim)
        yield f"blk.{i}.attn_output.weight", (shape.dim, q_dim)
        for name in ("gate", "up"):
            yield f"blk.{i}.ffn_{name}_exps.weight", (shape.n_experts, shape.hidden_dim, shape.dim)
        yield f"blk.{i}.ffn_down_exps.weight", (shape.n_experts, shape.dim, shape.hidden_dim)


def _vectors(shape: Shape) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "output_norm.weight", (shape.dim,)
    for i in range(shape.n_layers):
        yield f"blk.{i}.attn_norm.weight", (shape.dim,)
        yield f"blk.{i}.ffn_norm.weight", (shape.dim,)
        for name in ("q", "k"):
            yield f"blk.{i}.attn_{name}_norm.weight", (shape.head_dim,)
        yield f"blk.{i}.ffn_gate_inp.weight", (shape.n_experts, shape.dim)


def _blocks(generator: np.random.Generator, sizes: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    """Rows of blocks: a float16 scale, then 32 codes of 4 bits."""
    *rows, n_in = sizes
    blocks = generator.integers(0, 256, (*rows, n_in // 32, 18), np.uint8)
    scales = np.full((*rows, n_in // 32, 1), _SCALE, np.float16)
    blocks[..., :2] = scales.view(np.uint8)
    return blocks.reshape(*rows, -1)


if __name__ == "__main__":
    write_random_experts(SHAPES[sys.argv[1]], Path(sys.argv[2]))
