"""The options that several commands share, and how they are read back. Imports no engine."""

import argparse
from typing import Any

from .terminal import CommandParser

_SAMPLING: dict[str, tuple[type[int] | type[float], str]] = {
    "temperature": (float, "0 is greedy, higher is more surprising"),
    "top_k": (int, "draw from the N most probable tokens only (0: from all)"),
    "top_p": (float, "draw from the most probable tokens that together reach this probability"),
    "min_p": (float, "drop tokens below this fraction of the most probable one's probability"),
    "repetition_penalty": (float, "above 1: tokens that were there before become less likely"),
    "seed": (int, "the same seed gives the same text"),
}


def add_model_arguments(parser: CommandParser) -> None:
    """How a model is loaded: device, number format, context length and threads."""
    group = parser.add_argument_group("model")
    group.add_argument("--device", default="auto", help="auto, cpu or cuda (default: auto)")
    group.add_argument(
        "--dtype", default="auto", help="auto, float32, bfloat16, float16 (default: auto)"
    )
    group.add_argument(
        "--quantize", default="none", help="none, 8bit, 4bit: weights on the CPU (default: none)"
    )
    group.add_argument(
        "--kv-cache",
        default="auto",
        help="auto, float32, bfloat16, 8bit: keys and values on the CPU (default: auto)",
    )
    group.add_argument("--max-seq-len", type=int, metavar="N", help="context length in tokens")
    group.add_argument("--threads", type=int, metavar="N", help="CPU threads")
    group.add_argument(
        "--panel-cache",
        metavar="DIR",
        help="directory for the packed weights of larger models, or off "
        "(default: soliton in the user's cache directory)",
    )


def given_model(args: argparse.Namespace) -> dict[str, Any]:
    """What `add_model_arguments` added, by the names of `load_engine`."""
    from ..settings import default_panel_cache, panel_cache_directory  # not for a remote chat

    names = ("device", "dtype", "quantize", "kv_cache", "max_seq_len", "threads")
    given, wanted = {name: getattr(args, name) for name in names}, args.panel_cache
    cache = default_panel_cache() if wanted is None else panel_cache_directory(wanted)
    return {**given, "panel_cache": cache}


def add_sampling_arguments(parser: CommandParser) -> None:
    """One flag per sampling setting, absent unless given: then the model's own default holds."""
    group = parser.add_argument_group(
        "sampling", "Not given: as the model's generation_config.json."
    )
    for name, (kind, text) in _SAMPLING.items():
        flag = f"--{name.replace('_', '-')}"
        group.add_argument(flag, type=kind, metavar="N" if kind is int else "X", help=text)


def given_sampling(args: argparse.Namespace) -> dict[str, int | float]:
    """The sampling settings that were on the command line, by their names on the wire."""
    values = {name: getattr(args, name) for name in _SAMPLING}
    return {name: value for name, value in values.items() if value is not None}
