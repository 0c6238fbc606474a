"""The event loop and /health while the engine computes a long prompt.

Once on the fake engine, whose prefill keeps a core busy outside the interpreter, and once on random
weights of a real shape, whose native code keeps all cores busy.
"""

import asyncio
import json
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engine.benchmark import SHAPES, write_model

from .debug import LAG_S
from .goals import Goal, at_most
from .server import Options
from .site import Site, serving
from .wire import Leave, ask

N_PROMPT = 100_000
CONTEXT = 102_400
_LAG_LIMIT_S = 0.005
_HEALTH_LIMIT_S = 0.020
_EVERY_S = 0.02
_SHAPE = "15M"


def measure(scale: float) -> Iterator[Goal]:
    seconds = max(1.0, 25.0 * scale)
    busy = Options(max_seq_len=CONTEXT, chunk=512, chunk_s=0.25, busy=True)
    with serving(busy) as site:
        prompt: Any = "x" * N_PROMPT
        yield from asyncio.run(goals("fake prefill", site, "fake", prompt, seconds=seconds))
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "long"
        _write_long_model(path)
        flags = {"max-seq-len": str(CONTEXT), "prefix-cache-mb": "0"}
        with serving(Options(engine=str(path), flags=flags)) as site:
            chance = random.Random(3)
            ids = [chance.randrange(300, 20_000) for _ in range(N_PROMPT)]
            yield from asyncio.run(goals(f"{_SHAPE} prefill", site, "long", ids, seconds=seconds))


async def goals(name: str, site: Site, model: str, prompt: Any, *, seconds: float) -> list[Goal]:
    await site.start()
    body = {"model": model, "prompt": prompt, "max_tokens": 4, "stream": True}
    leave = Leave("fin", after=seconds)
    long = asyncio.create_task(ask(site.port, "/v1/completions", body, leave=leave))
    times = []
    n_bad = n_busy = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end - _EVERY_S:
        reply = await ask(site.port, "/health")
        times.append(reply.over_at - reply.sent_at)
        n_bad += reply.end != "done"
        if len(times) % 25 == 0:
            n_busy += (await site.state())["busy"]
        await asyncio.sleep(_EVERY_S)
    lags = _spread(await site.get("/debug/lags"))
    ended = (await long).end
    return [
        at_most(f"{name}: event-loop lag", lags, _LAG_LIMIT_S),
        at_most(f"{name}: /health", times, _HEALTH_LIMIT_S),
        Goal(f"{name}: /health failed", str(n_bad), "0", n_bad == 0),
        Goal(
            f"{name}: it lasted",
            f"the client left {seconds:g} s into {N_PROMPT:,} tokens ({ended})",
            "left",
            ended == "left" and (n_busy > 0 or len(times) < 25),
        ),
    ]


def _spread(counts: list[int]) -> list[float]:
    """Seconds, one per tick."""
    return [i * LAG_S for i, count in enumerate(counts) for _ in range(count)]


def _write_long_model(path: Path) -> None:
    """Random weights of a shape whose configuration allows such a long prompt."""
    write_model(SHAPES[_SHAPE], path)
    config = json.loads((path / "config.json").read_text())
    config["max_position_embeddings"] = CONTEXT
    (path / "config.json").write_text(json.dumps(config))
