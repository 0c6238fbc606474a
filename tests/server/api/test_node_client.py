"""The official npm client against a live server."""

from typing import Any

import pytest

from engine import Engine
from tests.support.client_process import run_node
from tests.support.live_server import live_server

pytestmark = pytest.mark.clients


@pytest.fixture(scope="module")
def seen(bundled_engine: Engine) -> Any:
    with live_server(bundled_engine) as server:
        return run_node("client", server)


def test_it_lists_the_model(seen: Any) -> None:
    assert seen["models"] == ["soliton-default"]


def test_streamed_and_whole_completions_agree(seen: Any) -> None:
    assert seen["completion"]
    assert seen["completionStreamed"] == seen["completion"]
    assert seen["completionStreamedTokens"] == seen["completionTokens"]


def test_streamed_whole_and_helped_replies_agree(seen: Any) -> None:
    assert seen["chat"]
    assert seen["chatStreamed"] == seen["chatHelper"] == seen["chat"]
    assert seen["chatHelperRole"] == "assistant"
    assert seen["usage"]["total_tokens"] == seen["wholeUsage"]["total_tokens"]


def test_errors_have_their_classes_and_codes(seen: Any) -> None:
    assert seen["errors"] == [
        ["NotFoundError", 404, "model_not_found", "model"],
        ["BadRequestError", 400, None, "n"],
        ["BadRequestError", 400, "context_length_exceeded", "messages"],
    ]


def test_breaking_off_a_stream_leaves_the_server_well(seen: Any) -> None:
    assert seen["afterAbandoned"] == seen["chat"]
