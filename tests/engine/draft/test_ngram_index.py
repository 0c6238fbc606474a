"""The index of earlier occurrences, native and in Python, against a search through everything."""

import random
from collections.abc import Callable, Sequence
from typing import Protocol

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.draft import ngram_reference as ngram_ref
from engine.draft.ngram_reference import BYTES_PER_TOKEN, MIN_RECENT
from engine.native import _cpu

ROOM = 1 << 20

Found = tuple[int, bool, tuple[int, ...]]


class Index(Protocol):
    def __len__(self) -> int: ...
    def begin(self, tokens: Sequence[int], /) -> None: ...
    def extend(self, tokens: Sequence[int], /) -> None: ...
    def rollback(self, size: int, /) -> None: ...
    def find(self, n: int, tokens: Sequence[int] = ...) -> Found | None: ...
    def keep(self, n_prompt: int, /) -> None: ...
    def recent_size(self) -> int: ...


MakeIndex = Callable[[int], Index]


@pytest.fixture(params=["native", "python"])
def make_index(request: pytest.FixtureRequest) -> MakeIndex:
    return _cpu.NgramIndex if request.param == "native" else ngram_ref.NgramIndex


def searched(own: list[int], outputs: list[list[int]], n: int) -> Found | None:
    """What the index should find, for texts with fewer occurrences than it compares."""
    # (length, own first, newest first), of every place that the end of `own` could match.
    places = []
    for age, text in enumerate([own, *reversed(outputs)]):
        for end in range(len(text) - (text is own)):
            length = 0
            while length < min(32, end + 1, len(own)) and text[end - length] == own[-1 - length]:
                length += 1
            if length >= 3:
                places.append((length, text is own, -age, end, text))
    if not places:
        return None
    longest, in_own, *_ = max(places, key=lambda place: place[:2])
    matches = [place for place in places if place[:2] == (longest, in_own)]
    matches.sort(key=lambda place: place[2:4], reverse=True)
    draft: list[int] = []
    share = 1.0
    while len(draft) < min(n, 2 * longest):
        nexts = []
        for *_, end, text in matches:
            after = (text + draft if text is own else text)[end + 1 :]
            if after[: len(draft)] == draft and len(after) > len(draft):
                nexts.append(after[len(draft)])
        if not nexts:
            break
        token = max(nexts, key=lambda t: (nexts.count(t), -nexts.index(t)))
        share *= nexts.count(token) / len(nexts)
        if share < 0.4:
            break
        draft.append(token)
    return (longest, not in_own, tuple(draft)) if draft else None


texts = st.integers(1, 4).flatmap(lambda n: st.lists(st.integers(0, n - 1), max_size=50))


@given(data=st.data())
@settings(max_examples=60, deadline=None)
@pytest.mark.parametrize("make", [_cpu.NgramIndex, ngram_ref.NgramIndex])
def test_finds_what_a_search_through_everything_finds(make: MakeIndex, data: st.DataObject) -> None:
    index = make(ROOM)
    outputs: list[list[int]] = []
    for output in data.draw(st.lists(texts, max_size=3)):
        index.begin([7, 8])
        for token in output:
            index.extend([token])
        index.keep(2)
        outputs.append(output)
    own = data.draw(texts)
    index.begin(own)
    for token in data.draw(texts):
        n = data.draw(st.integers(0, 15))
        assert index.find(n) == searched(own, outputs, n)
        own.append(token)
        if data.draw(st.booleans()):
            index.extend([token])
        else:
            assert index.find(n, [token]) == searched(own, outputs, n)


@given(data=st.data())
@settings(max_examples=60, deadline=None)
@pytest.mark.parametrize("make", [_cpu.NgramIndex, ngram_ref.NgramIndex])
def test_rollback_undoes_exactly(make: MakeIndex, data: st.DataObject) -> None:
    index, own = make(ROOM), data.draw(texts)
    index.begin(own)
    for _ in range(data.draw(st.integers(1, 6))):
        size = data.draw(st.integers(0, len(own)))
        index.rollback(size)
        del own[size:]
        for token in data.draw(texts):
            index.extend([token])
            own.append(token)
        fresh = make(ROOM)
        fresh.begin(own)
        assert len(index) == len(own)
        assert index.find(15) == fresh.find(15)


