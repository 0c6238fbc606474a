"""`soliton bench`: how fast a model runs on this machine, next to its memory bandwidth.

Owns the options; `bench_rows.py` measures, and `bench_report.py` owns what is printed. The engine
is imported when the command runs, so that help and mistakes come at once.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .arguments import DEVICES, KV_FORMATS, add_model_argument, at_least
from .terminal import CommandError, CommandParser

# Names of `engine.benchmark`, which loads the engine, and the part that `bench_http.py` measures.
PARTS = ("decode", "depth", "prefill", "ttft", "http")
SHAPES = ("15M", "125M", "1.1B")
_EXAMPLES = """
soliton bench ./qwen3 --quantize none,8bit,5bit
soliton bench --shape 125M --only decode,prefill --json figures.json
"""
_QUANTIZE = ("none", "8bit", "6bit", "5bit", "4bit")


def main(argv: list[str]) -> int:
    """Print one block per model and number format; --json writes them all. Raises CommandError."""
    args = _parser().read(argv)
    parts = _chosen("--only", args.only, PARTS)
    formats = _chosen("--quantize", args.quantize, _QUANTIZE)
    shapes = _chosen("--shape", args.shape, SHAPES) if args.shape else []
    if shapes and args.model:
        raise CommandError("--shape uses random weights: give either --shape or a MODEL, not both")
    # Checked now, not after minutes of measuring.
    if args.json and not args.json.resolve().parent.is_dir():
        raise CommandError(f"--json {args.json}: the directory does not exist")
    from .bench_rows import machine, measured

    rows = measured(args, shapes=shapes, formats=formats, parts=parts)
    if args.json:
        _write(args.json, {"machine": machine(), "rows": rows})
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
        f"{', '.join(SHAPES)}",
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
        help=f"formats to measure, comma-separated: {', '.join(_QUANTIZE)} (default: none)",
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
        default=",".join(PARTS),
        metavar="LIST",
        help=f"parts to measure, comma-separated: {', '.join(PARTS)} (default: all)",
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


def _write(path: Path, result: dict[str, Any]) -> None:
    try:
        path.write_text(json.dumps(result, indent=2) + "\n", "utf-8")
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from error
