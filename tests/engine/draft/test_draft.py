"""The speculator: which drafter is asked, in which order, what is counted, and what a rollback
undoes.
"""

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.abort import AbortFlag
from engine.draft.drafter import Drafter, Origin, Prospect
from engine.draft.length import Acceptance
from engine.draft.ngram import NgramDrafter
from engine.draft.row_costs import RowCosts
from engine.draft.speculator import MAX_DRAFT, NO_DRAFT, Draft, DraftCount, Speculator
from engine.native import cpu as native

FLAT = (1.0, 1.05, 1.15, 1.4, 2.2)
CURVES = [FLAT, (1.0, 1.2, 1.5, 2.2, 3.6)]


class ScriptedDrafter:
    """Drafts what it was given; remembers how it was called."""

    origin: Origin = "draft_model"

    def __init__(self, script: Sequence[int] = (), *, each: float = 0.0) -> None:
        self.script = tuple(script)
        self.each = each
        self.acceptance = Acceptance(0.9)
        self.tokens: list[int] = []
        self.isolation_key = ""
        self.has_ended = False

    def begin(self, prompt_ids: Sequence[int], abort: AbortFlag | None, isolation_key: str) -> None:
        self.tokens = list(prompt_ids)
        self.isolation_key = isolation_key

    def accept(self, token_id: int) -> None:
        self.tokens.append(token_id)

    def rollback(self, mark: int) -> None:
        del self.tokens[mark:]

    def prospect(self, n_max: int) -> Prospect | None:
        return Prospect(self.acceptance, n_max, first=self.each, each=self.each)

    def draft(self, n: int) -> tuple[int, ...]:
        return self.script[:n]

    def end(self) -> None:
        self.has_ended = True


