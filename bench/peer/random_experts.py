"""A GGUF file of a mixture of experts with random weights, in the shape of a model that people run.

    python -m bench.peer.random_experts SHAPE FILE

Owns the shapes. They have fewer layers than the models that they are like, so that they fit into
the memory of small machines, and a smaller vocabulary.
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
_Q4_0, _Q8_0, _MXFP4 = (gguf.GGMLQuantizationType[name] for name in ("Q4_0", "Q8_0", "MXFP4"))
# What stands before the random codes of a block: weights get a standard deviation of about 0.02.
_SCALES = {
    _Q4_0: np.array([0.0043], np.float16).tobytes(),
    _Q8_0: np.array([0.00027], np.float16).tobytes(),
    _MXFP4: bytes([120]),  # 2^-7
}


@dataclass(frozen=True)
class Shape:
    """Sizes of a Qwen 3 MoE, of a gpt-oss if it has a window, or of a GLM 4.5 if it predicts."""

    dim: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    n_experts: int
    n_used: int
    hidden_dim: int
    window: int = 0
    vocab_size: int = 0
    """0: that of the default model."""
    predicts: bool = False
    """Whether a block that predicts one token more follows. All layers have experts, and one part
    that all tokens go through.
    """

    @property
    def architecture(self) -> str:
        return "gpt-oss" if self.is_gpt_oss else "glm4moe" if self.predicts else "qwen3moe"

    @property
    def n_blocks(self) -> int:
        return self.n_layers + self.predicts

    @property
    def is_gpt_oss(self) -> bool:
        return self.window > 0

    @property
    def heads_dims(self) -> tuple[tuple[str, int], ...]:
        """Of queries, keys and values."""
        q_dim, kv_dim = (n * self.head_dim for n in (self.n_heads, self.n_kv_heads))
        return ("q", q_dim), ("k", kv_dim), ("v", kv_dim)


SHAPES = {
    # Qwen3-30B-A3B has 48 layers.
    "a3b-12": Shape(2048, 12, 32, 4, 128, n_experts=128, n_used=8, hidden_dim=768),
    "a3b-4-mtp": Shape(2048, 4, 32, 4, 128, n_experts=128, n_used=8, hidden_dim=768, predicts=True),
    # gpt-oss-20b has 24 layers, and 201,088 tokens.
    "gpt-oss-6": Shape(
        2880, 6, 64, 8, 64, n_experts=32, n_used=4, hidden_dim=2880, window=128, vocab_size=32_768
    ),
    "tiny": Shape(256, 2, 4, 1, 64, n_experts=8, n_used=2, hidden_dim=96),
    "tiny-mtp": Shape(256, 2, 4, 1, 64, n_experts=8, n_used=2, hidden_dim=96, predicts=True),
    "tiny-gpt-oss": Shape(192, 2, 4, 1, 64, n_experts=8, n_used=2, hidden_dim=96, window=8),
}


def write_random_experts(shape: Shape, file: Path) -> None:
    """Matrices of a Qwen 3 or a GLM are Q4_0. Those of a gpt-oss are MXFP4 in experts and Q8_0
    elsewhere, as in files that people have. Routers are float32.
    """
    writer = gguf.GGUFWriter(file, shape.architecture, use_temp_file=False)
    vocab_size = add_vocabulary(writer, _TOKENIZER, n_rows=shape.vocab_size)
    _add_sizes(writer, shape, vocab_size)
    if shape.is_gpt_oss:
        _add_sizes_of_gpt_oss(writer, shape)
    if shape.predicts:
        writer.add_nextn_predict_layers(1)
        writer.add_expert_shared_count(1)
        writer.add_expert_weights_norm(value=True)
    generator = np.random.default_rng(1)
    for name, sizes in _matrices(shape, vocab_size):
        type_ = _type_of(shape, name)
        writer.add_tensor(name, _blocks(generator, type_, sizes), raw_dtype=type_)
    for name, sizes in _plain(shape):
        values = 0.05 * generator.standard_normal(sizes, np.float32)
        writer.add_tensor(name, values + np.float32(name.endswith("norm.weight")))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_sizes(writer: Any, shape: Shape, vocab_size: int) -> None:
    kind = gguf.LlamaFileType.MOSTLY_Q4_0
    writer.add_name("random weights")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_MXFP4_MOE if shape.is_gpt_oss else kind)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_vocab_size(vocab_size)
    writer.add_context_length(4096)
    writer.add_embedding_length(shape.dim)
    writer.add_block_count(shape.n_blocks)
    writer.add_feed_forward_length(shape.hidden_dim if shape.is_gpt_oss else 3 * shape.dim)
    writer.add_head_count(shape.n_heads)
    writer.add_head_count_kv(shape.n_kv_heads)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(150_000.0 if shape.is_gpt_oss else 1e6)
    writer.add_expert_count(shape.n_experts)
    writer.add_expert_used_count(shape.n_used)
    writer.add_expert_feed_forward_length(shape.hidden_dim)


def _add_sizes_of_gpt_oss(writer: Any, shape: Shape) -> None:
    writer.add_sliding_window(shape.window)
    writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    writer.add_rope_scaling_factor(32.0)
    writer.add_rope_scaling_orig_ctx_len(4096)


def _matrices(shape: Shape, vocab_size: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    n, hidden, dim = shape.n_experts, shape.hidden_dim, shape.dim
    yield "token_embd.weight", (vocab_size, dim)
    yield "output.weight", (vocab_size, dim)
    if shape.predicts:
        yield f"blk.{shape.n_layers}.nextn.eh_proj.weight", (dim, 2 * dim)
    for i in range(shape.n_blocks):
        for name, width in shape.heads_dims:
            yield f"blk.{i}.attn_{name}.weight", (width, dim)
        yield f"blk.{i}.attn_output.weight", (dim, shape.n_heads * shape.head_dim)
        for name in ("gate", "up"):
            yield f"blk.{i}.ffn_{name}_exps.weight", (n, hidden, dim)
        yield f"blk.{i}.ffn_down_exps.weight", (n, dim, hidden)
        if shape.predicts:
            for name in ("gate", "up"):
                yield f"blk.{i}.ffn_{name}_shexp.weight", (hidden, dim)
            yield f"blk.{i}.ffn_down_shexp.weight", (dim, hidden)


def _type_of(shape: Shape, name: str) -> gguf.GGMLQuantizationType:
    if not shape.is_gpt_oss:
        return _Q4_0
    return _MXFP4 if "_exps" in name else _Q8_0


def _plain(shape: Shape) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Norms, routers and biases."""
    yield "output_norm.weight", (shape.dim,)
    if shape.predicts:
        for name in ("enorm", "hnorm", "shared_head_norm"):
            yield f"blk.{shape.n_layers}.nextn.{name}.weight", (shape.dim,)
    for i in range(shape.n_blocks):
        yield f"blk.{i}.attn_norm.weight", (shape.dim,)
        yield f"blk.{i}.ffn_gate_inp.weight", (shape.n_experts, shape.dim)
        rest = _plain_of_gpt_oss(shape) if shape.is_gpt_oss else _plain_of_qwen(shape)
        yield from ((f"blk.{i}.{name}", sizes) for name, sizes in rest)


