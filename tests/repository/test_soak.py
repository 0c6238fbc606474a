"""The instruments of the soak: each check passes on the server as it is, and sees a planted bug.

Limits of time here are ten times those of the soak, or absent.
"""

import asyncio
import random
import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context

import pytest

from tests.soak import (
    abort,
    bodies,
    body_shapes,
    drain,
    fairness,
    integrity,
    key_timing,
    liveness,
    memory,
    overload,
    readers,
    streams,
    trials,
)
from tests.soak.goals import Goal, jain, quantile, theil_sen
from tests.soak.letters import Letters
from tests.soak.model import expected_reply
from tests.soak.restarts import Restarts
from tests.soak.server import Options
from tests.soak.site import Site, serving
from tests.soak.wire import WireError, _Body, _Events, _NumberedEvents, ask


@pytest.fixture(scope="module")
def server() -> Iterator[Site]:
    """One process for all tests without keys that do not end it; a token takes a millisecond."""
    flags = {"send-timeout": "1", "drain-seconds": "0.5"}
    with serving(Options(token_s=0.001, ring=512, chunk_s=0.001, flags=flags)) as site:
        yield site


@pytest.fixture(scope="module")
def keyed() -> Iterator[Site]:
    """A process that needs keys, and lets few requests wait, and not for long."""
    flags = {**fairness.OPTIONS_KEYS.flags, "queue-timeout": "0.4", "drain-seconds": "0.5"}
    with serving(replace(fairness.OPTIONS_KEYS, flags=flags), key=fairness.GREEDY) as site:
        yield site


@pytest.fixture
def site(server: Site) -> Iterator[Site]:
    yield server
    asyncio.run(server.plant())
    assert asyncio.run(server.idle())


async def storm(site: Site, control: str, every: int) -> integrity.Tally:
    await site.plant(control, every=every)
    make = partial(integrity.letters_request, n_letters=20)
    tally = await integrity.storm(site, 50, make, n_letters=20, clients=8, patience=4.0)
    await site.plant()
    return tally


def test_a_storm_loses_nothing(site: Site) -> None:
    tally = asyncio.run(storm(site, "", 1))
    assert not tally.losses, tally.examples
    assert tally.n_letters > 400
    assert tally.native_max == 1
    assert tally.n_audited > 10


@pytest.mark.parametrize(
    ("control", "every", "loss"),
    [
        ("drop token", 200, "lost"),
        ("repeat token", 200, "duplicated"),
        ("garble token", 200, "garbled"),
        ("swap requests", 1, "crossed"),
        ("end silently", 8, "silent"),
        ("never end", 8, "stuck"),
        ("fail", 8, "5xx"),
        ("stale cache", 1, "contaminated"),
    ],
)
def test_a_storm_sees(site: Site, control: str, every: int, loss: str) -> None:
    tally = asyncio.run(storm(site, control, every))
    assert tally.losses[loss], tally


@pytest.mark.parametrize(
    ("control", "loss"),
    [
        ("", None),
        ("drop token", "lost"),
        ("repeat token", "duplicated"),
    ],
)
def test_streams_that_are_steered_see(site: Site, control: str, loss: str | None) -> None:
    async def storm() -> streams.Tally:
        await site.plant(control, every=20)
        tally = await streams.storm(Restarts(streams.OPTIONS, site), 500, clients=6)
        await site.plant()
        return tally

    tally = asyncio.run(storm())
    if loss is None:
        assert not tally.losses, tally.examples
        assert tally.done["streams"] > 2
    else:
        assert tally.losses[loss], tally


def test_what_a_steered_stream_says_is_known_beforehand() -> None:
    plain = expected_reply("one", 30)
    letters = Letters("one", 30)
    letters.to(12)
    letters.rewind(5)
    letters.give(plain[7:9])
    assert letters.branch(20, "", 25).ahead(25).text == plain[:25]
    letters.to_the_end()
    assert letters.text == plain
    letters.rewind(10)
    letters.give("Q")
    letters.to_the_end()
    assert letters.text[:21] == plain[:20] + "Q"
    assert letters.text[21:] == expected_reply("one" + plain[:20] + "Q", 9)


