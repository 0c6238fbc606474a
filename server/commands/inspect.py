"""`soliton inspect`: what a model directory contains and how much memory it needs.

Owns the options; `model_summary.py` owns what is printed. The engine is imported when the command
runs, so that help and mistakes come at once.
"""

from .arguments import KV_FORMATS, add_model_argument, at_least
from .terminal import CommandError, CommandParser

_EXAMPLES = """
soliton inspect ./qwen3
soliton inspect ./qwen3 --context 32768 --kv-cache 8bit
"""


def main(argv: list[str]) -> int:
    """Print the summary. Raises CommandError."""
    parser = CommandParser(
        prog="soliton inspect",
        usage="[MODEL] [OPTION …]",
        description="Print architecture, sizes, formats and memory needs of a model, without "
        "loading it.",
        examples=_EXAMPLES,
    )
    add_model_argument(parser)
    parser.add_argument(
        "--context",
        type=at_least(1),
        metavar="TOKENS",
        help="context length in tokens for the memory needs (default: the model's longest)",
    )
    parser.add_argument(
        "--kv-cache",
        default="auto",
        metavar=KV_FORMATS,
        help="format of keys and values (default: auto)",
    )
    args = parser.read(argv)
    from engine import describe

    from .local import engine_errors
    from .model_path import model_path
    from .model_summary import summary

    path = model_path(args.model)
    with engine_errors():
        description = describe(path)
    longest = description.config.max_seq_len
    n_tokens = longest if args.context is None else args.context
    if n_tokens > longest:
        raise CommandError(f"--context must be {longest}, the model's context, or less")
    with engine_errors():
        for label, text in summary(description, n_tokens, args.kv_cache):
            print(f"{label:<15} {text}")
    return 0
