"""What weights of few bits cost: the perplexity of a text with each format.

    python -m bench.weight_quality MODEL TEXT... [--formats LIST] [--beside FILE] [--context N]
        [--bytes N]

The first format is the one that the others are compared with. FILE is the same model as another
program has made it smaller: with its own tensors it is the last line. Texts, windows and figures
are those of `bench.kv_quality`; keys and values are as they are by default.
"""

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from bench.kv_quality import Loss, beginning_of, lose, print_losses
from engine import Engine

_FORMATS = "none,8bit,6bit,5bit,4bit"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("texts", nargs="+", type=Path)
    parser.add_argument("--formats", default=_FORMATS)
    parser.add_argument("--beside", type=Path, metavar="FILE")
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--bytes", type=int, default=20_000)
    args = parser.parse_args()
    text = beginning_of(args.texts, args.bytes)
    print_losses(measure(args.model, text, args.formats.split(","), args.beside, args.context))


def measure(
    model: str | Path, text: str, formats: Sequence[str], beside: Path | None, context: int
) -> list[Loss]:
    """What each format loses, and then the file `beside`, in windows of `context` tokens."""
    load = partial(Engine.load, device="cpu", speculate="off", max_seq_len=context)
    engines = {each: load(model, quantize=each) for each in formats}
    if beside is not None:
        engines[beside.name] = load(beside)
    losses = [Loss(name, engine.weight_bytes) for name, engine in engines.items()]
    lose(list(engines.values()), losses, text, context)
    return losses


if __name__ == "__main__":
    main()
