"""Requests drawn from the published contract, far more than the tests draw: every limit and keyword
of each schema once, then valid and invalid ones at random until there are enough.

Processes draw and send; this one serves. Each round of each process has a seed, which is printed
with its findings; the same seed gives the same cases.
"""

import itertools
import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial

import requests
from schemathesis import GenerationMode

from tests.support.contract_cases import Case, covering, draw, operations, wrong_with
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import live_server, wait_until

from .goals import Goal

N_CASES = 50_000
MOST_SECONDS = 2.0
SEED = 20_261_121
# Valid and invalid cases of each round, by the tag of the operation; routes without a body have
# few.
PER_ROUND = {"generation": 400, "tokens": 80}
PER_ROUND_WITHOUT_BODY = 10
REFERENCE = {"model": "fake", "prompt": "reference", "max_tokens": 8}
SCRIPT = b"caf\xc3\xa9 \xf0\x9f\xa7\x80 and more"


@dataclass
class Tally:
    """What became of some cases."""

    statuses: Counter[int] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    """Answers that the contract does not document, 5xx among them."""
    slowest: float = 0.0

    @property
    def n(self) -> int:
        return self.statuses.total()

    def add(self, other: "Tally") -> None:
        self.statuses += other.statuses
        self.faults += other.faults
        self.slowest = max(self.slowest, other.slowest)


def measure(scale: float) -> Iterator[Goal]:
    n_wanted = round(N_CASES * scale)
    is_whole = scale >= 0.1
    n_processes = min(4, os.cpu_count() or 1) if is_whole else 1
    fake = FakeEngine(max_seq_len=1024)
    fake.model.script = SCRIPT
    tally = Tally()
    context = multiprocessing.get_context("spawn")
    with (
        live_server(fake.as_engine, max_queue=64) as server,
        ProcessPoolExecutor(n_processes, mp_context=context) as pool,
    ):
        expected = server.post("/v1/completions", REFERENCE).json["choices"]
        seeds = itertools.count(SEED)
        while tally.n < n_wanted:
            tasks = [
                pool.submit(
                    fuzz, server.url, seed, is_whole=is_whole, with_limits=is_whole and seed == SEED
                )
                for seed in itertools.islice(seeds, n_processes)
            ]
            for task in tasks:
                tally.add(task.result())
            wait_until(lambda: not server.lease.busy and not server.lease.n_waiting)
            assert server.post("/v1/completions", REFERENCE).json["choices"] == expected
    for fault in tally.faults[:10]:
        print(fault)
    n_5xx = sum(n for status, n in tally.statuses.items() if status >= 500)
    statuses = ", ".join(f"{n} x {status}" for status, n in sorted(tally.statuses.items()))
    yield Goal("API fuzz, cases", f"{tally.n} ({statuses})", f"{n_wanted}", tally.n >= n_wanted)
    yield Goal("API fuzz, 5xx", f"{n_5xx}", "0", n_5xx == 0)
    yield Goal(
        "API fuzz, answers that the contract does not have", f"{len(tally.faults)}", "0",
        not tally.faults,
    )  # fmt: skip
    yield Goal(
        "API fuzz, slowest answer", f"{tally.slowest:.2f} s", f"{MOST_SECONDS:g} s",
        tally.slowest <= MOST_SECONDS,
    )  # fmt: skip


def fuzz(url: str, seed: int, *, is_whole: bool, with_limits: bool) -> Tally:
    """One round, in another process."""
    tally = Tally()
    with requests.Session() as session:
        take = partial(send, session, url, seed, tally)
        for operation in operations():
            if with_limits:
                for case in covering(operation):
                    take(case)
            n = PER_ROUND[(operation.tags or [""])[0]] if operation.body else PER_ROUND_WITHOUT_BODY
            n = n if is_whole else n // 10
            draw(operation, GenerationMode.POSITIVE, n, take, seed=seed)
            if operation.body:
                draw(operation, GenerationMode.NEGATIVE, n, take, seed=seed)
    print(f"API fuzz: seed {seed}, {tally.n} cases, slowest {tally.slowest:.2f} s", flush=True)
    return tally


def send(session: requests.Session, url: str, seed: int, tally: Tally, case: Case) -> None:
    begin = time.perf_counter()
    try:
        answer = session.request(**case.as_transport_kwargs(base_url=url), timeout=30)
    except requests.RequestException as error:
        tally.statuses[0] += 1
        tally.faults.append(f"seed {seed}: no answer: {error!r}\n{case.as_curl_command()}")
        return
    seconds = time.perf_counter() - begin
    tally.statuses[answer.status_code] += 1
    tally.slowest = max(tally.slowest, seconds)
    if seconds > MOST_SECONDS:
        print(f"seed {seed}: {seconds:.1f} s\n{case.as_curl_command()[:2000]}", flush=True)
    wrong = wrong_with(answer, case)
    if wrong is not None:
        tally.faults.append(f"seed {seed}: {wrong}")
