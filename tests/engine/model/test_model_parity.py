"""The decoder against transformers: the same weights must give the same logits and tokens."""

import functools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine import AbortFlag
from engine.cache.kv import KVCache
from engine.checkpoint.config_json import model_config
from engine.checkpoint.safetensors import read_checkpoint
from engine.checkpoint.tensors import check_tensors
from engine.device.open import open_ops
from engine.device.ops import Ops
from engine.device.torch_ops import TorchOps
from engine.model.loading import load_weights
from engine.model.model import Model
from engine.native.cpu import kernels
from engine.sampling.logits import Logits
from tests.support.tiny_models import FAMILIES, LLAMA3_ROPE, VOCAB_SIZE, save_model

TOLERANCE = 1e-4
N_TOKENS = 100  # beyond the llama3 original context (32) and every sliding window

OPS: dict[str, Callable[[], Ops]] = {
    "native": lambda: open_ops(device="cpu", dtype="float32", require_native=True),
    "torch": lambda: TorchOps("cpu", "float32"),
}


def loaded(
    path: Path, *, chunk_size: int = 512, ops: Ops | None = None, max_seq_len: int = 128
) -> Model:
    config = model_config(path)
    ops = ops or OPS["native"]()
    weights = load_weights(check_tensors(read_checkpoint(path), config), config, ops)
    return Model(weights, config, ops, max_seq_len=max_seq_len, chunk_size=chunk_size)


def empty_cache(model: Model) -> KVCache:
    return KVCache(model.config, model.ops, max_seq_len=model.max_seq_len)


def prompt(n: int = N_TOKENS, seed: int = 1) -> list[int]:
    ids: list[int] = np.random.default_rng(seed).integers(0, VOCAB_SIZE, n).tolist()
    return ids


def oracle_logits(oracle: Any, token_ids: list[int]) -> Logits:
    with torch.no_grad():
        logits: Logits = oracle(torch.tensor([token_ids])).logits[0].numpy()
    return logits


def logits_after(model: Model, token_ids: list[int], *, n_prefill: int) -> Logits:
    """Prefills `n_prefill` ids and decodes the others one by one: (n - n_prefill, vocab_size)."""
    cache = empty_cache(model)
    assert model.prefill(token_ids[:n_prefill], cache)
    logits = decoded(model, token_ids[n_prefill:], cache)
    assert cache.token_ids == token_ids
    return logits


def decoded(model: Model, token_ids: list[int], cache: KVCache) -> Logits:
    """The logits after each of `token_ids`, decoded one by one."""
    return np.concatenate([model.decode([token_id], cache).copy() for token_id in token_ids])


def assert_close(actual: Logits, expected: Logits) -> None:
    np.testing.assert_allclose(actual, expected, atol=TOLERANCE, rtol=0)


Saved = Callable[[str], tuple[Path, Any]]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    """Saves one model of a family: (directory, oracle)."""

    @functools.cache
    def save(name: str) -> tuple[Path, Any]:
        path = tmp_path_factory.mktemp("family") / name
        return path, save_model(path, name)

    return save


@pytest.fixture(scope="module", params=sorted(FAMILIES))
def family(request: pytest.FixtureRequest, saved: Saved) -> Any:
    """One family: (directory, oracle)."""
    return saved(request.param)


@pytest.fixture(params=OPS)
def pair(family: Any, request: pytest.FixtureRequest) -> Any:
    """One family on one kind of ops: (oracle, our model)."""
    path, oracle = family
    return oracle, loaded(path, ops=OPS[request.param]())


def test_logits_equal_those_of_transformers(pair: Any) -> None:
    oracle, model = pair
    token_ids = prompt()
    expected = oracle_logits(oracle, token_ids)
    assert_close(logits_after(model, token_ids, n_prefill=0), expected)
    assert_close(logits_after(model, token_ids, n_prefill=61), expected[61:])


def test_many_rows_decode_as_one_by_one(pair: Any) -> None:
    oracle, model = pair
    token_ids = prompt(110)
    expected = oracle_logits(oracle, token_ids)
    for n_rows in (2, 7, 16, 17, 64):
        cache = empty_cache(model)
        model.prefill(token_ids[:40], cache)
        logits = model.decode(token_ids[40 : 40 + n_rows], cache)
        assert logits.shape == (n_rows, VOCAB_SIZE)
        assert_close(logits, expected[40 : 40 + n_rows])


def test_greedy_tokens_equal_those_of_transformers(pair: Any) -> None:
    oracle, model = pair
    token_ids = prompt(12, seed=3)
    cache = empty_cache(model)
    model.prefill(token_ids[:-1], cache)
    ours = list(token_ids)
    for _ in range(64):
        ours.append(int(model.decode(ours[-1:], cache)[0].argmax()))
    # One pass over the whole text checks every step of it.
    expected = oracle_logits(oracle, ours[:-1])[len(token_ids) - 1 :].argmax(axis=1).tolist()
    assert ours[len(token_ids) :] == expected


