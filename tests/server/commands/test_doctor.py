"""`soliton doctor`: what it finds on this machine, and its advice for others."""

import dataclasses
import json
from pathlib import Path

import pytest

from engine import benchmark
from server.__main__ import main
from server.commands.doctor_advice import (
    Findings,
    FormatFigures,
    KeptWeights,
    ModelFigures,
    advice,
)


@pytest.fixture
def quiet() -> Findings:
    """A machine on which nothing is to be improved."""
    machine = benchmark.Machine(
        processor="Otter 9000",
        isa="avx2",
        isas=("avx2", "baseline"),
        native_missing="",
        n_processors=8,
        limit=8.0,
        n_threads=7,
        load=0.1,
        caches=(),
        free_bytes=8 * 10**9,
        large_pages="madvise",
        has_driver=False,
        cuda_missing="",
    )
    kept = KeptWeights(Path("/cache"), n_bytes=0, free_bytes=10**10, is_writable=True)
    return Findings(
        machine, {1: 2e10, 7: 4e10}, kept, n_connections=1024, wanted_connections=1024, model=None
    )


def model(*formats: tuple[str, int, int]) -> ModelFigures:
    """A model from (format, bytes of memory, bytes read for each token)."""
    figures = (FormatFigures(*each, most_tokens=None) for each in formats)
    return ModelFigures("otter", 4096, tuple(figures))


def on(findings: Findings, **changed: object) -> list[str]:
    """What is found on another machine."""
    machine = dataclasses.replace(findings.machine, **changed)  # type: ignore[arg-type]
    return [each.found for each in advice(dataclasses.replace(findings, machine=machine))]


def test_it_describes_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    labels = {line[:15].strip() for line in capsys.readouterr().out.splitlines()}
    assert {"processor", "kernels", "threads", "caches", "memory is read", "GPU"} <= labels


def test_as_json_it_has_the_same(tiny_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", str(tiny_model), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    machine = found["machine"]
    assert machine["isa"] in machine["isas"]
    assert machine["n_threads"] in [each["n_threads"] for each in found["read_rates"]]
    rates = [each["bytes_per_second"] for each in found["read_rates"]]
    assert min(rates) > 0
    default = found["model"]["formats"][0]
    assert default["most_tokens"] == pytest.approx(max(rates) / default["step_bytes"])
    assert all({"found", "do"} == set(each) for each in found["advice"])


def test_no_model_gives_a_clear_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "/no/such/model"]) == 2
    assert "/no/such/model: does not exist" in capsys.readouterr().err


def test_where_nothing_is_wrong_nothing_is_advised(quiet: Findings) -> None:
    assert advice(quiet) == []


def test_what_slows_a_machine_down_is_named(quiet: Findings) -> None:
    assert "kernels are missing (no such file)" in on(quiet, native_missing="no such file")[0]
    assert "vector instructions" in on(quiet, isa="baseline")[0]
    assert "torch is missing" in on(quiet, has_driver=True, cuda_missing="torch is missing")[0]
    assert "2.0 programs computed" in on(quiet, load=2.0)[0]
    assert "7.5 processors" in on(quiet, limit=7.5)[0]
    assert "no large pages" in on(quiet, large_pages="never")[0]


def test_limits_are_named(quiet: Findings, tmp_path: Path) -> None:
    few = dataclasses.replace(quiet, n_connections=200)
    assert "200 connections, of 1,024" in advice(few)[0].found
    kept = KeptWeights(tmp_path, n_bytes=0, free_bytes=0, is_writable=False)
    assert str(tmp_path) in advice(dataclasses.replace(quiet, cache=kept))[0].found


@pytest.mark.parametrize(
    ("formats", "do"),
    [
        ([("bfloat16", 10**9, 10**9), ("8bit", 6 * 10**8, 5 * 10**8)], "--quantize 8bit reads"),
        ([("bfloat16", 10**10, 10**10), ("8bit", 5 * 10**9, 10**9)], "--quantize 8bit takes"),
        ([("bfloat16", 10**11, 10**11), ("8bit", 5 * 10**10, 10**10)], "Take a smaller model"),
    ],
)
def test_a_format_that_fits_is_advised(
    quiet: Findings, formats: list[tuple[str, int, int]], do: str
) -> None:
    [one] = advice(dataclasses.replace(quiet, model=model(*formats)))
    assert one.do.startswith(do)


def test_a_model_in_few_bits_is_left_alone(quiet: Findings) -> None:
    stored = model(("stored", 10**9, 10**9))
    assert advice(dataclasses.replace(quiet, model=stored)) == []
