"""Kept streams under all that may be done to them: no token is lost or comes twice.

Each client begins a stream and then pauses, rewinds, feeds, stops and extends it, branches it and
peeks into it while it runs, or deletes it. The connection of the first reader is cut now and then:
it reads on from the number of the last event that it has. Others read along from any number. Now
and then the server is stopped and started again: then all read on.
"""

import asyncio
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from .goals import Goal, none_of
from .integrity import difference
from .letters import Letters
from .restarts import Restarts, kept_options
from .server import Options
from .wire import Leave, Reply, ask

SEED = 20261125
N_TOKENS = 1_000_000
CLIENTS = 24
LOSSES = ("lost", "duplicated", "garbled", "crossed", "silent", "stuck", "5xx", "refused")
OPTIONS = Options(
    token_s=0.0002, flags={"max-queue": "256", "drain-seconds": "0.1", "keep-streams-mb": "16"}
)
_RESTART_S = 15.0  # from one start to the next stop
_COMPLETIONS = "/v1/completions"
_ACTIONS = (
    "pause", "rewind", "inject", "force", "extend", "stop", "delete", "peek", "branch",
    "read along",
)  # fmt: skip
# Few are stopped or deleted, because such a stream has few tokens.
_WEIGHTS = (4, 4, 3, 3, 2, 1, 0.5, 2, 3, 3)
_OTHERS = ("",)


@dataclass(slots=True)
class Tally:
    """What was seen, and how often."""

    losses: Counter[str] = field(default_factory=Counter)
    done: Counter[str] = field(default_factory=Counter)
    n_tokens: int = 0
    examples: list[str] = field(default_factory=list)

    def note(self, kind: str, detail: str) -> None:
        self.losses[kind] += 1
        if len(self.examples) < 8:
            self.examples.append(f"{kind}: {detail}"[:300])


def measure(scale: float) -> Iterator[Goal]:
    n_tokens = round(N_TOKENS * scale)
    with kept_options(OPTIONS) as options:
        server = Restarts(options)
        try:
            tally = asyncio.run(storm(server, n_tokens, restart_s=_RESTART_S))
        finally:
            server.close()
    yield from goals(tally, n_tokens)


def goals(tally: Tally, n_tokens: int) -> Iterator[Goal]:
    done = ", ".join(f"{n:,} {name}" for name, n in sorted(tally.done.items()))
    figure = f"{tally.n_tokens:,} ({done}; seed {SEED})"
    yield Goal("tokens compared", figure, f">= {n_tokens:,}", tally.n_tokens >= n_tokens)
    for kind in LOSSES:
        yield none_of(f"streams, {kind}", tally.losses[kind], tally.n_tokens)
    for example in tally.examples:
        yield Goal("streams, example", example, "none", False)


async def storm(
    server: Restarts,
    n_tokens: int,
    *,
    clients: int = CLIENTS,
    seed: int = SEED,
    restart_s: float = math.inf,
) -> Tally:
    """As many streams as have so many tokens; the server is restarted every `restart_s` seconds."""
    tally, numbers = Tally(), iter(range(10**9))

    async def client(chance: random.Random) -> None:
        while tally.n_tokens < n_tokens and sum(tally.losses.values()) < 100:
            await _Session(server, tally, chance, next(numbers)).run()

    restarting = asyncio.create_task(_restart_often(server, tally, restart_s))
    await asyncio.gather(*(client(random.Random(f"{seed} {i}")) for i in range(clients)))
    async with server.acting():
        restarting.cancel()
        if not await server.site.idle():
            tally.note("stuck", "the engine did not come free")
    return tally


async def _restart_often(server: Restarts, tally: Tally, restart_s: float) -> None:
    while restart_s < math.inf:
        await asyncio.sleep(restart_s)
        for reply in await server.restart():
            tally.note("lost", f"resume: {reply.end} {reply.status} {reply.error}")
        tally.done["restarts"] += 1


