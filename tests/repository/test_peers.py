"""bench/peers.py without any peer: options, missing packages, failures, turns and ratios."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from bench import peers
from bench.peer.files import written
from bench.peer.llama_bench import LlamaBench
from bench.peer.protocol import Contestant

OWN_8, OWN_4 = Contestant("soliton", "8bit", 8), Contestant("soliton", "4bit", 4)
RIVAL_8, RIVAL_4 = Contestant("rival", "Q8", 8), Contestant("rival", "Q4", 4)


class FakeRunner(peers.Runner):
    """Hands out figures in the order of the calls; an exception among them is raised."""

    def __init__(self, figures: dict[str, list[Any]]) -> None:
        super().__init__((), 1, 1.0)
        self.calls: list[str] = []
        self.figures = figures

    def run(self, contestant: Contestant, model: Path, what: str) -> Any:
        if what == "bandwidth":
            return 20e9
        self.calls.append(contestant.name)
        figure = self.figures[contestant.name].pop(0)
        if isinstance(figure, Exception):
            raise figure
        return figure


def turns(figures: dict[str, list[Any]], contestants: list[Contestant]) -> peers.Table:
    return peers.take_turns(
        FakeRunner(figures), contestants, Path("hf"), "15M", "decode", n_rounds=3
    )


def test_ratios_compare_medians_of_equal_bits() -> None:
    rows = [
        peers.Row(OWN_8, (100.0, 300.0, 200.0)),
        peers.Row(RIVAL_8, (50.0, 80.0, 400.0)),
        peers.Row(RIVAL_4, (1.0,)),
    ]
    (ratio,) = peers.ratios(rows)
    assert ratio.peer.contestant == RIVAL_8
    assert ratio.value == 200 / 80


def test_programs_take_turns_and_one_that_fails_is_not_asked_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    failing = [peers.PeerError("out of memory")]
    runner = FakeRunner({"soliton 8bit": [10.0, 30.0, 20.0], "rival Q8": failing})
    table = peers.take_turns(runner, [OWN_8, RIVAL_8], Path("hf"), "15M", "decode", n_rounds=3)
    assert runner.calls == ["soliton 8bit", "rival Q8", "soliton 8bit", "soliton 8bit"]
    assert [(row.contestant, row.tps) for row in table.rows] == [(OWN_8, 20.0)]
    assert table.read_bandwidths == (20e9,) * 3
    assert capsys.readouterr().out == "rival Q8, 15M, decode: failed: out of memory\n"


def test_the_table_shows_medians_and_ratios(capsys: pytest.CaptureFixture[str]) -> None:
    figures = {"soliton 8bit": [30.0, 10.0, 20.0], "rival Q8": [16.0, 16.0, 15.0]}
    peers.print_table(turns(figures, [OWN_8, RIVAL_8]))
    title, memory, own, rival = capsys.readouterr().out.lstrip().splitlines()
    assert title == "15M, decode: tok/s, median (range) of 3 rounds"
    assert memory == "  memory reads 20.0 GB/s (20.0 to 20.0)"
    assert " ".join(own.split()) == "soliton 8bit 20.0 (10.0 to 30.0)"
    assert " ".join(rival.split()) == "rival Q8 16.0 (15.0 to 16.0) soliton 8bit: 1.25 x"


def test_the_report_is_json() -> None:
    figures = {"soliton 4bit": [3.0, 1.0, 2.0], "rival Q4": [4.0, 4.0, 4.0]}
    report = json.loads(json.dumps(peers.report([turns(figures, [OWN_4, RIVAL_4])], 2)))
    assert report["machine"]["threads"] == 2
    (table,) = report["tables"]
    assert (table["shape"], table["measure"]) == ("15M", "decode")
    assert table["read_bandwidth_gbs"] == 20.0
    assert table["rows"][0]["samples"] == [3.0, 1.0, 2.0]
    assert table["ratios"] == [{"soliton": "4bit", "peer": "rival Q4", "ratio": 0.5}]


def test_a_missing_package_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def find_spec(name: str) -> object | None:
        return None if name in ("llama_cpp", "gguf") else object()

    monkeypatch.setattr(peers, "find_spec", find_spec)
    there = peers.installed(peers.chosen(["llama.cpp"], [8]))
    assert [each.name for each in there] == ["soliton 8bit"]
    assert capsys.readouterr().out == "llama.cpp Q8_0: left out, not installed: llama_cpp, gguf\n"


def test_a_process_that_fails_says_its_last_line() -> None:
    runner = peers.Runner((), 1, 60.0)
    with pytest.raises(peers.PeerError, match="no program 'nobody'"):
        runner.run(Contestant("nobody", "none", 8), Path("hf"), "decode")


@pytest.mark.skipif(
    importlib.util.find_spec("llama_cpp") is not None, reason="llama_cpp is installed"
)
def test_a_peer_that_cannot_be_imported_is_named() -> None:
    runner = peers.Runner((), 1, 60.0)
    with pytest.raises(peers.PeerError, match="llama_cpp"):
        runner.run(Contestant("llama.cpp", "Q8_0", 8), Path("hf"), "prepare")


# Answers like llama-bench, at a speed that tells which arguments it got.
LLAMA_BENCH = """#!/bin/sh
echo "$*" >> "$(dirname "$0")/calls"
case "$*" in
*missing*) echo "error: no such file" >&2; exit 1 ;;
*"-n 0"*) echo '[{"avg_ts": 512.0}]' ;;
*) echo '[{"avg_ts": 4.0}]' ;;
esac
"""


@pytest.fixture
def llama_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program on the PATH; the file next to it has its arguments."""
    program = tmp_path / "llama-bench"
    program.write_text(LLAMA_BENCH)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return tmp_path / "calls"


