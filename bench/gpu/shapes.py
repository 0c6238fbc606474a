"""The measured models: the sizes of Llama 3 with random weights.

Owns the sizes. Weights are drawn on the device, so that no file of gigabytes is needed; a row of
them keeps the variance of what it is multiplied with, so every activation stays finite.
"""

from engine.checkpoint.config import AttentionConfig, LayerConfig, MlpConfig, ModelConfig
from engine.checkpoint.ropes import RopeConfig

_ANY_LENGTH = 131_072


def _llama(
    n_layers: int, dim: int, hidden_dim: int, n_heads: int, head_dim: int, *, tied: bool
) -> ModelConfig:
    attention = AttentionConfig(n_heads=n_heads, n_kv_heads=8, head_dim=head_dim)
    return ModelConfig(
        architecture="LlamaForCausalLM",
        dim=dim,
        vocab_size=128_256,
        norm_eps=1e-5,
        ropes=(RopeConfig(theta=500_000.0, rotary_dim=head_dim),),
        layers=(LayerConfig(attention, MlpConfig(hidden_dim)),) * n_layers,
        tie_embeddings=tied,
        max_seq_len=_ANY_LENGTH,
        eos_token_ids=(),
        bos_token_id=None,
    )


CONFIGS = {
    "8B": _llama(32, 4096, 14336, 32, 128, tied=False),
    "1B": _llama(16, 2048, 8192, 32, 64, tied=True),
}
