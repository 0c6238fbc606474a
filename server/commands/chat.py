"""`soliton chat`: chat in the terminal, with a model in this process or with a server (--url).

Owns the prompt, the history and what Ctrl-C does. Replies come from `local.py` or `remote.py`.
"""

import argparse
import io
import sys
from collections.abc import Generator
from contextlib import closing
from typing import Any, Protocol

from .arguments import (
    add_model_argument,
    add_model_arguments,
    add_sampling_arguments,
    at_least,
    given_sampling,
)
from .terminal import CommandError, CommandParser, printable

_HELP = "/reset clears the conversation, /quit or Ctrl-D exits, Ctrl-C stops a reply"
_EXAMPLES = """
soliton chat ./qwen3 --quantize 8bit --system "Answer in one sentence."
soliton chat --url http://127.0.0.1:8000 --temperature 0.7
"""

Message = dict[str, Any]


class Chat(Protocol):
    """A source of replies. A reply raises KeyboardInterrupt when the user stopped it. Closing it
    stops the work for it.
    """

    model: str

    def reply(self, messages: list[Message]) -> Generator[str, None, None]: ...


def main(argv: list[str]) -> int:
    """Chat until the input ends. Raises CommandError."""
    args = _parser().read(argv)
    chat = _local(args) if args.url is None else _remote(args)
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")
    _Conversation(chat, system=args.system).run()
    return 0


def _parser() -> CommandParser:
    parser = CommandParser(
        prog="soliton chat",
        usage="[MODEL] [OPTION …]",
        description=f"Chat in the terminal. {_HELP}.",
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


def _local(args: argparse.Namespace) -> Chat:
    from .local import LocalChat, load_engine, load_options, sampling_settings
    from .model_path import model_path

    engine = load_engine(model_path(args.model), load_options(args))
    return LocalChat(engine, sampling_settings(args, engine), max_tokens=args.max_tokens)


def _remote(args: argparse.Namespace) -> Chat:
    from .remote import RemoteChat

    options = given_sampling(args)
    if args.max_tokens is not None:
        options["max_completion_tokens"] = args.max_tokens
    return RemoteChat(args.url, api_key=args.api_key, model=args.model, options=options)


class _Conversation:
    """The loop of one chat and its history."""

    def __init__(self, chat: Chat, *, system: str | None) -> None:
        self._chat = chat
        self._beginning: list[Message] = []
        if system is not None:
            self._beginning.append({"role": "system", "content": system})
        self._messages = list(self._beginning)
        self._is_interactive = sys.stdin.isatty() and sys.stdout.isatty()

    def run(self) -> None:
        if self._is_interactive:
            import readline  # noqa: F401  # gives input() line editing and history

            print(f"{self._chat.model} · {_HELP}")
        while (text := self._read()) is not None and text != "/quit":
            if text == "/reset":
                self._messages = list(self._beginning)
            elif text.startswith("/"):
                print(_HELP)
            elif text.strip():
                self._exchange(text)

    def _read(self) -> str | None:
        """One line of input, None at its end.

        The first Ctrl-C only warns: the user may have meant it for a reply that just ended.
        """
        for _ in range(2):
            try:
                return input("> " if self._is_interactive else "").strip()
            except EOFError:
                break
            except KeyboardInterrupt:
                print("\n(Ctrl-C again or Ctrl-D to exit)")
        return None

    def _exchange(self, text: str) -> None:
        """One question and its answer. Of a stopped answer, the history keeps what was shown."""
        question: Message = {"role": "user", "content": text}
        pieces: list[str] = []
        try:
            with closing(self._chat.reply([*self._messages, question])) as reply:
                for piece in reply:
                    pieces.append(piece)
                    print(printable(piece), end="", flush=True)
        except KeyboardInterrupt:
            print(" …", end="")
        except CommandError as error:
            if not self._is_interactive:
                raise
            print(f"soliton: error: {error}", end="", file=sys.stderr)
            return
        finally:
            print(flush=True)
        self._messages += [question, {"role": "assistant", "content": "".join(pieces)}]