@pytest.fixture(params=["native", "python"])
def ngram(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "python":
        monkeypatch.setattr(native, "MISSING", "for a test")


def generate(
    speculator: Speculator, prompt: Sequence[int], text: Sequence[int], costs: RowCosts
) -> float:
    """Makes `text` the output; returns its tokens per plain step."""
    speculator.begin(prompt)
    return follow(speculator, text, costs)


def follow(speculator: Speculator, text: Sequence[int], costs: RowCosts) -> float:
    n, spent = 0, 0.0
    while n < len(text):
        draft = speculator.propose(MAX_DRAFT).token_ids
        n_accepted = 0
        for drafted, token in zip(draft, text[n:-1], strict=False):
            if drafted != token:
                break
            n_accepted += 1
        spent += costs.table[1 + len(draft)]
        speculator.observe(len(draft), n_accepted)
        for token in text[n : n + n_accepted + 1]:
            speculator.accept(token)
        n += n_accepted + 1
    return len(text) / spent


def words(n: int, seed: int) -> list[int]:
    """Token ids as skewed as those of a text, but in no order."""
    chance = random.Random(seed)
    return [int(4096 ** chance.random()) for _ in range(n)]


def edited(text: Sequence[int], share: float) -> list[int]:
    chance = random.Random(1)
    return [chance.randrange(4096) if chance.random() < share else token for token in text]


@pytest.mark.usefixtures("ngram")
@pytest.mark.parametrize("costs", CURVES)
def test_a_text_copied_with_small_edits_is_twice_as_fast(costs: tuple[float, ...]) -> None:
    source, row_costs = words(1000, 0), RowCosts(costs)
    speculator = Speculator([NgramDrafter()], row_costs)
    assert generate(speculator, source, edited(source, 0.03), row_costs) > 2.0
    speculator = Speculator([], row_costs)
    speculator.begin([1, 2, 3], prediction=source)
    assert follow(speculator, edited(source, 0.03), row_costs) > 2.0


@pytest.mark.parametrize("costs", CURVES)
@pytest.mark.parametrize("n_ids", [4, 4096])
def test_noise_costs_less_than_three_percent(costs: tuple[float, ...], n_ids: int) -> None:
    chance = random.Random(0)
    row_costs = RowCosts(costs)
    drafters: list[Drafter] = [NgramDrafter(), ScriptedDrafter([9999] * MAX_DRAFT, each=0.2)]
    text = [chance.randrange(n_ids) for _ in range(1500)]
    speculator = Speculator(drafters, row_costs)
    speculator.begin([1, 2, 3], prediction=[chance.randrange(n_ids) for _ in range(1500)])
    assert follow(speculator, text, row_costs) > 0.97


@pytest.mark.usefixtures("ngram")
def test_outputs_are_drafted_from_by_later_sequences() -> None:
    costs, text = RowCosts(FLAT), words(300, 0)
    speculator = Speculator([NgramDrafter()], costs)
    speculator.begin([1, 2], isolation_key="anna")
    follow(speculator, text, costs)
    speculator.end()
    for key in ("anna", "ben", "", "anna"):
        speculator.begin([3, 4], isolation_key=key)
        for token in text[100:120]:
            speculator.accept(token)
        draft = speculator.propose(8)
        if key == "anna":
            assert draft == Draft(tuple(text[120:128]), "pool"), "its own output"
        else:
            assert not draft.token_ids, "that of another key"
        assert speculator.stats.by_origin == {}


@pytest.mark.usefixtures("ngram")
def test_a_draft_says_whether_it_comes_from_the_sequence_or_from_the_pool() -> None:
    costs, text = RowCosts(FLAT), words(100, 0)
    speculator = Speculator([NgramDrafter()], costs)
    generate(speculator, [1, 2], text, costs)
    speculator.end()
    speculator.begin([3, 4, *text[40:80]])
    for token in text[40:60]:
        speculator.accept(token)
    assert speculator.propose(8).origin == "ngram", "of equally long matches that of the sequence"
    speculator.begin(text[:30])
    draft = speculator.propose(8)
    assert draft == Draft(tuple(text[30:38]), "pool")
    speculator.observe(8, 5)
    assert speculator.stats.by_origin == {"pool": DraftCount(1, 8, 5)}


@pytest.mark.usefixtures("ngram")
def test_the_pool_that_was_used_last_longest_ago_gives_way() -> None:
    drafter = NgramDrafter(most_pools=2)
    for key in ("anna", "ben"):
        drafter.begin([1], None, key)
        for token in range(50):
            drafter.accept(token)
        drafter.end()
    sizes = drafter.pool_size("anna"), drafter.pool_size("ben")
    assert sizes == (51, 51), "the first key, which was never used, gave way"
    drafter.begin([1], None, "anna")
    drafter.end()
    drafter.begin([1], None, "carla")
    assert (drafter.pool_size("anna"), drafter.pool_size("ben")) == (51, 0)


def test_predicted_text_comes_first_then_the_drafters_in_order() -> None:
    first, second = ScriptedDrafter([1, 2]), ScriptedDrafter([3, 4])
    speculator = Speculator([first, second], RowCosts(FLAT))
    speculator.begin([9], prediction=[5, 6, 7])
    assert speculator.propose(2) == Draft((5, 6), "prediction")
    speculator.accept(8)
    assert speculator.propose(2) == Draft((1, 2), "draft_model"), "the output deviates"
    first.script = ()
    assert speculator.propose(2) == Draft((3, 4), "draft_model"), "the first has nothing"
    second.script = ()
    assert speculator.propose(2) is NO_DRAFT
    speculator.begin([9])
    assert speculator.propose(2) is NO_DRAFT, "a prediction is for one sequence"


def test_what_a_constraint_forces_comes_before_everything() -> None:
    drafter = ScriptedDrafter([1, 2])
    speculator = Speculator([drafter], RowCosts((1.0, 1.9, 3.8, 7.6, 15.2)))
    speculator.begin([9], prediction=[5, 6, 7])
    before = drafter.acceptance.rate
    assert speculator.propose(3, forced=(7, 7, 7, 7)) == Draft((7, 7, 7), "constraint")
    speculator.observe(3, 0)
    assert drafter.acceptance.rate == before
    assert speculator.stats.by_origin == {"constraint": DraftCount(1, 3, 0)}


@pytest.mark.parametrize("n_max", [-1, 0, 1, 5, 15, 40])
@pytest.mark.usefixtures("ngram")
def test_drafts_never_exceed_what_was_asked_for(n_max: int) -> None:
    for prediction in ([], [1, 2, 3] * 30):
        speculator = Speculator([NgramDrafter(), ScriptedDrafter([4] * 99)], RowCosts(FLAT))
        speculator.begin([1, 2, 3] * 30, prediction=prediction)
        for forced in ((), (1,) * 50):
            for token in [1, 2, 3] * 10:
                draft = speculator.propose(n_max, forced=forced).token_ids
                assert len(draft) <= min(max(n_max, 0), MAX_DRAFT)
                speculator.observe(len(draft), len(draft))
                speculator.accept(token)


def test_nothing_is_drafted_before_the_first_token() -> None:
    speculator = Speculator([ScriptedDrafter([1])], RowCosts(FLAT))
    assert speculator.propose(5) is NO_DRAFT
    speculator.begin([])
    assert speculator.propose(5) is NO_DRAFT


def test_counts_per_sequence_and_in_total() -> None:
    drafter = ScriptedDrafter([1, 2, 3, 4])
    speculator = Speculator([drafter], RowCosts(FLAT))
    for _ in range(2):
        speculator.begin([9], prediction=[5])
        for n_accepted in (1, 0, 4):
            draft = speculator.propose(4)
            speculator.observe(len(draft.token_ids), n_accepted)
            for token in [5] * (n_accepted + 1):
                speculator.accept(token)
        speculator.end()
        mine = speculator.stats.by_origin
        assert mine["prediction"] == DraftCount(1, 1, 1)
        assert (mine["draft_model"].rounds, mine["draft_model"].accepted) == (2, 4)
    assert speculator.total.by_origin["prediction"] == DraftCount(2, 2, 2)
    n_drafted = 2 * mine["draft_model"].drafted
    assert speculator.total.sum == DraftCount(6, 2 + n_drafted, 2 + 8)


def test_a_draft_is_observed_once_and_only_if_there_was_one() -> None:
    speculator = Speculator([ScriptedDrafter([1, 2])], RowCosts(FLAT))
    speculator.begin([9])
    speculator.observe(2, 2)
    assert speculator.stats.by_origin == {}
    speculator.propose(2)
    speculator.observe(2, 1)
    speculator.observe(2, 1)
    assert speculator.stats.sum == DraftCount(1, 2, 1)


def test_a_drafter_that_stops_early_is_not_taken_for_sure() -> None:
    costs = RowCosts(FLAT)
    rates = []
    for script in ([1, 2], [1, 2, 3, 4]):
        drafter = ScriptedDrafter(script)
        speculator = Speculator([drafter], costs)
        speculator.begin([9])
        assert speculator.propose(4).token_ids == tuple(script)
        speculator.observe(len(script), len(script))
        rates.append(drafter.acceptance.rate)
    assert rates[0] < 0.9 < rates[1]


def test_a_drafter_that_is_never_sure_is_asked_less_and_less() -> None:
    class Unsure(ScriptedDrafter):
        n_asked = 0

        def draft(self, n: int) -> tuple[int, ...]:
            self.n_asked += 1
            return ()

    drafter = Unsure(each=0.1)
    speculator = Speculator([drafter], RowCosts(FLAT))
    speculator.begin([9])
    for token in range(1000):
        assert speculator.propose(8) is NO_DRAFT
        speculator.accept(token)
    assert 3 < drafter.n_asked < 40


def test_every_drafter_is_told_everything() -> None:
    drafters = [ScriptedDrafter(), ScriptedDrafter()]
    speculator = Speculator(drafters, RowCosts(FLAT))
    speculator.begin([1, 2, 3], isolation_key="anna")
    for token in (4, 5, 6):
        speculator.accept(token)
    assert speculator.mark() == 6
    speculator.rollback(4)
    speculator.accept(7)
    assert speculator.mark() == 5
    speculator.end()
    for drafter in drafters:
        assert drafter.tokens == [1, 2, 3, 4, 7]
        assert drafter.isolation_key == "anna"
        assert drafter.has_ended


@pytest.mark.parametrize("mark", [-1, 4])
def test_a_mark_that_was_never_given_is_refused(mark: int) -> None:
    speculator = Speculator([NgramDrafter()], RowCosts(FLAT))
    speculator.begin([1, 2])
    speculator.accept(3)
    with pytest.raises(ValueError, match=f"rollback to {mark}: the sequence has 3 tokens"):
        speculator.rollback(mark)


few = st.lists(st.integers(0, 2), max_size=25)


@given(
    prompt=st.lists(st.integers(0, 2), min_size=1, max_size=20),
    prediction=few,
    first=few,
    data=st.data(),
)
@settings(max_examples=80, deadline=None)
def test_after_a_rollback_drafts_are_as_if_it_had_not_happened(
    prompt: list[int], prediction: list[int], first: list[int], data: st.DataObject
) -> None:
    costs = RowCosts(FLAT)
    went, fresh = (Speculator([NgramDrafter()], costs) for _ in range(2))
    went.begin(prompt, prediction=prediction)
    tokens = [*prompt, *first]
    for token in first:
        went.accept(token)
    # Into the prompt too, as the healing of its last token does.
    mark = data.draw(st.integers(len(prompt) - 1, len(tokens)))
    went.rollback(mark)
    others = data.draw(few)
    if mark >= len(prompt):
        fresh.begin(prompt, prediction=prediction)
    else:
        fresh.begin(prompt[:mark], prediction=prediction)
    for token in tokens[len(prompt) : mark]:
        fresh.accept(token)
    for token in others:
        went.accept(token)
        fresh.accept(token)
    assert went.mark() == fresh.mark()
    assert went.propose(MAX_DRAFT) == fresh.propose(MAX_DRAFT)


def predicted(prediction: Sequence[int], output: Sequence[int]) -> tuple[int, ...]:
    speculator = Speculator([], RowCosts((1.0, 1.0, 1.0, 1.0, 1.0)))
    speculator.begin([1, 2], prediction=prediction)
    for token in output:
        speculator.accept(token)
    return speculator.propose(MAX_DRAFT).token_ids


def test_predicted_text_is_followed_and_found_again() -> None:
    text = list(range(10, 22))
    assert predicted(text, []) == tuple(text)
    assert predicted(text, text[:5]) == tuple(text[5:])
    assert predicted(text, [*text[:5], 99]) == (), "lost"
    assert predicted(text, [*text[:5], 99, text[6]]) == (), "one token is no evidence"
    assert predicted(text, [*text[:5], 99, *text[6:8]]) == tuple(text[8:]), "replaced"
    assert predicted(text, [*text[:5], 98, 99, *text[5:7]]) == tuple(text[7:]), "inserted"
    assert predicted(text, [*text[:3], *text[7:9]]) == tuple(text[9:]), "left out"
    assert predicted(text, text) == (), "complete"


def test_the_next_occurrence_is_preferred_where_predicted_text_repeats() -> None:
    text = [1, 2, 50, 7, 8, 1, 2, 60, 7, 8, 1, 2, 70]
    assert predicted(text, [1, 2, 50, 9, 1, 2])[:1] == (60,)
    assert predicted(text, [*text[:12], 9, 1, 2])[:1] == (70,), "none is ahead: the last"
