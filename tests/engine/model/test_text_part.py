"""Checkpoints with a tower for images: the text part gives the logits of transformers."""

from pathlib import Path
from typing import Any

import pytest
import torch

from engine import ModelLoadError
from engine.checkpoint.config_json import model_config
from engine.checkpoint.stored import Checkpoint
from engine.checkpoint.text_part import text_tensors
from engine.model.loading import load_weights
from engine.model.model import Model
from engine.model_files import ModelFiles
from tests.engine.model.test_model_parity import OPS, assert_close, logits_after, prompt
from tests.support.family_models import MINISTRAL_ROPE
from tests.support.tiny_models import VOCAB_SIZE, fill_randomly, scale_queries

TEXT = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "sliding_window": 12,
    "pad_token_id": None,
}
TOWER = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "image_size": 28,
    "patch_size": 14,
}
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "mistral": ("Mistral3", {"model_type": "mistral"}, {"model_type": "pixtral"}),
    "ministral3": (
        "Mistral3",
        {"model_type": "ministral3", "rope_parameters": MINISTRAL_ROPE},
        {"model_type": "pixtral"},
    ),
    "gemma3": ("Gemma3", {"model_type": "gemma3_text"}, {"model_type": "siglip_vision_model"}),
    "gemma4": (
        "Gemma4",
        {
            "model_type": "gemma4_text",
            "num_hidden_layers": 4,
            "layer_types": 2 * ["sliding_attention", "full_attention"],
            "global_head_dim": 24,
            "num_kv_shared_layers": 2,
            "hidden_size_per_layer_input": 12,
            "vocab_size_per_layer_input": VOCAB_SIZE,
            "pad_token_id": 0,
        },
        {
            "model_type": "gemma4_vision",
            "num_key_value_heads": 1,
            "head_dim": 16,
            "position_embedding_size": 16,
        },
    ),
    "gemma4_unified": (
        "Gemma4Unified",
        {
            "model_type": "gemma4_unified_text",
            "layer_types": ["sliding_attention", "full_attention"],
            "global_head_dim": 24,
            "pad_token_id": 0,
        },
        {"model_type": "gemma4_unified_vision", "mm_embed_dim": 64, "output_proj_dims": 64},
    ),
    "qwen3_5": (
        "Qwen3_5",
        {
            "model_type": "qwen3_5_text",
            "layer_types": ["full_attention", "linear_attention"],
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 16,
            "linear_value_head_dim": 16,
        },
        {"model_type": "qwen3_5", "depth": 1, "num_heads": 1, "out_hidden_size": 64},
    ),
}
# What the start says is left out.
LEFT_OUT = {"gemma4_unified": "embed_vision", "qwen3_5": "visual"}


def saved(path: Path, case: str, **options: Any) -> Any:
    """The oracle."""
    import transformers

    name, text, tower = CASES[case]
    config = getattr(transformers, f"{name}Config")(
        text_config={**TEXT, **text}, vision_config={**TOWER, **tower}, **options
    )
    config._attn_implementation = config.text_config._attn_implementation = "eager"
    # With some weights even float32 in transformers is 1e-4 from its own float64.
    torch.manual_seed(0)
    model = getattr(transformers, f"{name}ForConditionalGeneration")(config).eval()
    fill_randomly(model)
    if name.startswith("Gemma4"):
        scale_queries(model.model.language_model)
    model.save_pretrained(path)
    return model


@pytest.mark.parametrize("is_tied", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_the_text_of_a_model_that_sees(
    tmp_path: Path, case: str, is_tied: bool, caplog: pytest.LogCaptureFixture
) -> None:
    oracle = saved(tmp_path, case, tie_word_embeddings=is_tied)
    files, ops = ModelFiles.open(tmp_path), OPS["native"]()
    tensors = files.tensors()
    assert "only the text is served, without " in caplog.text
    assert LEFT_OUT.get(case, "vision_tower") in caplog.text
    model = Model(load_weights(tensors, files.config, ops), files.config, ops, max_seq_len=128)
    token_ids = prompt()
    with torch.no_grad():
        expected = oracle(torch.tensor([token_ids])).logits[0].numpy()
    assert_close(logits_after(model, token_ids, n_prefill=80), expected[80:])


def test_new_and_old_names() -> None:
    old = ["language_model.model.norm.weight", "language_model.lm_head.weight", "vision_tower.x"]
    new = ["model.language_model.norm.weight", "lm_head.weight", "model.vision_tower.x"]
    for names in (old, new):
        whole = Checkpoint(Path("x"), dict.fromkeys(names))  # type: ignore[arg-type]
        part, left_out = text_tensors(whole)
        assert sorted(part.tensors) == ["lm_head.weight", "model.norm.weight"]
        assert left_out == ["vision_tower"]


def test_an_unknown_text_model_is_named(tmp_path: Path) -> None:
    config = '{"architectures": ["Mistral3ForConditionalGeneration"], "text_config": %s}'
    (tmp_path / "config.json").write_text(config % '{"model_type": "mistral9"}', "utf-8")
    with pytest.raises(ModelLoadError, match=r"text_config: model_type: must be 'mistral' or 'min"):
        model_config(tmp_path)
