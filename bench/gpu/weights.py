"""The weights of the measured models, and how much a pass over them reads and multiplies.

Weights are random and made on the device, so no file of gigabytes is needed.
"""

from typing import Any

import torch

from engine.checkpoint.config import AttentionConfig, ModelConfig
from engine.device.ops import Ops
from engine.model.weights import LayerWeights, Weights

from .place import DEVICE


def random_weights(config: ModelConfig, ops: Ops, device: str = DEVICE) -> Weights:
    """Different weights for every layer, as `load_weights` would make them."""
    _, attention, hidden_dim = _sizes(config)

    def matrix(*rows: int, n_in: int, format_: str = ops.format, gated: bool = False) -> Any:
        parts = [
            torch.empty(n, n_in, device=device, dtype=torch.bfloat16).normal_(std=n_in**-0.5)
            for n in rows
        ]
        return ops.matrix(parts, format_, gated=gated)

    def norm() -> Any:
        return ops.vector([torch.ones(config.dim, device=device, dtype=torch.bfloat16)])

    def layer() -> LayerWeights:
        return LayerWeights(
            attention_norm=norm(),
            wqkv=matrix(attention.qkv_dim, n_in=config.dim),
            bqkv=None,
            q_norm=None,
            k_norm=None,
            wo=matrix(config.dim, n_in=attention.q_dim),
            bo=None,
            mlp_norm=norm(),
            w_gate_up=matrix(hidden_dim, hidden_dim, n_in=config.dim, gated=True),
            b_gate_up=None,
            w_down=matrix(config.dim, n_in=hidden_dim),
            b_down=None,
        )

    def table() -> Any:
        return matrix(config.vocab_size, n_in=config.dim, format_=ops.formats(config, {}).head)

    embedding = table()
    return Weights(
        embedding=embedding,
        layers=tuple(layer() for _ in range(config.n_layers)),
        norm=norm(),
        head=embedding if config.tie_embeddings else table(),
        formats=ops.formats(config, {}),
    )


def step_bytes(config: ModelConfig, ops: Ops) -> int:
    """Bytes of weights that a decode step reads: all matrices but an untied embedding,
    which gives a row.
    """
    dim, attention, hidden_dim = _sizes(config)
    layer = sum(
        ops.matrix_bytes(ops.format, n_out, n_in)
        for n_out, n_in in (
            (attention.qkv_dim, dim),
            (dim, attention.q_dim),
            (2 * hidden_dim, dim),
            (dim, hidden_dim),
        )
    )
    head = ops.matrix_bytes(ops.formats(config, {}).head, config.vocab_size, dim)
    return config.n_layers * layer + head


def prompt_flops(config: ModelConfig, n_tokens: int) -> float:
    """Multiplications and additions for a prompt of `n_tokens`: the matrices of all layers, without
    what the last one needs for its last token alone, and attention to the tokens before.
    """
    dim, attention, hidden_dim = _sizes(config)
    qkv = dim * attention.qkv_dim
    rest = dim * attention.q_dim + 3 * dim * hidden_dim
    products = attention.q_dim * n_tokens  # q k and p v, over half of the positions on average
    n_whole = config.n_layers - 1
    return 2.0 * n_tokens * (config.n_layers * qkv + n_whole * (rest + products))


def _sizes(config: ModelConfig) -> tuple[int, AttentionConfig, int]:
    """dim, attention and hidden_dim, equal in every layer."""
    layer = config.layers[0]
    return config.dim, layer.attention, layer.mlp.hidden_dim