def _plain_of_qwen(shape: Shape) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "post_attention_norm.weight" if shape.predicts else "ffn_norm.weight", (shape.dim,)
    for name in ("q", "k"):
        yield f"attn_{name}_norm.weight", (shape.head_dim,)


def _plain_of_gpt_oss(shape: Shape) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "post_attention_norm.weight", (shape.dim,)
    yield "attn_sinks.weight", (shape.n_heads,)
    for name, width in shape.heads_dims:
        yield f"attn_{name}.bias", (width,)
    yield "attn_output.bias", (shape.dim,)
    yield "ffn_gate_inp.bias", (shape.n_experts,)
    for name in ("gate", "up"):
        yield f"ffn_{name}_exps.bias", (shape.n_experts, shape.hidden_dim)
    yield "ffn_down_exps.bias", (shape.n_experts, shape.dim)


def _blocks(
    generator: np.random.Generator, type_: gguf.GGMLQuantizationType, sizes: tuple[int, ...]
) -> npt.NDArray[np.uint8]:
    """Rows of blocks of 32: a scale, then random codes."""
    *rows, n_in = sizes
    columns, n_bytes = gguf.GGML_QUANT_SIZES[type_]
    blocks = generator.integers(0, 256, (*rows, n_in // columns, n_bytes), np.uint8)
    scale = np.frombuffer(_SCALES[type_], np.uint8)
    blocks[..., : len(scale)] = scale
    return blocks.reshape(*rows, -1)


if __name__ == "__main__":
    write_random_experts(SHAPES[sys.argv[1]], Path(sys.argv[2]))
