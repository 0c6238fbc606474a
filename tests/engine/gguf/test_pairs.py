"""Files that llama.cpp's own tools wrote, against transformers with the weights in them.

pairs/README.md says what the files are and how they were made.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from engine import Engine
from engine.cache.kv import KVCache
from engine.sampling.logits import Logits

PAIRS = Path(__file__).parent / "pairs"
NAMES = sorted(file.stem for file in PAIRS.glob("*.gguf"))
TOKENS = json.loads((PAIRS / "tokens.json").read_text("utf-8"))
# What 8-bit activations and bfloat16 keys and values change of random models, relative to all
# logits together.
ROUNDING = 0.04


def test_there_are_pairs() -> None:
    assert NAMES


def expected(name: str) -> tuple[list[int], Logits]:
    """The ids of the prompt, and the logits after the last ones."""
    with np.load(PAIRS / f"{name}.npz") as kept:
        return kept["token_ids"].tolist(), kept["logits"]


def loaded(name: str, max_seq_len: int, *, dtype: str = "auto") -> Engine:
    """The context is that of the prompt, because some frequencies depend on it."""
    path = PAIRS / f"{name}.gguf"
    return Engine.load(path, device="cpu", dtype=dtype, n_threads=1, max_seq_len=max_seq_len)


def last_logits(engine: Engine, token_ids: list[int], n: int) -> Logits:
    """After a prefill, then one by one."""
    cache = KVCache(engine.config, engine.model.ops, max_seq_len=engine.max_seq_len)
    assert engine.model.prefill(token_ids[:-n], cache)
    rows = [engine.model.decode([token_id], cache)[0].copy() for token_id in token_ids[-n:]]
    return np.stack(rows)


@pytest.mark.parametrize("name", NAMES)
def test_in_float32_the_logits_are_those_of_transformers(name: str) -> None:
    token_ids, logits = expected(name)
    engine = loaded(name, len(token_ids), dtype="float32")
    np.testing.assert_allclose(
        last_logits(engine, token_ids, len(logits)), logits, rtol=0, atol=1e-4
    )


@pytest.mark.parametrize("name", NAMES)
def test_as_stored_they_differ_only_by_the_rounding_of_activations(name: str) -> None:
    token_ids, logits = expected(name)
    engine = loaded(name, len(token_ids))
    difference = last_logits(engine, token_ids, len(logits)) - logits
    bound = 1e-5 if name.endswith(("f32", "bf16")) else ROUNDING
    assert np.linalg.norm(difference) <= bound * np.linalg.norm(logits)


@pytest.mark.parametrize("name", NAMES)
def test_texts_have_the_ids_that_they_had_before_the_conversion(name: str) -> None:
    engine = Engine.load(PAIRS / f"{name}.gguf", device="cpu", n_threads=1)
    model = name if name in TOKENS else name.split("-")[0]
    for text, token_ids in TOKENS[model].items():
        assert engine.tokenizer.encode(text, add_special_tokens=False) == token_ids, text
