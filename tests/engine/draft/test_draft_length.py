"""How long drafts are: the costs of rows, the averages of what was accepted, and the account."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import Engine
from engine.cache.kv import KVCache
from engine.device.open import open_ops
from engine.draft.length import MIN_GAIN, Acceptance, DraftLength
from engine.draft.row_costs import GRID, RowCosts, measure_row_costs
from engine.draft.speculator import MAX_DRAFT
from engine.model.model import Model

FLAT = (1.0, 1.05, 1.15, 1.4, 2.2)
STEEP = (1.0, 1.6, 2.4, 4.4, 8.0)
CURVES = [FLAT, (1.0, 1.2, 1.5, 2.2, 3.6), STEEP]


def generate(
    costs: tuple[float, ...],
    is_right: Callable[[int], bool],
    *,
    n_tokens: int,
    first: float = 0.0,
    each: float = 0.0,
    prior: float = 0.5,
    n_max: int = 15,
) -> tuple[float, list[int]]:
    """How many plain steps `n_tokens` tokens took, and the length of every draft."""
    row_costs = RowCosts(costs)
    chosen, acceptance = DraftLength(row_costs), Acceptance(prior)
    n, spent, lengths = 0, 0.0, []
    while n < n_tokens:
        n_drafted = chosen.choose(acceptance, n_max, first=first, each=each)
        n_accepted = 0
        while n_accepted < n_drafted and is_right(n + n_accepted):
            n_accepted += 1
        seconds = first + n_drafted * each if n_drafted else 0.0
        spent += row_costs.table[n_drafted + 1] + seconds
        n += n_accepted + 1
        lengths.append(n_drafted)
        chosen.earn(n_accepted + 1)
        if n_drafted:
            acceptance.observe(n_drafted, n_accepted)
            chosen.observe(n_drafted, n_accepted, seconds=seconds)
    return spent * n_tokens / n, lengths


@pytest.mark.parametrize("prior", [0.2, 0.5, 0.95])
@pytest.mark.parametrize(("first", "each"), [(0.0, 0.0), (0.1, 0.1), (0.3, 0.3)])
@pytest.mark.parametrize("costs", CURVES)
def test_text_that_cannot_be_drafted_costs_less_than_three_percent(
    costs: tuple[float, ...], first: float, each: float, prior: float
) -> None:
    for n_tokens in (70, 200, 2000):
        steps, lengths = generate(
            costs, lambda _: False, n_tokens=n_tokens, first=first, each=each, prior=prior
        )
        assert steps <= 1.03 * n_tokens
    assert any(lengths[-600:]), "it is tried again now and then"
    gaps = [len(gap) for gap in "".join("x" if n else " " for n in lengths).split("x")]
    assert max(gaps[-4:-1]) > 60, "with growing gaps"


@pytest.mark.parametrize("costs", CURVES[:2])
def test_copied_text_reaches_long_drafts_fast(costs: tuple[float, ...]) -> None:
    _, lengths = generate(costs, lambda _: True, n_tokens=500)
    assert max(lengths[:5]) >= 12
    assert set(lengths[8:]) == {15}


def test_copied_text_gains_what_the_rows_allow() -> None:
    for costs in CURVES:
        best = max(n_rows / cost for n_rows, cost in zip(GRID, costs, strict=True))
        steps, _ = generate(costs, lambda _: True, n_tokens=2000)
        assert 2000 / steps >= 0.9 * best


def test_drafting_begins_again_when_the_text_can_be_drafted() -> None:
    for costs in CURVES[:2]:
        _, lengths = generate(costs, lambda place: place > 1000, n_tokens=3000)
        assert 15 in lengths[1000 : 1000 + 160]


def test_lengths_follow_acceptance_and_costs() -> None:
    length = DraftLength(RowCosts(FLAT))
    length.earn(10_000)
    chosen = [length.choose(Acceptance(rate), 15) for rate in (0.2, 0.5, 0.7, 0.9, 1.0)]
    assert chosen == sorted(chosen)
    assert (chosen[0], chosen[-1]) == (1, 15)
    assert length.choose(Acceptance(1.0), 6) == 6, "never more than asked for"
    steep = DraftLength(RowCosts(STEEP))
    steep.earn(10_000)
    assert steep.choose(Acceptance(0.9), 15) < length.choose(Acceptance(0.9), 15)
    dear = [length.choose(Acceptance(0.7), 15, each=each) for each in (0.0, 0.1, 0.3)]
    assert dear == sorted(dear, reverse=True)


def test_below_the_least_gain_nothing_is_drafted() -> None:
    length = DraftLength(RowCosts(FLAT))
    gain = 1.05  # one token of certain cost: (1 + rate) / 1.05
    for rate, n in [(MIN_GAIN * gain - 1.0 + 0.001, 1), (MIN_GAIN * gain - 1.0 - 0.001, 0)]:
        acceptance = Acceptance(rate)
        acceptance.is_probed()  # the first probe is due at once
        assert length.choose(acceptance, 1) == n


def test_the_account_bounds_the_first_draft_and_is_bounded_itself() -> None:
    length = DraftLength(RowCosts(FLAT))
    assert length.choose(Acceptance(1.0), 15) == 13, "1 step pays 14 rows, not 15"
    for _ in range(100):
        length.observe(15, 15)
    length.observe(63, 0)
    saved = length.balance
    length.observe(15, 15)
    length.observe(1, 0)
    assert length.balance <= saved < 5, "a long copy does not pay for endless losses after it"
    length.earn(100_000)
    assert length.balance <= saved
    length.begin()
    assert length.balance < saved


def test_a_long_copy_gets_long_drafts_where_they_pay() -> None:
    costs = (1.0, 1.2, 1.5, 2.2, 3.6)  # 16 rows give 4.4 tokens a step, 64 give 5.3
    _, lengths = generate(costs, lambda _: True, n_tokens=4000, n_max=MAX_DRAFT)
    assert set(lengths[3:6]) == {15}, "many tokens must have been right before"
    assert set(lengths[20:]) == {MAX_DRAFT}
    steps, _ = generate(costs, lambda _: True, n_tokens=4000)
    with_long, _ = generate(costs, lambda _: True, n_tokens=4000, n_max=MAX_DRAFT)
    assert with_long < 0.87 * steps
    # Where processors compute fast, rows cost next to nothing.
    steps, _ = generate(FLAT, lambda _: True, n_tokens=1000)
    with_long, _ = generate(FLAT, lambda _: True, n_tokens=1000, n_max=MAX_DRAFT)
    assert with_long < 0.85 * steps


@pytest.mark.parametrize("costs", CURVES)
@pytest.mark.parametrize("every", [20, 50, 100, 300])
def test_long_drafts_never_cost_much(costs: tuple[float, ...], every: int) -> None:
    def is_right(place: int) -> bool:
        return place % every > 0

    steps, _ = generate(costs, is_right, n_tokens=5000)
    with_long, _ = generate(costs, is_right, n_tokens=5000, n_max=MAX_DRAFT)
    assert with_long < 1.03 * steps


@given(
    st.sampled_from(CURVES),
    st.lists(st.tuples(st.integers(1, 200), st.integers(0, 80)), min_size=1, max_size=30),
)
def test_no_text_costs_more_than_the_account_allows(
    costs: tuple[float, ...], runs: list[tuple[int, int]]
) -> None:
    is_right = [
        right for n_right, n_wrong in runs for right in [True] * n_right + [False] * n_wrong
    ]
    n_tokens = len(is_right)
    is_right += [False] * 200  # the last draft may go beyond the end
    steps, _ = generate(costs, is_right.__getitem__, n_tokens=n_tokens, n_max=MAX_DRAFT)
    assert steps <= 1.0 + 1.015 * (n_tokens + 1)


@pytest.mark.parametrize(
    ("observations", "low", "high"),
    [
        ([(4, 4)] * 6, 0.95, 1.0),
        ([(4, 0)] * 20, 0.0, 0.05),
        ([(15, 15)], 0.9, 1.0),
        ([(1, 1), (1, 0)] * 30, 0.3, 0.7),
    ],
)
def test_the_average_follows(observations: list[tuple[int, int]], low: float, high: float) -> None:
    acceptance = Acceptance(0.5)
    for n_drafted, n_accepted in observations:
        acceptance.observe(n_drafted, n_accepted)
    assert low <= acceptance.rate <= high
    acceptance.reset()
    assert acceptance.rate == 0.5


def test_row_costs_between_those_measured_are_interpolated() -> None:
    table = RowCosts((1.0, 2.0, 3.0, 5.0, 13.0)).table
    measured = [0, 1, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9, 10, 11, 12, 13]
    assert table[:17] == pytest.approx(measured)
    assert table[17:] == pytest.approx(list(range(14, 62))), "each row costs what the last ones do"


def test_row_costs_never_fall_with_more_rows() -> None:
    costs = RowCosts((1.0, 0.8, 1.5, 1.2, 3.0))
    for n_rows, seconds in [(1, 5.0), (16, 0.1), (3, 0.2)] * 40:
        costs.observe(n_rows, seconds)
        assert costs.table == sorted(costs.table)


def test_row_costs_follow_the_passes_that_run() -> None:
    costs = RowCosts(FLAT)
    for _ in range(400):
        costs.observe(1, 1.0)
        costs.observe(6, 4.0)
        costs.observe(64, 9.0)
    assert costs.table[1] == pytest.approx(1.0, rel=0.1)
    assert costs.table[6] == pytest.approx(4.0, rel=0.1)
    assert costs.table[64] == pytest.approx(9.0, rel=0.1)


def test_a_machine_that_becomes_slower_keeps_its_ratios() -> None:
    costs = RowCosts(FLAT)
    for _ in range(200):
        costs.observe(16, 2.0 * FLAT[-1])
    assert costs.table[16] / costs.table[1] < 1.5 * FLAT[-1]
    interrupted = RowCosts(FLAT)
    for _ in range(16):
        interrupted.observe(1, 1.0 if _ else 1000.0)
    assert interrupted.table[1] < 1.3, "one interrupted pass says little"


@pytest.mark.parametrize("seconds", [(1.0, 1.0), (1.0, 1.0, 1.0, 1.0, 0.0), (-1.0,) * 5])
def test_row_costs_must_be_positive_numbers(seconds: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="seconds of 5 passes must be positive"):
        RowCosts(seconds)


class TimedModel:
    """Its passes take the given times, in order, on a clock of its own."""

    def __init__(self, seconds: Sequence[float]) -> None:
        self.seconds = list(seconds)
        self.now = 100.0
        self.rows: list[int] = []
        self.config = SimpleNamespace(vocab_size=320)
        self.ops = open_ops(device="cpu")

    def decode(self, token_ids: Sequence[int], cache: KVCache) -> None:
        assert len(set(token_ids)) == len(token_ids), "equal tokens choose the same experts"
        self.rows.append(len(token_ids))
        self.now += self.seconds.pop(0)


def measured(model: TimedModel, cache: KVCache, *, budget: float) -> list[float]:
    cache.append([1, 2, 3])
    costs = measure_row_costs(cast(Model, model), cache, lambda: model.now, budget=budget)
    assert cache.length == 0
    return [costs.table[n_rows] for n_rows in GRID]


def test_measuring_takes_the_least_of_two_passes(tiny_engine: Engine) -> None:
    cache = KVCache(tiny_engine.config, tiny_engine.model.ops, max_seq_len=32)
    # The first pass is not counted: it records.
    model = TimedModel([90.0, 1.0, 9.0, 9.0, 5.0, 6.0, 9.0, 3.0, 2.0, 4.0, 8.0])
    assert measured(model, cache, budget=1000.0) == [1.0, 2.0, 3.0, 4.0, 6.0]
    assert model.rows == [1, 1, 4, 2, 8, 16, 1, 4, 2, 8, 16]


def test_loading_does_not_wait_for_measurements(tiny_engine: Engine) -> None:
    cache = KVCache(tiny_engine.config, tiny_engine.model.ops, max_seq_len=32)
    model = TimedModel([90.0, 10.0, 16.0])
    assert measured(model, cache, budget=0.1) == [10.0, 12.0, 16.0, 32.0, 64.0]
    model = TimedModel([9.0, 10.0, 16.0, 11.0, 30.0])
    assert measured(model, cache, budget=50.0) == [10.0, 11.0, 16.0, 30.0, 60.0]
