"""Anthropic's npm client against a live server."""

from typing import Any

import pytest

from engine import Engine
from tests.support.client_process import run_node
from tests.support.live_server import live_server

pytestmark = pytest.mark.clients


@pytest.fixture(scope="module")
def seen(bundled_engine: Engine) -> Any:
    with live_server(bundled_engine) as server:
        return run_node("anthropic", server)


def test_streamed_and_whole_messages_agree(seen: Any) -> None:
    (block,) = seen["whole"]
    assert block["type"] == "text"
    assert block["text"]
    assert seen["streamed"] == block["text"]
    assert [each["text"] for each in seen["final"]] == [block["text"]]


def test_tokens_are_counted(seen: Any) -> None:
    usage = seen["usage"]
    assert seen["counted"] == usage["input_tokens"] + usage["cache_read_input_tokens"]
    assert usage["output_tokens"] == 20


def test_errors_have_their_classes_and_types(seen: Any) -> None:
    assert seen["errors"] == [
        ["NotFoundError", 404, "not_found_error"],
        ["BadRequestError", 400, "invalid_request_error"],
    ]


def test_the_tool_runner_runs_the_tool(seen: Any) -> None:
    assert len(seen["asked"]) == 2  # any of the tools must be used in each turn
    assert set(seen["asked"]) <= {"UTC", "CET"}
    assert seen["last"] == "tool_use"
