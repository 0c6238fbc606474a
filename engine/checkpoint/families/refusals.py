"""Keys of config.json that change what is computed: a family that does not know one must not be
loaded with it.

Owns the list, with the values that change nothing. Some families and later versions of them write
such keys into files of an architecture that has no such part.
"""

from collections.abc import Iterator
from typing import Any

from ...files import JsonObject

# By key: values with which nothing is changed.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "attention_multiplier": (),
    "residual_multiplier": (1,),
    "embedding_multiplier": (1,),
    "logits_scaling": (1,),
    "logit_scale": (1,),
    "attn_logit_softcapping": (0,),
    "final_logit_softcapping": (0,),
    "query_pre_attn_scalar": (),
    "scale_emb": (1,),
    "scale_depth": (),
    "dim_model_base": (),
    "lm_head_multiplier": (1,),
    "mup_width_multiplier": (),
    "clip_qkv": (),
    "qk_layernorm": (False,),
    "use_qk_norm": (False,),
    "use_parallel_residual": (False,),
    "parallel_attn": (False,),
    "alibi": (False,),
    "use_bidirectional_attention": (False,),
    "attention_chunk_size": (),
    "attn_temperature_tuning": (False, 0),
    "attention_sink": (False,),
    "swiglu_alpha": (),
    "swiglu_limit": (),
    "num_experts": (0, 1),
    "num_local_experts": (0, 1),
    "n_routed_experts": (0,),
    "moe_num_experts": (0,),
    "num_experts_per_tok": (0,),
    "kv_lora_rank": (),
    "num_kv_shared_layers": (0,),
    "hidden_size_per_layer_input": (0,),
    "linear_num_value_heads": (0,),
    "layer_norm_type": ("rms_norm",),
    "scale_attn_by_inverse_layer_idx": (False,),
    "scale_attn_weights": (True,),
    "add_cross_attention": (False,),
}


def refused_keys(file: JsonObject, reads: frozenset[str]) -> Iterator[tuple[str, Any, str]]:
    """Key, value and what is allowed, of what a family that `reads` these keys does not know."""
    for key, neutral in _NEUTRAL.items():
        if key in reads:
            continue
        value = file.values.get(key)
        if value is not None and value not in neutral:
            allowed = " or ".join(str(each).lower() for each in neutral)
            yield key, value, f"{allowed or 'left out'}: this architecture computes nothing else"
