"""`soliton cluster serve`: a door in this process, and replicas behind it on Ray.

Owns the options and the order: ports, Ray, replicas, door. Imports Ray when all options are right.
"""

import argparse
import gc
import importlib.util
import os

from ..commands.listening import bound_sockets, listening
from ..commands.serve import Leaving, ReadyServer, ready_line
from ..commands.serve_options import add_serve_options, settings_of
from ..commands.terminal import CommandError, CommandParser
from ..process.drain import leave, signals_handled
from ..process.logs import configure_logging
from ..settings import Settings

# Ray's own actors need a share of a CPU by its count.
_OWN_CPUS = 1

_DESCRIPTION = """\
Serve a model by several replicas on Ray, behind one address. A request goes to the
replica that will answer first: one that still keeps the beginning of the prompt, or
one with less to do.

All options of `soliton serve` hold for each replica; --host, --port and the limits of
connections for the one door in front of them."""

_EXAMPLES = """
soliton cluster serve --replicas 2          # the built-in model, twice
soliton cluster serve Qwen/Qwen3-0.6B --replicas 4 --threads 8 --port 8080
"""


def main(argv: list[str]) -> int:
    """Serve until SIGINT, SIGTERM or SIGHUP, then drain and end the process. Raises
    CommandError.
    """
    if argv[:1] in (["--help"], ["-h"]):
        argv = ["serve", *argv]
    if argv[:1] != ["serve"]:
        told = f"not {argv[0]!r}" if argv else "and it is missing"
        raise CommandError(f"the command of a cluster is serve, {told}: soliton cluster serve")
    values = vars(_parser().read(argv[1:]))
    replicas, address = values.pop("replicas"), values.pop("ray_address")
    settings = settings_of(values)
    if importlib.util.find_spec("ray") is None:
        raise CommandError("Ray is not installed: pip install 'soliton[ray]'")
    _serve(settings, replicas=replicas, address=address)
    return 0


def _serve(settings: Settings, *, replicas: int, address: str | None) -> None:
    configure_logging(settings.log_level)
    leaving = Leaving()
    with signals_handled(leaving), bound_sockets(settings) as socks:
        from .deploy import ReplicasStartError, opened
        from .local_ray import RayStartError, ray_started

        gpus = 1.0 if settings.device.startswith("cuda") else 0.0
        each = _share(settings, replicas) if address is None else settings
        cpus = float(each.threads or 1)
        try:
            with ray_started(address, cpus=replicas * cpus + _OWN_CPUS, gpus=replicas * gpus):
                door, model_id = opened(each, replicas=replicas, cpus=cpus, gpus=gpus)
                leaving.check()
                port = socks[0].getsockname()[1]
                server = ReadyServer(
                    listening(door, settings, [sock.getsockname()[1] for sock in socks]),
                    work=door,
                    readers=door.slow_readers,
                    drain_seconds=settings.drain_seconds,
                    ready_line=ready_line(port, settings, model_id),
                )
                gc.enable()
                server.run(socks)
        except (RayStartError, ReplicasStartError) as error:
            raise CommandError(str(error)) from error
    leave(0)


def _share(settings: Settings, replicas: int) -> Settings:
    """Replicas on one machine share its cores, unless the options say otherwise."""
    if settings.threads is not None or settings.device.startswith("cuda"):
        return settings
    threads = max(1, (os.cpu_count() or 1) // replicas)
    return settings.model_copy(update={"threads": threads})


def _parser() -> CommandParser:
    parser = CommandParser(
        prog="soliton cluster serve",
        usage="[MODEL] [OPTION …]",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
    )
    group = parser.add_argument_group("cluster")
    group.add_argument(
        "--replicas", metavar="N", type=_count, default=2, help="engines (1 or more; default: 2)"
    )
    group.add_argument(
        "--ray-address",
        metavar="ADDRESS",
        help="a running Ray cluster to join, or auto (default: Ray is started on this machine)",
    )
    add_serve_options(parser)
    return parser


def _count(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"must be 1 or more, not {text}")
    return int(text)
