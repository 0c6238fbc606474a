"""Routes of other servers that this one does not have."""

import openai
import pytest

from tests.support.fake_engine import FakeEngine
from tests.support.live_server import live_server


def test_each_says_so_in_the_shape_of_its_wire(fake: FakeEngine) -> None:
    with live_server(fake.as_engine) as server:
        for path in (
            "/v1/embeddings", "/v1/rerank", "/v1/audio/speech", "/v1/images/generations",
            "/v1/responses/compact",
        ):  # fmt: skip
            answer = server.post(path, {"model": "fake"})
            assert answer.status == 501
            assert answer.error["code"] == "not_implemented"
            assert answer.error["message"]
        answer = server.post("/api/embed", {"model": "fake", "input": "x"})
        assert (answer.status, set(answer.json)) == (501, {"error"})


def test_clients_do_not_try_again(fake: FakeEngine) -> None:
    with (
        live_server(fake.as_engine) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="-", max_retries=2) as client,
    ):
        with pytest.raises(openai.InternalServerError, match="embeddings") as refused:
            client.embeddings.create(model="fake", input="x")
        assert refused.value.status_code == 501
        lines = server.get("/metrics").body.decode().splitlines()
    counted = [line for line in lines if "501" in line and "requests_total" in line]
    assert [float(line.rpartition(" ")[2]) for line in counted] == [1.0]


def test_a_websocket_is_not_opened(fake: FakeEngine) -> None:
    asked = {
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    with live_server(fake.as_engine) as server:
        answer = server.get("/v1/responses", **asked)
        assert (answer.status, answer.headers["allow"]) == (405, "POST")
        assert answer.error["code"] == "method_not_allowed"
