"""Random EAGLE-3 heads as folders, and their equations in torch."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional as F

DIM, N_HEADS, N_KV_HEADS, HEAD_DIM, HIDDEN_DIM = 64, 4, 2, 24, 96
N_DRAFTED = 200
EPS, THETA = 1e-5, 10000.0
QKV = (("q", N_HEADS), ("k", N_KV_HEADS), ("v", N_KV_HEADS))


def save_head(path: Path, *, vocab_size: int, dim: int = DIM, **values: Any) -> Path:
    """`dim`: of the model; `values`: more of config.json. An own embedding is stored if the model
    is not as wide as the head.
    """
    random = torch.Generator().manual_seed(1)

    def drawn(*shape: int) -> torch.Tensor:
        values: torch.Tensor = torch.randn(*shape, generator=random) * shape[-1] ** -0.5
        return values

    def norm() -> torch.Tensor:
        return 1.0 + 0.1 * torch.randn(DIM, generator=random)

    chosen = torch.randperm(vocab_size, generator=random)[:N_DRAFTED].sort().values
    taken = torch.zeros(vocab_size, dtype=torch.bool)
    taken[chosen] = True
    tensors = {
        "fc.weight": drawn(DIM, 3 * dim),
        "midlayer.input_layernorm.weight": norm(),
        "midlayer.hidden_norm.weight": norm(),
        **{
            f"midlayer.self_attn.{name}_proj.weight": drawn(n * HEAD_DIM, 2 * DIM)
            for name, n in QKV
        },
        "midlayer.self_attn.o_proj.weight": drawn(DIM, N_HEADS * HEAD_DIM),
        "midlayer.post_attention_layernorm.weight": norm(),
        "midlayer.mlp.gate_proj.weight": drawn(HIDDEN_DIM, DIM),
        "midlayer.mlp.up_proj.weight": drawn(HIDDEN_DIM, DIM),
        "midlayer.mlp.down_proj.weight": drawn(DIM, HIDDEN_DIM),
        "norm.weight": norm(),
        "lm_head.weight": drawn(N_DRAFTED, DIM),
        "d2t": chosen - torch.arange(N_DRAFTED),
        "t2d": taken,
    }
    if dim != DIM:
        tensors["embed_tokens.weight"] = drawn(vocab_size, DIM)
    config = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": DIM,
        "intermediate_size": HIDDEN_DIM,
        "num_hidden_layers": 1,
        "num_attention_heads": N_HEADS,
        "num_key_value_heads": N_KV_HEADS,
        "head_dim": HEAD_DIM,
        "max_position_embeddings": 256,
        "rms_norm_eps": EPS,
        "rope_theta": THETA,
        "vocab_size": vocab_size,
        "draft_vocab_size": N_DRAFTED,
        **values,
    }
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(config), "utf-8")
    save_file(tensors, path / "model.safetensors")
    return path


class ReferenceHead:
    """A head in plain torch, without a cache."""

    def __init__(self, path: Path, embedding: torch.Tensor) -> None:
        """`embedding`: of the model, used if the head has none."""
        self._tensors = load_file(path / "model.safetensors")
        self._embedding = self._tensors.get("embed_tokens.weight", embedding)

    def fused(self, residuals: torch.Tensor) -> torch.Tensor:
        """(n, 3 * the model's dim) -> (n, DIM)."""
        return residuals @ self._tensors["fc.weight"].T

    def outputs(self, g: torch.Tensor, token_ids: torch.Tensor) -> torch.Tensor:
        """(n, DIM), from what the head reads at n positions and the tokens after them."""
        layer, n = "midlayer.", len(token_ids)
        both = torch.cat(
            (
                self._normed(self._embedding[token_ids], layer + "input_layernorm"),
                self._normed(g, layer + "hidden_norm"),
            ),
            dim=-1,
        )
        q, k, v = (
            self._linear(both, f"{layer}self_attn.{name}_proj").view(n, heads, HEAD_DIM)
            for name, heads in QKV
        )
        q, k = _rotated(q), _rotated(k)
        k, v = (x.repeat_interleave(N_HEADS // N_KV_HEADS, dim=1) for x in (k, v))
        scores = torch.einsum("ihd,jhd->hij", q, k) * HEAD_DIM**-0.5
        scores += torch.full((n, n), -torch.inf).triu(1)
        heads = torch.einsum("hij,jhd->ihd", scores.softmax(-1), v).reshape(n, -1)
        y = g + self._linear(heads, layer + "self_attn.o_proj")
        inner = self._normed(y, layer + "post_attention_layernorm")
        gate, up = (self._linear(inner, f"{layer}mlp.{name}_proj") for name in ("gate", "up"))
        return y + self._linear(F.silu(gate) * up, layer + "mlp.down_proj")

    def logits(self, outputs: torch.Tensor) -> torch.Tensor:
        """(n, N_DRAFTED)"""
        return self._linear(self._normed(outputs, "norm"), "lm_head")

    def token_id(self, index: int) -> int:
        return index + int(self._tensors["d2t"][index])

    def _normed(self, x: torch.Tensor, name: str) -> torch.Tensor:
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS)
        return x * scale * self._tensors[f"{name}.weight"]

    def _linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return x @ self._tensors[f"{name}.weight"].T


def _rotated(x: torch.Tensor) -> torch.Tensor:
    """(n, heads, HEAD_DIM) at positions 0 to n - 1."""
    half = HEAD_DIM // 2
    angles = torch.outer(torch.arange(len(x)), THETA ** (-torch.arange(half) / half))[:, None]
    a, b = x[..., :half], x[..., half:]
    return torch.cat(
        (a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()), dim=-1
    )
