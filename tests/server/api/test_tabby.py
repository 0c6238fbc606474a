"""TabbyAPI's names: what SillyTavern and others read, and what they are not allowed to change."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from engine import Engine
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import LiveServer, live_server

KEY = {"authorization": "Bearer key"}
CHANGES = [
    "model/embedding/load", "model/embedding/unload", "lora/load", "lora/unload",
    "template/switch", "template/unload", "sampling/override/switch", "sampling/override/unload",
    "download",
]  # fmt: skip


@pytest.fixture(scope="module")
def server(bundled_engine: Engine) -> Iterator[LiveServer]:
    with live_server(bundled_engine, api_keys=("key",)) as server:
        yield server


def test_lists_of_what_there_is_not_are_empty(server: LiveServer) -> None:
    for path in ("lora", "loras", "lora/list", "model/draft/list", "model/embedding/list"):
        assert server.get(f"/v1/{path}", **KEY).json == {"object": "list", "data": []}


def test_the_template_has_a_name() -> None:
    fake = FakeEngine()
    with live_server(fake.as_engine) as server:
        for path in ("/v1/templates", "/v1/template/list"):
            assert server.get(path).json == {"object": "list", "data": ["chat_template"]}
        fake.template = None
        assert server.get("/v1/template/list").json["data"] == []


def test_overrides_are_the_settings_that_hold_anyway() -> None:
    fake = FakeEngine()
    fake.default_settings = replace(fake.default_settings, temperature=0.6, top_k=20)
    with live_server(fake.as_engine) as server:
        for path in ("/v1/sampling/overrides", "/v1/sampling/override/list"):
            assert server.get(path).json == {
                "selected_preset": None,
                "overrides": {
                    "temperature": {"override": 0.6, "force": False},
                    "top_k": {"override": 20, "force": False},
                },
                "presets": [],
            }


def test_a_key_may_use_the_model_and_not_change_it(server: LiveServer) -> None:
    assert server.get("/v1/auth/permission", **KEY).json == {"permission": "api"}
    for path in CHANGES:
        answer = server.post(f"/v1/{path}", {"name": "another"}, **KEY)
        assert (answer.status, set(answer.json)) == (501, {"detail"}), path
        assert "start it with others" in answer.json["detail"]


def test_its_errors_have_a_detail_and_others_none(server: LiveServer) -> None:
    for path in ("/v1/lora", "/v1/sampling/override/list", "/v1/model/draft/list"):
        answer = server.get(path)
        assert (answer.status, set(answer.json)) == (401, {"detail"})
    assert server.get("/v1/model").error["code"] == "invalid_api_key"
    assert server.get("/v1/model/list").error["code"] == "invalid_api_key"