class _Session:
    """One stream, from its beginning to its end."""

    def __init__(self, server: Restarts, tally: Tally, chance: random.Random, number: int) -> None:
        self._server = server
        self._tally = tally
        self._chance = chance
        self._name = f"stream {number}"
        self._letters = Letters(f"{number:07d} once upon a time", chance.randint(40, 160))
        self._id: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._is_paused = False
        self._is_deleted = False
        self._n_events = 0
        self._reading: list[tuple[int, asyncio.Task[list[Any]]]] = []

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._steer())
            read, end = await self._read_first()
            if not self._id.done():
                self._id.cancel()
        if self._id.cancelled():
            return
        if self._is_deleted:
            await self._check_deleted(read, end)
            return
        self._letters.to_the_end()
        self._compare(self._name, read, self._letters.text)
        log = await self._read_on(0)
        if log != read:
            self._tally.note("lost", f"{self._name}: the log differs from what was read")
        for after, task in self._reading:
            if await task != log[after:]:
                self._tally.note("lost", f"{self._name}: a reader from {after} on saw otherwise")

    async def _check_deleted(self, read: list[Any], end: str) -> None:
        if end != "refused":  # else it was cut off before, and what came then is forgotten
            self._letters.to(len(_text_of(read)))
            self._compare(self._name, read, self._letters.text)
        await asyncio.gather(*(task for _, task in self._reading))
        async with self._server.acting():
            reply = await ask(self._server.port, f"/v1/streams/{await self._id}")
        if reply.status != 404:
            self._tally.note("refused", f"{self._name}: {reply.status} after it was deleted")

    # Reading.

    async def _read_first(self) -> tuple[list[Any], str]:
        """All events, with however many connections, and how the last one ended."""
        body = {
            "model": "fake", "prompt": self._letters.prompt, "stream": True, "store": True,
            "max_tokens": self._letters.max_tokens, "background": True,
        }  # fmt: skip
        while True:
            n = await self._server.up()
            reply = await ask(
                self._server.port,
                _COMPLETIONS,
                body,
                leave=self._leave(),
                on_event=self._note_event,
            )
            if self._id.done() or self._server.n == n:
                break  # else nobody knows whether it has begun
        read = _told(reply)
        if not self._is_unfinished(reply, n):
            return read, reply.end
        return await self._read_to_end(read, is_leaving=True)

    async def _read_on(self, after: int) -> list[Any]:
        """The events behind so many."""
        read, _ = await self._read_to_end([None] * after, is_leaving=False)
        return read[after:]

    async def _read_to_end(self, read: list[Any], *, is_leaving: bool) -> tuple[list[Any], str]:
        while True:
            n = await self._server.up()
            path = f"/v1/streams/{await self._id}/events?starting_after={len(read)}"
            leave = self._leave() if is_leaving else None
            reply = await ask(self._server.port, path, after=len(read), leave=leave)
            read = read + _told(reply)
            if not self._is_unfinished(reply, n):
                return read, reply.end
            await asyncio.sleep(self._chance.uniform(0, 0.02))

    def _is_unfinished(self, reply: Reply, n: int) -> bool:
        """`n`: restarts before it was asked for."""
        if reply.end == "left":
            self._tally.done["cuts"] += 1
            return True
        if reply.end == "done" or (self._is_deleted and reply.end in ("error", "refused")):
            return False
        if self._server.n != n:
            self._tally.done["cuts by a restart"] += 1
            return True
        kind = "5xx" if reply.status >= 500 else reply.end
        kind = kind if kind in LOSSES else "lost"
        where = f"{reply.end} {reply.status} {reply.detail} {reply.error}"
        self._tally.note(kind, f"{self._name}: {where}")
        return False

    def _leave(self) -> Leave | None:
        chance = self._chance
        if chance.random() < 0.6:
            return None
        return Leave(chance.choice(("fin", "rst")), step=chance.randint(1, 60))

    def _note_event(self, event: Any) -> None:
        if "error" in event:  # of a shutdown: it has no number
            return
        self._n_events += 1
        if not self._id.done() and "id" in event:
            self._id.set_result(event["id"])

    # Steering.

    async def _steer(self) -> None:
        """A few things, one after another; then it runs to its end."""
        chance = self._chance
        await self._id
        for _ in range(chance.randint(1, 8)):
            await asyncio.sleep(chance.uniform(0, 0.01))
            [action] = chance.choices(_ACTIONS, _WEIGHTS)
            async with self._server.acting():
                await self._do(action)
            if self._is_deleted:
                return
        while self._is_paused:
            async with self._server.acting():
                await self._control("resume")

    async def _do(self, action: str) -> None:
        chance = self._chance
        others: dict[str, Callable[[], Any]] = {
            "peek": self._peek, "branch": self._branch, "read along": self._read_along,
            "delete": self._delete,
        }  # fmt: skip
        if action in others:
            await others[action]()
            return
        text = "".join(chance.choices("abcxyz", k=chance.randint(1, 9)))
        fields: dict[str, dict[str, Any]] = {
            "rewind": {"tokens": chance.randint(1, 12)},
            "inject": {"text": text},
            "force": {"token_id": ord(text[0])},
            "extend": {"max_tokens": self._letters.max_tokens + chance.randint(0, 40)},
        }
        if action == "pause" and self._is_paused:
            action = "resume"
        await self._control(action, **fields.get(action, {}))

    async def _control(self, action: str, **fields: Any) -> None:
        reply = await self._post("control", {"action": action, **fields})
        if reply.status == 409:  # it has ended
            self._is_paused = False
            return
        if reply.status != 200:
            is_no_room = action in ("rewind", "inject", "force") and reply.status == 400
            if not is_no_room:
                self._note_refused(action, reply)
            return
        self._tally.done[action] += 1
        self._apply(action, fields, reply.events[0])

    def _apply(self, action: str, fields: dict[str, Any], said: dict[str, Any]) -> None:
        letters, n_tokens = self._letters, said["completion_tokens"]
        letters.to(n_tokens + fields.get("tokens", 0))
        if action == "rewind":
            letters.rewind(fields["tokens"])
        elif action == "inject":
            letters.give(fields["text"])
        elif action == "force":
            letters.give(chr(fields["token_id"]))
        elif action == "extend":
            letters.max_tokens = fields["max_tokens"]
        elif action == "stop":
            letters.is_stopped = True
        else:
            self._is_paused = action == "pause"
        if action == "stop":
            self._is_paused = False
        if len(letters.text) != n_tokens:
            self._tally.note("lost", f"{self._name}: {action} at {n_tokens}, {len(letters.text)}")

    async def _peek(self) -> None:
        tried = self._chance.sample("abcdefghij", 3)
        reply = await self._post("peek", {"token_ids": [*map(ord, tried)], "tokens": 5})
        if reply.status != 200:
            self._note_refused("peek", reply)
            return
        self._tally.done["peeks"] += 1
        said = reply.events[0]
        for letter, one in zip(tried, said["alternatives"], strict=True):
            wanted = self._letters.branch(said["at"], letter, said["at"] + 5)
            wanted.to_the_end()
            if one["text"] != wanted.text[said["at"] :]:
                self._tally.note("garbled", f"{self._name}: peek at {said['at']}: {one['text']}")

    async def _branch(self) -> None:
        chance = self._chance
        given = chance.choice(("", "q", "hello"))
        room = chance.randint(1, 40)
        ways: dict[str, dict[str, Any]] = {
            "": {},
            "q": {"token_id": ord("q")},
            "hello": {"text": "hello"},
        }
        limit = len(self._letters.text) + len(given) + room
        body: dict[str, Any] = {**ways[given], "stream": True, "max_tokens": limit}
        if chance.random() < 0.5:
            body["at"] = chance.randint(0, len(self._letters.text))
        reply = await self._post("branch", body)
        if reply.status == 400 and given and "at" not in body:
            return  # the stream has passed the limit
        if reply.status != 200 or reply.end != "done":
            self._note_refused("branch", reply)
            return
        self._tally.done["branches"] += 1
        at = reply.events[0]["branch"]["at"]
        branch = self._letters.branch(at, given, max(limit, at))
        branch.to_the_end()
        self._compare(f"{self._name}, branch at {at}", reply.events, branch.text)

    async def _read_along(self) -> None:
        after = self._chance.randint(0, self._n_events)
        self._tally.done["readers"] += 1
        self._reading.append((after, asyncio.create_task(self._read_on(after))))

    async def _delete(self) -> None:
        self._is_deleted = True  # its readers may know it first
        path = f"/v1/streams/{await self._id}"
        reply = await ask(self._server.port, path, method="DELETE")
        if reply.status != 200:
            self._note_refused("delete", reply)
        self._tally.done["deleted"] += 1

    async def _post(self, route: str, body: dict[str, Any]) -> Reply:
        return await ask(self._server.port, f"/v1/streams/{await self._id}/{route}", body)

    def _note_refused(self, action: str, reply: Reply) -> None:
        kind = "5xx" if reply.status >= 500 else "refused"
        where = f"{action}: {reply.end} {reply.status} {reply.detail} {reply.error}"
        self._tally.note(kind, f"{self._name}: {where}")

    def _compare(self, name: str, events: Sequence[Any], expected: str) -> None:
        text = _text_of(events)
        self._tally.n_tokens += len(text)
        self._tally.done["streams"] += 1
        kind = difference(text, expected, _OTHERS, complete=True)
        if kind:
            self._tally.note(kind, f"{name}: {text[-40:]!r}, not {expected[-40:]!r}")


def _told(reply: Reply) -> list[Any]:
    """Its events without an error at the end, which says why there are no more."""
    events = reply.events
    if reply.end == "refused":
        return []
    return events[:-1] if reply.error else events


def _text_of(events: Sequence[Any]) -> str:
    """What is left of it behind the rewinds."""
    text = ""
    for event in events:
        for choice in event.get("choices", ()):
            text += choice["text"]
        control = event.get("control", {})
        text = text[: control.get("text_characters", len(text))]
    return text
