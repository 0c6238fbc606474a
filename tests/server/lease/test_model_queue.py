"""The order of requests for several models: no model starves, and none is loaded too often.

The last test is a model of the whole: models that come into memory by turns, with every promise
checked at every step, and with its negative controls.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st

from engine import Engine
from server.lease.fair_queue import FairQueue
from server.lease.model_queue import ModelQueue
from server.lease.served_model import ServedModel
from server.lease.shelf import Shelf


def queue_of(text: str, free: str = "abcd") -> ModelQueue[str, str]:
    """ "a.x1 b.x1": in this order, each under the model before the point, and its letter as key."""
    queue: ModelQueue[str, str] = ModelQueue(set(free).__contains__)
    for item in text.split():
        model, _, name = item.partition(".")
        queue.append(model, name[0], item)
    return queue


def turns(queue: ModelQueue[str, str]) -> list[str]:
    """The order in which they would be served, if every turn may end."""
    queue, served = copy.deepcopy(queue), list[str]()
    while (item := queue.pop(may_swap=True)) is not None:
        served.append(item)
    return served


@pytest.mark.parametrize(
    ("came", "served"),
    [
        ("", ""),
        ("a.x1 a.y1 a.x2 a.x3", "a.x1 a.y1 a.x2 a.x3"),
        ("a.x1 a.x2 a.x3 b.x1 c.x1", "a.x1 b.x1 c.x1 a.x2 a.x3"),
        ("a.x1 a.x2 a.y1 b.x1 b.x2", "a.x1 b.x1 a.y1 b.x2 a.x2"),
    ],
)
def test_models_take_turns_and_keys_within_each(came: str, served: str) -> None:
    assert turns(queue_of(came)) == served.split()


def test_a_model_in_memory_goes_on_while_no_turn_may_end() -> None:
    queue = queue_of("a.x1 b.x1 a.x2 c.x1", free="a")
    assert [queue.pop(may_swap=False) for _ in range(3)] == ["a.x1", "a.x2", None]
    assert not queue.has_next(may_swap=False)
    assert queue.has_next(may_swap=True)
    queue.append("a", "x", "a.x3")
    assert queue.pop(may_swap=True) == "b.x1", "it had its turn, so the others come first"
    assert queue.pop(may_swap=True) == "c.x1"
    assert queue.pop(may_swap=True) == "a.x3"
    assert not queue.has_next(may_swap=True)


def test_a_flood_for_one_model_leaves_the_other_its_turns() -> None:
    queue = queue_of(" ".join(f"a.x{i}" for i in range(50)), free="a")
    for i in range(10):
        assert queue.pop(may_swap=True) == f"a.x{i}"
        queue.append("b", "x", f"b.x{i}")
        assert queue.pop(may_swap=True) == f"b.x{i}"


def test_positions_are_exact_while_all_are_in_memory() -> None:
    queue = queue_of("a.x1 b.x1 a.x2 a.y1 c.z1 b.x2")
    for _ in range(3):
        order = turns(queue)
        places = [queue.position(item[0], item[2], item) for item in order]
        assert places == list(range(len(order)))
        queue.pop(may_swap=True)
    assert queue.position("d", "x", "d.x1") is None
    assert queue.position("a", "x", "a.x9") is None


def test_what_waits_for_weights_comes_after_what_has_them() -> None:
    queue = queue_of("b.x1 a.x1 a.x2", free="a")
    assert queue.position("a", "x", "a.x2") == 2, "the other may come in between"
    queue = queue_of("a.x1 a.x2 b.x1 c.x1 c.x2", free="a")
    assert queue.pop(may_swap=False) == "a.x1"
    assert [queue.position(m, "x", f"{m}.x1") for m in "bc"] == [1, 2]


@pytest.mark.parametrize(
    ("waiting", "newcomer", "displaced"),
    [
        ("", "a", None),
        ("a1 a2 a3", "a", None),
        ("a1 a2 a3", "b", "a3"),
        ("a1 a2", "b", "a2"),
        ("a1", "b", None),  # or the two would displace each other for ever
        ("a1 a2 b1", "b", None),
        ("a1 b1 a2 b2 a3 a4", "b", "a4"),
        ("a1 b1 b2 c1", "a", None),
        ("a1 b1 b2 c1", "d", "b2"),
    ],
)
@pytest.mark.parametrize("of_models", [False, True])
def test_what_has_most_gives_way_to_what_has_less(
    waiting: str, newcomer: str, displaced: str | None, *, of_models: bool
) -> None:
    """Keys of one model, or models of one key."""

    def item(name: str) -> str:
        return f"{name[0]}.x{name[1:]}" if of_models else f"m.{name}"

    queue = queue_of(" ".join(map(item, waiting.split())))
    model, key = item(newcomer).split(".")
    gone = queue.displace(model, key[0])
    assert gone == (None if displaced is None else item(displaced))
    assert sorted(turns(queue)) == sorted({*map(item, waiting.split())} - {gone})


# The model of the whole, in simulated time.

EPSILON = 1e-6
Queue = ModelQueue[ServedModel | None, "Asked"]


@dataclass(eq=False)
class Time:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Weights:
    """An engine that does nothing but load, which takes its time."""

    name: str
    load_s: float
    time: Time
    weight_bytes: int = 10
    kv_bytes: int = 1
    is_asleep: bool = True
    n_left: int = 0
    """How often it had to leave."""

    def wake(self, _: object, make_room: Callable[[], None]) -> None:
        make_room()
        self.time.now += self.load_s
        self.is_asleep = False

    def warm_up(self) -> None:
        """It is always warm."""

    def sleep(self) -> None:
        self.is_asleep = True
        self.n_left += 1


@dataclass(eq=False)
class Asked:
    """One request."""

    model: ServedModel
    key: str
    came: float
    takes: float


@dataclass(frozen=True)
class Plan:
    """What comes, and how long everything takes: (model, key, pause before it, time it takes)."""

    loads: tuple[float, ...]
    room: int
    turn: float | None
    requests: tuple[tuple[int, str, float, float], ...]


TIMES = st.sampled_from([0.0, 0.25, 1.0, 3.0, 10.0])
PLANS = st.integers(1, 4).flatmap(
    lambda n: st.builds(
        Plan,
        loads=st.tuples(*[st.sampled_from([0.5, 1.0, 4.0])] * n),
        room=st.integers(1, n),
        turn=st.sampled_from([None, 0.5, 2.0, 8.0]),
        requests=st.lists(
            st.tuples(st.integers(0, n - 1), st.sampled_from("xxy"), TIMES, TIMES), max_size=40
        ).map(tuple),
    )
)


class Server:
    """The engine thread, over the real queue and shelf. `broken`: the promises it did not keep."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.time = plan, Time()
        self.engines = [Weights(f"m{i}", s, self.time) for i, s in enumerate(plan.loads)]
        models = [ServedModel((w.name,), cast(Engine, w), clock=self.time) for w in self.engines]
        self.limit = 10 * plan.room + len(models)
        self.shelf = Shelf(
            models,
            max_bytes=None if plan.room == 1 else self.limit,
            turn_seconds=plan.turn,
            clock=self.time,
        )
        self.queue: Queue = ModelQueue(self.shelf.is_free)
        self.coming, came = list[Asked](), 0.0
        for number, key, pause, takes in plan.requests:
            came += pause
            self.coming.append(Asked(models[number], key, came, takes))
        self.waiting = list[Asked]()
        self.since: dict[ServedModel, float] = {}
        """When a model began to wait, or had its last turn."""
        self.loads: dict[ServedModel, list[ServedModel]] = {}
        """What was loaded since then."""
        self.may_load_at = 0.0
        longest = max((one.takes for one in self.coming), default=0.0)
        turn = max(plan.loads) if plan.turn is None else plan.turn
        self.patience = (len(models) + 1) * (turn + max(plan.loads) + longest)
        self.broken = set[str]()
        self.n_served = 0

    @property
    def may_swap(self) -> bool:
        return not self.shelf.turn_left

    def pop(self) -> Asked | None:
        return self.queue.pop(may_swap=self.may_swap)

    def run(self) -> set[str]:
        while self.coming or self.waiting:
            self.arrive()
            if self.queue.has_next(may_swap=self.may_swap):
                asked = self.pop()
                assert asked is not None, "there was one"
                self.serve(asked)
            else:
                self.pass_time()
        return self.broken

    def arrive(self) -> None:
        while self.coming and self.coming[0].came <= self.time.now + EPSILON:
            asked = self.coming.pop(0)
            if not any(other.model is asked.model for other in self.waiting):
                self.begins_to_wait(asked.model)
            self.waiting.append(asked)
            self.queue.append(asked.model, asked.key, asked)

    def begins_to_wait(self, model: ServedModel) -> None:
        self.since[model], self.loads[model] = self.time.now, []

    def pass_time(self) -> None:
        """To the next request, or to the end of the turn."""
        until = [one.came for one in self.coming[:1]]
        if self.waiting:
            assert self.shelf.turn_left > 0, "something waits, and nothing is in its way"
            until.append(self.time.now + self.shelf.turn_left + EPSILON)
        self.time.now = min(until)

    def serve(self, asked: Asked) -> None:
        model = asked.model
        self.expect(self.time.now - self.since[model] <= self.patience, "nobody starves")
        if not model.is_loaded:
            self.load(model)
        self.shelf.bring(model, lambda *_: None)
        first = next(one for one in self.waiting if (one.model, one.key) == (model, asked.key))
        self.expect(first is asked, "first come, first served, in a key")
        self.waiting.remove(asked)
        self.begins_to_wait(model)
        self.time.now += asked.takes
        self.shelf.used(model)
        self.n_served += 1

    def load(self, model: ServedModel) -> None:
        begin, n_left = self.time.now, sum(each.n_left for each in self.engines)
        self.shelf.bring(model, lambda *_: None)
        if sum(each.n_left for each in self.engines) > n_left:
            self.expect(begin >= self.may_load_at - EPSILON, "a turn lasts")
        turn = model.loads.seconds if self.plan.turn is None else self.plan.turn
        self.may_load_at = self.time.now + turn
        n_bytes = sum(each.weight_bytes for each in self.engines if not each.is_asleep)
        self.expect(n_bytes + len(self.engines) <= self.limit, "there is room")
        for other in {one.model for one in self.waiting} - {model}:
            self.expect(model not in self.loads[other], "each model is passed once")
            self.loads[other].append(model)

    def expect(self, holds: bool, promise: str) -> None:
        if not holds:
            self.broken.add(promise)


