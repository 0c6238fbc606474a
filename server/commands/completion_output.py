"""What `soliton complete` prints: the text, or a table of tokens and alternatives.

Owns the table's layout. Knows the engine's public surface; knows no HTTP.
"""

from collections.abc import Iterable, Iterator

from engine import Engine, Prefill, StreamResult, Tokenizer, TokenRecord

from .terminal import printable
from .token_text import quoted


def steps(engine: Engine, kept: list[StreamResult]) -> Iterator[StreamResult]:
    """The results of the stream that has begun, which go into `kept`, too."""
    while not (kept and kept[-1].eos):
        kept.append(engine.generator.stream_ex())
        yield kept[-1]


def print_text(results: Iterable[StreamResult]) -> None:
    for result in results:
        print(printable(result.chunk), end="", flush=True)
    print()


def print_table(
    results: Iterable[StreamResult], prefill: Prefill, tokenizer: Tokenizer, *, n_top: int
) -> None:
    """One row per token as it is released, the stop token included.

    `p` is the model's own probability, `drawn` that in the distribution the sampler drew from.
    """
    others = "the most probable others" if n_top else ""
    print(f"{'#':>4}  {'token':<16} {'p':>7} {'drawn':>7} {'logprob':>8}   {others}".rstrip())
    n, reason = 0, None
    for result in results:
        reason = result.eos_reason
        for record in (*result.tokens, *result.dropped):
            n += 1
            print(printable(_row(n, record, tokenizer, n_top)), flush=True)
    print(f"\n{n} tokens after a prompt of {prefill.n_prompt}; end: {reason}; seed: {prefill.seed}")


def _row(n: int, record: TokenRecord, tokenizer: Tokenizer, n_top: int) -> str:
    token = quoted(tokenizer.token_bytes(record.token_id))
    others = "  ".join(
        f"{quoted(other.token_bytes)} {other.p_raw:.3f}"
        for other in record.top[:n_top]
        if other.token_id != record.token_id
    )
    numbers = f"{record.p_raw:>7.4f} {record.p_sampled:>7.4f} {record.logprob:>8.3f}"
    return f"{n:>4}  {token:<16} {numbers}   {others}".rstrip()
