"""`soliton bench`: how fast a model runs on this machine, next to its memory bandwidth.

Owns the options, the order of the rows and their layout. `engine.benchmark` and `bench_http.py` own
the measurements.
"""

import argparse
import json
import os
import platform
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from engine import OWN_DRAFT, Engine, LoadOptions, benchmark

from .arguments import DEVICES, KV_FORMATS, add_model_argument, at_least
from .bench_http import HttpFigures, measure_http
from .local import load_engine
from .model_path import model_path
from .terminal import CommandError, CommandParser

_PARTS = (*benchmark.PARTS, "http")
_EXAMPLES = """
soliton bench ./qwen3 --quantize none,8bit,4bit
soliton bench --shape 125M --only decode,prefill --json figures.json
"""
_QUANTIZE = ("none", "8bit", "4bit")
_CPU_INFO = Path("/proc/cpuinfo")
# Label, key of the row, format of the value.
_LINES = (
    ("memory reads", "read_bandwidth_gbs", "{:.1f} GB/s"),
    ("reads of a step's size, cached", "read_bandwidth_gbs_same_size", "{:.1f} GB/s"),
    ("decode", "decode_tps", "{:,.1f} tok/s"),
    ("  share of memory reads", "bandwidth_fraction", "{:.0%}"),
    ("  without sampler and text", "pass_tps", "{:,.1f} tok/s"),
    ("decode at depth 2048", "decode_tps_2048", "{:,.1f} tok/s"),
    ("  more per token", "added_ms_2048", "{:.3f} ms"),
    ("prefill of 512 tokens", "prefill_tps_512", "{:,.0f} tok/s"),
    ("prefill of 2048 tokens", "prefill_tps_2048", "{:,.0f} tok/s"),
    ("first token after 1024, cold", "ttft_cold_ms", "{:.1f} ms"),
    ("first token after 1024, cached", "ttft_cached_ms", "{:.1f} ms"),
    ("copied text, n-gram drafts", "copy_tps", "{:,.1f} tok/s"),
    ("  times plain decoding", "copy_speedup", "{:.2f}"),
    ("random text, times plain", "undraftable_speedup", "{:.3f}"),
    ("own text, draft model, times plain", "draft_model_speedup", "{:.2f}"),
    ("  tokens per pass", "draft_model_tokens_per_pass", "{:.2f}"),
    ("server ready after", "startup_s", "{:.2f} s"),
    ("server's resident memory", "rss_mb", "{:.0f} MB"),
    ("over HTTP", "http_tps", "{:,.1f} tok/s"),
    ("  tokens per received block", "http_tokens_per_block", "{:.1f}"),
    ("  more per token", "http_added_us", "{:.0f} us"),
    ("over HTTP with 5 logprobs", "http_logprobs_tps", "{:,.1f} tok/s"),
    ("  more per token", "http_logprobs_added_us", "{:.0f} us"),
)
# A difference -> its lowest round. Not above 0, the difference is lost in the noise.
_LOWEST = {
    "added_ms_2048": "added_ms_2048",
    "http_added_us": "http_added_low_us",
    "http_logprobs_added_us": "http_logprobs_added_low_us",
}

Row = dict[str, Any]


def main(argv: list[str]) -> int:
    """Print one block per model and number format; --json writes them all. Raises CommandError."""
    args = _parser().read(argv)
    parts = _chosen("--only", args.only, _PARTS)
    formats = _chosen("--quantize", args.quantize, _QUANTIZE)
    shapes = _chosen("--shape", args.shape, tuple(benchmark.SHAPES)) if args.shape else []
    if shapes and args.model:
        raise CommandError("--shape uses random weights: give either --shape or a MODEL, not both")
    # Checked now, not after minutes of measuring.
    if args.json and not args.json.resolve().parent.is_dir():
        raise CommandError(f"--json {args.json}: the directory does not exist")
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as temporary:
        directory = (args.shapes_dir or Path(temporary)).resolve()
        for path in _models(args.model, shapes, directory):
            for quantize in formats:
                rows.append(_measure(path, quantize, args, parts, directory / "panels"))
    if args.json:
        _write(args.json, {"machine": _machine(), "rows": rows})
    return 0


