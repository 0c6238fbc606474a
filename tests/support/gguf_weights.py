"""The weights of a GGUF file with a Llama model, as transformers wants them.

The engine's reader finds the bytes, which is much faster than the package's with a real vocabulary;
the `gguf` package decodes them.
"""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import torch

from engine.gguf.container import read_gguf
from engine.stored_tensor import StoredTensor

Rows = npt.NDArray[np.float32]

_MODULES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def decoded(file: Path, config: Any) -> dict[str, torch.Tensor]:
    """The weights of a Llama model with tied embeddings, under transformers' names."""
    weights = {}
    for name, tensor in read_gguf(file).tensors.items():
        values = _values(tensor)
        match name.split("."):
            case ["token_embd", "weight"]:
                weights["model.embed_tokens.weight"] = weights["lm_head.weight"] = values
            case ["output_norm", "weight"]:
                weights["model.norm.weight"] = values
            case ["blk", layer, kind, "weight"]:
                heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
                if kind in heads:
                    values = _halves(values, heads[kind])
                weights[f"model.layers.{layer}.{_MODULES[kind]}.weight"] = values
            case _:
                raise ValueError(f"{file}: {name}")
    return {name: torch.from_numpy(values.copy()) for name, values in weights.items()}


def _values(tensor: StoredTensor) -> Rows:
    data = np.fromfile(tensor.file, np.uint8, tensor.n_bytes, offset=tensor.begin)
    type_ = gguf.GGMLQuantizationType[tensor.dtype]
    values: Rows = gguf.quants.dequantize(data.reshape(*tensor.shape[:-1], -1), type_)
    return values.astype(np.float32, copy=False).reshape(tensor.shape)


def _halves(rows: Rows, n_heads: int) -> Rows:
    """The file turns the rows 2i and 2i + 1 of a head together, transformers i and i + d / 2."""
    pairs = rows.reshape(n_heads, -1, 2, rows.shape[1])
    return pairs.transpose(0, 2, 1, 3).reshape(rows.shape)
