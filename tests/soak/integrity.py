"""Token integrity: whatever others do, each client gets its own tokens, all of them, exactly once.

Sixty-four clients at once; half of the requests are aborted at a random moment between connect and
the last token, by FIN or RST; some come through a proxy that delays, stalls, dribbles and cuts. The
other half must be exact, down to the position and the count in the server's audit.
"""

import asyncio
import random
import statistics
import time
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.support.chaos_proxy import ChaosProxy

from .goals import Goal, none_of
from .model import expected_reply
from .server import Options
from .site import Site, serving
from .wire import AFTER_LAST, AT_CONNECT, Leave, Reply, ask

SEED = 20261121
CLIENTS = 64
LOSSES = ("lost", "duplicated", "garbled", "crossed", "silent", "stuck", "5xx", "contaminated")
_PING_S = 2.0
_PATIENCE_S = 60.0
_CANARY = "the canary sings"
_AUDIT_EVERY = 500  # requests
_FLAGS = {"ping-interval": f"{_PING_S:g}", "max-queue": "128"}

# Body of a request and the expected text, by number.
Make = Callable[[int], tuple[dict[str, Any], str]]


@dataclass(slots=True)
class Tally:
    """What was seen, and in how many requests."""

    losses: Counter[str] = field(default_factory=Counter)
    n_aborted: int = 0
    n_completed: int = 0
    n_proxied: int = 0
    n_cut: int = 0
    n_letters: int = 0
    n_audited: int = 0
    native_max: int | None = None
    examples: list[str] = field(default_factory=list)

    def note(self, kind: str, detail: str) -> None:
        self.losses[kind] += 1
        if len(self.examples) < 8:
            self.examples.append(f"{kind}: {detail}"[:200])


def measure(scale: float) -> Iterator[Goal]:
    yield from fake_goals(scale)
    yield from bundled_goals(scale)


def fake_goals(scale: float, seed: int = SEED) -> Iterator[Goal]:
    n = max(64, round(20_000 * scale))
    with serving(Options(flags=_FLAGS)) as site:
        tally = asyncio.run(storm(site, n, letters_request, n_letters=100, seed=seed))
    yield from goals("fake engine", tally, n_letters=min(1_000_000, 50 * n), n=n)


def bundled_goals(scale: float) -> Iterator[Goal]:
    n = max(16, round(2_000 * scale))
    with serving(Options(engine="bundled", flags=_FLAGS)) as site:
        references = asyncio.run(_solo(site))
        make = _bundled_request(references)
        tally = asyncio.run(storm(site, n, make, n_letters=40, clients=16))
    yield from goals("bundled model", tally, n_letters=10 * n, n=n)


def goals(engine: str, tally: Tally, *, n_letters: int, n: int) -> Iterator[Goal]:
    total = tally.n_completed + tally.n_aborted
    half = round(0.48 * n)
    yield Goal(
        f"{engine}: size",
        f"{tally.n_letters:,} characters streamed, {tally.n_completed:,} completed, "
        f"{tally.n_aborted:,} aborted, {tally.n_proxied:,} through the proxy ({tally.n_cut:,} "
        f"cut by it), {tally.n_audited:,} compared with the audit; seed {SEED}",
        f">= {n_letters:,}, {half:,}, {half:,}",
        tally.n_letters >= n_letters and min(tally.n_completed, tally.n_aborted) >= half,
    )
    for kind in LOSSES:
        yield none_of(f"{engine}: {kind}", tally.losses[kind], total)
    if tally.native_max is not None:
        inside = tally.native_max
        yield Goal(f"{engine}: callers inside the model", f"{inside}", "1", inside == 1)
    for example in tally.examples:
        yield Goal(f"{engine}: example", example, "none", False)


async def storm(
    site: Site,
    n: int,
    make: Make,
    *,
    n_letters: int,
    clients: int = CLIENTS,
    patience: float = _PATIENCE_S,
    seed: int = SEED,
) -> Tally:
    """`n` requests from this many clients, every other one aborted, compared with the expected
    text.
    """
    run = _Storm(site, make, n_letters, patience, seed)
    await site.start()
    async with ChaosProxy(site.port, seed=seed) as proxy:
        run.proxy = proxy
        numbers = iter(range(n))
        await asyncio.gather(*(run.client(numbers) for _ in range(clients)))
    if not await site.idle():
        run.tally.note("stuck", "the engine did not come free")
    await run.audit()
    run.tally.native_max = (await site.state())["native_max"]
    return run.tally


