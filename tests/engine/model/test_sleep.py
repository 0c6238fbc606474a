"""An engine that gave its weights back: what it keeps, and that it wakes the same."""

import os
import shutil
import weakref
from pathlib import Path
from typing import Any

import pytest

from engine import Engine, ModelLoadError, SamplingSettings, StreamOptions
from engine.device.cpu.ops import CpuOps
from engine.draft.model import ModelDrafter
from tests.support.family_models import FAMILY_MODELS
from tests.support.scripted_model import records_of, run
from tests.support.tiny_models import save_model

PROMPT = [7 * i % 300 + 5 for i in range(40)]
LONG = [11 * i % 300 + 5 for i in range(200)]
SETTINGS = SamplingSettings(temperature=0.8, seed=4)


def load(path: Path, **options: Any) -> Engine:
    return Engine.load(path, device="cpu", dtype="float32", **options)


def answer(engine: Engine, prompt: list[int] = PROMPT) -> tuple[list[Any], int]:
    """All that the stream reports, and how much of its prompt was cached."""
    generator = engine.generator
    generator.begin_stream_ex(
        prompt, SETTINGS, max_new_tokens=12, ignore_eos=True, return_top_tokens=3
    )
    # Where a token came from depends on the drafts, and nothing else does.
    told = [(each.token_id, each.p_raw, each.top) for each in records_of(run(generator))]
    return told, generator.n_cached_tokens


def drafters_of(engine: Engine) -> list[ModelDrafter]:
    assert engine.speculator is not None
    return [each for each in engine.speculator.drafters if isinstance(each, ModelDrafter)]


@pytest.mark.parametrize("family", ["qwen3_next", "gemma4-embeddings", "mixtral"])
def test_it_wakes_the_same_and_keeps_its_prompts(family: str, tmp_path: Path) -> None:
    save_model(tmp_path / "model", FAMILY_MODELS[family])

    def answers(*, sleeps: bool) -> list[tuple[list[Any], int]]:
        engine = load(tmp_path / "model", speculate="ngram", prefix_bytes=2**24, max_seq_len=250)
        told = [answer(engine, prompt) for prompt in (LONG, LONG[::-1])]
        if sleeps:
            engine.sleep()
            assert engine.is_asleep
            engine.wake()
            assert not engine.is_asleep
        return told + [answer(engine, prompt) for prompt in (LONG[::-1], LONG)]

    woken = answers(sleeps=True)
    assert woken == answers(sleeps=False)
    assert [n_cached > 0 for _, n_cached in woken] == [False, False, True, True]


def test_no_weight_stays_in_memory(tiny_model: Path) -> None:
    engine = load(tiny_model, speculate="draft", draft_model=tiny_model)
    answer(engine)
    engine.generator.begin_stream_ex(PROMPT, SETTINGS)  # a stream that has not ended
    (drafter,) = drafters_of(engine)
    alive = [
        weakref.ref(array)
        for model in (engine.model, drafter.model)
        for layer in model.weights.layers
        for array in (layer.attention_norm, *(each.panels for each in layer.wqkv.sections))  # type: ignore[attr-defined]
    ]
    engine.sleep()
    assert all(ref() is None for ref in alive)


def test_a_draft_model_wakes_too(tiny_model: Path) -> None:
    engine = load(tiny_model, speculate="draft", draft_model=tiny_model)
    first, _ = answer(engine)
    engine.sleep()
    engine.wake()
    assert answer(engine)[0] == first
    (drafter,) = drafters_of(engine)
    assert drafter.model.has_weights


@pytest.mark.parametrize("kv_cache", ["8bit", "k8v4", "4bit"])
def test_it_wakes_the_same_with_small_keys(tiny_model: Path, kv_cache: str) -> None:
    """Keys in 4 bits are stored without what all have in common, which is found at load."""
    engine = load(tiny_model, kv_cache=kv_cache)
    first, _ = answer(engine)
    engine.sleep()
    engine.wake()
    assert answer(engine)[0] == first


def test_what_needs_no_weights_goes_on(tiny_engine: Engine) -> None:
    size = tiny_engine.weight_bytes
    tiny_engine.sleep()
    assert tiny_engine.weight_bytes == size > 0
    prompt = tiny_engine.encode_chat([{"role": "user", "content": "hello"}])
    assert tiny_engine.generator.expected_reuse(prompt, StreamOptions()).n_reused == 0
    tiny_engine.generator.close()


def test_it_says_that_it_sleeps_when_the_memory_is_free(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = load(tiny_model, speculate="draft", draft_model=tiny_model)
    give_back, told = CpuOps.give_back, []

    def observed(ops: CpuOps) -> None:
        told.append(engine.is_asleep)
        give_back(ops)
        told.append(engine.is_asleep)

    monkeypatch.setattr(CpuOps, "give_back", observed)
    engine.sleep()
    assert told == [False] * 4, "before and after those of the draft and of the model"
    assert engine.is_asleep


def test_files_that_changed_are_refused_until_they_are_back(
    tiny_model: Path, tmp_path: Path
) -> None:
    path = tmp_path / "model"
    shutil.copytree(tiny_model, path)
    engine = load(path)
    first, _ = answer(engine)
    engine.sleep()
    weights = path / "model.safetensors"
    weights.rename(tmp_path / "away")
    with pytest.raises(ModelLoadError, match=r"model\.safetensors"):
        engine.wake()
    assert engine.is_asleep
    shutil.copyfile(tmp_path / "away", weights)
    os.utime(weights, (1, 1))
    with pytest.raises(ModelLoadError, match="the files have changed since they were first loaded"):
        engine.wake()
    (tmp_path / "away").rename(weights)
    engine.wake()
    assert answer(engine)[0] == first


def test_a_wake_that_is_stopped_leaves_it_asleep(tiny_engine: Engine) -> None:
    def stop(done: int, total: int) -> None:
        if done > total / 2:
            raise RuntimeError("enough")

    first, _ = answer(tiny_engine)
    tiny_engine.sleep()
    with pytest.raises(RuntimeError, match="enough"):
        tiny_engine.wake(stop)
    assert tiny_engine.is_asleep
    tiny_engine.wake()
    assert answer(tiny_engine)[0] == first
