"""What keys and values of few bits cost: the perplexity of a text with each format of the cache.

    python -m bench.kv_quality MODEL TEXT... [--formats LIST] [--context N] [--bytes N]

Reads the first 32 kB of the texts in windows of N tokens, each of which begins anew, and scores
every token but the first of a window. Weights stay as they are stored. Besides the perplexity it
prints the bytes that a token takes, and the mean divergence from the first format's distributions,
in nats, which has less noise.
"""

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from engine import Engine
from engine.cache.kv import KVCache
from engine.device.formats import KV_FORMATS, kv_bytes_per_token
from engine.sampling.logits import Logits

Doubles = npt.NDArray[np.float64]


@dataclass(slots=True)
class Loss:
    """What one format has lost so far."""

    format: str
    n_bytes: int  # of keys and values of one token, or of the weights
    n_tokens: int = 0
    logprob: float = 0.0  # of all tokens
    divergence: float = 0.0  # from the first format, of all tokens

    @property
    def perplexity(self) -> float:
        return math.exp(-self.logprob / self.n_tokens)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("texts", nargs="+", type=Path)
    parser.add_argument("--formats", default=",".join(KV_FORMATS[1:]))
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--bytes", type=int, default=32 * 1024)
    args = parser.parse_args()
    text = beginning_of(args.texts, args.bytes)
    print_losses(measure(args.model, text, args.formats.split(","), args.context))


def beginning_of(texts: Sequence[Path], n_bytes: int) -> str:
    return b"".join(path.read_bytes() for path in texts)[:n_bytes].decode(errors="ignore")


def print_losses(losses: Sequence[Loss]) -> None:
    for loss in losses:
        share = 100 * (loss.perplexity / losses[0].perplexity - 1)
        print(
            f"{loss.format:9s} {loss.n_bytes:11,} bytes; {loss.n_tokens:,} tokens: "
            f"perplexity {loss.perplexity:.4f} ({share:+.3f} %), "
            f"divergence {loss.divergence / loss.n_tokens:.2e}"
        )


def measure(model: str | Path, text: str, formats: Sequence[str], context: int) -> list[Loss]:
    """What each format loses, in windows of `context` tokens."""
    engines = [
        Engine.load(model, device="cpu", kv_cache=each, max_seq_len=context) for each in formats
    ]
    losses = [
        Loss(engine.model.ops.kv_format, kv_bytes_per_token(engine.config, format_))
        for engine, format_ in zip(engines, formats, strict=True)
    ]
    lose(engines, losses, text, context)
    return losses


def lose(engines: Sequence[Engine], losses: Sequence[Loss], text: str, context: int) -> None:
    """Adds what each engine loses on the text to its entry."""
    token_ids = engines[0].tokenizer.encode(text)
    for start in range(0, len(token_ids) - 1, context):
        window = token_ids[start : start + context]
        base = np.empty(0)
        for engine, loss in zip(engines, losses, strict=True):
            found = np.concatenate(list(logprobs(engine, window)))
            base = base if base.size else found
            loss.n_tokens += len(window) - 1
            loss.logprob += float(found[np.arange(len(window) - 1), window[1:]].sum())
            loss.divergence += float((np.exp(base) * (base - found))[:-1].sum())


def logprobs(engine: Engine, window: Sequence[int]) -> Iterator[Doubles]:
    """Of all tokens, (some rows, vocabulary) at a time."""
    rows: list[Logits] = []
    cache = KVCache(engine.config, engine.model.ops, max_seq_len=len(window))
    engine.model.prefill(window, cache, on_logits=lambda some: rows.append(some.copy()))
    for some in rows:
        wide = some.astype(np.float64)
        wide -= wide.max(axis=-1, keepdims=True)
        yield wide - np.log(np.exp(wide).sum(axis=-1, keepdims=True))


if __name__ == "__main__":
    main()
