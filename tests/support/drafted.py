"""Streams with drafts of which the clock decides nothing, to compare with streams without."""

from collections.abc import Callable
from typing import Any

import pytest

from engine import Engine, SamplingSettings
from engine.draft import opening
from engine.draft.mtp import BlockDrafter
from engine.draft.row_costs import RowCosts
from tests.support.scripted_model import records_of, run

PROMPT = [7 * i % 300 + 5 for i in range(40)]
SETTINGS = {
    "greedy": SamplingSettings(temperature=0.0),
    "sampled": SamplingSettings(temperature=0.8, seed=4, repetition_penalty=1.2),
}


class FixedCosts(RowCosts):
    """No clock decides a test; keeps the rows of each pass."""

    def __init__(self, seconds: tuple[float, ...]) -> None:
        super().__init__(seconds)
        self.passes: list[int] = []

    def observe(self, n_rows: int, seconds: float) -> None:
        assert seconds >= 0
        self.passes.append(n_rows)


def with_cheap_drafts(load: Callable[[], Engine]) -> Engine:
    """What `load` gives, with a block whose drafts always pay and never end early."""
    with pytest.MonkeyPatch.context() as patch:
        costs = iter([FixedCosts((1e-3,) * 5)])
        patch.setattr(opening, "measure_row_costs", lambda *_: next(costs, FixedCosts((1.0,) * 5)))
        patch.setattr(opening, "MIN_CONFIDENCE", 0.0)
        return load()


def block_drafter(engine: Engine) -> BlockDrafter:
    assert engine.speculator is not None
    (drafter,) = [each for each in engine.speculator.drafters if isinstance(each, BlockDrafter)]
    return drafter


def drafted_after(engine: Engine, prompt: list[int], n: int) -> list[int]:
    """What the block drafts after `prompt`, when nothing of it is cached."""
    drafter = block_drafter(engine)
    engine.generator.begin_stream_ex(
        prompt, SETTINGS["greedy"], max_new_tokens=2, isolation_key="nothing is cached"
    )
    assert drafter.prospect(n) is not None
    return list(drafter.draft(n))


def told(engine: Engine, name: str, prompt: list[int] = PROMPT, **options: Any) -> Any:
    """All that is said about the tokens of a stream, but for who proposed them."""
    options = {"max_new_tokens": 40, "ignore_eos": True, "return_top_tokens": 3, **options}
    engine.generator.begin_stream_ex(prompt, SETTINGS[name], **options)
    results = run(engine.generator)
    records = [*records_of(results), *results[-1].dropped]
    return [record._replace(origin="", proposed=None) for record in records]


def origins_when_right(engine: Engine) -> list[str]:
    """Who proposed the tokens of a stream, when the block drafts what the model will draw."""
    drafter, speculator = block_drafter(engine), engine.speculator
    assert speculator is not None
    key = "nothing came before"
    expected = [
        record.token_id for record in told(engine, "greedy", speculate=False, isolation_key=key)
    ]

    def scripted(n: int) -> tuple[int, ...]:
        done = speculator.mark() - len(PROMPT)
        return tuple(expected[done : done + n])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drafter, "draft", scripted)
        engine.generator.begin_stream_ex(
            PROMPT, SETTINGS["greedy"], max_new_tokens=40, ignore_eos=True, isolation_key=key
        )
        return [record.origin for record in records_of(run(engine.generator))]
