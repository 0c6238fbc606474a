"""SmolLM2-135M-Instruct as a GGUF file: a real model, 98 MB, from the package that `soliton pull
smollm2` fetches.
"""

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from server.commands.packaged import PACKAGED, packaged_path
from server.commands.terminal import CommandError


def smollm2() -> Path:
    """The file in the user's cache, fetched if it is not there. Skips the test if it cannot be."""
    found = _found()
    if isinstance(found, CommandError):
        pytest.skip(f"SmolLM2 cannot be had: {found}")
    return found


@cache
def _found() -> Path | CommandError:
    try:
        return packaged_path(PACKAGED["smollm2"])
    except CommandError as error:
        return error


@cache
def transformers_smollm2() -> Any:
    """The same model by transformers, in float32, with the weights that the file holds."""
    # Imported here, because other tests need only the file.
    import transformers

    from engine.gguf.container import read_gguf
    from tests.support.gguf_weights import decoded

    values = read_gguf(smollm2()).metadata.values

    def value(key: str) -> Any:
        return values[f"llama.{key}"]

    config = transformers.LlamaConfig(
        vocab_size=value("vocab_size"),
        hidden_size=value("embedding_length"),
        intermediate_size=value("feed_forward_length"),
        num_hidden_layers=value("block_count"),
        num_attention_heads=value("attention.head_count"),
        num_key_value_heads=value("attention.head_count_kv"),
        max_position_embeddings=value("context_length"),
        rms_norm_eps=value("attention.layer_norm_rms_epsilon"),
        rope_parameters={"rope_type": "default", "rope_theta": value("rope.freq_base")},
        tie_word_embeddings=True,
    )
    build: Any = transformers.LlamaForCausalLM
    return build.from_pretrained(None, config=config, state_dict=decoded(smollm2(), config)).eval()
