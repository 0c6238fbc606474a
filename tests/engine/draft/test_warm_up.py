"""An engine warms up when it is loaded, or when it is told to, and a server that waits for nothing
else is ready before.
"""

from pathlib import Path
from threading import Event
from typing import Any

import pytest

from engine import Engine, SamplingSettings
from engine.draft import opening
from engine.draft.row_costs import RowCosts, measure_row_costs
from tests.support.live_server import live_server, wait_until
from tests.support.scripted_model import records_of, run

PROMPT = [5, 6, 7, 8] * 8


def cold(model: Path, **options: Any) -> Engine:
    return Engine.load(model, device="cpu", dtype="float32", warm_up=False, **options)


def text(engine: Engine) -> list[int]:
    settings = SamplingSettings(temperature=0.0)
    engine.generator.begin_stream_ex(PROMPT, settings, max_new_tokens=24, ignore_eos=True)
    return [record.token_id for record in records_of(run(engine.generator))]


def test_an_engine_warms_up_once(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = []

    def noted(*arguments: Any) -> RowCosts:
        measured.append(arguments)
        return measure_row_costs(*arguments)

    monkeypatch.setattr(opening, "measure_row_costs", noted)
    engine = cold(tiny_model, speculate="ngram")
    assert not measured
    engine.warm_up()
    engine.warm_up()
    assert len(measured) == 1
    assert engine.cache.length == 0


@pytest.mark.parametrize("speculate", ["off", "ngram"])
def test_a_cold_engine_says_the_same(tiny_model: Path, speculate: str) -> None:
    engine = cold(tiny_model, speculate=speculate)
    first = text(engine)
    engine.warm_up()
    assert text(engine) == first
    assert text(Engine.load(tiny_model, device="cpu", dtype="float32")) == first


def test_a_server_is_ready_before_its_engine_is_warm(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go_on = Event()

    def held(*arguments: Any) -> RowCosts:
        assert may_go_on.wait(60)
        return measure_row_costs(*arguments)

    monkeypatch.setattr(opening, "measure_row_costs", held)
    engine = cold(tiny_model, speculate="ngram")
    with live_server(engine) as server:
        assert server.get("/health/ready").status == 200
        body = {"prompt": PROMPT, "max_tokens": 4, "ignore_eos": True}
        with server.send("/v1/completions", body) as sock:
            wait_until(lambda: server.lease.n_waiting == 1)
            may_go_on.set()
            assert sock.recv(4096).startswith(b"HTTP/1.1 200")
        assert engine.model.is_warm
