"""Requests drawn from the published contract, valid and invalid, against a live server: no answer
is a 5xx, and every status, media type, header, body and event is documented.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from schemathesis import GenerationMode

from tests.support.contract_cases import Case, drawn, operations, wrong_with
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import LiveServer, live_server

N_CASES = 2000
N_PATHS = 40  # for routes without a body, whose paths and queries are few
# Valid and broken ones. Drawing a broken one of the large schemas takes ten times as long; their
# fields are tested one by one in tests/server/request.
N_BODIES = {
    "generation": (200, 75), "responses": (60, 20), "models": (20, 20), "scoring": (60, 60),
    "estimates": (40, 40), "tokens": (40, 40), "streams": (10, 10), "stored chats": (10, 10),
    "system": (20, 20), "/infill": (20, 10),
}  # fmt: skip


def all_cases() -> Iterator[Case]:
    for operation in operations():
        if operation.body:
            n_valid, n_broken = (
                N_BODIES.get(operation.path) or N_BODIES[(operation.tags or [""])[0]]
            )
            yield from drawn(operation, GenerationMode.POSITIVE, n_valid)
            yield from drawn(operation, GenerationMode.NEGATIVE, n_broken)
        else:
            yield from drawn(operation, GenerationMode.POSITIVE, N_PATHS)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    fake = FakeEngine(max_seq_len=1024)
    fake.model.script = b"caf\xc3\xa9 \xf0\x9f\xa7\x80 and more"
    options: dict[str, Any] = {"slot_save_path": tmp_path, "admin_keys": ("admin",)}
    with live_server(fake.as_engine, **options) as server:
        yield server


@pytest.mark.timeout(900)
def test_every_answer_is_as_the_contract_says(server: LiveServer) -> None:
    answers: list[requests.Response] = []
    faults: list[str] = []
    with requests.Session() as session:
        session.headers["x-admin-key"] = "admin"
        for case in all_cases():
            answer = session.request(**case.as_transport_kwargs(base_url=server.url))
            answers.append(answer)
            faults += filter(None, [wrong_with(answer, case)])
    assert not faults, f"{len(faults)} of {len(answers)}:\n\n" + "\n\n".join(faults[:5])
    assert len(answers) >= N_CASES
    served = [answer for answer in answers if answer.status_code == 200]
    streams = [answer for answer in served if "event-stream" in answer.headers["content-type"]]
    assert len(served) >= N_CASES / 10, "too few cases reach the engine"
    assert len(streams) >= N_CASES / 50, "too few are streamed"
