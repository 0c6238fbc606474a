"""Recurrent layers in the metadata of GGUF files: which layers they are, and what is refused."""

import re
from pathlib import Path
from typing import Any

import pytest

from engine.checkpoint.config import NO_ATTENTION
from engine.checkpoint.recurrent import DeltaNetConfig, Mamba2Config, ShortConvConfig
from engine.checkpoint.tensors import model_sources
from engine.errors import ModelLoadError
from tests.engine.checkpoint.test_config_gguf import read

DELTA: dict[str, Any] = {
    "block_count": 5,
    "ssm.conv_kernel": 4,
    "ssm.state_size": 16,
    "ssm.group_count": 2,
    "ssm.time_step_rank": 4,
    "ssm.inner_size": 128,
}
CONFIG = DeltaNetConfig(
    n_k_heads=2, n_v_heads=4, k_dim=16, v_dim=32, kernel=4, takes_turns=True, has_rates=True
)


def test_every_fourth_layer_is_attention_unless_a_list_says_otherwise(tmp_path: Path) -> None:
    config = read(tmp_path, DELTA, architecture="qwen35")
    assert [layer.recurrent for layer in config.layers] == [*[CONFIG] * 3, None, CONFIG]
    assert config.layers[0].attention == NO_ATTENTION
    assert config.layers[3].attention.output_gate
    assert config.kv_places == (None, None, None, 0, None)
    keys = DELTA | {"attention.recurrent_layers": [True, False, False, True, True]}
    config = read(tmp_path, keys, architecture="qwen35")
    assert [layer.recurrent is None for layer in config.layers] == [False, True, True, False, False]
    config = read(tmp_path, DELTA | {"full_attention_interval": 2}, architecture="qwen3next")
    assert [layer.recurrent is None for layer in config.layers] == [False, True, False, True, False]
    assert not config.layers[0].recurrent.takes_turns  # type: ignore[union-attr]


def test_layers_that_predict_more_tokens_are_left_out(tmp_path: Path) -> None:
    config = read(tmp_path, DELTA | {"nextn_predict_layers": 1}, architecture="qwen35")
    assert config.n_layers == 4
    ignored = re.compile(model_sources(config).ignored)
    assert ignored.fullmatch("blk.4.nextn.eh_proj.weight")
    assert ignored.fullmatch("blk.4.attn_q.weight")
    assert not ignored.fullmatch("blk.3.attn_q.weight")
    with pytest.raises(ModelLoadError, match=r"llama\.nextn_predict_layers: .*not 1"):
        read(tmp_path, {"nextn_predict_layers": 1})


def test_layers_without_key_heads_are_convolutions(tmp_path: Path) -> None:
    keys: dict[str, Any] = {"attention.head_count_kv": [0, 2], "shortconv.l_cache": 3}
    config = read(tmp_path, keys, architecture="lfm2")
    assert [layer.recurrent for layer in config.layers] == [ShortConvConfig(dim=64, kernel=3), None]
    assert config.kv_shapes == ((2, 16),)
    experts = {"expert_count": 4, "expert_used_count": 2, "leading_dense_block_count": 1}
    config = read(tmp_path, keys | experts, architecture="lfm2moe")
    assert config.layers[0].mlp.experts is None
    assert config.layers[1].mlp.experts is not None
    assert config.layers[1].mlp.experts.scoring == "sigmoid"
    with pytest.raises(ModelLoadError, match=r"llama\.attention\.head_count_kv"):
        read(tmp_path, {"attention.head_count_kv": [0, 2]})


MAMBA: dict[str, Any] = {
    **{key: value for key, value in DELTA.items() if key != "block_count"},
    "attention.head_count_kv": [0, 2],
}


def test_layers_without_key_heads_are_mamba(tmp_path: Path) -> None:
    config = read(tmp_path, MAMBA, architecture="granitehybrid")
    mamba = Mamba2Config(n_heads=4, n_groups=2, head_dim=32, state_dim=16, kernel=4, has_rates=True)
    assert [layer.recurrent for layer in config.layers] == [mamba, None]
    assert config.layers[1].attention.rope == 0
    keys = MAMBA | {"rope.scaling.finetuned": False}
    config = read(tmp_path, keys, architecture="granitehybrid")
    assert config.layers[1].attention.rope is None


