"""`soliton complete`: continue a text; --logprobs prints a table of tokens and alternatives.

Owns the table's layout. Knows the engine's public surface; knows no HTTP.
"""

import json
from collections.abc import Iterator

from engine import Engine, Prefill, StreamResult, Tokenizer, TokenRecord

from .arguments import (
    add_model_argument,
    add_model_arguments,
    add_sampling_arguments,
    at_least,
)
from .local import engine_errors, load_engine, load_options, sampling_settings
from .model_path import model_path
from .terminal import CommandError, CommandParser, printable, progress_bar

_MAX_LOGPROBS = 20
_EXAMPLES = """
soliton complete "Once upon a time" --max-tokens 50
soliton complete "Once upon a time" --logprobs 5 --seed 7 --model ./qwen3
"""


def main(argv: list[str]) -> int:
    """Print a completion. Raises CommandError."""
    args = _parser().read(argv)
    if args.logprobs is not None and args.logprobs > _MAX_LOGPROBS:
        raise CommandError(f"--logprobs must be {_MAX_LOGPROBS} or less, not {args.logprobs}")
    engine = load_engine(model_path(args.model), load_options(args))
    settings = sampling_settings(args, engine)
    with engine_errors():
        with progress_bar("reading", unit="tok") as bar:
            prefill = engine.generator.begin_stream_ex(
                engine.tokenizer.encode(args.prompt),
                settings,
                max_new_tokens=args.max_tokens,
                stop=args.stop,
                return_top_tokens=args.logprobs or 0,
                on_progress=bar,
            )
        if args.logprobs is None:
            _print_text(_results(engine))
        else:
            _print_table(engine, prefill, n_top=args.logprobs)
    return 0


def _parser() -> CommandParser:
    parser = CommandParser(
        prog="soliton complete",
        usage="PROMPT [OPTION …]",
        description="Continue a text.",
        examples=_EXAMPLES,
    )
    parser.add_argument("prompt", metavar="PROMPT", help="the text to continue, in quotes")
    add_model_argument(parser, positional=False)
    parser.add_argument(
        "--max-tokens",
        type=at_least(0),
        default=100,
        metavar="N",
        help="most tokens (default: 100)",
    )
    parser.add_argument(
        "--stop",
        action="append",
        default=[],
        metavar="TEXT",
        help="stop before this text; repeatable",
    )
    parser.add_argument(
        "--logprobs",
        type=at_least(0),
        metavar="N",
        help=f"print each token's probability and the N most probable ones (0 to {_MAX_LOGPROBS})",
    )
    add_model_arguments(parser)
    add_sampling_arguments(parser)
    return parser


def _results(engine: Engine) -> Iterator[StreamResult]:
    while True:
        result = engine.generator.stream_ex()
        yield result
        if result.eos:
            return


def _print_text(results: Iterator[StreamResult]) -> None:
    for result in results:
        print(printable(result.chunk), end="", flush=True)
    print()


def _print_table(engine: Engine, prefill: Prefill, *, n_top: int) -> None:
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
