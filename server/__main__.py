"""argv -> command: the list of commands, and how errors are printed.

A command's module is imported when that command runs: `soliton --help` loads neither torch nor
FastAPI. Knows nothing of models or HTTP.
"""

import gc
import os
import sys

from .commands.terminal import CommandError, CommandParser
from .suggest import did_you_mean
from .version import own_version

_COMMANDS = {
    "serve": "serve a model over HTTP (OpenAI-compatible, Server-Sent Events)",
    "chat": "chat in the terminal, with a local model or with a server (--url)",
    "complete": "continue a text; --logprobs 5 shows the most probable tokens",
    "pull": "fetch a model from the Hugging Face Hub, or smollm2",
    "inspect": "show architecture, sizes, formats and memory of a model",
    "bench": "measure the speed of a model on this machine, in process and over HTTP",
    "doctor": "look at this machine, and say what would make a server faster here",
    "cluster": "serve a model by several replicas, on Ray",
    "health": "ask a server whether it is ready, for the health check of a container",
}

_DESCRIPTION = """\
Streaming inference for language models, one sequence at a time, with details on every token.

commands:
{commands}

`soliton COMMAND --help` lists the options of a command. A MODEL is a GGUF file, a Hugging
Face directory, ORG/NAME on the Hub, or smollm2. Without one, every command uses the small built-in
model.
"""

_EXAMPLES = """
soliton serve smollm2 --port 8080           # then ask http://127.0.0.1:8080/v1/completions
soliton complete "Once upon a time" --logprobs 5 --seed 7
"""


def main(argv: list[str] | None = None) -> int:
    """Run one command. Returns the exit code: 0, or 2 for an error or a missing command."""
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
    if not argv:  # help that was not asked for is a mistake to a script
        print(_parser().format_help(), end="")
        return 2
    if argv[0] == "help":
        argv = [*argv[1:2], "--help"]
    if argv[0] == "--version":
        print(f"soliton {own_version()}")
        return 0
    command, arguments = argv[0], argv[1:]
    if command.startswith("-"):
        _parser().read(argv)
        raise CommandError(f"a command is missing: {_named_commands()}")
    if command == "serve":
        # Imports and the model create no garbage: collecting would take a tenth of the time to
        # start, and later cause a pause in the middle of a stream.
        gc.disable()
        from .commands.serve_options import settings_from

        settings = settings_from(arguments)
        from .commands import serve
        from .process.drain import leave

        # Everything is written and closed. Python's own shutdown would take most of the time that
        # an idle server needs to stop.
        leave(serve.main(settings))
    if command == "chat":
        from .commands import chat

        return chat.main(arguments)
    if command == "complete":
        from .commands import complete

        return complete.main(arguments)
    if command == "pull":
        from .commands import pull

        return pull.main(arguments)
    if command == "inspect":
        from .commands import inspect

        return inspect.main(arguments)
    if command == "bench":
        from .commands import bench

        return bench.main(arguments)
    if command == "doctor":
        from .commands import doctor

        return doctor.main(arguments)
    if command == "cluster":
        from .cluster import command as cluster

        return cluster.main(arguments)
    if command == "health":
        from .commands import health

        return health.main(arguments)
    near = did_you_mean(command, _COMMANDS) or f": use {_named_commands()}"
    raise CommandError(f"unknown command {command!r}{near} (see soliton --help)")


def _parser() -> CommandParser:
    width = max(map(len, _COMMANDS))
    commands = "\n".join(f"  {name:<{width}}  {text}" for name, text in _COMMANDS.items())
    parser = CommandParser(
        prog="soliton",
        usage="COMMAND [OPTION …]",
        description=_DESCRIPTION.format(commands=commands),
        examples=_EXAMPLES,
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    return parser


def _named_commands() -> str:
    *most, last = _COMMANDS
    return f"{', '.join(most)} or {last}"


if __name__ == "__main__":
    sys.exit(main())
