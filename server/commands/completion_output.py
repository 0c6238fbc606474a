"""What `soliton complete` prints: the text, or a table of tokens and alternatives.

Owns the table's layout. Knows the engine's public surface; knows no HTTP.
"""

import json
from collections.abc import Iterator

from engine import Engine, Prefill, StreamResult, Tokenizer, TokenRecord

from .terminal import printable


def _results(engine: Engine) -> Iterator[StreamResult]:
    while True:
        result = engine.generator.stream_ex()
        yield result
        if result.eos:
            return


def print_text(engine: Engine) -> None:
    for result in _results(engine):
        print(printable(result.chunk), end="", flush=True)
    print()


def print_table(engine: Engine, prefill: Prefill, *, n_top: int) -> None:
    """One row per token as it is released, the stop token included.

    `p` is the model's own probability, `drawn` that in the distribution the sampler drew from.
    """
    others = "the most probable others" if n_top else ""
    print(f"{'#':>4}  {'token':<16} {'p':>7} {'drawn':>7} {'logprob':>8}   {others}".rstrip())
    n, reason = 0, None
    for result in _results(engine):
        reason = result.eos_reason
        for record in (*result.tokens, *result.dropped):
            n += 1
            print(printable(_row(n, record, engine.tokenizer)), flush=True)
    print(f"\n{n} tokens after a prompt of {prefill.n_prompt}; end: {reason}; seed: {prefill.seed}")


def _row(n: int, record: TokenRecord, tokenizer: Tokenizer) -> str:
    token = _token_text(tokenizer.token_bytes(record.token_id))
    others = "  ".join(
        f"{_token_text(other.token_bytes)} {other.p_raw:.3f}"
        for other in record.top
        if other.token_id != record.token_id
    )
    numbers = f"{record.p_raw:>7.4f} {record.p_sampled:>7.4f} {record.logprob:>8.3f}"
    return f"{n:>4}  {token:<16} {numbers}   {others}".rstrip()


def _token_text(token_bytes: bytes) -> str:
    """A token's text in quotes, or its bytes in hex if it is only part of a character."""
    try:
        return json.dumps(token_bytes.decode(), ensure_ascii=False)
    except UnicodeDecodeError:
        return f"<{token_bytes.hex(' ')}>"