def test_the_time_to_free_the_engine_is_seen(site: Site) -> None:
    async def times(control: str, *, settle: float) -> float:
        await site.start()
        await site.plant(control, every=2)
        found: dict[str, list[float]] = {phase: [] for phase in abort.LIMITS}
        await abort.storm(site, 2, 16, (0.1, 0.2), found, settle=settle)
        await site.plant()
        return quantile(found["decode"], 1.0)

    assert asyncio.run(times("", settle=0.2)) < 10 * abort.LIMITS["decode"]
    assert asyncio.run(times("hold lease", settle=1.2)) > 0.9
    # On a slow machine they are not free at all when the time to settle is over.
    found = asyncio.run(times("no release on abort", settle=1.0))
    assert not found <= 10 * abort.LIMITS["decode"]


def test_an_engine_that_waits_for_readers_is_seen(site: Site) -> None:
    async def engine_free() -> Goal:
        await site.plant("wait for readers")
        found = await readers.goals(site, rounds=1, each=1, n_slow=1)
        await site.plant()
        return _goal(found, "engine free")

    assert not asyncio.run(engine_free()).met


def test_a_blocked_event_loop_is_seen(site: Site) -> None:
    async def found(control: str) -> list[Goal]:
        await site.plant(control)
        result = await liveness.goals("short", site, "fake", "x" * 8000, seconds=0.5)
        await site.plant()
        return result

    planted = asyncio.run(found("block loop"))
    assert not _goal(planted, "event-loop lag").met
    assert not _goal(planted, "/health").met


