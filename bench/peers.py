"""Compares Soliton with other programs on the same random weights, on this machine.

Each measurement runs in a separate process with pinned threads. The programs take turns, round by
round, so that all see the machine in the same state. Ratios compare medians of the same number of
bits. Nothing else should run on the machine. After `pip install '.[peers]'`:

    python -m bench.peers [--shape 1.1B] [--measure decode] [--peer llama.cpp] [--rounds 5]

`--rounds 0` only converts the models. A program that is missing or fails is reported and left out.

    python -m bench.peers --gguf FILE [--measure decode] [--threads 1] [--rounds 5]

compares Soliton with llama.cpp on a GGUF file as it is, by llama.cpp's own llama-bench, which must
be on the PATH; with one thread and with all, unless `--threads` is given.
"""

import argparse
import json
import os
import platform
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.peer.files import written
from bench.peer.protocol import CONTESTANTS, MEASURES, OF_FILE, REFERENCE, SOLITON, Contestant
from engine import DEFAULT_MODEL, ModelLoadError
from engine.benchmark.shapes import SHAPES, write_model
from engine.device.threads import thread_count

_PEERS = sorted({each.peer for each in CONTESTANTS} - {SOLITON})


class PeerError(Exception):
    """A process ended without a figure; the text says in one line why."""


@dataclass(frozen=True, slots=True)
class Row:
    """Tokens per second of one program, one sample for each round."""

    contestant: Contestant
    samples: tuple[float, ...]

    @property
    def tps(self) -> float:
        return statistics.median(self.samples)


@dataclass(frozen=True, slots=True)
class Ratio:
    """Soliton's median divided by that of a program with the same number of bits."""

    soliton: Row
    peer: Row

    @property
    def value(self) -> float:
        return self.soliton.tps / self.peer.tps


@dataclass(frozen=True, slots=True)
class Table:
    """One measure of one shape: the programs that took turns, and the memory bandwidth."""

    shape: str
    measure: str
    rows: tuple[Row, ...]
    read_bandwidths: tuple[float, ...]
    """Bytes per second of all threads, at the beginning of each round."""


@dataclass(slots=True)
class Runner:
    """Starts the measuring processes."""

    prefix: tuple[str, ...]
    n_threads: int
    timeout_s: float

    def run(self, contestant: Contestant, model: Path, what: str) -> Any:
        """The JSON that the process prints. Raises PeerError."""
        command = [sys.executable, "-m", "bench.peer", contestant.peer, contestant.format]
        command += [str(model), what, str(self.n_threads)]
        # Conversions take longer than any measurement, and run while none does.
        prefix = () if what == "prepare" else self.prefix
        # If a program uses OpenMP, it must not move its threads.
        openmp = {"OMP_PROC_BIND": "close", "OMP_NUM_THREADS": str(self.n_threads)}
        with subprocess.Popen(
            [*prefix, *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[1],
            env=os.environ | openmp,
            start_new_session=True,
        ) as process:
            try:
                output, errors = process.communicate(timeout=self.timeout_s)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                raise PeerError(f"no figure after {self.timeout_s:g} s") from None
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        lines = output.splitlines()
        if process.returncode or not lines:
            last = errors.strip().splitlines() or [f"ended with exit code {process.returncode}"]
            raise PeerError(last[-1])
        return json.loads(lines[-1])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = _parser()
    args = parser.parse_args(arguments)
    try:
        n_threads = thread_count(args.threads)
    except ModelLoadError as error:
        parser.error(f"--threads: {error}")
    if args.gguf and (args.peer or args.bits or args.check):
        parser.error("--gguf: --peer, --bits and --check are for --shape")
    tables = shape_tables(args, n_threads) if args.gguf is None else file_tables(args, n_threads)
    if args.json:
        text = json.dumps(report(tables, n_threads), indent=2)
        args.json.write_text(text + "\n", "utf-8")


def shape_tables(args: argparse.Namespace, n_threads: int) -> list[Table]:
    """All chosen programs on models of the chosen shapes."""
    runner = Runner(tuple(shlex.split(args.prefix)), n_threads, args.timeout)
    contestants = installed(chosen(args.peer, args.bits))
    tables: list[Table] = []
    for shape in args.shape or SHAPES:
        model = written(args.work / shape / "hf", partial(write_model, SHAPES[shape]))
        ready = [each for each in contestants if prepared(runner, each, model)]
        if args.check:
            compare_tokens(runner, ready, model)
        for measure in _measures(args):
            tables.append(take_turns(runner, ready, model, shape, measure, args.rounds))
            print_table(tables[-1])
    return tables


def file_tables(args: argparse.Namespace, most_threads: int) -> list[Table]:
    """Soliton and llama-bench on one file."""
    counts = [most_threads] if args.threads else sorted({1, most_threads})
    tables: list[Table] = []
    for n_threads in counts:
        runner = Runner(tuple(shlex.split(args.prefix)), n_threads, args.timeout)
        title = f"{args.gguf.name}, {n_threads} thread{'s' if n_threads > 1 else ''}"
        for measure in _measures(args):
            # The measuring processes run in another directory.
            file = args.gguf.resolve()
            tables.append(take_turns(runner, OF_FILE, file, title, measure, args.rounds))
            print_table(tables[-1])
    return tables


def _measures(args: argparse.Namespace) -> list[str]:
    return (args.measure or [each.name for each in MEASURES]) if args.rounds else []


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--shape", action="append", choices=list(SHAPES), help="default: all")
    what.add_argument("--gguf", type=Path, metavar="FILE", help="instead of random weights")
    parser.add_argument("--measure", action="append", choices=[each.name for each in MEASURES])
    parser.add_argument("--peer", action="append", choices=_PEERS, help="default: all")
    parser.add_argument("--bits", action="append", type=int, choices=[16, 8, 4])
    parser.add_argument("--rounds", type=_count, default=3)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--check", action="store_true", help="compare greedy tokens first")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument(
        "--work",
        type=Path,
        default=Path(tempfile.gettempdir()) / "soliton-peers",
        help="directory that keeps the models; all of them take 8 GB",
    )
    parser.add_argument(
        "--prefix", default="", help="prefix of each measuring command, such as 'nice -n -5'"
    )
    parser.add_argument("--timeout", type=float, default=900, metavar="SECONDS")
    return parser


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not 0, 1, 2, …")
    return int(text)


