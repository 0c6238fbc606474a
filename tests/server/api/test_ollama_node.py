"""Ollama's npm client against a live server."""

import pytest

from engine import Engine
from tests.support.client_process import run_node
from tests.support.live_server import live_server

pytestmark = pytest.mark.clients


def test_it_chats_generates_and_is_told_what_is_wrong(bundled_engine: Engine) -> None:
    with live_server(bundled_engine) as server:
        seen = run_node("ollama", server)
    assert seen["models"] == ["soliton-default"]
    assert seen["whole"]
    assert seen["streamed"] == seen["generated"] == seen["after"] == seen["whole"]
    assert seen["done"] == "length"
    status, words = seen["error"]
    assert status == 404
    assert "does not exist" in words
