"""`soliton doctor`: what this machine offers, how fast it reads memory, and what would be faster.

Owns the options and what is printed; `doctor_advice.py` owns the advice, and `engine.benchmark`
asks the machine. The engine is imported when the command runs, so that help and mistakes come at
once.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .terminal import CommandParser

if TYPE_CHECKING:
    from .doctor_advice import Findings

_EXAMPLES = """
soliton doctor
soliton doctor smollm2
soliton doctor ./qwen3 --json
"""


def main(argv: list[str]) -> int:
    """Print what was found and what would be faster. Returns 0. Raises CommandError."""
    parser = CommandParser(
        prog="soliton doctor",
        usage="[MODEL] [OPTION …]",
        description="Look at this machine: instruction set, threads, memory and how fast it is\n"
        "read, caches, limits, and what would make a server faster. With a MODEL, also how\n"
        "many tokens a second its size allows. Takes a second; nothing is changed.",
        examples=_EXAMPLES,
    )
    parser.add_argument(
        "model",
        nargs="?",
        metavar="MODEL",
        help="GGUF file, directory of a Hugging Face model, ORG/NAME on the Hub, or smollm2",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.read(argv)
    from .doctor_advice import advice, examine
    from .local import engine_errors
    from .model_path import model_path

    path = None if args.model is None else model_path(args.model)
    with engine_errors():
        findings = examine(path)
    todo = advice(findings)
    if args.json:
        print(
            json.dumps(_as_json(findings) | {"advice": [asdict(each) for each in todo]}, indent=2)
        )
        return 0
    for label, text in _lines(findings):
        print(f"{label:<15} {text}")
    print()
    print("What would make it faster:" if todo else "Nothing was found that would make it faster.")
    for each in todo:
        print(f"- {each.found}\n  {each.do}")
    return 0


def _lines(findings: "Findings") -> Iterator[tuple[str, str]]:
    """Labels and texts."""
    machine = findings.machine
    yield "processor", f"{machine.processor}, {_processors(findings)}"
    built = f", of {', '.join(machine.isas)}" if machine.isas[1:] else ""
    yield "kernels", f"{machine.isa}{built}" if machine.isa else f"none: {machine.native_missing}"
    yield "threads", f"{machine.n_threads} compute by default"
    yield "caches", ", ".join(_cache(findings)) or "the system does not say"
    yield "free memory", _size(machine.free_bytes)
    if findings.read_rates:
        rates = (f"{_rate(rate)} by {_threads(n)}" for n, rate in findings.read_rates.items())
        yield "memory is read", "; ".join(rates)
    yield "large pages", machine.large_pages or "the system does not say"
    yield "GPU", _gpu(findings)
    kept = findings.cache
    yield (
        "packed weights",
        "are not kept: no home directory"
        if kept is None
        else (f"{kept.directory}, {_size(kept.n_bytes)}; {_size(kept.free_bytes)} free"),
    )
    yield "connections", f"{findings.n_connections:,} at most, by the limit on open files"
    if model := findings.model:
        yield "model", f"{model.name}, with a context of {model.n_tokens:,} tokens"
        for each in model.formats:
            speed = f", {each.most_tokens:,.0f} tokens/s at most" if each.most_tokens else ""
            yield (
                f"  {each.format}",
                f"{_size(each.memory_bytes)} of memory, {_size(each.step_bytes)} read per token"
                f"{speed}",
            )


def _processors(findings: "Findings") -> str:
    machine = findings.machine
    limit = "" if machine.limit is None else f", limited to the time of {machine.limit:g}"
    return f"{machine.n_processors} may be used{limit}"


def _cache(findings: "Findings") -> Iterator[str]:
    for cache in findings.machine.caches:
        shared = f" for {cache.n_sharing} processors" if cache.n_sharing > 1 else ""
        yield f"L{cache.level} {cache.n_bytes // 1024:,} KiB{shared}"


def _gpu(findings: "Findings") -> str:
    if not findings.machine.has_driver:
        return "no NVIDIA driver"
    missing = findings.machine.cuda_missing
    return f"cannot be used: {missing}" if missing else "NVIDIA"


def _threads(n: int) -> str:
    return "one thread" if n == 1 else f"{n} threads"


def _rate(bytes_per_second: float) -> str:
    return f"{bytes_per_second / 1e9:.1f} GB/s"


def _size(n_bytes: int | None) -> str:
    return "the system does not say" if n_bytes is None else f"{n_bytes / 1e9:.2f} GB"


def _as_json(findings: "Findings") -> dict[str, Any]:
    found = asdict(findings)
    found["read_rates"] = [
        {"n_threads": n, "bytes_per_second": rate} for n, rate in findings.read_rates.items()
    ]
    return {name: _plain(value) for name, value in found.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return str(value) if isinstance(value, Path) else value
