"""The figures of `soliton bench`: one row per model and number format.

Owns what is loaded and measured, and in which order. `engine.benchmark` and `bench_http.py` own the
measurements.
"""

import argparse
import os
import platform
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from engine import OWN_DRAFT, Engine, LoadOptions, benchmark

from .bench_http import HttpFigures, measure_http
from .bench_report import Row, print_profile, report
from .local import load_engine
from .model_path import model_path


def measured(
    args: argparse.Namespace, *, shapes: list[str], formats: list[str], parts: list[str]
) -> list[Row]:
    """Measures and prints each model, or each shape, in each format. Raises CommandError."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as temporary:
        directory = (args.shapes_dir or Path(temporary)).resolve()
        for path in _models(args.model, shapes, directory):
            for quantize in formats:
                rows.append(_measure(path, quantize, args, parts, directory / "panels"))
    return rows


def machine() -> dict[str, Any]:
    """Where and when the figures were measured."""
    return {
        "cpu": benchmark.processor_name(),
        "cores": len(os.sched_getaffinity(0)),
        "isa": benchmark.isa(),
        "python": platform.python_version(),
        "system": platform.platform(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


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
        print_profile(benchmark.profile_step(engine.model), overlap=engine.model.ops.is_async)
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
