"""argv -> command: the list of commands, and how errors are printed.

A command's module is imported when that command runs: `soliton --help` loads neither torch nor
FastAPI. Knows nothing of models or HTTP.
"""

import os
import sys

from .commands.terminal import CommandError, CommandParser
from .version import own_version

DESCRIPTION = """\
Streaming inference for language models, one sequence at a time, with details on every token.

commands:
  serve      serve a model over HTTP (OpenAI-compatible, Server-Sent Events)
  chat       chat in the terminal, with a local model or with a server (--url)
  complete   continue a text; --logprobs 5 shows the most probable tokens
  inspect    show architecture, sizes, formats and memory of a model
  bench      measure the speed of a model on this machine, in process and over HTTP
  health     ask a server whether it is ready, for the health check of a container

`soliton COMMAND --help` lists the options of a command. Without a MODEL (a Hugging Face directory),
every command uses the small built-in model.
"""


def main(argv: list[str] | None = None) -> int:
    """Run one command. Returns the exit code: 0, or 2 for an error."""
    try:
        return _run(sys.argv[1:] if argv is None else argv)
    except CommandError as error:
        print(f"soliton: error: {' '.join(str(error).splitlines())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The pipe's reader has gone (`| head`). Without this, Python would complain again when it
        # flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _run(argv: list[str]) -> int:
    parser = CommandParser(
        prog="soliton", usage="soliton COMMAND [OPTION …]", description=DESCRIPTION
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    if argv[:1] == ["--version"]:
        print(f"soliton {own_version()}")
        return 0
    if not argv or argv[0].startswith("-"):
        parser.parse_args(argv)
        raise CommandError("a command is missing: serve, chat, complete, inspect, bench or health")
    command, arguments = argv[0], argv[1:]
    if command == "serve":
        from .commands import serve
        from .process.drain import leave

        # Everything is written and closed. Python's own shutdown would take most of the time that
        # an idle server needs to stop.
        leave(serve.main(arguments))
    if command == "chat":
        from .commands import chat

        return chat.main(arguments)
    if command == "complete":
        from .commands import complete

        return complete.main(arguments)
    if command == "inspect":
        from .commands import inspect

        return inspect.main(arguments)
    if command == "bench":
        from .commands import bench

        return bench.main(arguments)
    if command == "health":
        from .commands import health

        return health.main(arguments)
    raise CommandError(
        f"unknown command {command!r}: use serve, chat, complete, inspect, bench or health"
    )


if __name__ == "__main__":
    sys.exit(main())
