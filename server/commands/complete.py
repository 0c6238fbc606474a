"""`soliton complete`: continue a text; --logprobs prints a table of tokens and alternatives, --html
writes a page of them.

Owns the options; `completion_output.py` owns what is printed, `token_page.py` the page. The engine
is imported when the command runs, so that help and mistakes come at once.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from .arguments import (
    add_model_argument,
    add_model_arguments,
    add_sampling_arguments,
    at_least,
)
from .terminal import CommandError, CommandParser, progress_bar

if TYPE_CHECKING:
    from engine import StreamResult

_MAX_LOGPROBS = 20
_PAGE_LOGPROBS = 5  # of a page without --logprobs
_EXAMPLES = """
soliton complete "Once upon a time" --logprobs 5 --seed 7 --model ./qwen3
soliton complete "Once upon a time" --html tokens.html
"""


def main(argv: list[str]) -> int:
    """Print a completion. Raises CommandError."""
    args = _parser().read(argv)
    if args.logprobs is not None and args.logprobs > _MAX_LOGPROBS:
        raise CommandError(f"--logprobs must be {_MAX_LOGPROBS} or less, not {args.logprobs}")
    if args.html is not None:
        _check_target(args.html)
    from .completion_output import print_table, print_text, steps
    from .local import engine_errors, load_engine, load_options, sampling_settings
    from .model_path import model_path

    engine = load_engine(model_path(args.model), load_options(args))
    settings = sampling_settings(args, engine)
    n_top = args.logprobs if args.logprobs is not None or args.html is None else _PAGE_LOGPROBS
    with engine_errors():
        with progress_bar("reading", unit="tok") as bar:
            prefill = engine.generator.begin_stream_ex(
                engine.tokenizer.encode(args.prompt),
                settings,
                max_new_tokens=args.max_tokens,
                stop=args.stop,
                return_top_tokens=n_top or 0,
                on_progress=bar,
            )
        results: list[StreamResult] = []
        if args.logprobs is None:
            print_text(steps(engine, results))
        else:
            print_table(steps(engine, results), prefill, engine.tokenizer, n_top=args.logprobs)
    if args.html is not None:
        from .page_facts import completion_of
        from .token_page import page

        shown = completion_of(engine, settings, prefill, results, args.prompt, argv)
        _write_page(args.html, page(shown))
    return 0


def _check_target(path: Path) -> None:
    """Raises CommandError for a file that certainly cannot be written, before any work."""
    if path.is_dir():
        raise CommandError(f"--html {path} is a directory; it must be a file")
    if not path.parent.is_dir():
        raise CommandError(f"--html {path}: there is no directory {path.parent}")


def _write_page(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"--html {path}: {error.strerror or error}") from error


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
    parser.add_argument(
        "--html",
        type=Path,
        metavar="FILE",
        help="write a page of the tokens, coloured by their probability; complete in one file",
    )
    add_model_arguments(parser)
    add_sampling_arguments(parser)
    return parser
