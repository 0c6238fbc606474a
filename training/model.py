"""The Llama-shaped torch module used in training.

Owns the forward pass over whole rows. Module names are those of Hugging Face's Llama, so the
state dict is the export. Knows nothing of data, losses or serving: there is no KV cache here.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

INIT_STD = 0.02


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The sizes of a model."""

    dim: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    hidden_dim: int
    vocab_size: int = 4096
    head_dim: int = 64
    max_seq_len: int = 1024
    rope_theta: float = 10000.0
    norm_eps: float = 1e-5


TARGET = ModelConfig(dim=256, n_layers=9, n_heads=4, n_kv_heads=2, hidden_dim=768)
DRAFT = ModelConfig(dim=128, n_layers=3, n_heads=2, n_kv_heads=1, hidden_dim=384)


class RMSNorm(nn.Module):
    def __init__(self, dim: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return (wide * scale).to(x.dtype) * self.weight


class Attention(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        kv_dim = config.n_kv_heads * config.head_dim
        q_dim = config.n_heads * config.head_dim
        self.q_proj = nn.Linear(config.dim, q_dim, bias=False)
        self.k_proj = nn.Linear(config.dim, kv_dim, bias=False)
        self.v_proj = nn.Linear(config.dim, kv_dim, bias=False)
        self.o_proj = nn.Linear(q_dim, config.dim, bias=False)

    def qkv(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(B, H, T, D) each; key heads are repeated."""
        c = self.config
        B, T, _ = x.shape
        # One wide product is faster than three narrow ones; joining the weights costs little.
        weight = torch.cat((self.q_proj.weight, self.k_proj.weight, self.v_proj.weight))
        qkv = F.linear(x, weight).view(B, T, -1, c.head_dim).transpose(1, 2)  # (B, H + 2 Hkv, T, D)
        q, k, v = torch.split(qkv, [c.n_heads, c.n_kv_heads, c.n_kv_heads], dim=1)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        group = c.n_heads // c.n_kv_heads
        return q, k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        q, k, v = self.qkv(x, cos, sin)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # (B, H, T, D)
        return F.linear(out.transpose(1, 2).flatten(2), self.o_proj.weight)


class FeedForward(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.dim, config.hidden_dim, bias=False)
        self.up_proj = nn.Linear(config.dim, config.hidden_dim, bias=False)
        self.down_proj = nn.Linear(config.hidden_dim, config.dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        weight = torch.cat((self.gate_proj.weight, self.up_proj.weight))
        gate, up = F.linear(x, weight).chunk(2, dim=-1)  # (B, T, hidden_dim) each
        return F.linear(F.silu(gate) * up, self.down_proj.weight)


class Layer(nn.Module):
    def __init__(self, config: ModelConfig, dropout: float = 0.0) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.dim, config.norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(config.dim, config.norm_eps)
        self.mlp = FeedForward(config)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.dropout(self.self_attn(self.input_layernorm(x), cos, sin))
        out: Tensor = x + self.dropout(self.mlp(self.post_attention_layernorm(x)))
        return out


class Decoder(nn.Module):
    def __init__(self, config: ModelConfig, dropout: float = 0.0) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.dim)
        self.layers = nn.ModuleList(Layer(config, dropout) for _ in range(config.n_layers))
        self.norm = RMSNorm(config.dim, config.norm_eps)
        self.dropout = nn.Dropout(dropout)


class Llama(nn.Module):
    """Token ids (B, T) to logits (B, T, vocab_size); the embedding is also the output head.

    While it trains, a share `dropout` of what each part adds to the residual is zeroed.
    """

    cos: Tensor
    sin: Tensor

    def __init__(self, config: ModelConfig, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.config = config
        self.model = Decoder(config, dropout)
        cos, sin = rope_tables(config)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self._initialise()

    def hidden(self, token_ids: Tensor) -> Tensor:
        """(B, T, dim): what the head reads."""
        T = token_ids.shape[1]
        x = self.model.dropout(self.model.embed_tokens(token_ids))  # (B, T, dim)
        cos, sin = self.cos[:T], self.sin[:T]
        for layer in self.model.layers:
            x = layer(x, cos, sin)
        normed: Tensor = self.model.norm(x)
        return normed

    def forward(self, token_ids: Tensor) -> Tensor:
        return F.linear(self.hidden(token_ids), self.model.embed_tokens.weight)

    def n_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())

    def _initialise(self) -> None:
        for name, parameter in self.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                # Every layer begins as the identity, which is safer at high learning rates.
                nn.init.zeros_(parameter)
            elif name.endswith("embed_tokens.weight"):
                nn.init.normal_(parameter, std=INIT_STD)
            elif parameter.ndim == 2:
                nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5)


def rope_tables(config: ModelConfig) -> tuple[Tensor, Tensor]:
    """Cosines and sines, (max_seq_len, head_dim), both halves alike as Hugging Face lays them."""
    half = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    inverse = config.rope_theta**-half
    angles = torch.outer(torch.arange(config.max_seq_len, dtype=torch.float32), inverse)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Applies rotary positions to (B, H, T, D)."""
    first, second = x.chunk(2, dim=-1)
    turned = torch.cat((-second, first), dim=-1)
    return x * cos.to(x.dtype) + turned * sin.to(x.dtype)
