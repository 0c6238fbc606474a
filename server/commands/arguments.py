"""The options that several commands share, and how to read them back. Imports no engine."""

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from .terminal import CommandError, CommandParser

# The allowed values, as the help shows them. The engine checks them.
DEVICES = "auto|cpu|cuda"
DTYPES = "auto|float32|bfloat16|float16"
QUANTIZATIONS = "none|8bit|6bit|5bit|4bit"
KV_FORMATS = "auto|float32|bfloat16|8bit|k8v4|4bit"
DRAFTS = "off|ngram|draft|mtp|eagle"


class _Option(NamedTuple):
    """A sampling setting as a command-line option."""

    read: Callable[[str], Any] | None  # None: a flag without a value
    metavar: str
    help: str
    repeats: bool = False


def number(text: str) -> float:
    """A finite number."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"must be a finite number, not {text!r}")
    return value


def whole(text: str) -> int:
    """A whole number."""
    try:
        return int(text)
    except ValueError:
        message = f"must be a whole number, not {text!r}"
        raise argparse.ArgumentTypeError(message) from None


def at_least(low: int) -> Callable[[str], int]:
    """Reads a whole number from `low` on."""

    def read(text: str) -> int:
        if (value := whole(text)) < low:
            raise argparse.ArgumentTypeError(f"must be {low} or more, not {value}")
        return value

    return read


def token_ids(text: str) -> list[int]:
    try:
        return [int(item) for item in text.split(",")]
    except ValueError:
        message = f"must be token ids with commas between them, such as 5,7, not {text!r}"
        raise argparse.ArgumentTypeError(message) from None


def names(text: str) -> list[str]:
    return [item.strip() for item in text.split(",")]


def biases(text: str) -> dict[int, float]:
    try:
        pairs = [item.split("=") for item in text.split(",")]
        return {int(token_id): number(bias) for token_id, bias in pairs}
    except ValueError:
        message = f"must be token ids with their values, such as 5=-1.5,7=2, not {text!r}"
        raise argparse.ArgumentTypeError(message) from None


def _switch(text: str) -> _Option:
    return _Option(None, "", text)


def _real(text: str) -> _Option:
    return _Option(number, "X", text)


def _whole(text: str) -> _Option:
    return _Option(whole, "N", text)


_ON_OFF = {"on": True, "true": True, "yes": True, "off": False, "false": False, "no": False}

# Every sampling setting of the engine; docs/sampling.md has the formulas.
_SAMPLING: dict[str, _Option] = {
    "temperature": _real("randomness; 0 is greedy"),
    "temperature_last": _switch("apply the temperature after the filters"),
    "min_temperature": _real("dynamic temperature: lower bound"),
    "max_temperature": _real(
        "dynamic temperature: upper bound; above the lower one, the temperature follows the entropy"
    ),
    "temperature_exponent": _real("dynamic temperature: exponent of the entropy"),
    "smoothing_factor": _real("quadratic sampling (0: off)"),
    "top_k": _whole("keep only the N most probable tokens (0: all)"),
    "top_p": _real("keep the most probable tokens that together reach this probability"),
    "min_p": _real("drop tokens below this fraction of the largest probability"),
    "top_a": _real("drop tokens below this times the square of the largest probability"),
    "top_n_sigma": _real("drop logits this many standard deviations below the largest (0: off)"),
    "tfs": _real("tail-free sampling: the share of the curvature that is kept"),
    "typical_p": _real("keep the most typical tokens that together reach this probability"),
    "skew": _real("above 0 favours less probable tokens, below 0 more probable ones"),
    "mirostat": _switch("mirostat 2: keep the surprise constant"),
    "mirostat_tau": _real("mirostat: target surprise in bits"),
    "mirostat_eta": _real("mirostat: learning rate"),
    "xtc_probability": _real(
        "XTC: how often all top choices except the least probable are removed"
    ),
    "xtc_threshold": _real("XTC: probability from which a token is a top choice"),
    "dry_multiplier": _real("DRY: penalty for a token that would extend a repeat (0: off)"),
    "dry_base": _real("DRY: growth of the penalty per token of the repeat"),
    "dry_allowed_length": _whole("DRY: shortest repeat that is penalized"),
    "dry_range": _whole("DRY: how many recent tokens are searched (0: all)"),
    "dry_max_ngram": _whole("DRY: longest repeat that is counted"),
    "dry_sequence_breakers": _Option(
        str, "TEXT", "DRY: repeats do not extend across a token with this text; repeatable", True
    ),
    "repetition_penalty": _real("above 1: tokens that already occurred become less likely"),
    "repetition_range": _whole("how many recent tokens the penalties cover (-1: all)"),
    "repetition_decay": _whole("how many tokens before these the penalties fade over"),
    "frequency_penalty": _real("subtracted for each time that a token was generated"),
    "presence_penalty": _real("subtracted if a token was generated at all"),
    "logit_bias": _Option(biases, "ID=X,…", "values added to the logits of tokens"),
    "allowed_tokens": _Option(token_ids, "ID,…", "the only tokens that may be generated"),
    "banned_tokens": _Option(token_ids, "ID,…", "tokens that may not be generated"),
    "sampler_order": _Option(names, "NAME,…", "the order of the stages"),
    "seed": _whole("the same seed gives the same text"),
}


def sampling_names() -> tuple[str, ...]:
    """All settings, in the order of the help."""
    return tuple(_SAMPLING)


def sampling_help(name: str) -> str:
    return _SAMPLING[name].help


def read_sampling(name: str, text: str) -> Any:
    """The value of a setting that is written as words: that of its option, `on` or `off` for a
    switch, and several texts with spaces between them (\\n and \\t for these). Raises CommandError.
    """
    option = _SAMPLING[name]
    if option.read is None:
        if text.lower() not in _ON_OFF:
            raise CommandError(f"{name} must be on or off, not {text!r}")
        return _ON_OFF[text.lower()]
    try:
        if option.repeats:
            return [each.replace("\\n", "\n").replace("\\t", "\t") for each in text.split()]
        return option.read(text)
    except argparse.ArgumentTypeError as error:
        raise CommandError(f"{name} {error}") from error


class _OneModel(argparse.Action):
    """Takes the model from its place or from --model, not from both."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        if getattr(namespace, self.dest, None) is not None:
            parser.error("the model is given twice")
        setattr(namespace, self.dest, values)