def chosen(peers: Sequence[str] | None, bits: Sequence[int] | None) -> list[Contestant]:
    """Soliton and the given peers, in the given numbers of bits; None means all."""
    return [
        each
        for each in CONTESTANTS
        if (each.peer == SOLITON or not peers or each.peer in peers)
        and (not bits or each.bits in bits)
    ]


def installed(contestants: Sequence[Contestant]) -> list[Contestant]:
    """The contestants whose packages are installed. Reports each of the others."""
    there = []
    for each in contestants:
        missing = [package for package in each.packages if find_spec(package) is None]
        if missing:
            print(f"{each.name}: left out, not installed: {', '.join(missing)}")
        else:
            there.append(each)
    return there


def prepared(runner: Runner, contestant: Contestant, model: Path) -> bool:
    """Converts the model if needed. Returns whether that worked, and reports if it did not."""
    if contestant.peer == SOLITON:
        return True
    try:
        runner.run(contestant, model, "prepare")
    except PeerError as error:
        print(f"{contestant.name}: left out, conversion failed: {error}")
        return False
    return True


def compare_tokens(runner: Runner, contestants: Sequence[Contestant], model: Path) -> None:
    """Prints how many greedy tokens match those of Soliton with unquantized weights, up to the
    first difference.
    """
    reference = runner.run(REFERENCE, model, "greedy")
    for each in contestants:
        try:
            token_ids = runner.run(each, model, "greedy")
        except PeerError as error:
            print(f"{each.name}, greedy tokens: {error}")
            continue
        same = [a == b for a, b in zip(token_ids, reference, strict=True)]
        n_equal = same.index(False) if False in same else len(same)
        print(f"{each.name}: the first {n_equal} of {len(reference)} greedy tokens match Soliton's")


def take_turns(
    runner: Runner,
    contestants: Sequence[Contestant],
    model: Path,
    shape: str,
    measure: str,
    n_rounds: int,
) -> Table:
    """A row for each program. A program that fails once is not run again."""
    samples: dict[Contestant, list[float]] = {each: [] for each in contestants}
    bandwidths = []
    for _ in range(n_rounds):
        bandwidths.append(runner.run(REFERENCE, DEFAULT_MODEL, "bandwidth"))
        for each in list(samples):
            try:
                samples[each].append(runner.run(each, model, measure))
            except PeerError as error:
                print(f"{each.name}, {shape}, {measure}: failed: {error}")
                del samples[each]
    rows = tuple(Row(each, tuple(taken)) for each, taken in samples.items())
    return Table(shape, measure, rows, tuple(bandwidths))


def ratios(rows: Sequence[Row]) -> list[Ratio]:
    """Soliton against each program with the same number of bits, in the rows of one table."""
    own = {row.contestant.bits: row for row in rows if row.contestant.peer == SOLITON}
    return [
        Ratio(own[row.contestant.bits], row)
        for row in rows
        if row.contestant.peer != SOLITON and row.contestant.bits in own
    ]


def print_table(table: Table) -> None:
    bandwidths = [each / 1e9 for each in table.read_bandwidths]
    print(f"\n{table.shape}, {table.measure}: tok/s, median (range) of {len(bandwidths)} rounds")
    print(f"  memory reads {statistics.median(bandwidths):.1f} GB/s", end=" ")
    print(f"({min(bandwidths):.1f} to {max(bandwidths):.1f})")
    against = {ratio.peer.contestant: ratio for ratio in ratios(table.rows)}
    for row in table.rows:
        line = f"  {row.contestant.name:<18} {row.tps:>9.1f}"
        line += f"  ({min(row.samples):.1f} to {max(row.samples):.1f})"
        if ratio := against.get(row.contestant):
            line += f"  soliton {ratio.soliton.contestant.format}: {ratio.value:.2f} x"
        print(line, flush=True)


def report(tables: Sequence[Table], n_threads: int) -> dict[str, Any]:
    """What --json writes."""
    return {
        "machine": {
            "cpu": _cpu(),
            "threads": n_threads,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
        },
        "tables": [
            {
                "shape": table.shape,
                "measure": table.measure,
                "read_bandwidth_gbs": statistics.median(table.read_bandwidths) / 1e9,
                "rows": [
                    {
                        "peer": row.contestant.peer,
                        "format": row.contestant.format,
                        "bits": row.contestant.bits,
                        "tps": row.tps,
                        "samples": list(row.samples),
                    }
                    for row in table.rows
                ],
                "ratios": [
                    {
                        "soliton": ratio.soliton.contestant.format,
                        "peer": ratio.peer.contestant.name,
                        "ratio": ratio.value,
                    }
                    for ratio in ratios(table.rows)
                ],
            }
            for table in tables
        ],
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if "model name" in line), "")


if __name__ == "__main__":
    main()
