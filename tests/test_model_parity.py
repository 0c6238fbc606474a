"""The decoder against transformers: the same weights must give the same logits and tokens."""

from pathlib import Path
from typing import Any

import pytest
import torch

from engine.cache import KVCache
from engine.families import model_config
from engine.model import Model
from engine.weights import load_weights
from tests.tiny_models import FAMILIES, LLAMA3_ROPE, VOCAB_SIZE, save_model

TOLERANCE = 1e-4
N_TOKENS = 100  # beyond the llama3 original context (32) and every sliding window


def loaded(path: Path, *, chunk_size: int = 512, dtype: torch.dtype = torch.float32) -> Model:
    config = model_config(path)
    device = torch.device("cpu")
    weights = load_weights(path, config, device=device, dtype=dtype, on_progress=None)
    return Model(
        weights, config, device=device, dtype=dtype, max_seq_len=128, chunk_size=chunk_size
    )


def empty_cache(model: Model) -> KVCache:
    return KVCache(
        model.config, max_seq_len=model.max_seq_len, device=model.device, dtype=model.dtype
    )


def prompt(n: int = N_TOKENS, seed: int = 1) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    ids: list[int] = torch.randint(0, VOCAB_SIZE, (n,), generator=generator).tolist()
    return ids


def oracle_logits(oracle: Any, token_ids: list[int]) -> torch.Tensor:
    with torch.no_grad():
        logits: torch.Tensor = oracle(torch.tensor([token_ids])).logits[0]
    return logits


def logits_after(model: Model, token_ids: list[int], *, n_prefill: int) -> torch.Tensor:
    """Prefills `n_prefill` ids and decodes the others one by one: (n - n_prefill, vocab_size)."""
    cache = empty_cache(model)
    assert model.prefill(token_ids[:n_prefill], cache)
    rows = [model.decode([token_id], cache).clone() for token_id in token_ids[n_prefill:]]
    assert cache.token_ids == token_ids
    return torch.cat(rows)


