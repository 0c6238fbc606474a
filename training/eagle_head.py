"""An EAGLE-3 head in torch, and what it loses on drafts of several tokens.

Owns the module, with the names of published heads, its start from the model's last layer, and the
loss. Knows nothing of data or files. The equations are in `engine/model/eagle.py`.
"""

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.draft_loss import attended, later, loss_of_drafts
from training.model import FeedForward, Layer, Llama, ModelConfig, RMSNorm, rope_tables, rotate


class HeadAttention(nn.Module):
    """Reads the normed embedding and the normed hidden state side by side, (B, T, 2 * dim)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        kv_dim, q_dim = config.n_kv_heads * config.head_dim, config.n_heads * config.head_dim
        self.q_proj = nn.Linear(2 * config.dim, q_dim, bias=False)
        self.k_proj = nn.Linear(2 * config.dim, kv_dim, bias=False)
        self.v_proj = nn.Linear(2 * config.dim, kv_dim, bias=False)
        self.o_proj = nn.Linear(q_dim, config.dim, bias=False)

    def qkv(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(B, H, T, D) each; key heads are repeated."""
        c, (B, T, _) = self.config, x.shape
        q, k, v = (
            product(x).view(B, T, -1, c.head_dim).transpose(1, 2)
            for product in (self.q_proj, self.k_proj, self.v_proj)
        )
        group = c.n_heads // c.n_kv_heads
        k, v = (each.repeat_interleave(group, dim=1) for each in (rotate(k, cos, sin), v))
        return rotate(q, cos, sin), k, v


class HeadLayer(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.dim, config.norm_eps)
        self.hidden_norm = RMSNorm(config.dim, config.norm_eps)
        self.self_attn = HeadAttention(config)
        self.post_attention_layernorm = RMSNorm(config.dim, config.norm_eps)
        self.mlp = FeedForward(config)


class EagleHead(nn.Module):
    """Drafts tokens of a vocabulary of its own after a model whose sizes `config` has."""

    cos: Tensor
    sin: Tensor

    def __init__(self, config: ModelConfig, n_drafted: int) -> None:
        super().__init__()
        self.config = replace(config, n_layers=1)
        self.fc = nn.Linear(3 * config.dim, config.dim, bias=False)
        self.midlayer = HeadLayer(config)
        self.norm = RMSNorm(config.dim, config.norm_eps)
        self.lm_head = nn.Linear(config.dim, n_drafted, bias=False)
        cos, sin = rope_tables(config)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    @torch.no_grad()
    def begin_as(self, model: Llama, token_ids: Tensor) -> None:
        """Like the model's last layer, which reads the last of the three residuals. `token_ids`: of
        the head's vocabulary.
        """
        own, dim = self.midlayer, self.config.dim
        last = model.model.layers[-1]
        assert isinstance(last, Layer)
        self.fc.weight.zero_()
        self.fc.weight[:, 2 * dim :] = torch.eye(dim)
        for name in ("q_proj", "k_proj", "v_proj"):
            weight = getattr(own.self_attn, name).weight
            weight.normal_(std=0.1 * dim**-0.5)
            weight[:, dim:] = getattr(last.self_attn, name).weight
        own.self_attn.o_proj.load_state_dict(last.self_attn.o_proj.state_dict())
        own.hidden_norm.load_state_dict(last.input_layernorm.state_dict())
        own.post_attention_layernorm.load_state_dict(last.post_attention_layernorm.state_dict())
        own.mlp.load_state_dict(last.mlp.state_dict())
        self.norm.load_state_dict(model.model.norm.state_dict())
        self.lm_head.weight.copy_(model.model.embed_tokens.weight[token_ids])

    def drafts(self, residuals: Tensor, embedded: Tensor, n: int) -> list[Tensor]:
        """The logits (B, T, n_drafted) of `n` tokens of a draft from every position.

        `residuals`: (B, T, 3 * dim), of the model; `embedded`: (B, T, dim), the tokens after them.
        Entry i of the token with number s of a draft is for a draft that began s positions earlier:
        it reads the head's own output there, and attends to what its own draft has computed since.
        The first s entries have no such draft.
        """
        attention, T = self.midlayer.self_attn, embedded.shape[1]
        cos, sin = self.cos[:T], self.sin[:T]
        normed = self.midlayer.input_layernorm(embedded)
        g = self.fc(residuals)
        keys: list[Tensor] = []
        values: list[Tensor] = []
        logits = []
        for step in range(n):
            both = torch.cat((normed, self.midlayer.hidden_norm(g)), dim=-1)
            q, k, v = attention.qkv(both, cos, sin)
            keys.append(k)
            values.append(v)
            heads = attended(q, keys, values, step)  # (B, H, T, D)
            y = g + attention.o_proj(heads.transpose(1, 2).flatten(2))
            out = y + self.midlayer.mlp(self.midlayer.post_attention_layernorm(y))
            logits.append(self.lm_head(self.norm(out)))
            g = later(out, 1)
        return logits


@torch.no_grad()
def followed(model: Llama, token_ids: Tensor, layers: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """The residuals in front of `layers`, side by side (B, T, n * dim), and the logits."""
    T = token_ids.shape[1]
    x = model.model.embed_tokens(token_ids)
    kept = {}
    for index, layer in enumerate(model.model.layers):
        kept[index] = x
        x = layer(x, model.cos[:T], model.sin[:T])
    logits = F.linear(model.model.norm(x), model.model.embed_tokens.weight)
    return torch.cat([kept[index] for index in layers], dim=-1), logits


def draft_loss(
    head: EagleHead,
    model: Llama,
    token_ids: Tensor,
    layers: tuple[int, ...],
    chosen: Tensor,
    n: int,
) -> tuple[Tensor, list[float]]:
    """See `loss_of_drafts`. `token_ids`: (B, T + 1)."""
    residuals, logits = followed(model, token_ids, layers)
    embedded = model.model.embed_tokens(token_ids[:, 1:])
    return loss_of_drafts(head.drafts(residuals[:, :-1], embedded, n), logits[:, 1:], chosen)