def test_a_body_that_holds_the_event_loop_is_seen(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = body_shapes.Shape("small", body_shapes.COMPLETIONS, bodies.small)

    with ProcessPoolExecutor(1, get_context("spawn")) as sender:

        async def found(control: str) -> list[Goal]:
            await site.plant(control)
            result = await bodies.goals(site, sender, [shape])
            await site.plant()
            return result

        planted = asyncio.run(found("block loop"))
        # No goal that is asserted for this one needs time after a body.
        monkeypatch.setattr(bodies, "_AFTER_S", 0.1)
        unharmed = asyncio.run(found(""))
    assert not _goal(planted, "/health, largest").met
    assert _goal(planted, "bodies without an answer").met
    assert _goal(unharmed, "bodies without an answer").met


def test_the_shapes_of_bodies_are_what_they_are_called() -> None:
    names = []
    for shape in body_shapes.shapes():
        assert len(body_shapes.body_of(shape, "fake")) <= body_shapes.LIMIT
        names.append(shape.name)
    assert len({*names}) == len(names) == body_shapes.N_SHAPES


def test_what_is_not_given_back_is_seen(site: Site) -> None:
    async def planted() -> list[Goal]:
        await site.plant("leak all", every=64)
        found = await memory.goals(site, 60, per_sample=20)
        await site.plant()
        return found

    goals = asyncio.run(planted())
    for name in ("resident memory", "descriptors", "tasks"):
        assert not _goal(goals, name).met, name


def test_a_trial_that_nobody_waits_for_is_seen(site: Site) -> None:
    async def idle_after(control: str) -> float:
        await site.plant(control)
        grammars = ["a?" * 24_000 + f"{control}{i}" for i in range(8)]
        seconds = await trials.await_idle(site, grammars, "fake", settle=0.3)
        await site.plant()
        return seconds

    assert asyncio.run(idle_after("keep trials")) > trials.IDLE_LIMIT_S


def test_who_comes_last_and_is_served_first_is_seen(site: Site) -> None:
    async def inversions(control: str) -> Goal:
        await site.plant(control)
        found = await fairness.equal_goals(site, 48)
        await site.plant()
        return _goal(found, "FIFO")

    assert asyncio.run(inversions("")).met
    assert not asyncio.run(inversions("last come first served")).met


@pytest.mark.parametrize(
    ("control", "every", "goal"),
    [
        ("hide retry-after", 1, "retry-after-ms"),
        ("ignore", 20, "unanswered"),
    ],
)
def test_an_overload_sees(keyed: Site, control: str, every: int, goal: str) -> None:
    async def planted() -> list[Goal]:
        await keyed.plant(control, every=every)
        found = await overload.goals(keyed, seconds=0.6, patience=2.0, n_tokens=60)
        await keyed.plant()
        return found

    # How many arrive within such a short run depends on the machine.
    assert not all(_goal(asyncio.run(planted()), goal).met for _ in range(3))


@pytest.mark.parametrize("control", ["", "run the expired"])
def test_what_waited_too_long_does_not_run(keyed: Site, control: str) -> None:
    async def told(n_tokens: int) -> Goal:
        await keyed.idle()
        await keyed.start()
        await keyed.plant(control)
        body = {"model": "fake", "prompt": "x", "max_tokens": n_tokens, "stream": True}
        requests = [ask(keyed.port, "/v1/completions", body, key=keyed.key) for _ in range(2)]
        await asyncio.gather(*requests)
        await keyed.idle()
        await keyed.plant()
        return overload.ran_behind(await keyed.audit())

    # Each alone takes longer than the queue's time, which is 0.4 s.
    goal = asyncio.run(told(n_tokens=600))
    assert "1 expired" in goal.figure
    assert goal.met == (control == "")


def test_a_greedy_key_is_seen(keyed: Site) -> None:
    async def wait() -> Goal:
        await keyed.plant("one key for all")
        return (await fairness.greedy_goals(keyed, seconds=1.0))[0]

    assert not asyncio.run(wait()).met


def test_a_server_that_dies_in_silence_is_seen() -> None:
    tally = drain.Tally()
    drain.round_of(_BUSY, tally, drain.OPTIONS, sign=signal.SIGKILL)
    goals = list(drain.goals(tally))
    for name in ("[DONE]", "silently", "exit codes"):
        assert not _goal(goals, name).met, name


# A round of the drain in which a long stream runs at the signal.
_BUSY = 22


def _goal(goals: list[Goal], name: str) -> Goal:
    return next(goal for goal in goals if name in goal.name)


def test_a_text_is_compared_position_by_position() -> None:
    text, other = expected_reply("one", 60), expected_reply("two", 60)

    def difference(seen: str, *, complete: bool = True) -> str:
        return integrity.difference(seen, text, [text, other], complete=complete)

    assert difference(text) == ""
    assert difference(text[:30], complete=False) == ""
    assert difference(text[:30]) == "lost"
    assert difference(text[:20] + text[21:]) == "lost"
    assert difference(text[:20] + text[19:]) == "duplicated"
    assert difference(text[:20] + other[20:]) == "crossed"
    assert difference(text[:20] + "?" + text[21:]) == "garbled"


def test_figures() -> None:
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile([float(i) for i in range(1, 101)], 0.99) == 99.0
    assert jain([1, 1, 1, 1]) == 1.0
    assert jain([1, 0, 0, 0]) == 0.25
    chance = random.Random(1)
    points = [(float(x), 5.0 * x + chance.uniform(-1, 1)) for x in range(50)]
    points[7] = (7.0, 10_000.0)
    assert abs(theil_sen(points) - 5.0) < 0.1


@pytest.mark.parametrize(
    "event",
    [b'data: {"a":1}\r\n\n', b"data:{}\n\n", b"event: x\n\n", b"data: 1\ndata: 2\n\n", b"\n\n"],
)
def test_the_client_takes_no_other_form_of_events(event: bytes) -> None:
    with pytest.raises(WireError):
        _Events().feed(event)


def test_the_client_takes_no_other_numbers_of_events() -> None:
    events = _NumberedEvents(4)
    assert events.feed(b": ping\nid: 5\ndata: {}\n\n: pi") == [b": ping", b"data: {}"]
    assert events.feed(b"ng\nid: 6\ndata: 1\n\n") == [b": ping", b"data: 1"]
    for wrong in (b"id: 8\ndata: 1\n\n", b"data: 1\n\n", b"id: 7\ndata: 1\ndata: 2\n\n"):
        with pytest.raises(WireError):
            _NumberedEvents(6).feed(wrong)


@pytest.mark.parametrize("data", [b"3\r\nabcde", b"0x3\r\nabc\r\n", b"0\r\n\r\nmore", b"3 \r\nabc"])
def test_the_client_takes_no_other_form_of_chunks(data: bytes) -> None:
    body = _Body({"transfer-encoding": "chunked"})
    with pytest.raises(WireError):
        body.feed(data)


def test_a_key_whose_time_tells_is_seen() -> None:
    fast, slow = [3300, 3310, 3290] * 1000, [3306, 3316, 3296] * 1000
    assert abs(key_timing.welch(fast, fast)) < 1
    assert abs(key_timing.welch(fast, slow)) > key_timing._LIMIT