def _parser() -> CommandParser:
    parser = CommandParser(
        prog="soliton bench",
        usage="[MODEL] [OPTION …]",
        description="Measure decode, prefill, first token and serving of a model on this machine,\n"
        "next to its read bandwidth. Nothing else should run on the machine.",
        examples=_EXAMPLES,
    )
    add_model_argument(parser)
    parser.add_argument(
        "--shape",
        metavar="LIST",
        help="random weights of these shapes instead of a model, comma-separated: "
        f"{', '.join(benchmark.SHAPES)}",
    )
    parser.add_argument(
        "--shapes-dir",
        type=Path,
        metavar="DIR",
        help="keep the random weights there and reuse them (default: a temporary directory)",
    )
    parser.add_argument(
        "--quantize",
        default="none",
        metavar="LIST",
        help="formats to measure, comma-separated: none, 8bit, 4bit (default: none)",
    )
    parser.add_argument(
        "--kv-cache",
        default="auto",
        metavar=KV_FORMATS,
        help="format of keys and values; float32 on the CPU only (default: auto)",
    )
    parser.add_argument(
        "--device", default="auto", metavar=DEVICES, help="device to run on (default: auto)"
    )
    parser.add_argument(
        "--threads", type=at_least(1), metavar="N", help="CPU threads (default: all cores)"
    )
    parser.add_argument(
        "--only",
        default=",".join(_PARTS),
        metavar="LIST",
        help=f"parts to measure, comma-separated: {', '.join(_PARTS)} (default: all)",
    )
    parser.add_argument(
        "--rounds",
        type=at_least(1),
        default=5,
        metavar="N",
        help="rounds per figure, which is their median (default: 5)",
    )
    parser.add_argument(
        "--tokens",
        type=at_least(2),
        default=256,
        metavar="N",
        help="most tokens of a stream (default: 256)",
    )
    parser.add_argument(
        "--buffer-mb",
        type=at_least(1),
        default=1000,
        metavar="MB",
        help="MB read to measure the memory bandwidth; must be far more than the caches hold "
        "(default: 1000)",
    )
    parser.add_argument(
        "--speculate", action="store_true", help="also measure speculative decoding"
    )
    parser.add_argument(
        "--profile", action="store_true", help="also print the time of each op in a decode step"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to FILE")
    return parser


def _chosen(flag: str, text: str, allowed: Sequence[str]) -> list[str]:
    """The items of a comma-separated list. Raises CommandError for an unknown one."""
    items = [item.strip() for item in text.split(",")]
    for item in items:
        if item not in allowed:
            raise CommandError(f"{flag} takes a list of {', '.join(allowed)}, not {item!r}")
    return items


def _models(model: str | None, shapes: list[str], shapes_dir: Path) -> Iterator[Path]:
    """The directory of each model. Models of a shape are written when their turn comes."""
    if not shapes:
        yield model_path(model).resolve()
    for name in shapes:
        path = shapes_dir / name
        if not (path / "model.safetensors").exists():
            benchmark.write_model(benchmark.SHAPES[name], path)
        yield path


def _measure(
    path: Path,
    quantize: str,
    args: argparse.Namespace,
    parts: list[str],
    panel_cache: Path,
) -> Row:
    """Measures one model in one format. The server reuses the packed weights that the engine of
    this process leaves in `panel_cache`.
    """

    def load(speculate: str = "off") -> Engine:
        options = LoadOptions(
            device=args.device,
            quantize=quantize,
            kv_cache=args.kv_cache,
            n_threads=args.threads,
            panel_cache=panel_cache,
            speculate=speculate,
        )
        return load_engine(path, options)

    engine = load()
    reader = benchmark.open_reader(engine.model.ops, args.buffer_mb * 10**6)
    if reader is None:
        print(f"{engine.model.ops.name}: only the native CPU ops measure the read bandwidth")
    plan = benchmark.Plan(parts=frozenset(parts), rounds=args.rounds, n_tokens=args.tokens)
    figures = benchmark.measure(engine, reader, plan)
    del reader  # a gigabyte
    served = HttpFigures()
    if "http" in parts:
        options = [str(path), "--device", args.device, "--quantize", quantize]
        options += ["--kv-cache", args.kv_cache, "--panel-cache", str(panel_cache)]
        if args.threads is not None:
            options += ["--threads", str(args.threads)]
        served = measure_http(engine, options, rounds=args.rounds, n_tokens=args.tokens)
    drafted = benchmark.SpeculationFigures()
    if args.speculate:
        drafted = _speculation(load, path, rounds=args.rounds, n_tokens=args.tokens)
    row = {
        "shape": engine.model_id,
        "quantize": quantize,
        **asdict(figures),
        **asdict(drafted),
        **asdict(served),
    }
    why_missing = _why_missing(engine.max_seq_len, parts, args.tokens)
    if args.speculate and not (path / OWN_DRAFT).is_dir():
        why_missing["draft_model_speedup"] = "the model has no draft model"
    print(*report(row, why_missing), sep="\n", flush=True)
    if args.profile:
        _print_profile(benchmark.profile_step(engine.model))
    return row


def _speculation(
    load: Callable[[str], Engine], path: Path, *, rounds: int, n_tokens: int
) -> benchmark.SpeculationFigures:
    figures = benchmark.measure_ngrams(load("ngram"), rounds=rounds, n_tokens=n_tokens)
    if (path / OWN_DRAFT).is_dir():
        figures |= benchmark.measure_draft_model(load("draft"), rounds=rounds, n_tokens=n_tokens)
    return benchmark.SpeculationFigures(**figures)


def _why_missing(context: int, parts: list[str], n_tokens: int) -> dict[str, str]:
    """Why figures that were asked for cannot be measured: the context has no room for them."""
    needed = {
        "decode_tps_2048": ("depth", benchmark.DEPTH + n_tokens),
        "prefill_tps_512": ("prefill", 512),
        "prefill_tps_2048": ("prefill", 2048),
        "ttft_cold_ms": ("ttft", 1025),
        "ttft_cached_ms": ("ttft", 1025),
    }
    return {
        key: f"the context has {context:,} tokens"
        for key, (part, n) in needed.items()
        if part in parts and n > context
    }


def report(row: Row, why_missing: Mapping[str, str]) -> Iterator[str]:
    """The lines about one model in one format. `why_missing`: of figures that do not apply."""
    yield (
        f"{row['shape']}, quantize {row['quantize']}: {row['n_params']:,} parameters as "
        f"{row['format']}, {row['bytes_per_token'] / 1e6:.1f} MB per token, {row['ops']}, "
        f"{row['threads']} threads"
    )
    for label, key, layout in _LINES:
        if key in why_missing:
            yield f"  {label:<34} {'not measured':>15}: {why_missing[key]}"
        elif row[key] is not None:
            is_noise = key in _LOWEST and row[_LOWEST[key]] <= 0
            yield f"  {label:<34} {'within noise' if is_noise else layout.format(row[key]):>15}"


def _print_profile(ops: Sequence[benchmark.OpShare]) -> None:
    if not ops:
        print("  no profile: only native ops record their times")
        return
    total = sum(op.us for op in ops)
    print(f"  the ops of a decode step take {total:.0f} us in all:")
    for op in ops:
        rate = f"{op.n_bytes / op.us / 1e3:.1f} GB/s" if op.n_bytes else ""
        print(
            f"    {op.count:>3} x {op.name:<32} {op.us:>9.1f} us {op.us / total:>6.1%} {rate:>12}"
        )


def _machine() -> dict[str, Any]:
    cpu = re.search(r"^model name\s*:\s*(.+)$", _CPU_INFO.read_text("utf-8"), re.MULTILINE)
    return {
        "cpu": cpu[1] if cpu else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "isa": benchmark.isa(),
        "python": platform.python_version(),
        "system": platform.platform(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _write(path: Path, result: dict[str, Any]) -> None:
    try:
        path.write_text(json.dumps(result, indent=2) + "\n", "utf-8")
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from error
