"""Rope scaling against transformers: the keys of config.json, the frequencies, the logits beyond
the original context, and what is kept of keys whose angles depend on the context length.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine import Engine, ModelLoadError, SamplingSettings
from engine.checkpoint.config_json import model_config
from engine.checkpoint.ropes import DynamicScaling, LongScaling, YarnScaling
from engine.device.memory import context_length
from engine.model.rope import rope_tables
from tests.engine.model.test_model_parity import (
    OPS,
    assert_close,
    empty_cache,
    loaded,
    logits_after,
    oracle_logits,
    prompt,
)
from tests.support.tiny_models import (
    DYNAMIC_ROPE,
    FAMILIES,
    LONG_ROPE,
    YARN_ROPE,
    Family,
    save_model,
)

CONFIG: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 100,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
}
YARN = {"factor": 4.0, "original_max_position_embeddings": 32}
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LONG = {key: LONG_ROPE[key] for key in ("short_factor", "long_factor")}
# What is read of config.json, as files in the wild have it.
KEYS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "old theta": {"rope_theta": 5e5},
    "old yarn of Qwen2.5": {"rope_theta": 1e6, "rope_scaling": {"type": "yarn", **YARN}},
    "old yarn of Qwen3": {"rope_theta": 1e6, "rope_scaling": {"rope_type": "yarn", **YARN}},
    "new yarn": {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6, **YARN}},
    "new yarn, theta beside it": {"rope_parameters": {"type": "yarn", **YARN}, "rope_theta": 700.0},
    "both, and the old one counts": {
        "rope_scaling": {"type": "yarn", **YARN},
        "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 700.0},
    },
    "an empty old one does not": {
        "rope_scaling": {},
        "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 700.0},
    },
    "both types": {"rope_scaling": {"type": "linear", "rope_type": "yarn", **YARN}},
    "yarn of the whole length": {"rope_scaling": {"type": "yarn", "factor": 4.0}},
    "yarn, original length outside": {
        "rope_scaling": {"type": "yarn", **YARN},
        "original_max_position_embeddings": 64,
    },
    "yarn, factor null": {"rope_scaling": {"type": "yarn", **YARN, "factor": None}},
    "yarn by 1": {"rope_scaling": {"type": "yarn", **YARN, "factor": 1.0}},
    "yarn, attention factor": {"rope_scaling": {"type": "yarn", **YARN, "attention_factor": 0.7}},
    "yarn, betas": {"rope_scaling": {"type": "yarn", **YARN, "beta_fast": 3, "beta_slow": 0.5}},
    "yarn, betas null": {
        "rope_scaling": {"type": "yarn", **YARN, "beta_fast": None, "beta_slow": 0}
    },
    "yarn, not rounded": {
        "rope_theta": 50.0,
        "rope_scaling": {"type": "yarn", **YARN, "truncate": False, "beta_fast": 4},
    },
    "yarn, mscales": {
        "rope_scaling": {"type": "yarn", **YARN, "mscale": 0.7, "mscale_all_dim": 1.2}
    },
    "yarn, one mscale": {"rope_scaling": {"type": "yarn", **YARN, "mscale": 0.7}},
    "yarn, a mscale of 0": {
        "rope_scaling": {"type": "yarn", **YARN, "mscale": 0.7, "mscale_all_dim": 0}
    },
    "linear": {"rope_scaling": {"type": "linear", "factor": 4}},
    "dynamic": {"rope_scaling": {"type": "dynamic", "factor": 4}},
    "dynamic, new": {"rope_parameters": {"rope_type": "dynamic", "factor": 2.5}},
    "dynamic, no original length is read": {
        "rope_scaling": {"type": "dynamic", "factor": 4, "original_max_position_embeddings": 32}
    },
    "longrope": {"rope_scaling": {"type": "longrope", **LONG}},
    "longrope of a short model": {
        "rope_scaling": {"type": "longrope", **LONG, "original_max_position_embeddings": 32}
    },
    "longrope, factor": {
        "rope_scaling": {
            **LONG, "type": "longrope", "factor": 3.0, "original_max_position_embeddings": 32
        }
    },
    "longrope, attention factor": {
        "rope_scaling": {"type": "longrope", **LONG, "factor": 3.0, "attention_factor": 1.5}
    },
    "llama3": {
        "rope_scaling": {"rope_type": "llama3", **LLAMA3, "original_max_position_embeddings": 32}
    },
    "llama3, original length outside": {
        "rope_scaling": {"rope_type": "llama3", **LLAMA3, "original_max_position_embeddings": 32},
        "original_max_position_embeddings": 64,
    },
}  # fmt: skip
N_POSITIONS = (100, 128, 200)


def write(path: Path, values: dict[str, Any], family: str = "Llama") -> Path:
    content = {
        **CONFIG,
        "architectures": [f"{family}ForCausalLM"],
        "model_type": family.lower(),
        **values,
    }
    (path / "config.json").write_text(json.dumps(content), "utf-8")
    return path


def their_tables(path: Path, family: str, n_positions: int) -> tuple[Any, Any]:
    """cos and sin that transformers has for one pass of `n_positions`."""
    import transformers

    config = transformers.AutoConfig.from_pretrained(path)
    model: Any = getattr(transformers, f"{family}Model")(config)
    cos, sin = model.rotary_emb(torch.zeros(1), torch.arange(n_positions)[None])
    half = cos.shape[-1] // 2
    return cos[0, :, :half].numpy(), sin[0, :, :half].numpy()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", ["Llama", "Mistral", "Qwen2", "Qwen3"])
@pytest.mark.parametrize("name", KEYS)
def test_the_tables_are_those_of_transformers(tmp_path: Path, family: str, name: str) -> None:
    config = model_config(write(tmp_path, KEYS[name], family))
    for n_positions in N_POSITIONS:
        theirs = their_tables(tmp_path, family, n_positions)
        for ours, table in zip(rope_tables(config.ropes[0], n_positions), theirs, strict=True):
            np.testing.assert_allclose(ours, table, atol=5e-5, rtol=0)


@pytest.mark.parametrize("family", ["Llama", "Mistral", "Qwen2", "Qwen3"])
@pytest.mark.parametrize("ops", OPS)
@pytest.mark.parametrize("chunk_size", [7, 512])
def test_dynamic_logits_are_those_of_one_pass_over_the_whole_context(
    tmp_path: Path, ops: str, family: str, chunk_size: int
) -> None:
    """However the tokens come in, the keys of all are made for the allocated context."""
    oracle = save_model(
        tmp_path, Family(family, FAMILIES[family.lower()].options),
        rope_parameters=DYNAMIC_ROPE, max_position_embeddings=32,
    )  # fmt: skip
    token_ids = prompt(100)
    expected = oracle_logits(oracle, token_ids)
    model = loaded(tmp_path, chunk_size=chunk_size, ops=OPS[ops](), max_seq_len=100)
    assert_close(logits_after(model, token_ids, n_prefill=0), expected)
    assert_close(logits_after(model, token_ids, n_prefill=61), expected[61:])
    cache = empty_cache(model)
    model.prefill(prompt(90, seed=7), cache)
    cache.rollback(0)
    model.prefill(token_ids[:95], cache)
    cache.rollback(40)
    model.prefill(token_ids[40:95], cache)
    assert_close(np.asarray(model.decode(token_ids[95:], cache)), expected[95:])


@pytest.mark.parametrize("rope", [DYNAMIC_ROPE, LONG_ROPE], ids=["dynamic", "longrope"])
def test_without_a_wish_the_original_context_is_exact(tmp_path: Path, rope: dict[str, Any]) -> None:
    length = 256 if rope is LONG_ROPE else 32
    oracle = save_model(tmp_path, "llama", rope_parameters=rope, max_position_embeddings=length)
    engine = Engine.load(tmp_path, device="cpu", dtype="float32")
    assert engine.max_seq_len == 32
    assert engine.config.max_seq_len > 32
    for n_tokens in (5, 32):
        token_ids = prompt(n_tokens)
        model = loaded(tmp_path, max_seq_len=32)
        logits = logits_after(model, token_ids, n_prefill=0)
        assert_close(logits, oracle_logits(oracle, token_ids))


@pytest.mark.parametrize("name", ["qwen2-yarn", "llama-longrope", "dynamic"])
def test_kept_prefixes_give_the_same_tokens(tmp_path: Path, name: str) -> None:
    if name == "dynamic":
        save_model(tmp_path, rope_parameters=DYNAMIC_ROPE, max_position_embeddings=32)
    else:
        save_model(tmp_path, name)

    def load() -> Engine:
        return Engine.load(
            tmp_path, device="cpu", dtype="float32", max_seq_len=96, prefix_bytes=2**24
        )

    engine = load()
    first, second = prompt(70, seed=2), prompt(70, seed=3)
    for token_ids in (first, second, first[:50] + second[:12], second, first):
        assert generated(engine, token_ids) == generated(load(), token_ids)


def test_the_fingerprint_follows_what_the_length_alters(tmp_path: Path) -> None:
    def fingerprint(max_seq_len: int) -> str:
        return Engine.load(tmp_path, device="cpu", max_seq_len=max_seq_len).fingerprint

    save_model(tmp_path, "llama", rope_parameters=DYNAMIC_ROPE, max_position_embeddings=32)
    assert fingerprint(16) == fingerprint(32)
    assert len({fingerprint(32), fingerprint(33), fingerprint(34)}) == 3


@pytest.mark.parametrize(
    ("keys", "longest", "usual"),
    [
        ({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}, 512, 512),
        ({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}, 128, 128),
        ({"type": "yarn", "factor": 2.0, "original_max_position_embeddings": 32}, 128, 128),
        ({"type": "yarn", "factor": 2.5}, 320, 320),
        ({"type": "linear", "factor": 2}, 256, 256),
        ({"type": "dynamic", "factor": 3}, 384, 128),
        ({"type": "longrope", **LONG, "original_max_position_embeddings": 32}, 128, 32),
        ({"type": "linear", "factor": 1e6}, 128 * 10**6, 128 * 10**6),
    ],
)
def test_how_long_a_context_may_be(
    tmp_path: Path, keys: dict[str, Any], longest: int, usual: int
) -> None:
    config = model_config(write(tmp_path, {"rope_scaling": keys}))
    assert (config.max_seq_len, config.usual_seq_len) == (longest, usual)
    length = context_length(config, None, bytes_of=lambda n: n, available=None)
    assert length == min(usual, 8192)
    wished = min(longest, 10_000)
    assert context_length(config, wished, bytes_of=lambda n: n, available=None) == wished
    with pytest.raises(ModelLoadError, match=f"between 2 and the model's {longest}"):
        context_length(config, longest + 1, bytes_of=lambda n: n, available=None)


def test_scalings_in_words(tmp_path: Path) -> None:
    def words(keys: dict[str, Any]) -> str:
        return model_config(write(tmp_path, {"rope_scaling": keys})).ropes[0].describe()

    assert words({}) == "RoPE theta 10000"
    assert words({"type": "yarn", **YARN}) == "RoPE theta 10000, yarn scaling by 4 from 32"
    assert words({"type": "linear", "factor": 4}).endswith("linear scaling by 4")
    assert words({"type": "dynamic", "factor": 3}).endswith("by 3 for contexts beyond 128")
    assert words({"type": "longrope", **LONG}).endswith("for contexts beyond 128")
    assert words({"type": "llama3", **LLAMA3}).endswith("llama3 scaling by 8 from 128")


def test_what_the_keys_become(tmp_path: Path) -> None:
    def scaling(keys: dict[str, Any]) -> object:
        return model_config(write(tmp_path, {"rope_scaling": keys})).ropes[0].scaling

    yarn = scaling({"type": "yarn", **YARN, "attention_factor": 1.0})
    assert yarn == YarnScaling(4.0, 32, 1.0, beta_fast=32, beta_slow=1, truncate=True)
    assert scaling({"type": "dynamic", "factor": 3}) == DynamicScaling(3.0, 128)
    assert isinstance(scaling({"type": "longrope", **LONG}), LongScaling)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"type": "mrope"}, "type: must be 'default', 'linear', 'dynamic', 'yarn', 'longrope' or"),
        ({"type": "dynamic"}, "rope_scaling: factor: missing"),
        ({"type": "yarn", **YARN, "factor": 0.5}, "factor: must be a number between 1"),
        ({"type": "yarn", **YARN, "beta_fast": -1}, "beta_fast: must be a number"),
        ({"type": "yarn", **YARN, "truncate": "no"}, "truncate: must be true or false"),
        ({"type": "yarn", **YARN, "attention_factor": "x"}, "attention_factor: must be a number"),
        ({"type": "yarn", **YARN, "rope_theta": 1.0}, "rope_theta: must be more than 1 for yarn"),
        ({"type": "longrope", "short_factor": [1] * 8}, "long_factor: missing"),
        ({"type": "longrope", **LONG, "long_factor": [1] * 7}, "must be a list of 8 numbers"),
        ({"type": "longrope", **LONG, "long_factor": [0] * 8}, "must be a list of 8 numbers"),
        ({"full_attention": {"rope_type": "yarn", **YARN}}, "one rope rule for all layers"),
    ],
)
def test_refused(tmp_path: Path, keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelLoadError) as caught:
        model_config(write(tmp_path, {"rope_scaling": keys}))
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{tmp_path / 'config.json'}: rope_scaling: ")


def generated(engine: Engine, token_ids: list[int]) -> list[tuple[int | None, float]]:
    """Greedy tokens with their logprobs."""
    settings = SamplingSettings(temperature=0.0)
    engine.generator.begin_stream_ex(
        token_ids, settings, max_new_tokens=20, ignore_eos=True, return_probabilities=True
    )
    tokens: list[tuple[int | None, float]] = []
    while not (result := engine.generator.stream_ex()).eos:
        tokens += [(token.token_id, token.logprob) for token in result.tokens]
    return tokens + [(token.token_id, token.logprob) for token in result.tokens]


def test_yarn_matters_where_it_is_tested(tmp_path: Path) -> None:
    oracle = save_model(tmp_path, "llama-yarn")
    plain = {**YARN_ROPE, "rope_type": "default"}
    other = save_model(tmp_path / "plain", "llama", rope_parameters=plain)
    token_ids = prompt()
    difference = np.abs(oracle_logits(oracle, token_ids) - oracle_logits(other, token_ids))
    assert difference.max() > 0.1, "the test model must be sensitive to the rope scaling"