class _NamedModels(_OneModel):
    """Collects NAME=MODEL in `models`. What exists is a path, whatever its name."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        if "=" in values and not Path(values).expanduser().exists():
            namespace.models = [*getattr(namespace, "models", ()), values]
        else:
            super().__call__(parser, namespace, values, option_string)


def add_model_argument(
    parser: argparse._ActionsContainer,
    *,
    positional: bool = True,
    several: bool = False,
    help: str = "GGUF file, model directory, ORG/NAME[@REVISION] on the Hugging Face Hub, or "
    "smollm2 (default: the built-in model)",
) -> None:
    """The model, as `--model MODEL` and, unless the command has another argument there, MODEL.
    `several`: or models, each as `--model NAME=MODEL`; these are in `models`.
    """
    if positional:
        parser.add_argument(
            "model", nargs="?", default=argparse.SUPPRESS, action=_OneModel, help=help
        )
        help = "the same as MODEL"
    if several:
        help += (
            "; or a name and a model, once for each of several: requests choose by the name, and "
            "the first one answers those without it"
        )
    parser.add_argument(
        "--model",
        metavar="[NAME=]MODEL" if several else "MODEL",
        action=_NamedModels if several else _OneModel,
        help=help,
    )


def add_model_arguments(parser: CommandParser) -> None:
    """How a model is loaded: device, number formats, context length, threads, drafts."""
    group = parser.add_argument_group("model and speed")
    group.add_argument(
        "--device",
        default="auto",
        metavar=DEVICES,
        help="device to run on; cuda:N picks a GPU (default: auto)",
    )
    group.add_argument(
        "--dtype",
        default="auto",
        metavar=DTYPES,
        help="number format of the weights; float16 on CUDA only (default: auto)",
    )
    group.add_argument(
        "--quantize",
        default="none",
        metavar=QUANTIZATIONS,
        help="quantization of the weights; 6bit and 5bit on the CPU only (default: none)",
    )
    group.add_argument(
        "--kv-cache",
        default="auto",
        metavar=KV_FORMATS,
        help="format of keys and values; float32, k8v4 and 4bit on the CPU only (default: auto)",
    )
    group.add_argument(
        "--max-seq-len",
        type=at_least(2),
        metavar="TOKENS",
        help="context length in tokens (default: the model's own, at most 8192)",
    )
    group.add_argument(
        "--chat-template",
        metavar="FILE",
        help="file with a chat template in Jinja's language (default: the model's own)",
    )
    group.add_argument(
        "--threads", type=at_least(1), metavar="N", help="CPU threads (default: all cores)"
    )
    group.add_argument(
        "--speculate",
        default="off",
        metavar=DRAFTS,
        help="speculative decoding: drafts from the text so far (ngram), and with a draft model "
        "(draft), the model's own MTP block (mtp) or an EAGLE-3 head (eagle) too; never changes "
        "the text (default: off)",
    )
    group.add_argument(
        "--draft-model",
        metavar="DIR",
        help="directory of the draft model or EAGLE-3 head (default: the one in the model's "
        "directory)",
    )
    group.add_argument(
        "--panel-cache",
        metavar="DIR|off",
        help="directory that caches the packed weights of larger models "
        "(default: soliton in the user's cache directory)",
    )


def add_sampling_arguments(parser: CommandParser) -> None:
    """One flag per sampling setting. A setting that is not given keeps the model's default."""
    group = parser.add_argument_group(
        "sampling",
        "The defaults come from the model's generation_config.json. docs/sampling.md explains all.",
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
    """The sampling settings on the command line, by name."""
    values = {name: getattr(args, name) for name in _SAMPLING}
    return {name: value for name, value in values.items() if value is not None}
