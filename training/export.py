"""Writes a checkpoint as a Hugging Face model directory.

Owns the exported files. Knows nothing of how the weights came to be.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from training.checkpoint import load_checkpoint
from training.corpus import END, END_OF_TEXT
from training.model import Llama, ModelConfig
from training.tokenizer import load_tokenizer, special_token_id

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


def export_target(checkpoint: Path, tokenizer_dir: Path, directory: Path) -> None:
    """Writes everything a server needs: config, weights, tokenizer, sampling defaults."""
    export_weights(checkpoint, tokenizer_dir, directory)
    for name in TOKENIZER_FILES:
        shutil.copyfile(tokenizer_dir / name, directory / name)
    bos, eos = _end_token_ids(tokenizer_dir)
    generation = {
        "bos_token_id": bos,
        "do_sample": True,
        "eos_token_id": eos,
        "max_new_tokens": 256,
        "pad_token_id": bos,
        "repetition_penalty": 1.05,
        "temperature": 0.7,
        "top_p": 0.9,
    }
    _write_json(generation, directory / "generation_config.json")


def export_weights(checkpoint: Path, tokenizer_dir: Path, directory: Path) -> None:
    """Writes only config.json and model.safetensors, which is all that a draft needs."""
    directory.mkdir(parents=True, exist_ok=True)
    state = load_checkpoint(checkpoint)
    config = ModelConfig(**state["model_config"])
    bos, eos = _end_token_ids(tokenizer_dir)
    _write_json(hugging_face_config(config, bos=bos, eos=eos), directory / "config.json")
    weights = {name: t.to(torch.bfloat16).contiguous() for name, t in state["model"].items()}
    path = directory / "model.safetensors"
    save_file(weights, path, metadata={"format": "pt"})
    path.chmod(0o644)  # safetensors makes it readable only by its owner


def hugging_face_config(config: ModelConfig, *, bos: int, eos: list[int]) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": bos,
        "eos_token_id": eos,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "hidden_size": config.dim,
        "initializer_range": 0.02,
        "intermediate_size": config.hidden_dim,
        "max_position_embeddings": config.max_seq_len,
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": config.n_heads,
        "num_hidden_layers": config.n_layers,
        "num_key_value_heads": config.n_kv_heads,
        "pad_token_id": bos,
        "rms_norm_eps": config.norm_eps,
        "rope_scaling": None,
        "rope_theta": config.rope_theta,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "vocab_size": config.vocab_size,
    }


def load_exported(directory: Path) -> Llama:
    """Loads exported weights, with their bfloat16 rounding, into a float32 module."""
    raw = json.loads((directory / "config.json").read_text("utf-8"))
    config = ModelConfig(
        dim=raw["hidden_size"],
        n_layers=raw["num_hidden_layers"],
        n_heads=raw["num_attention_heads"],
        n_kv_heads=raw["num_key_value_heads"],
        hidden_dim=raw["intermediate_size"],
        vocab_size=raw["vocab_size"],
        head_dim=raw["head_dim"],
        max_seq_len=raw["max_position_embeddings"],
        rope_theta=raw["rope_theta"],
        norm_eps=raw["rms_norm_eps"],
    )
    model = Llama(config)
    weights = load_file(directory / "model.safetensors")
    model.load_state_dict({name: tensor.float() for name, tensor in weights.items()})
    return model.eval()


def _end_token_ids(tokenizer_dir: Path) -> tuple[int, list[int]]:
    tokenizer = load_tokenizer(tokenizer_dir)
    end_of_text = special_token_id(tokenizer, END_OF_TEXT)
    return end_of_text, [special_token_id(tokenizer, END), end_of_text]


def _write_json(content: dict[str, Any], path: Path) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", "utf-8")
