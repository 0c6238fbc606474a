"""A saved slot goes on as if nothing had been: bit for bit, in this process and in the next one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine import AbortFlag, Engine, EngineError, InvalidInputError, SamplingSettings
from tests.support.family_models import FAMILY_MODELS
from tests.support.tiny_models import save_model

PROMPT = [5 + 7 * i % 90 for i in range(150)]
OTHER = [9] * 80
GREEDY = SamplingSettings(temperature=0.0)


@pytest.fixture(scope="module", params=["qwen3", "mistral-window", "qwen3_5"])
def load(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("slot") / "model"
    save_model(path, FAMILY_MODELS.get(request.param, request.param), max_position_embeddings=4096)

    def load(**options: Any) -> Engine:
        options = {"prefix_bytes": 0, "speculate": "off", "max_seq_len": 3000, **options}
        return Engine.load(path, device="cpu", dtype="float32", **options)

    return load


def answered(engine: Engine, prompt: list[int], n: int = 12, key: str = "") -> tuple[Any, int]:
    """Tokens with their logprobs, and how many of the prompt were known."""
    prefill = engine.generator.begin_stream_ex(
        prompt, GREEDY, max_new_tokens=n, ignore_eos=True, isolation_key=key
    )
    records = []
    while True:
        result = engine.generator.stream_ex()
        records += [(token.token_id, token.logprob) for token in result.tokens]
        if result.eos:
            return records, prefill.reuse.n_reused


@pytest.mark.parametrize("n_prompt", [1, 64, 150, 1700])
def test_it_goes_on_as_if_nothing_had_been(
    load: Callable[..., Engine], tmp_path: Path, n_prompt: int
) -> None:
    engine, file = load(), tmp_path / "slot"
    prompt = (PROMPT * 12)[:n_prompt]
    begun, _ = answered(engine, prompt)
    more = [*prompt, *[token_id for token_id, _ in begun]]
    saved = engine.generator.slot().save(file, AbortFlag())
    assert saved == (len(more) - 1, file.stat().st_size)
    expected, n_known = answered(engine, more)
    assert n_known == len(more) - 1
    for other in (engine, load()):
        answered(other, OTHER)
        assert other.generator.slot().restore(file, AbortFlag()) == saved
        assert answered(other, more) == (expected, len(more) - 1)
    assert [each.name for each in tmp_path.iterdir()] == ["slot"]


def test_who_could_not_reuse_it_cannot_reuse_it_from_the_file(
    load: Callable[..., Engine], tmp_path: Path
) -> None:
    engine, file = load(), tmp_path / "slot"
    begun, _ = answered(engine, PROMPT, key="one")
    more = [*PROMPT, *[token_id for token_id, _ in begun]]
    engine.generator.slot().save(file, AbortFlag())
    engine.generator.slot().restore(file, AbortFlag())
    assert answered(engine, more, key="two")[1] == 0
    engine.generator.slot().restore(file, AbortFlag())
    assert answered(engine, more, key="one")[1] == len(more) - 1


def test_erased_is_forgotten_with_its_copies_and_others_stay(
    load: Callable[..., Engine], tmp_path: Path
) -> None:
    engine = load(prefix_bytes=1 << 26, prefix_directory=tmp_path)
    answered(engine, OTHER)
    answered(engine, [*PROMPT, *OTHER])
    answered(engine, OTHER)
    answered(engine, PROMPT)
    assert engine.generator.slot().erase() == len(PROMPT) + 11
    assert engine.generator.slot().erase() == 0
    assert answered(engine, PROMPT)[1] == 0
    assert answered(engine, OTHER)[1] >= 64


def damaged(data: bytes) -> dict[str, bytes]:
    middle = len(data) // 2
    return {
        "short": data[:20],
        "cut": data[:-9],
        "long": data + b"x",
        "other kind": b"x" + data[1:],
        "other model": data[:8] + bytes(16) + data[24:],
        "a bit": data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :],
        "ids alone": data[:100],
    }


def test_a_file_that_is_not_as_it_was_written_is_refused(
    load: Callable[..., Engine], tmp_path: Path
) -> None:
    engine, file = load(), tmp_path / "slot"
    expected, _ = answered(engine, PROMPT)
    engine.generator.slot().save(file, AbortFlag())
    for what, data in damaged(file.read_bytes()).items():
        file.write_bytes(data)
        with pytest.raises(InvalidInputError, match="cannot be restored"):
            engine.generator.slot().restore(file, AbortFlag())
        assert answered(engine, PROMPT)[0] == expected, what
    for missing in (tmp_path / "none", tmp_path):
        with pytest.raises(InvalidInputError, match="no such file"):
            engine.generator.slot().restore(missing, AbortFlag())


def test_an_abort_leaves_the_file_and_a_full_disk_is_told(
    load: Callable[..., Engine], tmp_path: Path
) -> None:
    engine, file = load(), tmp_path / "slot"
    answered(engine, PROMPT)
    file.write_bytes(b"before")
    abort = AbortFlag()
    abort.set()
    with pytest.raises(EngineError, match="aborted"):
        engine.generator.slot().save(file, abort)
    assert [file.read_bytes()] == [each.read_bytes() for each in tmp_path.iterdir()]
    with pytest.raises(EngineError, match="cannot be saved"):
        engine.generator.slot().save(tmp_path / "none" / "slot", AbortFlag())


def test_a_prompt_is_computed_anew_if_that_is_wanted(load: Callable[..., Engine]) -> None:
    engine = load()
    expected, _ = answered(engine, PROMPT)
    prefill = engine.generator.begin_stream_ex(PROMPT, GREEDY, reuse_prefix=False)
    assert (prefill.n_cached, prefill.reuse.reason) == (
        0, "the request wants the prompt computed anew",
    )  # fmt: skip
    assert answered(engine, PROMPT) == (expected, len(PROMPT) - 1)
