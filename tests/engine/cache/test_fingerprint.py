"""Keys and values kept for the next process are never used with other weights, whatever the files
look like from outside.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

import engine.native.cpu
from engine import Engine, SamplingSettings
from tests.support.scripted_model import records_of, run
from tests.support.tiny_models import save_model

PROMPTS = [list(range(first, first + 130)) for first in range(5, 65, 10)]


@pytest.fixture
def model(tiny_model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_model, tmp_path / "model"))


def keeping_times(file: Path, change: Callable[[Path], object]) -> None:
    """As image layers, archives and `cp -p` do."""
    before = file.stat()
    change(file)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file.stat().st_size == before.st_size
    assert file.stat().st_mtime_ns == before.st_mtime_ns


def load(path: Path, directory: Path | None = None) -> Engine:
    return Engine.load(
        path, device="cpu", dtype="float32", prefix_bytes=2**20, prefix_directory=directory
    )


def texts(engine: Engine) -> list[list[int]]:
    found = []
    for prompt in PROMPTS:
        engine.generator.begin_stream_ex(
            prompt, SamplingSettings(temperature=0), max_new_tokens=12, ignore_eos=True
        )
        found.append([record.token_id for record in records_of(run(engine.generator))])
    engine.generator.close()
    return found


def other_weights(file: Path, tmp_path: Path) -> None:
    save_model(tmp_path / "other", seed=1)
    shutil.copyfile(tmp_path / "other" / "model.safetensors", file)


def test_other_weights_of_the_same_shape_and_time_do_not_get_the_old_ones_keys(
    model: Path, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    first = load(model, kept)
    before = texts(first)
    assert texts(load(model, kept)) == before
    assert list(kept.iterdir())
    file = model / "model.safetensors"
    keeping_times(file, lambda file: other_weights(file, tmp_path))
    second = load(model, kept)
    assert second.fingerprint != first.fingerprint
    wanted = texts(load(model))
    assert wanted != before
    assert texts(second) == wanted


def test_every_tensor_counts(model: Path) -> None:
    file = model / "model.safetensors"
    seen = {load(model).fingerprint}
    names = sorted(load_file(file))
    for name in names:

        def negate(file: Path, name: str = name) -> None:
            tensors = load_file(file)
            tensors[name] = -tensors[name]
            save_file(tensors, file, metadata={"format": "pt"})

        keeping_times(file, negate)
        seen.add(load(model).fingerprint)
    assert len(seen) == len(names) + 1


@pytest.mark.parametrize(
    "name",
    ["config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
     "generation_config.json"],
)  # fmt: skip
def test_every_small_file_counts(model: Path, name: str) -> None:
    before = load(model).fingerprint
    file = model / name
    text = file.read_text("utf-8") if file.exists() else "{}"
    file.write_text(text + " ", "utf-8")
    assert load(model).fingerprint != before


def test_the_build_counts(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = load(model).fingerprint
    monkeypatch.setattr(engine.native.cpu, "build", lambda: "another")
    assert load(model).fingerprint != before