class _Storm:
    """What the clients share."""

    proxy: ChaosProxy

    def __init__(self, site: Site, make: Make, n_letters: int, patience: float, seed: int) -> None:
        self.tally = Tally()
        self._site = site
        self._make = make
        self._n_letters = n_letters
        self._patience = patience
        self._chance = random.Random(seed)
        self._durations: deque[float] = deque([0.5], maxlen=64)
        self._texts: deque[str] = deque(maxlen=4096)  # of other requests
        self._received: dict[str, tuple[int, int]] = {}  # prompt -> letters and checksum
        self._unaudited = 0

    async def client(self, numbers: Iterator[int]) -> None:
        for number in numbers:
            await self._one(number)

    async def _one(self, number: int) -> None:
        chance = self._chance
        is_canary = number % 50 == 49
        body, expected = self._make(-1 if is_canary else number)
        self._texts.append(expected)
        aborted = number % 2 == 0 and not is_canary
        leave = self._leave() if aborted else None
        proxied = chance.random() < 0.05
        port = self.proxy.port if proxied else self._site.port
        path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
        before = time.monotonic()
        reply = await ask(port, path, body, leave=leave, patience=self._patience)
        tally = self.tally
        tally.n_aborted += aborted
        tally.n_completed += not aborted
        tally.n_letters += len(reply.text)
        tally.n_proxied += proxied
        if proxied and reply.port in self.proxy.cut and reply.end != "done":
            tally.n_cut += 1  # without a word, as networks do
        else:
            self._check(number, reply, expected, aborted=aborted, is_canary=is_canary)
        if reply.end == "done" and not aborted and not proxied:
            self._durations.append(time.monotonic() - before)
            if "prompt" in body and not is_canary:
                self._received[body["prompt"]] = len(reply.text), zlib.crc32(reply.text.encode())
        self._unaudited += 1
        if self._unaudited >= _AUDIT_EVERY:
            self._unaudited = 0
            await self.audit()

    def _leave(self) -> Leave:
        """Uniform over the current duration of requests, or over their steps."""
        chance = self._chance
        how = chance.choice(("fin", "rst"))
        if chance.random() < 0.5:
            longest = 1.1 * statistics.median(self._durations)
            return Leave(how, after=max(0.0005, chance.uniform(0, longest)))
        step = chance.randint(AT_CONNECT, self._n_letters + 2)
        return Leave(how, step=AFTER_LAST if step > self._n_letters else step)

    def _check(
        self, number: int, reply: Reply, expected: str, *, aborted: bool, is_canary: bool
    ) -> None:
        tally, end, text = self.tally, reply.end, reply.text
        where = f"request {number}, {end} {reply.status} {reply.detail} {reply.error}"
        if reply.status >= 500:
            tally.note("5xx", where)
        elif end in ("silent", "unreachable"):
            tally.note("silent", where)
        elif end == "stuck":
            tally.note("stuck", where)
        elif end == "broken":
            tally.note("garbled", where)
        elif end in ("error", "refused"):
            tally.note("lost", where)
        if reply.gap > 2 * _PING_S + 1.0 and end != "stuck":
            tally.note("stuck", f"{where}: no byte for {reply.gap:.1f} s")
        kind = difference(text, expected, self._texts, complete=end == "done")
        if kind and end in ("done", "left"):
            where += f": {text[-30:]!r} against {expected[: len(text)][-30:]!r}"
            tally.note("contaminated" if is_canary else kind, where)

    async def audit(self) -> None:
        """Compare what has arrived with what the server says it has sent."""
        for record in await self._site.audit():
            prompt = bytes(id_ for id_ in record["prompt"] if id_ < 256).decode(errors="replace")
            received = self._received.pop(prompt, None)
            if received is not None:
                self.tally.n_audited += 1
                if received != (record["n_letters"], record["crc"]):
                    self.tally.note("lost", f"{prompt}: {received} came, of {record}")


def difference(text: str, expected: str, others: Iterable[str], *, complete: bool) -> str:
    """What is wrong with the text: lost, duplicated, crossed, garbled; "" when nothing is."""
    if text == expected or (not complete and expected.startswith(text)):
        return ""
    at = next((i for i, (a, b) in enumerate(zip(text, expected, strict=False)) if a != b), -1)
    if at < 0:
        return "lost" if len(text) < len(expected) else "duplicated"
    window = text[at : at + 8]
    if window in expected[at + 1 : at + 64]:
        return "lost"
    if window in expected[max(0, at - 64) : at + len(window) - 1]:
        return "duplicated"
    if len(window) >= 4 and any(window in other for other in others if other != expected):
        return "crossed"
    return "garbled"


def letters_request(number: int, *, n_letters: int = 100) -> tuple[dict[str, Any], str]:
    """For the fake engine: the prompt begins with the number, on which all letters depend."""
    prompt = _CANARY if number < 0 else f"{number:07d} once upon a time"
    fields = {"model": "fake", "max_tokens": n_letters, "stream": number % 10 != 9}
    if number % 10 == 7:
        said = expected_reply(f"user: {prompt}\nassistant: ", n_letters)
        return {**fields, "messages": [{"role": "user", "content": prompt}]}, said
    return {**fields, "prompt": prompt}, expected_reply(prompt, n_letters)


_OPENINGS = ("Once upon a time", "The little dog", "In the garden", "One day", "A boy named Tim",
             "Lily wanted", "It was raining and", "The old man")  # fmt: skip


def _bundled_body(number: int) -> dict[str, Any]:
    kind = 0 if number < 0 else number % 64
    settings = {"temperature": 0.0} if kind % 2 == 0 else {"temperature": 0.8, "seed": kind}
    return {
        "model": "soliton-default",
        "prompt": f"{_OPENINGS[kind % 8]}{' and then' * (kind // 8)}",
        "max_tokens": 40,
        **settings,
    }


async def _solo(site: Site) -> list[str]:
    """What each kind of request gets when it runs alone."""
    return [
        (await ask(site.port, "/v1/completions", _bundled_body(kind))).text for kind in range(64)
    ]


def _bundled_request(references: list[str]) -> Make:
    def make(number: int) -> tuple[dict[str, Any], str]:
        stream = number % 10 != 9
        return {**_bundled_body(number), "stream": stream}, references[max(0, number) % 64]

    return make