def test_a_layer_with_both_mixers_is_three(tmp_path: Path) -> None:
    keys = MAMBA | {"attention.head_count_kv": 2}
    config = read(tmp_path, keys, architecture="falcon-h1")
    mamba = Mamba2Config(
        n_heads=4, n_groups=2, head_dim=32, state_dim=16, kernel=4, has_rates=True, norm=""
    )
    assert [layer.recurrent for layer in config.layers] == 2 * [None, mamba, None]
    assert [layer.n_halves for layer in config.layers] == 6 * [1]
    assert config.stored_places == (0, 0, 0, 1, 1, 1)
    assert config.n_stored_layers == 2
    assert config.kv_places == (0, None, None, 1, None, None)
    assert config.last_with_kv == 4
    layers = model_sources(config).layers
    assert layers[3].attention_norm == layers[4].attention_norm
    assert [source.name for source in layers[5].mlp_norm] == ["blk.1.ffn_norm"]


def test_a_layer_of_one_part_has_what_its_widths_say(tmp_path: Path) -> None:
    widths = {"attention.head_count_kv": [0, 2, 0], "feed_forward_length": [0, 0, 96]}
    keys = MAMBA | {"block_count": 3} | widths
    config = read(tmp_path, keys, architecture="nemotron_h")
    assert [layer.recurrent is not None for layer in config.layers] == [True, False, False]
    assert [layer.attention.n_kv_heads for layer in config.layers] == [0, 2, 0]
    assert [layer.mlp.hidden_dim for layer in config.layers] == [0, 0, 96]
    assert config.layers[1].attention.rope is None
    experts = {"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 96}
    shared = {"expert_shared_feed_forward_length": 48, "moe_latent_size": 16}
    config = read(tmp_path, keys | experts | shared, architecture="nemotron_h_moe")
    *_, routed, rest = config.layers
    assert routed.mlp.experts is not None
    assert (routed.mlp.experts.latent_dim, routed.mlp.hidden_dim) == (16, 0)
    assert (rest.mlp.hidden_dim, rest.parallel, rest.continues) == (48, True, True)
    assert [source.name for source in model_sources(config).layers[3].w_gate_up] == [
        "blk.2.ffn_up_shexp.weight"
    ]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"ssm.inner_size": 100}, r"ssm\.inner_size: .*4 heads of a multiple of 16, not 100"),
        ({"ssm.state_size": 17}, r"ssm\.state_size: .*an even number, not 17"),
        ({"ssm.group_count": 3}, "Mamba 2: n_groups: 3 do not divide the 4 heads"),
    ],
)
def test_mamba_that_cannot_be_computed_is_refused(
    tmp_path: Path, keys: dict[str, Any], message: str
) -> None:
    with pytest.raises(ModelLoadError, match=message):
        read(tmp_path, MAMBA | keys, architecture="granitehybrid")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"ssm.state_size": 20}, r"ssm\.state_size: .*a multiple of 16, not 20"),
        ({"ssm.inner_size": 100}, r"ssm\.inner_size: .*4 heads of a multiple of 16, not 100"),
        ({"ssm.group_count": 3}, "qwen35: n_v_heads: 4 is no multiple of the 3 key heads"),
        ({"ssm.conv_kernel": 9}, r"ssm\.conv_kernel"),
        ({"ssm.time_step_rank": None}, r"ssm\.time_step_rank: missing"),
        ({"attention.recurrent_layers": [True]}, "a bool for each of 5 layers"),
        ({"attention.recurrent_layers": 3}, "an array of bools"),
    ],
)
def test_what_cannot_be_computed_is_refused(
    tmp_path: Path, keys: dict[str, Any], message: str
) -> None:
    with pytest.raises(ModelLoadError, match=message):
        read(tmp_path, DELTA | keys, architecture="qwen35")
