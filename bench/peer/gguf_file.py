"""A Hugging Face Llama directory -> one GGUF file with the same bfloat16 weights.

Owns the names and the order of rows that GGUF wants.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from safetensors import safe_open

_OUTER = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_OF_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def write_gguf(model: Path, file: Path) -> None:
    """Writes `file` from config.json and model.safetensors of `model`."""
    config = json.loads((model / "config.json").read_text("utf-8"))
    writer = gguf.GGUFWriter(file, "llama")
    _add_config(writer, config)
    add_vocabulary(writer, model)
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])
    for name, tensor in _tensors(model / "model.safetensors", config):
        if tensor.dim() == 1:
            writer.add_tensor(name, tensor.float().numpy())
        else:
            words = tensor.contiguous().view(torch.int16).numpy().view(np.uint8)
            writer.add_tensor(name, words, raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_config(writer: Any, config: dict[str, Any]) -> None:
    writer.add_name("random weights")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_dimension_count(config["hidden_size"] // config["num_attention_heads"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_vocab_size(config["vocab_size"])


def add_vocabulary(writer: Any, model: Path, *, n_rows: int = 0) -> int:
    """The byte-level BPE of tokenizer.json, with unused tokens up to `n_rows`. Returns how many
    there are.
    """
    tokenizer = json.loads((model / "tokenizer.json").read_text("utf-8"))
    bpe = tokenizer["model"]
    special = {token["id"] for token in tokenizer["added_tokens"]}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    unused = [f"[unused {token_id}]" for token_id in range(len(bpe["vocab"]), n_rows)]
    writer.add_token_list(sorted(bpe["vocab"], key=bpe["vocab"].get) + unused)
    types = [
        gguf.TokenType.CONTROL if token_id in special else gguf.TokenType.NORMAL
        for token_id in range(len(bpe["vocab"]))
    ]
    writer.add_token_types(types + [gguf.TokenType.UNUSED] * len(unused))
    writer.add_token_merges([" ".join(pair) for pair in bpe["merges"]])
    return len(types) + len(unused)


def _tensors(file: Path, config: dict[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
    n_heads = {
        "self_attn.q_proj": config["num_attention_heads"],
        "self_attn.k_proj": config["num_key_value_heads"],
    }
    with safe_open(file, framework="pt") as tensors:
        for name in tensors.keys():  # noqa: SIM118 - it is no dict
            tensor = tensors.get_tensor(name)
            if name in _OUTER:
                yield _OUTER[name], tensor
                continue
            _, _, layer, kind = name.removesuffix(".weight").split(".", 3)
            if kind in n_heads:
                tensor = _paired(tensor, n_heads[kind])
            yield f"blk.{layer}.{_OF_LAYER[kind]}.weight", tensor


def _paired(rows: torch.Tensor, n_heads: int) -> torch.Tensor:
    """Reordered rows: GGUF rotates neighbours of a head, Hugging Face rows half a head apart."""
    n_out, n_in = rows.shape
    return (
        rows.reshape(n_heads, 2, n_out // n_heads // 2, n_in).transpose(1, 2).reshape(n_out, n_in)
    )