def test_llama_bench_gets_the_lengths_and_gives_seconds(llama_bench: Path) -> None:
    bench = LlamaBench(Path("model.gguf"), n_threads=2)
    assert bench.prefill([1] * 256) == 0.5
    assert bench.decode([1] * 16, 128) == 0.25
    prefill, decode = llama_bench.read_text().splitlines()
    assert prefill == "-m model.gguf -t 2 -r 1 -o json -p 256 -n 0 -d 0"
    assert decode == "-m model.gguf -t 2 -r 1 -o json -p 0 -n 128 -d 16"


@pytest.mark.usefixtures("llama_bench")
def test_llama_bench_that_fails_says_why() -> None:
    with pytest.raises(SystemExit, match="llama-bench: error: no such file"):
        LlamaBench(Path("missing.gguf"), n_threads=1).prefill([1])


@pytest.mark.usefixtures("llama_bench")
def test_a_file_is_measured_with_one_thread_and_with_all(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = []

    def run(self: peers.Runner, contestant: Contestant, model: Path, what: str) -> float:
        if what == "bandwidth":
            return 20e9
        calls.append((contestant.peer, model.is_absolute(), what, self.n_threads))
        return 10.0 if contestant.peer == "soliton" else 4.0

    monkeypatch.setattr(peers.Runner, "run", run)
    monkeypatch.setattr(peers, "thread_count", lambda n: n or 2)
    peers.main(["--gguf", "some.gguf", "--measure", "decode", "--rounds", "2"])
    turns = [("soliton", True, "decode"), ("llama-bench", True, "decode")] * 2
    assert calls == [(*turn, n) for n in (1, 2) for turn in turns]
    printed = capsys.readouterr().out
    assert "some.gguf, 1 thread, decode" in printed
    assert "some.gguf, 2 threads, decode" in printed
    assert printed.count("soliton none: 2.50 x") == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--shape", "7B"], "invalid choice: '7B'"),
        (["--peer", "nobody"], "invalid choice: 'nobody'"),
        (["--bits", "3"], "invalid choice: 3"),
        (["--threads", "0"], "must be 1 to 256, not 0"),
        (["--rounds", "-1"], "'-1' is not 0, 1, 2"),
        (["--rounds", "few"], "'few' is not 0, 1, 2"),
        (["--gguf", "a.gguf", "--shape", "15M"], "not allowed with argument"),
        (["--gguf", "a.gguf", "--bits", "4"], "--peer, --bits and --check are for --shape"),
    ],
)
def test_wrong_options_are_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        peers.main(arguments)
    assert exit_.value.code == 2
    assert message in capsys.readouterr().err


def test_a_conversion_that_breaks_off_leaves_nothing_under_its_name(tmp_path: Path) -> None:
    target = tmp_path / "Q8_0.gguf"

    def half(path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        written(target, half)
    assert not target.exists()

    def whole(path: Path) -> None:
        path.write_bytes(b"whole")

    assert written(target, whole) == target
    assert written(target, half).read_bytes() == b"whole"