@settings(max_examples=300, suppress_health_check=list(HealthCheck))
@given(PLANS)
def test_models_share_the_engine(plan: Plan) -> None:
    server = Server(plan)
    assert server.run() == set()
    assert server.n_served == len(plan.requests)


# Negative controls.


class EndsTurnsAtOnce(Server):
    @property
    def may_swap(self) -> bool:
        return True


class PrefersWhatIsLoaded(Server):
    def pop(self) -> Asked | None:
        return self.queue.pop(may_swap=False) or super().pop()


class ForgetsWhoHadItsTurn(Server):
    def pop(self) -> Asked | None:
        self.queue._last = None
        return super().pop()


class LetsNobodyLeave(Server):
    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.shelf._max_bytes = 1 << 20


class ServesTheLastFirst(Server):
    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.queue = ModelQueue(self.shelf.is_free, LastFirst)


class LastFirst(FairQueue[Asked]):
    def pop(self) -> Asked:
        return self.take_newest(self.greediest)


@pytest.mark.parametrize(
    ("broken", "promise"),
    [
        (EndsTurnsAtOnce, "a turn lasts"),
        (PrefersWhatIsLoaded, "nobody starves"),
        (ForgetsWhoHadItsTurn, "nobody starves"),
        (LetsNobodyLeave, "there is room"),
        (ServesTheLastFirst, "first come, first served, in a key"),
    ],
)
def test_a_server_that_breaks_a_promise_is_caught(broken: type[Server], promise: str) -> None:
    found = find(
        PLANS,
        lambda plan: promise in broken(plan).run(),
        settings=settings(
            max_examples=20_000,
            derandomize=True,
            database=None,
            phases=(Phase.generate,),
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert promise not in Server(found).run()
