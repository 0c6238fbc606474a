"""Packed weights on disk: the same matrices after a start from them, and never those of a file that
is damaged, cut or from another checkpoint.
"""

import logging
import os
import resource
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from safetensors.torch import load_file, save_file

import engine.device.cpu.panel_cache
from engine import Engine, ModelLoadError
from engine.checkpoint.config_json import model_config
from engine.checkpoint.safetensors import read_checkpoint
from engine.checkpoint.tensors import check_tensors
from engine.device.cpu.ops import CpuOps
from engine.device.cpu.panel_cache import open_panels
from engine.model.loading import load_weights
from engine.model.weights import Weights
from engine.native import _cpu
from engine.native.cpu import address
from engine.stored_tensor import StoredTensor


@pytest.fixture
def model(tiny_model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_model, tmp_path / "model"))


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "soliton"


def tensors_of(model: Path) -> Mapping[str, StoredTensor]:
    return check_tensors(read_checkpoint(model), model_config(model))


def load(model: Path, cache: Path, format_: str = "8bit") -> Weights:
    tensors, ops = tensors_of(model), CpuOps(format_)
    with open_panels(cache, tensors, format_, n_bytes=1000) as panels:
        return load_weights(tensors, model_config(model), ops, panels=panels)


def matrices(weights: Weights) -> list[npt.NDArray[np.uint8]]:
    layers = [(one.wqkv, one.wo, one.w_gate_up, one.w_down) for one in weights.layers]
    return [m.panels for m in (weights.embedding, weights.head, *sum(layers, ()))]


def same(one: Weights, other: Weights) -> bool:
    return all(np.array_equal(*pair) for pair in zip(matrices(one), matrices(other), strict=True))


