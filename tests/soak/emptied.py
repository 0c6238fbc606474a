"""Thousands of requests whose settings leave little or nothing to draw, to the built-in model: each
ends with 200 or 400, and none of them counts as a broken engine.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed
from hypothesis import settings as hypothesis_settings

from engine import DEFAULT_MODEL, Engine
from tests.support.live_server import LiveServer, live_server
from tests.support.setting_combinations import REFERENCE, bodies, says_as_before, send

from .goals import Goal, none_of

N_CASES = 20_000
PER_ROUND = 500
SEED = 20_261_123


def measure(scale: float) -> Iterator[Goal]:
    n_wanted = round(N_CASES * scale)
    statuses: Counter[int] = Counter()
    faults: list[str] = []
    n_lost = 0
    engine = Engine.load(DEFAULT_MODEL, device="cpu", speculate="ngram", prefix_bytes=2**26)
    with live_server(engine) as server:
        choices = server.post("/v1/completions", REFERENCE).json["choices"]
        while statuses.total() < n_wanted:
            _round(server, SEED + statuses.total(), statuses, faults)
            n_lost += not says_as_before(server, choices)
    for fault in faults[:10]:
        print(fault)
    counts = ", ".join(f"{n} x {status}" for status, n in sorted(statuses.items()))
    n = statuses.total()
    yield Goal("emptied, cases", f"{n} ({counts})", f"{n_wanted}", n >= n_wanted)
    yield none_of("emptied, other answers than 200 and 400", len(faults), n)
    yield Goal("emptied, reference lost", f"{n_lost}", "0", n_lost == 0)


def _round(server: LiveServer, seed_: int, statuses: Counter[int], faults: list[str]) -> None:
    @seed(seed_)
    @hypothesis_settings(
        max_examples=PER_ROUND,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(body=bodies())
    def take(body: dict[str, Any]) -> None:
        status, answer = send(server, body)
        statuses[status] += 1
        if status not in (200, 400):
            faults.append(f"{status} {answer.body[:500]!r}\n{str(body)[:2000]}")

    take()
