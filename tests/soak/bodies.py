"""One large body and everybody else: /health while it is handled, and a stream next to three of it.

Some sixty shapes near the size limit, on the built-in model with its real template and tokenizer. A
separate process sends the bodies: writing eight megabytes on the event loop that times /health
would count as the server's silence. What the machine adds is measured in the same way, without a
body.
"""

import asyncio
import json
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from tempfile import NamedTemporaryFile

from .body_shapes import COMPLETIONS, N_SHAPES, Shape, body_of, shapes
from .goals import Goal
from .memory import resident
from .server import Options
from .site import Site, serving
from .wire import ask

# The cache of past prompts is memory in use on purpose.
OPTIONS = Options(engine="bundled", flags={"prefix-cache-mb": "0"})
_HEALTH_S = 0.050
_GAP_S = 0.100
_MEMORY = 0.30
_N_BESIDE = 3
# Until the memory of such a body has been given back too.
_AFTER_S = 0.7
_BEFORE_S = 0.1
_EVERY_S = 0.001
_N_TOKENS = 300
_ANSWERED = ("done", "refused")
_N_SHOWN = 5


@dataclass(slots=True)
class Seen:
    """What other clients saw during one shape; in seconds."""

    name: str
    health: list[float] = field(default_factory=list)
    gap: float = 0.0
    ends: list[str] = field(default_factory=list)


def measure(scale: float) -> Iterator[Goal]:
    # Made one by one: together they take half a gigabyte.
    chosen = islice(shapes(), max(3, round(N_SHAPES * scale)))
    with serving(OPTIONS) as site, ProcessPoolExecutor(1, get_context("spawn")) as sender:
        yield from asyncio.run(goals(site, sender, chosen))


async def goals(site: Site, sender: Executor, chosen: Iterable[Shape]) -> list[Goal]:
    model = (await site.get("/v1/models"))["data"][0]["id"]
    await site.start()  # or the audit keeps what has ended
    # With a schema: the library that compiles it is loaded once, whatever the size of a body.
    await watch(site, sender, "warm-up", model, Shape("", COMPLETIONS, small))
    control = await watch(site, sender, "no body", model, None)
    before = resident(site)
    seen = [await watch(site, sender, shape.name, model, shape) for shape in chosen]
    await asyncio.sleep(3 * _AFTER_S)
    after = resident(site)
    silent = [f"{one.name}: {end}" for one in seen for end in one.ends if end not in _ANSWERED]
    grown = after / before - 1
    sizes = f"{before / 2**20:.0f} MiB before, {after / 2**20:.0f} after ({100 * grown:+.0f} %)"
    return [
        _slowest("/health", [(max(one.health), one.name) for one in [control, *seen]], _HEALTH_S),
        _slowest("a stream's gap", [(one.gap, one.name) for one in [control, *seen]], _GAP_S),
        Goal("resident memory", sizes, "+30 %", grown <= _MEMORY),
        Goal("bodies without an answer", f"{len(silent)} {silent[:3]}", "0", not silent),
    ]


def _slowest(name: str, times: list[tuple[float, str]], limit_s: float) -> Goal:
    """`times` are (seconds, shape); the first is the control's."""
    (control, _), *others = times
    others.sort(reverse=True)
    n_over = sum(seconds > limit_s for seconds, _ in others)
    worst = ", ".join(f"{1000 * seconds:.0f} ms {shape}" for seconds, shape in others[:_N_SHOWN])
    figure = (
        f"{n_over} of {len(others)} shapes over it; {worst}; without a body {1000 * control:.0f} ms"
    )
    return Goal(f"{name}, largest", figure, f"{1000 * limit_s:g} ms", not n_over)


async def watch(site: Site, sender: Executor, name: str, model: str, shape: Shape | None) -> Seen:
    """One such body next to /health, then three of them next to a stream."""
    seen = Seen(name)
    with NamedTemporaryFile() as body:
        if shape is not None:
            body.write(body_of(shape, model))
            body.flush()
        path = None if shape is None else shape.path
        bodies = _Bodies(sender, site.port, path, Path(body.name), seen)
        over = asyncio.Event()
        health = asyncio.create_task(_health(site, over, seen))
        await bodies.send(1)
        over.set()
        await health
        over.clear()
        streams = asyncio.create_task(_streams(site, over, model, seen))
        await asyncio.sleep(_BEFORE_S)
        await bodies.send(_N_BESIDE)
        over.set()
        await streams
    await site.idle()
    return seen


@dataclass(frozen=True, slots=True)
class _Bodies:
    """What the other process sends, if anything."""

    sender: Executor
    port: int
    path: str | None
    body: Path
    seen: Seen

    async def send(self, n: int) -> None:
        if self.path is not None:
            sent = self.sender.submit(_send, self.port, self.path, self.body, n)
            ends: list[str] = await asyncio.wrap_future(sent)
            self.seen.ends += ends
        await asyncio.sleep(_AFTER_S)


def _send(port: int, path: str, body: Path, n: int) -> list[str]:
    """In the other process: how each of `n` requests at once ended."""

    async def all_of_them() -> list[str]:
        content = body.read_bytes()
        replies = await asyncio.gather(*(ask(port, path, content) for _ in range(n)))
        return [reply.end for reply in replies]

    return asyncio.run(all_of_them())


async def _health(site: Site, over: asyncio.Event, seen: Seen) -> None:
    while not over.is_set():
        reply = await ask(site.port, "/health")
        seen.health.append(reply.over_at - reply.sent_at)
        await asyncio.sleep(_EVERY_S)


async def _streams(site: Site, over: asyncio.Event, model: str, seen: Seen) -> None:
    """One stream after another."""
    fields = {"prompt": "Once", "max_tokens": _N_TOKENS, "stream": True, "ignore_eos": True}
    while not over.is_set():
        reply = await ask(site.port, COMPLETIONS, {"model": model, **fields})
        seen.gap = max(seen.gap, reply.gap)
        seen.ends.append(reply.end)


def small(model: str) -> bytes:
    schema = {"type": "integer"}
    return json.dumps(
        {"model": model, "prompt": "x", "max_tokens": 8, "json_schema": schema}
    ).encode()