@pytest.mark.parametrize("seed", range(12))
def test_native_and_python_agree_on_long_texts(seed: int) -> None:
    # Long enough that tables grow, outputs are dropped and not every occurrence is compared.
    chance = random.Random(seed)
    n_tokens = [1, 2, 3, 5, 30, 4096][seed % 6]
    both: tuple[Index, Index] = (_cpu.NgramIndex(40 * 700), ngram_ref.NgramIndex(40 * 700))
    for _ in range(5):
        prompt = [chance.randrange(n_tokens) for _ in range(chance.randrange(200))]
        for index in both:
            index.begin(prompt)
        for _ in range(300):
            size = chance.randrange(len(both[0]) + 1)
            token = chance.randrange(n_tokens)
            back = chance.random() < 0.02
            for index in both:
                if back:
                    index.rollback(size)
                else:
                    index.extend([token])
            n = chance.randrange(16)
            assert both[0].find(n) == both[1].find(n)
        for index in both:
            index.keep(len(prompt))
        assert both[0].recent_size() == both[1].recent_size()


def test_the_last_token_of_the_prompt_can_follow_a_match(make_index: MakeIndex) -> None:
    index = make_index(ROOM)
    index.begin([1, 2, 3, 4])
    for token in [1, 2, 3]:
        index.extend([token])
    assert index.find(1) == (3, False, (4,))


def test_two_equal_tokens_are_no_match(make_index: MakeIndex) -> None:
    index = make_index(ROOM)
    index.begin([1, 2, 5, 6, 7, 1, 2])
    assert index.find(15) is None


def test_longer_matches_make_longer_drafts(make_index: MakeIndex) -> None:
    text = list(range(40))
    index = make_index(ROOM)
    for n_matching in range(3, 9):
        index.begin([*text, 99, *text[:n_matching]])
        draft = tuple(text[n_matching : n_matching + min(2 * n_matching, 15)])
        assert index.find(15) == (n_matching, False, draft)


def test_a_loop_is_drafted_beyond_its_end(make_index: MakeIndex) -> None:
    index = make_index(ROOM)
    index.begin([1, 2, 3] * 4)
    assert index.find(15) == (9, False, (1, 2, 3) * 5)


def test_the_longest_match_wins_then_the_most_frequent_then_the_newest(
    make_index: MakeIndex,
) -> None:
    index = make_index(ROOM)
    index.begin([9, 1, 2, 3, 50, 8, 1, 2, 3, 60, 7, 1, 2, 3, 60, 9, 1, 2, 3])
    assert index.find(1) == (4, False, (50,)), "longest"
    index.begin([5, 1, 2, 3, 50, 6, 1, 2, 3, 50, 7, 1, 2, 3, 60, 8, 1, 2, 3])
    assert index.find(1) == (3, False, (50,)), "most frequent"
    index.begin([5, 1, 2, 3, 50, 6, 1, 2, 3, 60, 8, 1, 2, 3])
    assert index.find(1) == (3, False, (60,)), "newest"


def test_no_draft_where_every_occurrence_went_another_way(make_index: MakeIndex) -> None:
    index = make_index(ROOM)
    index.begin([5, 1, 2, 3, 50, 6, 1, 2, 3, 60, 7, 1, 2, 3, 70, 8, 1, 2, 3])
    assert index.find(15) is None


def test_recent_outputs_are_searched_after_the_sequence_itself(make_index: MakeIndex) -> None:
    index = make_index(ROOM)
    index.begin([1, 2, 3])
    for token in [4, 5, 6, 7, 8]:
        index.extend([token])
    index.keep(3)
    index.begin([4, 5, 6])
    assert index.find(15) == (3, True, (7, 8)), "an output ends where it ended"
    index.begin([1, 2, 3])
    assert index.find(15) is None, "prompts are not kept"
    index.begin([4, 5, 6, 50, 4, 5, 6])
    assert index.find(1) == (3, False, (50,)), "of equally long matches the sequence's own"
    index.begin([5, 6, 50, 4, 5, 6])
    assert index.find(1) == (3, True, (7,))


@pytest.mark.parametrize("n_output", [100, 600, 5000])
def test_recent_outputs_stay_within_their_bytes(n_output: int) -> None:
    limit = BYTES_PER_TOKEN * 1000
    index = _cpu.NgramIndex(limit)
    newest: list[int] = []
    for output in range(30):
        newest = [output * n_output + i for i in range(n_output)]
        index.begin([0])
        for token in newest:
            index.extend([token])
        index.keep(1)
        assert index.recent_bytes() <= limit
        assert index.recent_size() <= 1000
    index.begin(newest[-9:-5])
    assert index.find(4) == (4, True, tuple(newest[-5:-1])), "the newest is there"
    index.begin([0, 1, 2, 3])
    assert index.find(4) is None, "the oldest is gone"


def test_nothing_is_kept_without_room(make_index: MakeIndex) -> None:
    index = make_index(BYTES_PER_TOKEN * MIN_RECENT - 1)
    index.begin([1, 2, 3, 4])
    index.keep(0)
    assert index.recent_size() == 0