def packed_anew(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Counts what is packed from now on."""
    formats: list[str] = []
    before = CpuOps.matrix

    def matrix(self: CpuOps, parts: Any, format_: str, **options: Any) -> Any:
        formats.append(format_)
        return before(self, parts, format_, **options)

    monkeypatch.setattr(CpuOps, "matrix", matrix)
    return formats


def only_entry(cache: Path) -> Path:
    (entry,) = cache.iterdir()
    return entry


@pytest.mark.parametrize("format_", ["float32", "bfloat16", "8bit", "6bit", "5bit", "4bit"])
def test_the_second_start_packs_nothing_and_has_the_same_weights(
    format_: str, model: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = load(model, cache, format_)
    anew = packed_anew(monkeypatch)
    second = load(model, cache, format_)
    assert not anew
    assert same(first, second)
    assert all(address(panels) % 64 == 0 for panels in matrices(second))
    assert not any(panels.flags.writeable for panels in matrices(second))
    assert second.head.n_bytes == first.head.n_bytes


def test_a_copy_that_keeps_the_times_is_the_same_checkpoint(
    model: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(model, cache)
    anew = packed_anew(monkeypatch)
    load(Path(shutil.copytree(model, tmp_path / "copy")), cache)
    assert not anew


def test_another_checkpoint_in_the_same_place_replaces_the_entry(model: Path, cache: Path) -> None:
    first, old = load(model, cache), only_entry(cache)
    tensors = load_file(model / "model.safetensors")
    save_file({name: -tensor for name, tensor in tensors.items()}, model / "model.safetensors")
    second = load(model, cache)
    assert not same(first, second)
    assert only_entry(cache) != old


def test_other_weights_with_the_same_size_and_time_are_another_checkpoint(
    model: Path, cache: Path
) -> None:
    file = model / "model.safetensors"
    os.utime(file, (1, 1))
    first = load(model, cache)
    tensors = load_file(file)
    name = "model.layers.1.mlp.down_proj.weight"
    save_file({**tensors, name: -tensors[name]}, file)
    os.utime(file, (1, 1))
    assert not same(first, load(model, cache))


def test_formats_have_entries_of_their_own(model: Path, cache: Path) -> None:
    load(model, cache, "8bit")
    load(model, cache, "4bit")
    assert len(list(cache.iterdir())) == 2


@pytest.mark.parametrize("place", [0, 0.3, 0.6, 0.97, 0.9999])
def test_a_damaged_entry_is_packed_anew(
    place: float, model: Path, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = load(model, cache)
    data = bytearray(only_entry(cache).read_bytes())
    data[int(place * len(data))] ^= 1
    only_entry(cache).write_bytes(data)
    with caplog.at_level(logging.WARNING):
        assert same(load(model, cache), first)
    assert len(caplog.messages) == 1
    assert caplog.messages[0].endswith("the weights are packed anew")
    assert only_entry(cache).stat().st_size == len(data)
    caplog.clear()
    assert same(load(model, cache), first)
    assert not caplog.messages


@pytest.mark.parametrize("size", [0, 10, 24, 5000, -1])
def test_an_entry_that_was_cut_is_packed_anew(
    size: int, model: Path, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = load(model, cache)
    only_entry(cache).write_bytes(only_entry(cache).read_bytes()[:size])
    assert same(load(model, cache), first)
    assert len(caplog.messages) == 1


def test_an_entry_under_the_name_of_another_is_not_used(
    model: Path, cache: Path, tmp_path: Path
) -> None:
    load(model, cache)
    tensors = load_file(model / "model.safetensors")
    save_file({name: -tensor for name, tensor in tensors.items()}, model / "model.safetensors")
    expected = load(model, tmp_path / "other")
    only_entry(cache).rename(cache / only_entry(tmp_path / "other").name)
    assert same(load(model, cache), expected)


def test_two_starts_at_once_both_succeed(model: Path, cache: Path) -> None:
    tensors, config, ops = tensors_of(model), model_config(model), CpuOps("8bit")
    with (
        open_panels(cache, tensors, "8bit", n_bytes=1000) as one,
        open_panels(cache, tensors, "8bit", n_bytes=1000) as two,
    ):
        first = load_weights(tensors, config, ops, panels=one)
        second = load_weights(tensors, config, ops, panels=two)
    assert same(first, second)
    assert same(load(model, cache), first)
    assert only_entry(cache).suffix == ".panels"


def test_a_start_that_fails_leaves_nothing(model: Path, cache: Path) -> None:
    tensors = load_file(model / "model.safetensors")
    tensors["lm_head.weight"][3, 5] = torch.nan
    save_file(tensors, model / "model.safetensors")
    for _ in range(2):
        with pytest.raises(ModelLoadError, match=r"lm_head.weight: not finite at \[3, 5\]"):
            load(model, cache)
        assert not list(cache.iterdir())


def test_a_checkpoint_that_changes_while_it_is_read_is_not_kept(model: Path, cache: Path) -> None:
    tensors = tensors_of(model)
    with open_panels(cache, tensors, "8bit", n_bytes=1000) as panels:
        load_weights(tensors, model_config(model), CpuOps("8bit"), panels=panels)
        os.utime(model / "model.safetensors", (1, 1))
    assert not list(cache.iterdir())


def test_a_disk_that_takes_no_more_is_one_warning(
    model: Path, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    expected = load(model, cache.parent / "other")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        actual = load(model, cache)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert same(actual, expected)
    assert caplog.messages == [f"{cache}: File too large: the next start packs the weights again"]
    assert not list(cache.iterdir())


def test_a_directory_that_cannot_be_is_one_warning(
    model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    load(model, tmp_path / "file" / "cache")
    assert len(caplog.messages) == 1
    assert caplog.messages[0].endswith("the next start packs the weights again")


def test_the_longest_unused_entries_make_room(
    model: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(model, cache, "8bit")
    eight = only_entry(cache)
    load(model, cache, "4bit")
    (four,) = set(cache.iterdir()) - {eight}
    os.utime(eight, (1, 1))
    os.utime(four, (2, 2))
    load(model, cache, "8bit")  # and so it was used last
    limit = eight.stat().st_size + 1000
    monkeypatch.setattr(engine.device.cpu.panel_cache, "_LARGEST_TOTAL", limit)
    load(model, cache, "bfloat16")
    assert eight in set(cache.iterdir())
    assert four not in set(cache.iterdir())


def test_what_is_larger_than_the_limit_is_not_kept(
    model: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(engine.device.cpu.panel_cache, "_LARGEST_TOTAL", 999)
    load(model, cache)
    assert not list(cache.iterdir())
    assert "more than a cache may hold" in caplog.messages[0]


def test_what_a_process_that_died_left_is_removed(model: Path, cache: Path) -> None:
    tensors = tensors_of(model)
    with open_panels(cache, tensors, "4bit", n_bytes=1000):
        (alive,) = cache.iterdir()
        dead = cache / "dead.unfinished"
        dead.write_bytes(b"x")
        hour_ago = time.time() - 3600
        for file in (alive, dead):
            os.utime(file, (hour_ago, hour_ago))
        load(model, cache, "8bit")
        assert alive.exists()
        assert not dead.exists()


def test_small_models_are_not_kept_and_larger_ones_are(
    model: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Engine.load(model, device="cpu", panel_cache=cache)
    assert not cache.exists()
    monkeypatch.setattr(engine.device.cpu.panel_cache, "SMALLEST_BYTES", 1)
    Engine.load(model, device="cpu", panel_cache=cache)
    anew = packed_anew(monkeypatch)
    Engine.load(model, device="cpu", panel_cache=cache)
    assert not anew


@pytest.mark.parametrize("n_bytes", [0, 1, 7, 8, 63, 64, 65, 2**20, 3 * 2**20 + 5])
def test_the_checksum_tells_every_changed_bit_on_any_number_of_threads(n_bytes: int) -> None:
    memory = np.random.default_rng(0).integers(0, 256, n_bytes + 1, np.uint8)[:n_bytes]
    before = _cpu.threads()
    seen = set()
    for n_threads in (1, 2, 3):
        _cpu.set_threads(n_threads)
        seen.add(_cpu.checksum(address(memory), n_bytes))
    _cpu.set_threads(before)
    assert len(seen) == 1
    for place in {0, n_bytes // 2, n_bytes - 1} if n_bytes else ():
        for bit in range(8):
            memory[place] ^= 1 << bit
            assert _cpu.checksum(address(memory), n_bytes) not in seen
            memory[place] ^= 1 << bit
