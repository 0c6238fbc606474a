"""The memory of recent values: which one is dropped when there are too many."""

from engine.grammar.recent import Recent


def test_what_was_not_used_for_longest_goes_first() -> None:
    recent: Recent[str, int] = Recent(2)
    recent.put("a", 1)
    recent.put("b", 2)
    assert recent.get("a") == 1
    recent.put("c", 3)
    assert [recent.get(key) for key in "abc"] == [1, None, 3]
    recent.put("a", 4)
    recent.put("d", 5)
    assert [recent.get(key) for key in "acd"] == [4, None, 5], "to put is to use"


def test_what_was_not_used_for_longest_makes_room_by_weight() -> None:
    recent: Recent[str, int] = Recent(8, max_weight=10)
    recent.put("a", 1, weight=4)
    recent.put("b", 2, weight=4)
    recent.get("a")
    recent.put("c", 3, weight=4)
    assert [recent.get(key) for key in "abc"] == [1, None, 3]
    recent.put("c", 4, weight=6)
    assert [recent.get(key) for key in "ac"] == [1, 4], "the weight of a key is its last one"
    recent.put("d", 5, weight=99)
    assert [recent.get(key) for key in "acd"] == [None, None, 5], "the last one stays"
