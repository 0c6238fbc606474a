"""A block that is right where it should be: which of its tokens are accepted, and who says so.

The model says the token 37 further on, and its block does too, but not after every fifth token.
"""

from pathlib import Path
from typing import Any

import pytest

from engine import Engine, SamplingSettings
from engine.draft import opening
from engine.draft.opening import MOST_PREDICTED
from engine.draft.speculator import DraftCount, Speculator
from engine.stream.result import TokenRecord
from tests.support.drafted import FixedCosts
from tests.support.family_models import FAMILY_MODELS
from tests.support.live_server import live_server
from tests.support.predictor_models import Predictor, add_predictor, make_predictable
from tests.support.scripted_model import records_of, run
from tests.support.tiny_models import VOCAB_SIZE, save_model

STEP, N_TOKENS = 37, 60
DECEIVED = set(range(0, VOCAB_SIZE, 5))
PROMPT = [3, 40, 77]
OTHER = [(77 + STEP * n) % VOCAB_SIZE for n in (150, 151, 152)]  # far from what followed
GREEDY = SamplingSettings(temperature=0.0)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("acceptance") / "model"
    family = FAMILY_MODELS["glm4_moe"]
    model = save_model(path, family)
    predictor = Predictor(model, family, own_tables=True)
    make_predictable(predictor, STEP, DECEIVED)
    model.save_pretrained(path)
    add_predictor(path, predictor, family)
    return path


def load(path: Path, seconds_of_rows: tuple[float, ...]) -> Engine:
    """`seconds_of_rows`: of the model; the block takes a thousandth of its single row."""
    costs = iter([FixedCosts((1e-3 * seconds_of_rows[0],) * 5), FixedCosts(seconds_of_rows)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "measure_row_costs", lambda *_: next(costs))
        return Engine.load(path, device="cpu", dtype="float32", speculate="mtp")


@pytest.fixture(scope="module")
def engine(path: Path) -> Engine:
    return load(path, (1.0,) * 5)


def told(engine: Engine) -> list[TokenRecord]:
    engine.generator.begin_stream_ex(
        PROMPT, GREEDY, max_new_tokens=N_TOKENS, ignore_eos=True, max_tokens_per_call=16
    )
    return records_of(run(engine.generator))


def counts(engine: Engine) -> DraftCount:
    assert isinstance(engine.speculator, Speculator)
    return engine.speculator.stats.by_origin.get("mtp", DraftCount())


def after(token_id: int) -> int:
    return (token_id + STEP) % VOCAB_SIZE


def expected(prompt: list[int]) -> tuple[list[tuple[str, int | None]], DraftCount]:
    """Who proposed each token, and what was proposed instead; the counts, of tokens up to the first
    wrong one of a draft.
    """
    origins: list[tuple[str, int | None]] = []
    token_id, rounds, drafted, accepted = prompt[-1], 0, 0, 0

    def say(origin: str, rejected: int | None = None) -> None:
        nonlocal token_id
        origins.append((origin, rejected))
        token_id = after(token_id)

    while len(origins) < N_TOKENS:
        n = min(MOST_PREDICTED, N_TOKENS - len(origins) - 1)
        rounds += n > 0
        for _ in range(n):
            drafted += 1
            if token_id in DECEIVED:
                say("model", after(token_id + 1))
                break
            accepted += 1
            say("mtp")
        else:
            say("model")
    return origins, DraftCount(rounds, drafted, accepted)


def test_each_token_says_who_proposed_it_and_the_counts_are_right(engine: Engine) -> None:
    records = told(engine)
    assert [record.token_id for record in records] == [
        (PROMPT[-1] + STEP * (1 + index)) % VOCAB_SIZE for index in range(N_TOKENS)
    ]
    origins, found = expected(PROMPT)
    assert [(record.origin, record.proposed) for record in records] == origins
    assert counts(engine) == found
    assert found.accepted > N_TOKENS / 2


def test_where_a_row_costs_as_much_as_a_pass_nothing_is_drafted(path: Path) -> None:
    engine = load(path, (1.0, 2.0, 4.0, 8.0, 16.0))
    assert [record.token_id for record in told(engine)][-1] == (
        PROMPT[-1] + STEP * N_TOKENS
    ) % VOCAB_SIZE
    assert counts(engine).drafted <= N_TOKENS // 10, "now and then one token is tried"


def test_a_few_rows_that_cost_little_are_used_and_no_more(path: Path) -> None:
    engine = load(path, (1.0, 1.05, 5.0, 9.0, 17.0))
    told(engine)
    rounds, drafted, _ = counts(engine)
    assert rounds > 10
    assert drafted == rounds, "a third row costs more than its token saves"


def test_the_server_says_it_too(engine: Engine) -> None:
    body: dict[str, Any] = {
        "prompt": OTHER,
        "max_tokens": N_TOKENS,
        "temperature": 0,
        "ignore_eos": True,
        "include": ["draft", "speculation"],
    }
    with live_server(engine, speculate="mtp") as server:
        answer = server.post("/v1/completions", body).json
        assert server.get("/props").json["engine"]["speculation"] == "mtp"
        metrics = server.get("/metrics").body.decode()
    origins, found = expected(OTHER)
    said = answer["choices"][0]["logprobs"]["draft"]
    assert [(draft["origin"], draft["rejected_token_id"]) for draft in said] == origins
    assert answer["speculation"]["by_origin"] == {
        "mtp": {
            "rounds": found.rounds,
            "judged": found.drafted,
            "accepted": found.accepted,
        }
    }
    assert 'soliton_draft_tokens_accepted_total{origin="mtp"}' in metrics
