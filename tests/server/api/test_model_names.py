"""The names of the model in requests: any of its own, or none."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from server.commands.packaged import PACKAGED, PackagedModel
from server.commands.serve import load_app
from server.settings import Settings, user_cache
from tests.support.asgi_client import HERE, ask
from tests.support.event_stream import parse_event_stream
from tests.support.fake_engine import FakeEngine
from tests.support.gguf_models import write_gguf
from tests.support.live_server import LiveServer, live_server
from tests.support.tiny_models import FAMILIES, oracle

MESSAGES = [{"role": "user", "content": "hello"}]
BODIES: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": "hello", "max_tokens": 2},
    "/v1/chat/completions": {"messages": MESSAGES, "max_tokens": 2},
    "/tokenize": {"prompt": "hello"},
    "/detokenize": {"tokens": [97]},
    "/apply-template": {"messages": MESSAGES},
    "/v1/token/encode": {"text": "hello"},
    "/v1/token/decode": {"tokens": [97]},
}
GENERATING = [path for path in BODIES if path.endswith("completions")]
NO_NAME: list[dict[str, Any]] = [{}, {"model": None}, {"model": ""}]


@pytest.fixture
def server() -> Iterator[LiveServer]:
    with live_server(FakeEngine().as_engine) as server:
        yield server


@pytest.fixture
def named() -> Iterator[LiveServer]:
    with live_server(FakeEngine().as_engine, served_model_name="org/name, gpt-4o") as server:
        yield server


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("name", NO_NAME, ids=str)
def test_without_a_name_the_served_model_is_used(
    server: LiveServer, path: str, name: dict[str, Any]
) -> None:
    answer = server.post(path, {**BODIES[path], **name, "strict": True})
    assert answer.status == 200, answer.body
    if path in GENERATING:
        assert answer.json["model"] == "fake"


@pytest.mark.parametrize("path", BODIES)
def test_a_wrong_name_is_answered_with_the_right_ones(named: LiveServer, path: str) -> None:
    answer = named.post(path, {**BODIES[path], "model": "another"})
    assert (answer.status, answer.error["code"]) == (404, "model_not_found")
    assert answer.error["param"] == "model"
    assert "another" not in answer.error["message"], "an error repeats nothing of a request"
    for word in ("'org/name'", "'gpt-4o'", "GET /v1/models"):
        assert word in answer.error["message"]


@pytest.mark.parametrize("path", GENERATING)
def test_an_answer_has_the_name_that_was_asked_for(named: LiveServer, path: str) -> None:
    for asked, answered in [({}, "org/name"), ({"model": "gpt-4o"}, "gpt-4o")]:
        body = {**BODIES[path], **asked}
        assert named.post(path, body).json["model"] == answered
        chunks = parse_event_stream(named.post(path, {**body, "stream": True}).body).chunks
        assert {chunk["model"] for chunk in chunks} == {answered}
    assert named.post(path, {**BODIES[path], "model": "fake"}).status == 404, "its own name is not"


def test_the_model_is_listed_and_found_under_each_name(named: LiveServer) -> None:
    cards = named.get("/v1/models").json["data"]
    assert [card["id"] for card in cards] == ["org/name", "gpt-4o"]
    for card in cards:
        assert named.get(f"/v1/models/{card['id']}").json == card
    assert named.get("/v1/models/fake").status == 404
    assert named.get("/v1/models/").status == 404
    assert named.get("/props").json["model_alias"] == "org/name"


def test_names_come_from_a_flag_or_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOLITON_SERVED_MODEL_NAME", "a,b")
    assert Settings().served_model_name == ("a", "b")
    assert Settings(served_model_name=("c",)).served_model_name == ("c",)
    with pytest.raises(ValidationError, match="served_model_name"):
        Settings(served_model_name=" , ")  # type: ignore[arg-type]
    helped = subprocess.run(
        [sys.executable, "-m", "server", "serve", "--help"],
        capture_output=True, text=True, check=True, env={**os.environ, "COLUMNS": "200"},
    )  # fmt: skip
    assert "--served-model-name" in helped.stdout


@pytest.fixture
def otter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The file of a model that a command may call `otter`: Otter-1B.Q4.gguf, in the cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache = user_cache()
    assert cache is not None
    file = cache / "models" / "Otter-1B.Q4.gguf"
    file.parent.mkdir(parents=True)
    write_gguf(file, oracle(FAMILIES["llama"]))
    size = file.stat().st_size
    monkeypatch.setitem(PACKAGED, "otter", PackagedModel("otter==1", file.name, "", size, "MIT"))
    return file


def test_a_model_has_the_name_that_it_was_asked_for_by(otter: Path) -> None:
    app, name = load_app(Settings(model="otter", panel_cache=None))
    assert name == "Otter-1B.Q4"
    listed = ask(app, "GET", "/v1/models").json["data"]
    assert [card["id"] for card in listed] == ["Otter-1B.Q4", "otter"]
    assert listed[0]["aliases"] == ["Otter-1B.Q4", "otter"]
    assert ask(app, "GET", "/v1/models/otter").json == listed[1]
    tags = ask(app, "GET", "/api/tags").json["models"]
    assert [model["name"] for model in tags] == ["Otter-1B.Q4", "otter"]
    headers = [*HERE, ("content-type", "application/json")]
    for body in (b'{"model": "otter"}', b'{"model": "otter:latest"}'):
        assert ask(app, "POST", "/api/show", headers, body).status == 200


def test_a_path_is_no_name_and_given_names_are_all_names(otter: Path) -> None:
    for settings, names in (
        (Settings(model=str(otter), panel_cache=None), ["Otter-1B.Q4"]),
        (Settings(model="otter", served_model_name=("a",), panel_cache=None), ["a"]),
    ):
        app, name = load_app(settings)
        listed = ask(app, "GET", "/v1/models").json["data"]
        assert [card["id"] for card in listed] == names == [name]
