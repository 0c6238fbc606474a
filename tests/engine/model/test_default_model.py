"""The bundled model: loads here and in transformers, and both continue a text alike."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from engine import DEFAULT_MODEL, Engine, SamplingSettings, describe
from engine.cache.kv import KVCache
from engine.checkpoint.config_json import model_config
from engine.checkpoint.safetensors import read_checkpoint
from engine.checkpoint.tensors import check_tensors
from engine.device.open import open_ops
from engine.model.loading import load_weights
from engine.model.model import Model

PROMPTS = ("Once upon a time, there was a little otter", "The old king looked out of the window")
DRAFT_MODEL = DEFAULT_MODEL / "draft"


def greedy(engine: Engine, token_ids: list[int], n: int) -> list[int]:
    engine.generator.begin_stream_ex(
        token_ids, SamplingSettings(temperature=0.0), max_new_tokens=n, ignore_eos=True
    )
    completion: list[int] = []
    while True:
        result = engine.generator.stream_ex()
        completion += [token.token_id for token in (*result.tokens, *result.dropped)]
        if result.eos:
            return completion


def transformers_greedy(path: Path, token_ids: list[int], n: int) -> list[int]:
    oracle: Any = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    generated = oracle.generate(
        torch.tensor([token_ids]),
        attention_mask=torch.ones(1, len(token_ids), dtype=torch.int64),
        do_sample=False,
        repetition_penalty=1.0,
        max_new_tokens=n,
        eos_token_id=None,
        pad_token_id=0,
    )
    completion: list[int] = generated[0, len(token_ids) :].tolist()
    return completion


def test_it_is_what_its_card_says(bundled_engine: Engine) -> None:
    assert bundled_engine.model_id == "soliton-default"
    assert bundled_engine.config.architecture == "LlamaForCausalLM"
    assert bundled_engine.max_seq_len == 1024
    ends = {
        bundled_engine.tokenizer.decode([token_id]) for token_id in bundled_engine.eos_token_ids
    }
    assert ends == {"<|end|>", "<|endoftext|>"}
    description = describe(DEFAULT_MODEL)
    assert description.n_params == pytest.approx(8.1e6, rel=0.05)
    assert description.stored_bytes.keys() == {"BF16"}
    assert (DEFAULT_MODEL / "MODEL_CARD.md").is_file()


@pytest.mark.parametrize("prompt", PROMPTS)
def test_transformers_gives_the_same_greedy_tokens(bundled_engine: Engine, prompt: str) -> None:
    token_ids = bundled_engine.tokenizer.encode(prompt)
    assert token_ids == AutoTokenizer.from_pretrained(DEFAULT_MODEL).encode(prompt)
    expected = transformers_greedy(DEFAULT_MODEL, token_ids, 64)
    assert greedy(bundled_engine, token_ids, 64) == expected


def test_transformers_gives_the_same_logits(bundled_engine: Engine) -> None:
    token_ids = bundled_engine.tokenizer.encode(PROMPTS[0])
    oracle: Any = AutoModelForCausalLM.from_pretrained(DEFAULT_MODEL, dtype=torch.float32)
    with torch.inference_mode():
        expected = oracle(torch.tensor([token_ids])).logits[0, -1].numpy()
    bundled_engine.generator.begin_stream_ex(
        token_ids,
        SamplingSettings(temperature=0.0),
        max_new_tokens=1,
        return_logits=True,
        ignore_eos=True,
    )
    logits = bundled_engine.generator.stream_ex().logits
    assert logits is not None
    assert logits.shape == (1, bundled_engine.config.vocab_size)
    assert np.abs(logits[0] - expected).max() < 1e-3


def test_the_draft_model_is_one_for_this_vocabulary(bundled_engine: Engine) -> None:
    config = model_config(DRAFT_MODEL)
    assert config.vocab_size == bundled_engine.config.vocab_size
    assert config.max_seq_len == bundled_engine.config.max_seq_len
    assert config.n_params == pytest.approx(1.1e6, rel=0.05)
    ops = open_ops(device="cpu", dtype="float32")
    weights = load_weights(check_tensors(read_checkpoint(DRAFT_MODEL), config), config, ops)
    model = Model(weights, config, ops, max_seq_len=128)
    cache = KVCache(config, ops, max_seq_len=128)
    token_ids = bundled_engine.tokenizer.encode(PROMPTS[0])
    model.prefill(token_ids[:-1], cache)
    completion = token_ids[-1:]
    for _ in range(64):
        completion.append(int(np.argmax(model.decode(completion[-1:], cache)[0])))
    assert completion[1:] == transformers_greedy(DRAFT_MODEL, token_ids, 64)


def test_transformers_renders_the_same_chat(bundled_engine: Engine) -> None:
    tokenizer = AutoTokenizer.from_pretrained(DEFAULT_MODEL)
    messages = [
        {"role": "user", "content": "Tell me a story about an otter."},
        {"role": "assistant", "content": "Once upon a time there was an otter."},
        {"role": "user", "content": "Another one!"},
    ]
    expected = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_dict=False
    )
    assert bundled_engine.encode_chat(messages) == expected


def test_it_continues_a_story(bundled_engine: Engine) -> None:
    token_ids = bundled_engine.tokenizer.encode("Once upon a time")
    text = bundled_engine.tokenizer.decode(greedy(bundled_engine, token_ids, 40))
    assert len(text.split()) > 20, f"words should come, not {text!r}"


def test_any_unicode_survives_the_vocabulary(bundled_engine: Engine) -> None:
    text = "na\u00efve \U0001f9a6 \u4f60\u597d\x00\n\t <|user|"
    assert bundled_engine.tokenizer.decode(bundled_engine.tokenizer.encode(text)) == text
