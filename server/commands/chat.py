"""`soliton chat`: chat in the terminal, with a model in this process or with a server (--url).

Owns the options and puts the parts of `chatting` together.
"""

import argparse
import io
import sys

from ..settings import terminal_kind, user_state
from .arguments import (
    add_model_argument,
    add_model_arguments,
    add_sampling_arguments,
    at_least,
    given_sampling,
)
from .chatting.answer import ChatSettings, Source
from .chatting.conversation import Conversation
from .chatting.editor import Editor
from .chatting.history import History
from .chatting.screen import Screen
from .chatting.session import Session, State
from .chatting.slash import act, completions
from .terminal import CommandParser

_EXAMPLES = """
soliton chat ./qwen3 --quantize 8bit --system "Answer in one sentence."
soliton chat --url http://127.0.0.1:8000 --temperature 0.7
"""
_HISTORY_FILE = "chat_history"


def main(argv: list[str]) -> int:
    """Chat until the input ends. Raises CommandError."""
    args = _parser().read(argv)
    source = _local(args) if args.url is None else _remote(args)
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")
    is_interactive = sys.stdin.isatty() and sys.stdout.isatty()
    kind, state = terminal_kind(), user_state()
    screen = Screen(sys.stdout, kind)
    editor = Editor(
        screen,
        is_interactive=is_interactive,
        has_escapes=kind.has_escapes,
        history=None if state is None else History(state / _HISTORY_FILE),
        complete=completions,
    )
    settings = ChatSettings(given_sampling(args), args.max_tokens)
    begin = State(Conversation(args.system), settings)
    Session(source, screen, editor, begin, is_interactive=is_interactive, act=act).run()
    return 0


def _parser() -> CommandParser:
    parser = CommandParser(
        prog="soliton chat",
        usage="[MODEL] [OPTION …]",
        description="Chat in the terminal. /help lists the commands of a chat, Ctrl-D leaves, "
        "Ctrl-C stops an answer.",
        examples=_EXAMPLES,
    )
    add_model_argument(
        parser,
        help="GGUF file, model directory, ORG/NAME[@REVISION] on the Hugging Face Hub, or smollm2 "
        "(default: the built-in model); with --url: the model's name there",
    )
    parser.add_argument(
        "--url", metavar="URL", help="chat with a server, for example http://127.0.0.1:8000"
    )
    parser.add_argument("--api-key", metavar="KEY", help="API key for the server (with --url)")
    parser.add_argument("--system", metavar="TEXT", help="system message of the conversation")
    parser.add_argument(
        "--max-tokens",
        type=at_least(1),
        metavar="N",
        help="most tokens of one reply (default: what fits into the context)",
    )
    add_model_arguments(parser)
    add_sampling_arguments(parser)
    return parser


def _local(args: argparse.Namespace) -> Source:
    from .chatting.in_process import InProcess
    from .local import load_engine, load_options
    from .model_path import model_path

    source = InProcess(load_engine(model_path(args.model), load_options(args)))
    source.check(given_sampling(args))
    return source


def _remote(args: argparse.Namespace) -> Source:
    from .chatting.over_http import OverHttp

    return OverHttp(args.url, api_key=args.api_key, model=args.model)
