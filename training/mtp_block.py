"""A block that predicts one token more than the model does (multi-token prediction), in torch.

Owns the module, with GLM 4.5's names, its start from the model's last layer, and its drafts. Knows
nothing of data or files. The equations are in `engine/model/predictor.py`.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.draft_loss import attended, later, loss_of_drafts
from training.model import Layer, Llama, ModelConfig, RMSNorm


class MtpBlock(Layer):
    """Reads the model's normed outputs and the tokens after them; its head is the model's."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.enorm = RMSNorm(config.dim, config.norm_eps)
        self.hnorm = RMSNorm(config.dim, config.norm_eps)
        self.eh_proj = nn.Linear(2 * config.dim, config.dim, bias=False)
        self.shared_head = nn.ModuleDict({"norm": RMSNorm(config.dim, config.norm_eps)})

    @torch.no_grad()
    def begin_as(self, model: Llama) -> None:
        """Like the model's last layer, which reads the output and the embedding alike."""
        last = model.model.layers[-1]
        self.load_state_dict(last.state_dict(), strict=False)
        self.shared_head["norm"].load_state_dict(model.model.norm.state_dict())
        self.eh_proj.weight.copy_(torch.eye(self.eh_proj.out_features).repeat(1, 2))

    def drafts(self, hidden: Tensor, token_ids: Tensor, model: Llama, n: int) -> list[Tensor]:
        """The logits (B, T, vocab_size) of `n` tokens of a draft from every position.

        `hidden`: (B, T, dim), the model's normed outputs; `token_ids`: (B, T), the tokens after
        them. Entry i of the token with number s of a draft is for a draft that began s positions
        earlier: it reads the block's own output there. The first s entries have no such draft.
        """
        table = model.model.embed_tokens.weight
        T = token_ids.shape[1]
        cos, sin = model.cos[:T], model.sin[:T]
        embedded = self.enorm(F.embedding(token_ids, table))
        keys: list[Tensor] = []
        values: list[Tensor] = []
        logits = []
        for step in range(n):
            x = self.eh_proj(torch.cat((embedded, self.hnorm(hidden)), dim=-1))
            q, k, v = self.self_attn.qkv(self.input_layernorm(x), cos, sin)
            keys.append(k)
            values.append(v)
            heads = attended(q, keys, values, step)  # (B, H, T, D)
            y = x + self.self_attn.o_proj(heads.transpose(1, 2).flatten(2))
            out = self.shared_head["norm"](y + self.mlp(self.post_attention_layernorm(y)))
            logits.append(F.linear(out, table))
            hidden = later(out, 1)
        return logits


def block_loss(
    block: MtpBlock, model: Llama, token_ids: Tensor, n: int
) -> tuple[Tensor, list[float]]:
    """See `loss_of_drafts`. `token_ids`: (B, T + 1)."""
    with torch.no_grad():
        hidden = model.hidden(token_ids)
        logits = F.linear(hidden[:, 1:], model.model.embed_tokens.weight)
    drafts = block.drafts(hidden[:, :-1], token_ids[:, 1:], model, n)
    return loss_of_drafts(drafts, logits, torch.arange(logits.shape[-1]))
