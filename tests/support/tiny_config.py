"""The configuration of a model that only pretends to compute."""

from engine.checkpoint.config import AttentionConfig, LayerConfig, MlpConfig, ModelConfig
from engine.checkpoint.ropes import RopeConfig


def tiny_config(architecture: str, *, vocab_size: int, max_seq_len: int, end: int) -> ModelConfig:
    """One layer, one head, one dimension; `end` is the stop token."""
    attention = AttentionConfig(n_heads=1, n_kv_heads=1, head_dim=1)
    return ModelConfig(
        architecture=architecture,
        dim=1,
        vocab_size=vocab_size,
        norm_eps=1e-5,
        ropes=(RopeConfig(10000.0, 1),),
        layers=(LayerConfig(attention, MlpConfig(1)),),
        tie_embeddings=True,
        max_seq_len=max_seq_len,
        eos_token_ids=(end,),
        bos_token_id=None,
    )