@pytest.fixture(scope="module", params=sorted(FAMILIES))
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One family: (oracle, our model)."""
    path = tmp_path_factory.mktemp("family") / request.param
    oracle = save_model(path, request.param)
    return oracle, loaded(path)


def test_logits_equal_those_of_transformers(pair: Any) -> None:
    oracle, model = pair
    token_ids = prompt()
    expected = oracle_logits(oracle, token_ids)
    torch.testing.assert_close(
        logits_after(model, token_ids, n_prefill=0), expected, atol=TOLERANCE, rtol=0
    )
    torch.testing.assert_close(
        logits_after(model, token_ids, n_prefill=61), expected[61:], atol=TOLERANCE, rtol=0
    )


def test_many_rows_decode_as_one_by_one(pair: Any) -> None:
    oracle, model = pair
    token_ids = prompt(80)
    expected = oracle_logits(oracle, token_ids)
    for n_rows in (2, 7, 16):
        cache = empty_cache(model)
        model.prefill(token_ids[:40], cache)
        logits = model.decode(token_ids[40 : 40 + n_rows], cache)
        assert logits.shape == (n_rows, VOCAB_SIZE)
        torch.testing.assert_close(logits, expected[40 : 40 + n_rows], atol=TOLERANCE, rtol=0)


def test_greedy_tokens_equal_those_of_transformers(pair: Any) -> None:
    oracle, model = pair
    token_ids = prompt(12, seed=3)
    cache = empty_cache(model)
    model.prefill(token_ids[:-1], cache)
    ours = list(token_ids)
    for _ in range(64):
        ours.append(int(model.decode(ours[-1:], cache)[0].argmax()))
    # One pass over the whole text checks every step of it.
    expected = oracle_logits(oracle, ours[:-1])[len(token_ids) - 1 :].argmax(dim=1).tolist()
    assert ours[len(token_ids) :] == expected


@pytest.mark.parametrize("chunk_size", [1, 7, 16, 33])
@pytest.mark.parametrize("family", ["llama", "mistral-window"])
def test_chunked_prefill_equals_whole_prefill(tmp_path: Path, family: str, chunk_size: int) -> None:
    save_model(tmp_path, family)
    token_ids = prompt()
    whole = logits_after(loaded(tmp_path), token_ids, n_prefill=90)
    chunked = logits_after(loaded(tmp_path, chunk_size=chunk_size), token_ids, n_prefill=90)
    torch.testing.assert_close(chunked, whole, atol=TOLERANCE, rtol=0)


def test_rewind_then_decode_equals_fresh(tmp_path: Path) -> None:
    save_model(tmp_path)
    model = loaded(tmp_path)
    first, second = prompt(60, seed=5), prompt(60, seed=6)
    cache = empty_cache(model)
    model.prefill(first, cache)
    cache.rewind(25)
    rest = second[25:]
    logits = torch.cat([model.decode([token_id], cache).clone() for token_id in rest])
    fresh = logits_after(model, first[:25] + rest, n_prefill=0)[25:]
    torch.testing.assert_close(logits, fresh, atol=TOLERANCE, rtol=0)


class FlagAfter:
    """An abort flag that is set from the n-th look on."""

    def __init__(self, n: int) -> None:
        self.n = n

    def is_set(self) -> bool:
        self.n -= 1
        return self.n < 0


@pytest.mark.parametrize("n_looks", [0, 1, 3, 4, 8])
def test_an_aborted_prefill_keeps_whole_chunks_and_a_true_cache(
    tmp_path: Path, n_looks: int
) -> None:
    save_model(tmp_path)
    model = loaded(tmp_path, chunk_size=10)
    token_ids = prompt(50)
    cache = empty_cache(model)
    n_layers = model.config.n_layers
    assert not model.prefill(token_ids[:40], cache, abort=FlagAfter(n_looks))
    assert cache.token_ids == token_ids[: n_looks // n_layers * 10]
    assert model.prefill(token_ids[cache.length : 40], cache)
    logits = torch.cat([model.decode([token_id], cache).clone() for token_id in token_ids[40:]])
    fresh = logits_after(model, token_ids, n_prefill=40)
    torch.testing.assert_close(logits, fresh, atol=TOLERANCE, rtol=0)


def test_prefill_tells_its_progress(tmp_path: Path) -> None:
    save_model(tmp_path)
    model = loaded(tmp_path, chunk_size=10)
    seen: list[tuple[int, int]] = []
    model.prefill(prompt(25), empty_cache(model), on_progress=lambda *done: seen.append(done))
    assert seen == [(10, 25), (20, 25), (25, 25)]


def test_llama3_scaling_matters_where_it_is_tested(tmp_path: Path) -> None:
    oracle = save_model(tmp_path, "llama3-rope")
    plain = {**LLAMA3_ROPE, "rope_type": "default"}
    other = save_model(tmp_path / "plain", "llama", rope_parameters=plain)
    token_ids = prompt()
    difference = (oracle_logits(oracle, token_ids) - oracle_logits(other, token_ids)).abs()
    assert difference.max() > 0.1, "the test model must be sensitive to the rope scaling"


def test_a_window_matters_where_it_is_tested(tmp_path: Path) -> None:
    oracle = save_model(tmp_path, "mistral-window")
    other = save_model(tmp_path / "full", "mistral")
    token_ids = prompt()
    difference = (oracle_logits(oracle, token_ids) - oracle_logits(other, token_ids)).abs()
    assert difference[:12].max() < TOLERANCE
    assert difference[12:].max() > 0.1, "the test model must be sensitive to the window"


def test_bfloat16_is_close_to_float32(tmp_path: Path) -> None:
    oracle = save_model(tmp_path)
    token_ids = prompt(40)
    logits = logits_after(loaded(tmp_path, dtype=torch.bfloat16), token_ids, n_prefill=20)
    assert logits.dtype == torch.float32
    expected = oracle_logits(oracle, token_ids)[20:]
    similarity = torch.nn.functional.cosine_similarity(logits, expected, dim=1)
    assert similarity.min() > 0.99


def test_sharded_files_give_the_same_model(tmp_path: Path) -> None:
    save_model(tmp_path / "one")
    save_model(tmp_path / "many", shards=True)
    assert len(list((tmp_path / "many").glob("*.safetensors"))) > 2
    token_ids = prompt(20)
    one = logits_after(loaded(tmp_path / "one"), token_ids, n_prefill=0)
    many = logits_after(loaded(tmp_path / "many"), token_ids, n_prefill=0)
    assert torch.equal(one, many)


def test_decode_answers_in_one_buffer(tmp_path: Path) -> None:
    save_model(tmp_path)
    model = loaded(tmp_path)
    cache = empty_cache(model)
    first = model.decode([1], cache)
    second = model.decode([2], cache)
    assert first.data_ptr() == second.data_ptr()


def test_wrong_calls_are_refused_before_any_work(tmp_path: Path) -> None:
    save_model(tmp_path)
    model = loaded(tmp_path)
    cache = empty_cache(model)
    with pytest.raises(ValueError, match="decode takes 1 to 16 token ids, not 0"):
        model.decode([], cache)
    with pytest.raises(ValueError, match="not 17"):
        model.decode([1] * 17, cache)
    for token_id in (-1, VOCAB_SIZE):
        with pytest.raises(ValueError, match="token ids must lie in 0 to 319"):
            model.prefill([1, token_id], cache)
    with pytest.raises(ValueError, match="129 tokens do not fit"):
        model.prefill([1] * 129, cache)
    assert cache.length == 0
    with pytest.raises(ValueError, match="chunk_size"):
        loaded(tmp_path, chunk_size=0)


def test_the_whole_context_can_be_used(tmp_path: Path) -> None:
    oracle = save_model(tmp_path)
    model = loaded(tmp_path)
    token_ids = prompt(128)
    logits = logits_after(model, token_ids, n_prefill=120)
    torch.testing.assert_close(
        logits, oracle_logits(oracle, token_ids)[120:], atol=TOLERANCE, rtol=0
    )
