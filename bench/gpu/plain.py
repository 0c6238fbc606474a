"""A Llama in plain torch, written for torch.compile: static caches, one token a pass.

The rival that needs no package. Owns its own weights, random ones; knows nothing of the engine but
the sizes. 8bit: int8 with one scale per row. 4bit: torch's own packed weights, groups of 64.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.checkpoint.config import ModelConfig

_GROUP = 64
_TILES = 8  # of the inner dimension in torch's packed weights


class Matrix(nn.Module):
    """bfloat16 (n_out, n_in)."""

    weight: Tensor

    def __init__(self, n_out: int, n_in: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randn(n_out, n_in) * n_in**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight)


class Matrix8(nn.Module):
    """int8 with a scale per row."""

    codes: Tensor
    scales: Tensor

    def __init__(self, n_out: int, n_in: int) -> None:
        super().__init__()
        self.register_buffer("codes", torch.randint(-127, 128, (n_out, n_in), dtype=torch.int8))
        self.register_buffer("scales", torch.full((n_out,), n_in**-0.5 / 73))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.codes.to(x.dtype)) * self.scales


class Matrix4(nn.Module):
    """Four bits, a scale and a zero per group of 64, in the order of torch's own kernel."""

    packed: Tensor
    scales: Tensor

    def __init__(self, n_out: int, n_in: int) -> None:
        super().__init__()
        codes = torch.randint(0, 256, (n_out, n_in // 2), dtype=torch.uint8)
        self.register_buffer("packed", torch.ops.aten._convert_weight_to_int4pack(codes, _TILES))
        scales = torch.zeros(n_in // _GROUP, n_out, 2)
        scales[..., 0] = n_in**-0.5 / 4.6
        self.register_buffer("scales", scales)

    def forward(self, x: Tensor) -> Any:
        return torch.ops.aten._weight_int4pack_mm(x, self.packed, _GROUP, self.scales)


# Formats of the layers and of the head, where four bits would cost too much quality.
MATRICES: dict[str, tuple[type[nn.Module], type[nn.Module]]] = {
    "bfloat16": (Matrix, Matrix),
    "8bit": (Matrix8, Matrix8),
    "4bit": (Matrix4, Matrix8),
}


class Layer(nn.Module):
    """Attention over a static cache, then the gated MLP."""

    attention_norm: Tensor
    mlp_norm: Tensor
    keys: Tensor
    values: Tensor

    def __init__(self, config: ModelConfig, matrix: type[nn.Module], max_seq_len: int) -> None:
        super().__init__()
        layer = config.layers[0]  # all are equal
        self.attention, self.mlp = layer.attention, layer.mlp
        self.wqkv = matrix(self.attention.qkv_dim, config.dim)
        self.wo = matrix(config.dim, self.attention.q_dim)
        self.gate_up = matrix(2 * self.mlp.hidden_dim, config.dim)
        self.down = matrix(config.dim, self.mlp.hidden_dim)
        for name in ("attention_norm", "mlp_norm"):
            self.register_buffer(name, torch.ones(config.dim))
        n_kv_heads, head_dim = config.kv_shapes[0]
        shape = (1, n_kv_heads, max_seq_len, head_dim)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(shape))

    def forward(self, x: Tensor, pos: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Any:
        x = x + self._attention(rms_norm(x, self.attention_norm), pos, cos, sin, mask)
        gate, up = self.gate_up(rms_norm(x, self.mlp_norm)).split(self.mlp.hidden_dim, dim=-1)
        return x + self.down(F.silu(gate) * up)

    def _attention(self, x: Tensor, pos: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Any:
        attention = self.attention
        n_kv = attention.n_kv_heads
        heads = self.wqkv(x).view(1, -1, attention.head_dim).transpose(0, 1)[None]
        q, k, v = heads.split([attention.n_heads, n_kv, n_kv], dim=1)
        self.keys.index_copy_(2, pos, rotated(k, cos, sin))
        self.values.index_copy_(2, pos, v)
        out = F.scaled_dot_product_attention(
            rotated(q, cos, sin), self.keys, self.values, attn_mask=mask, enable_gqa=True
        )
        return self.wo(out.view(1, -1))


class PlainDecoder(nn.Module):
    """One sequence; a pass takes a token and its position, and gives the most probable next one."""

    table: Tensor
    final_norm: Tensor
    cos: Tensor
    sin: Tensor
    positions: Tensor

    def __init__(self, config: ModelConfig, format_: str, *, max_seq_len: int) -> None:
        """On torch's default device, in its default dtype."""
        super().__init__()
        matrix, head = MATRICES[format_]
        self.register_buffer("table", torch.randn(config.vocab_size, config.dim))
        self.layers = nn.ModuleList(
            Layer(config, matrix, max_seq_len) for _ in range(config.n_layers)
        )
        self.register_buffer("final_norm", torch.ones(config.dim))
        self.head = head(config.vocab_size, config.dim)
        half = config.ropes[0].rotary_dim // 2
        frequencies = config.ropes[0].theta ** (-torch.arange(half, dtype=torch.float32) / half)
        angles = torch.arange(max_seq_len, dtype=torch.float32)[:, None] * frequencies
        self.register_buffer("cos", angles.cos().to(self.table.dtype))
        self.register_buffer("sin", angles.sin().to(self.table.dtype))
        self.register_buffer("positions", torch.arange(max_seq_len))

    def forward(self, token_id: Tensor, pos: Tensor) -> Any:
        """Token and position, each int64 (1,) -> the next token (1,)."""
        x = F.embedding(token_id, self.table)
        cos, sin = self.cos[pos], self.sin[pos]
        mask = (self.positions <= pos)[None, None, None]
        for layer in self.layers:
            x = layer(x, pos, cos, sin, mask)
        return self.head(rms_norm(x, self.final_norm)).argmax(dim=-1)


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * weight


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
