"""Random tiny models as GGUF files: what llama.cpp's converter would write for them.

The `gguf` package writes the files and quantises; transformers is the oracle, on the weights that a
file holds.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import torch
from tokenizers import Tokenizer

from tests.support.gguf_blocks import random_rows
from tests.support.tiny_models import TEMPLATE, byte_level_tokenizer

Type = gguf.GGMLQuantizationType
TypeOf = Callable[[str], Type]

_LAYER_NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}  # fmt: skip
_NAMES = {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output"}


def write_gguf(
    path: Path,
    model: Any,
    *,
    types: Type | TypeOf = Type.F32,
    more: Mapping[str, Any] | None = None,
    tensors_per_part: int = 0,
) -> None:
    """Writes a transformers model. `types`: of all matrices, or by the name of a tensor; `more`:
    metadata that is added, or replaces what would be written.

    Afterwards the model has the weights that the file holds.
    """
    type_of = types if callable(types) else lambda _: types
    architecture = _architecture(model)
    writer = gguf.GGUFWriter(path, architecture, split_max_tensors=tensors_per_part)
    values = {**_metadata(model, architecture), **_vocabulary(byte_level_tokenizer())}
    for key, value in {**values, **(more or {})}.items():
        _add(writer, key, value)
    for name, parameter in model.named_parameters():
        own = _gguf_name(name)
        type_ = type_of(own) if parameter.ndim == 2 else Type.F32
        stored = _permuted(own, parameter.detach(), model.config, architecture)
        data = _quantised(stored.numpy(), type_)
        writer.add_tensor(own, data, raw_dtype=type_)
        read = gguf.quants.dequantize(data, type_).reshape(stored.shape)
        back = _unpermuted(own, torch.from_numpy(read.copy()), model.config, architecture)
        with torch.no_grad():
            parameter.copy_(back)
    divisors = _rope_divisors(model)
    if divisors is not None:
        writer.add_tensor("rope_freqs.weight", divisors)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _quantised(values: npt.NDArray[np.float32], type_: Type) -> npt.NDArray[Any]:
    """Types that the package only decodes get random codes instead."""
    try:
        data: npt.NDArray[Any] = gguf.quants.quantize(values, type_)
    except NotImplementedError:
        return random_rows(type_.name, *values.shape).rows
    return data


def _architecture(model: Any) -> str:
    kind: str = model.config.model_type
    return {"mistral": "llama"}.get(kind, kind)


def _gguf_name(name: str) -> str:
    *path, kind = name.removeprefix("model.").split(".")
    if path[0] == "layers":
        return f"blk.{path[1]}.{_LAYER_NAMES['.'.join(path[2:])]}.{kind}"
    return f"{_NAMES[path[0]]}.{kind}"


def _heads(name: str, config: Any, architecture: str) -> int:
    """Of rows that the converter permutes; 0: it does not."""
    if architecture != "llama":
        return 0
    if ".attn_q." in name:
        return int(config.num_attention_heads)
    return int(config.num_key_value_heads) if ".attn_k." in name else 0


def _permuted(name: str, rows: torch.Tensor, config: Any, architecture: str) -> torch.Tensor:
    """The two halves of each head take turns, row by row."""
    if n_heads := _heads(name, config, architecture):
        rows = rows.view(n_heads, 2, -1, *rows.shape[1:]).transpose(1, 2).reshape(rows.shape)
    return rows.contiguous()


def _unpermuted(name: str, rows: torch.Tensor, config: Any, architecture: str) -> torch.Tensor:
    if n_heads := _heads(name, config, architecture):
        rows = rows.view(n_heads, -1, 2, *rows.shape[1:]).transpose(1, 2).reshape(rows.shape)
    return rows


def _metadata(model: Any, architecture: str) -> dict[str, Any]:
    config = model.config
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    rope = config.rope_parameters
    keys = {
        "block_count": config.num_hidden_layers,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.key_length": head_dim,
        "attention.value_length": head_dim,
        "attention.layer_norm_rms_epsilon": float(config.rms_norm_eps),
        "rope.freq_base": float(rope["rope_theta"]),
        "rope.dimension_count": head_dim,
        "vocab_size": config.vocab_size,
    }
    if rope["rope_type"] in ("linear", "yarn"):
        keys["rope.scaling.type"] = rope["rope_type"]
        keys["rope.scaling.factor"] = float(rope["factor"])
    if rope["rope_type"] == "yarn":
        original = rope["original_max_position_embeddings"]
        keys["rope.scaling.original_context_length"] = original
        for name in ("beta_fast", "beta_slow"):
            if rope.get(name) is not None:
                keys[f"rope.scaling.yarn_{name}"] = float(rope[name])
    if getattr(config, "sliding_window", None):
        keys["attention.sliding_window"] = config.sliding_window
    return {f"{architecture}.{key}": value for key, value in keys.items()}


def _rope_divisors(model: Any) -> npt.NDArray[np.float32] | None:
    """The converter works llama3's scaling out: plain frequencies divided by the scaled ones."""
    rope = model.config.rope_parameters
    if rope["rope_type"] != "llama3":
        return None
    scaled = model.model.rotary_emb.inv_freq.double().numpy()
    dim = 2 * len(scaled)
    plain = rope["rope_theta"] ** -(np.arange(0, dim, 2) / dim)
    divisors: npt.NDArray[np.float32] = (plain / scaled).astype(np.float32)
    return divisors


def _vocabulary(tokenizer: Tokenizer) -> dict[str, Any]:
    """A byte-level vocabulary as the converter writes it."""
    by_id = {token_id: text for text, token_id in tokenizer.get_vocab().items()}
    added = tokenizer.get_added_tokens_decoder()
    merges = [" ".join(pair) for pair in _merges(tokenizer)]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": [by_id[i] for i in range(len(by_id))],
        "tokenizer.ggml.token_type": [3 if i in added else 1 for i in range(len(by_id))],
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 4,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": TEMPLATE,
    }


def _merges(tokenizer: Tokenizer) -> list[list[str]]:
    import json

    merges: list[list[str]] = json.loads(tokenizer.to_str())["model"]["merges"]
    return merges


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    """None leaves a key out."""
    if key in writer.kv_data[0]:
        del writer.kv_data[0][key]
    match value:
        case None:
            pass
        case bool():
            writer.add_bool(key, value)
        case int():
            writer.add_uint32(key, value)
        case float():
            writer.add_float32(key, value)
        case str():
            writer.add_string(key, value)
        case _:
            writer.add_array(key, value)
