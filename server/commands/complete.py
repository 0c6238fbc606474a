"""`soliton complete`: continue a text; --logprobs prints a table of tokens and alternatives.

Owns the options; `completion_output.py` owns what is printed. The engine is imported when the
command runs, so that help and mistakes come at once.
"""

from .arguments import (
    add_model_argument,
    add_model_arguments,
    add_sampling_arguments,
    at_least,
)
from .terminal import CommandError, CommandParser, progress_bar

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
    from .completion_output import print_table, print_text
    from .local import engine_errors, load_engine, load_options, sampling_settings
    from .model_path import model_path

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
            print_text(engine)
        else:
            print_table(engine, prefill, n_top=args.logprobs)
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
