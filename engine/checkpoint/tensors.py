"""The tensors that a checkpoint must hold, by their Hugging Face names, shapes and dtypes.

All of them are verified before anything is allocated.
"""

import re
from collections.abc import Mapping

from ..errors import ModelLoadError
from ..files import shown_name
from .config import ModelConfig
from .safetensors import Checkpoint, StoredTensor

_ALLOWED_DTYPES = ("F32", "F16", "BF16")

# Tables that old Llama checkpoints stored; they follow from config.json.
_IGNORED = re.compile(r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq")

EMBEDDING = "model.embed_tokens.weight"
FINAL_NORM = "model.norm.weight"
HEAD = "lm_head.weight"


def expected_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Every tensor that a checkpoint of `config` must hold, by its Hugging Face name."""
    dim, hidden = config.dim, config.hidden_dim
    q_dim, kv_dim = config.n_heads * config.head_dim, config.n_kv_heads * config.head_dim
    shapes: dict[str, tuple[int, ...]] = {EMBEDDING: (config.vocab_size, dim), FINAL_NORM: (dim,)}
    if not config.tie_embeddings:
        shapes[HEAD] = (config.vocab_size, dim)
    for index, layer in enumerate(config.layers):
        matrices = {
            "self_attn.q_proj": (q_dim, dim, layer.qkv_bias),
            "self_attn.k_proj": (kv_dim, dim, layer.qkv_bias),
            "self_attn.v_proj": (kv_dim, dim, layer.qkv_bias),
            "self_attn.o_proj": (dim, q_dim, layer.o_bias),
            "mlp.gate_proj": (hidden, dim, layer.mlp_bias),
            "mlp.up_proj": (hidden, dim, layer.mlp_bias),
            "mlp.down_proj": (dim, hidden, layer.mlp_bias),
        }
        prefix = f"model.layers.{index}."
        for name, (n_out, n_in, has_bias) in matrices.items():
            shapes[f"{prefix}{name}.weight"] = (n_out, n_in)
            if has_bias:
                shapes[f"{prefix}{name}.bias"] = (n_out,)
        for name in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"{prefix}{name}.weight"] = (dim,)
        if layer.qk_norm:
            for name in ("self_attn.q_norm", "self_attn.k_norm"):
                shapes[f"{prefix}{name}.weight"] = (config.head_dim,)
    return shapes


def check_tensors(checkpoint: Checkpoint, config: ModelConfig) -> dict[str, StoredTensor]:
    """The tensors that the model needs, after comparing names, shapes and dtypes with `config`.

    Raises ModelLoadError naming file and tensor. A stored head of a tied model is ignored.
    """
    expected, tensors = expected_shapes(config), checkpoint.tensors
    for name, shape in expected.items():
        if name not in tensors:
            raise ModelLoadError(
                f"{checkpoint.file}: {name}: missing; config.json asks for shape {list(shape)}"
            )
    tied_head = {HEAD: (config.vocab_size, config.dim)} if config.tie_embeddings else {}
    for name, tensor in tensors.items():
        if _IGNORED.fullmatch(name):
            continue
        wanted = expected.get(name) or tied_head.get(name)
        if wanted is None:
            raise ModelLoadError(
                f"{tensor.file}: {shown_name(name)}: a {config.architecture} with this "
                f"config.json has no such tensor"
            )
        if tensor.shape != wanted:
            raise ModelLoadError(
                f"{tensor.file}: {name}: has shape {list(tensor.shape)}, "
                f"config.json asks for {list(wanted)}"
            )
        if tensor.dtype not in _ALLOWED_DTYPES:
            allowed = ", ".join(_ALLOWED_DTYPES)
            raise ModelLoadError(
                f"{tensor.file}: {name}: dtype {tensor.dtype} is not supported; allowed: {allowed}"
            )
    return {name: tensors[name] for name in expected}


def matrix_dtypes(tensors: Mapping[str, StoredTensor]) -> set[str]:
    """What the matrices of a checkpoint are stored as."""
    return {tensor.dtype for tensor in tensors.values() if len(tensor.shape) == 2}
