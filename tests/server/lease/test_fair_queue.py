"""The order of waiting items: keys take turns, and a key's items keep their order of arrival."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.lease.fair_queue import FairQueue


def queue_of(text: str) -> FairQueue[str]:
    """ "a1 b1 a2": in this order, each under its letter."""
    queue: FairQueue[str] = FairQueue()
    for item in text.split():
        queue.append(item[0], item)
    return queue


def turns(queue: FairQueue[str]) -> list[str]:
    """The order in which they would be served."""
    return copy.deepcopy(queue).clear()


@pytest.mark.parametrize(
    ("came", "served"),
    [
        ("", ""),
        ("a1 a2 a3", "a1 a2 a3"),
        ("a1 a2 a3 b1 b2 c1", "a1 b1 c1 a2 b2 a3"),
        ("b1 a1 a2 c1 b2", "b1 a1 c1 b2 a2"),
    ],
)
def test_keys_take_turns(came: str, served: str) -> None:
    assert turns(queue_of(came)) == served.split()


def test_a_new_key_comes_before_the_key_that_had_the_last_turn() -> None:
    queue = queue_of("a1 a2 a3 b1")
    assert queue.pop() == "a1"
    queue.append("c", "c1")
    assert turns(queue) == ["b1", "c1", "a2", "a3"]
    queue.pop()
    queue.append("d", "d1")
    assert turns(queue) == ["c1", "a2", "d1", "a3"], "and after all others"


def test_a_key_that_comes_back_gains_nothing() -> None:
    queue = queue_of("a1 b1 b2 c1")
    assert queue.pop() == "a1"
    queue.append("a", "a2")
    queue.append("d", "d1")
    assert turns(queue) == ["b1", "c1", "d1", "a2", "b2"]


def test_a_greedy_key_keeps_no_other_waiting_for_more_than_a_turn() -> None:
    queue: FairQueue[str] = FairQueue()
    for i in range(100):
        queue.append("greedy", f"g{i}")
    for i in range(20):
        queue.pop()
        queue.append("polite", f"p{i}")
        assert queue.position("polite", f"p{i}") == 0
        queue.pop()


def test_leaving_the_middle_keeps_the_order_of_the_rest() -> None:
    queue = queue_of("a1 a2 b1 a3")
    assert queue.remove("a", "a2")
    assert not queue.remove("a", "a2"), "it is gone"
    assert not queue.remove("c", "c1"), "it never came"
    assert turns(queue) == ["a1", "b1", "a3"]
    assert queue.remove("b", "b1")
    assert (len(queue), turns(queue)) == (2, ["a1", "a3"])


STEPS = st.lists(st.one_of(st.sampled_from("aabcd"), st.just("pop"), st.integers(0, 9)))


@given(STEPS)
def test_no_item_is_lost_and_none_is_passed_twice(steps: list[str | int]) -> None:
    queue: FairQueue[tuple[str, int]] = FairQueue()
    waiting: dict[tuple[str, int], None] = {}
    passed: dict[
        str, dict[str, int]
    ] = {}  # By waiting key: turns of others since it began to wait.
    for number, step in enumerate(steps):
        if step == "pop" and waiting:
            key, came = queue.pop()
            assert came == min(other for name, other in waiting if name == key)
            del waiting[key, came]
            passed.pop(key)
            for others in passed.values():
                others[key] = others.get(key, 0) + 1
                assert others[key] == 1, f"{key} had two turns while another key waited"
            if any(name == key for name, _ in waiting):
                passed[key] = {}
        elif isinstance(step, int) and waiting:
            key, came = list(waiting)[step % len(waiting)]
            assert queue.remove(key, (key, came))
            del waiting[key, came]
            if not any(name == key for name, _ in waiting):
                passed.pop(key)
        elif isinstance(step, str) and step != "pop":
            queue.append(step, (step, number))
            waiting[step, number] = None
            passed.setdefault(step, {})
        assert len(queue) == len(waiting)
        order = copy.deepcopy(queue).clear()
        assert sorted(order) == sorted(waiting)
        assert [queue.position(item[0], item) for item in order] == list(range(len(order)))
    assert queue.position("a", ("a", -1)) is None