@pytest.mark.parametrize("chunk_size", [1, 7, 16, 33])
@pytest.mark.parametrize("name", ["llama", "mistral-window", "llama-yarn", "llama-longrope"])
@pytest.mark.parametrize("ops", OPS)
def test_chunked_prefill_equals_whole_prefill(
    saved: Saved, ops: str, name: str, chunk_size: int
) -> None:
    path, _ = saved(name)
    token_ids = prompt()
    whole = logits_after(loaded(path, ops=OPS[ops]()), token_ids, n_prefill=90)
    model = loaded(path, chunk_size=chunk_size, ops=OPS[ops]())
    assert_close(logits_after(model, token_ids, n_prefill=90), whole)


@pytest.mark.parametrize(
    "options",
    [
        {"dtype": "float32"},
        {"dtype": "bfloat16"},
        {"quantize": "8bit"},
        {"quantize": "5bit"},
        {"quantize": "4bit"},
        {"kv_cache": "8bit"},
        {"kv_cache": "k8v4"},
        {"kv_cache": "4bit"},
        {"kv_cache": "bfloat16", "dtype": "bfloat16"},
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["qwen3", "mistral-window", "llama-biases", "qwen3-yarn"])
def test_native_logits_do_not_depend_on_how_the_ids_came(
    saved: Saved, name: str, options: dict[str, Any]
) -> None:
    """Bit for bit: one by one, many rows at once, chunks, rewound, on one thread or two."""
    path, _ = saved(name)
    token_ids = prompt(104)
    model = loaded(path, ops=open_ops(device="cpu", **options))
    kernels.set_threads(1)
    expected = logits_after(model, token_ids, n_prefill=0)
    for chunk_size, n_threads in ((512, 1), (512, 2), (17, 2), (3, 1)):
        model = loaded(path, chunk_size=chunk_size, ops=open_ops(device="cpu", **options))
        kernels.set_threads(n_threads)
        logits = logits_after(model, token_ids, n_prefill=101)
        assert np.array_equal(logits, expected[101:]), (
            f"chunks of {chunk_size}, {n_threads} threads"
        )
    cache = empty_cache(model)
    model.prefill(token_ids, cache)
    for n_rows in (2, 7, 16, 17, 40, 64):
        cache.rollback(40)
        rows = model.decode(token_ids[40 : 40 + n_rows], cache)
        assert np.array_equal(rows, expected[40 : 40 + n_rows]), f"{n_rows} rows"


def test_rollback_then_decode_equals_fresh(tmp_path: Path) -> None:
    save_model(tmp_path)
    model = loaded(tmp_path)
    first, second = prompt(60, seed=5), prompt(60, seed=6)
    cache = empty_cache(model)
    model.prefill(first, cache)
    cache.rollback(25)
    rest = second[25:]
    logits = decoded(model, rest, cache)
    assert_close(logits, logits_after(model, first[:25] + rest, n_prefill=0)[25:])


@pytest.mark.parametrize("n_chunks", [0, 1, 3])
@pytest.mark.parametrize("ops", OPS)
def test_an_aborted_prefill_keeps_whole_chunks_and_a_true_cache(
    tmp_path: Path, ops: str, n_chunks: int
) -> None:
    save_model(tmp_path)
    model = loaded(tmp_path, chunk_size=10, ops=OPS[ops]())
    token_ids = prompt(50)
    cache, abort = empty_cache(model), AbortFlag()

    def abort_in_time(done: int, _total: int) -> None:
        if done == 10 * n_chunks:
            abort.set()

    abort_in_time(0, 40)
    assert not model.prefill(token_ids[:40], cache, abort=abort, on_progress=abort_in_time)
    assert cache.token_ids == token_ids[: 10 * n_chunks]
    assert model.prefill(token_ids[cache.length : 40], cache)
    logits = decoded(model, token_ids[40:], cache)
    assert_close(logits, logits_after(model, token_ids, n_prefill=40))


def test_another_thread_aborts_in_the_middle_of_a_chunk(tmp_path: Path) -> None:
    save_model(tmp_path, hidden_size=512, intermediate_size=4096, num_hidden_layers=6)
    model = loaded(tmp_path, max_seq_len=512)
    cache, abort = empty_cache(model), AbortFlag()
    timer = threading.Timer(0.01, abort.set)
    timer.start()
    assert not model.prefill(prompt(512), cache, abort=abort), "it should not run to its end"
    timer.join()
    assert cache.length == 0


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
    difference = np.abs(oracle_logits(oracle, token_ids) - oracle_logits(other, token_ids))
    assert difference.max() > 0.1, "the test model must be sensitive to the rope scaling"


def test_a_window_matters_where_it_is_tested(tmp_path: Path) -> None:
    oracle = save_model(tmp_path, "mistral-window")
    other = save_model(tmp_path / "full", "mistral")
    token_ids = prompt()
    difference = np.abs(oracle_logits(oracle, token_ids) - oracle_logits(other, token_ids))
    assert difference[:12].max() < TOLERANCE
    assert difference[12:].max() > 0.1, "the test model must be sensitive to the window"


LOSSY: dict[str, tuple[Callable[[], Ops], float]] = {
    "torch bfloat16": (lambda: TorchOps("cpu", "bfloat16"), 0.99),
    "bfloat16": (lambda: open_ops(device="cpu", dtype="bfloat16"), 0.999),
    "8bit": (lambda: open_ops(device="cpu", quantize="8bit"), 0.995),
    "6bit": (lambda: open_ops(device="cpu", quantize="6bit"), 0.975),
    "5bit": (lambda: open_ops(device="cpu", quantize="5bit"), 0.92),
    "4bit": (lambda: open_ops(device="cpu", quantize="4bit"), 0.8),
    "keys and values in 8bit": (lambda: open_ops(device="cpu", kv_cache="8bit"), 0.999),
    "values in 4bit": (lambda: open_ops(device="cpu", kv_cache="k8v4"), 0.9),
    "keys and values in 4bit": (lambda: open_ops(device="cpu", kv_cache="4bit"), 0.88),
}


@pytest.mark.parametrize("name", ["llama", "qwen3", "llama-biases", "llama-head-dim"])
@pytest.mark.parametrize("format_", LOSSY)
def test_lossy_formats_are_close_to_float32(saved: Saved, format_: str, name: str) -> None:
    ops, least = LOSSY[format_]
    path, oracle = saved(name)
    token_ids = prompt(40)
    logits = logits_after(loaded(path, ops=ops()), token_ids, n_prefill=20)
    assert logits.dtype == np.float32
    expected = oracle_logits(oracle, token_ids)[20:]
    lengths = np.linalg.norm(logits, axis=1) * np.linalg.norm(expected, axis=1)
    assert ((logits * expected).sum(axis=1) / lengths).min() > least


def test_sharded_files_give_the_same_model(tmp_path: Path) -> None:
    save_model(tmp_path / "one")
    save_model(tmp_path / "many", shards=True)
    assert len(list((tmp_path / "many").glob("*.safetensors"))) > 2
    token_ids = prompt(20)
    one = logits_after(loaded(tmp_path / "one"), token_ids, n_prefill=0)
    many = logits_after(loaded(tmp_path / "many"), token_ids, n_prefill=0)
    assert np.array_equal(one, many)


def test_decode_answers_in_one_buffer(tmp_path: Path) -> None:
    save_model(tmp_path)
    model = loaded(tmp_path)
    cache = empty_cache(model)
    first = model.decode([1], cache)
    second = model.decode([2], cache)
    assert np.shares_memory(first, second)


def test_a_model_runs_on_the_cache_it_is_given(tmp_path: Path) -> None:
    save_model(tmp_path)
    model = loaded(tmp_path)
    caches = empty_cache(model), empty_cache(model)
    token_ids = prompt(30)
    expected = logits_after(model, token_ids, n_prefill=0)
    for start in range(0, 30, 6):
        for cache in caches:
            logits = decoded(model, token_ids[start : start + 6], cache)
            assert_close(logits, expected[start : start + 6])


def test_wrong_calls_are_refused_before_any_work(tmp_path: Path) -> None:
    save_model(tmp_path)
    model = loaded(tmp_path)
    cache = empty_cache(model)
    with pytest.raises(ValueError, match="decode takes 1 to 64 token ids here, not 0"):
        model.decode([], cache)
    with pytest.raises(ValueError, match="not 65"):
        model.decode([1] * 65, cache)
    for token_id in (-1, VOCAB_SIZE):
        with pytest.raises(ValueError, match="token ids must lie in 0 to 319"):
            model.prefill([1, token_id], cache)
    with pytest.raises(ValueError, match="129 tokens do not fit"):
        model.prefill([1] * 129, cache)
    assert cache.length == 0
    with pytest.raises(ValueError, match="chunk_size"):
        loaded(tmp_path, chunk_size=0)


@pytest.mark.parametrize("ops", OPS)
def test_the_whole_context_can_be_used(tmp_path: Path, ops: str) -> None:
    oracle = save_model(tmp_path)
    token_ids = prompt(128)
    logits = logits_after(loaded(tmp_path, ops=OPS[ops]()), token_ids, n_prefill=120)
    assert_close(logits, oracle_logits(oracle, token_ids)[120:])
