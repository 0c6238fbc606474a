"""The options that several commands share, and how they are read back. Imports no engine."""

import argparse
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from .terminal import CommandParser


class _Option(NamedTuple):
    """How a setting reads on the command line."""

    read: Callable[[str], Any] | None  # None: the flag alone, without a value
    metavar: str
    help: str
    repeats: bool = False


def number(text: str) -> float:
    """Like `token_ids`, `names` and `biases` a name that argparse shows with a wrong value."""
    value = float(text)
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text} is not a finite number")
    return value


def token_ids(text: str) -> list[int]:
    return [int(item) for item in text.split(",")]


def names(text: str) -> list[str]:
    return [item.strip() for item in text.split(",")]


def biases(text: str) -> dict[int, float]:
    pairs = (item.split("=") for item in text.split(","))
    return {int(token_id): number(bias) for token_id, bias in pairs}


def _switch(text: str) -> _Option:
    return _Option(None, "", text)


def _real(text: str) -> _Option:
    return _Option(number, "X", text)


def _whole(text: str) -> _Option:
    return _Option(int, "N", text)


# Every setting of the engine, in words; docs/sampling.md has the formulas.
_SAMPLING: dict[str, _Option] = {
    "temperature": _real("0 is greedy, higher is more surprising"),
    "temperature_last": _switch("the temperature acts after the filters"),
    "min_temperature": _real("lowest dynamic temperature"),
    "max_temperature": _real("above the lowest: the temperature follows the entropy"),
    "temperature_exponent": _real("of the entropy, for a dynamic temperature"),
    "smoothing_factor": _real("quadratic sampling (0: off)"),
    "top_k": _whole("draw from the N most probable tokens only (0: from all)"),
    "top_p": _real("draw from the most probable tokens that together reach this probability"),
    "min_p": _real("drop tokens below this fraction of the most probable one's probability"),
    "top_a": _real("drop tokens below this times the square of the largest probability"),
    "top_n_sigma": _real("drop logits this many standard deviations below the largest (0: off)"),
    "tfs": _real("tail-free sampling: the share of the curve's bending that is kept"),
    "typical_p": _real("draw from the tokens of most typical surprise that reach this probability"),
    "skew": _real("above 0 towards the less probable, below 0 towards the more probable"),
    "mirostat": _switch("mirostat 2: hold the surprise constant"),
    "mirostat_tau": _real("mirostat: the surprise in bits"),
    "mirostat_eta": _real("mirostat: how fast it learns"),
    "xtc_probability": _real("how often all top choices but the least are left out"),
    "xtc_threshold": _real("from which probability a token is a top choice"),
    "dry_multiplier": _real("penalty of a token that would prolong a repeat (0: off)"),
    "dry_base": _real("DRY: growth of the penalty per token of the repeat"),
    "dry_allowed_length": _whole("DRY: repeats from this length on are penalized"),
    "dry_range": _whole("DRY: newest tokens that are searched (0: all)"),
    "dry_max_ngram": _whole("DRY: longest repeat that is counted"),
    "dry_sequence_breakers": _Option(
        str, "TEXT", "DRY: no repeat reaches across a token with this text; repeatable", True
    ),
    "repetition_penalty": _real("above 1: tokens that were there before become less likely"),
    "repetition_range": _whole("newest tokens that the penalties see (-1: all)"),
    "repetition_decay": _whole("tokens before these over which the penalties fade"),
    "frequency_penalty": _real("subtracted for every time that a token was generated"),
    "presence_penalty": _real("subtracted once a token was generated"),
    "logit_bias": _Option(biases, "ID=X,…", "values added to the logits of tokens"),
    "allowed_tokens": _Option(token_ids, "ID,…", "the only tokens that may come"),
    "banned_tokens": _Option(token_ids, "ID,…", "tokens that may not come"),
    "sampler_order": _Option(names, "NAME,…", "the order of the stages"),
    "seed": _whole("the same seed gives the same text"),
}


def add_model_arguments(parser: CommandParser) -> None:
    """How a model is loaded: device, number formats, context length, threads, drafts."""
    group = parser.add_argument_group("model")
    group.add_argument("--device", default="auto", help="auto, cpu or cuda (default: auto)")
    group.add_argument(
        "--dtype", default="auto", help="auto, float32, bfloat16, float16 (default: auto)"
    )
    group.add_argument(
        "--quantize", default="none", help="none, 8bit, 4bit: the weights (default: none)"
    )
    group.add_argument(
        "--kv-cache",
        default="auto",
        help="auto, float32 (on the CPU), bfloat16, 8bit: keys and values (default: auto)",
    )
    group.add_argument("--max-seq-len", type=int, metavar="N", help="context length in tokens")
    group.add_argument("--threads", type=int, metavar="N", help="CPU threads")
    group.add_argument(
        "--panel-cache",
        metavar="DIR",
        help="directory for the packed weights of larger models, or off "
        "(default: soliton in the user's cache directory)",
    )
    group.add_argument(
        "--speculate",
        default="off",
        help="off, ngram or draft: guess tokens ahead, which never changes a text (default: off)",
    )
    group.add_argument(
        "--draft-model", metavar="DIR", help="draft model (default: the model's own, if any)"
    )


def add_sampling_arguments(parser: CommandParser) -> None:
    """One flag per sampling setting, absent unless given: then the model's own default holds."""
    group = parser.add_argument_group(
        "sampling", "Not given: as the model's generation_config.json."
    )
    for name, option in _SAMPLING.items():
        flag = f"--{name.replace('_', '-')}"
        if option.read is None:
            group.add_argument(flag, action="store_true", default=None, help=option.help)
        else:
            group.add_argument(
                flag,
                type=option.read,
                action="append" if option.repeats else "store",
                metavar=option.metavar,
                help=option.help,
            )


def given_sampling(args: argparse.Namespace) -> dict[str, Any]:
    """The sampling settings that were on the command line, by their names."""
    values = {name: getattr(args, name) for name in _SAMPLING}
    return {name: value for name, value in values.items() if value is not None}
