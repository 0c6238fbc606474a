"""The official npm client's Responses against a live server."""

from typing import Any

import pytest

from engine import Engine
from tests.support.client_process import run_node
from tests.support.live_server import live_server

pytestmark = pytest.mark.clients


@pytest.fixture(scope="module")
def seen(bundled_engine: Engine) -> Any:
    with live_server(bundled_engine) as server:
        return run_node("responses", server)


def test_streamed_whole_and_stored_responses_agree(seen: Any) -> None:
    assert seen["status"] == "completed"
    assert seen["whole"]
    assert seen["streamed"] == seen["final"] == seen["stored"] == seen["whole"]


def test_a_stream_is_read_again_from_one_event_on(seen: Any) -> None:
    assert seen["numbers"] == list(range(4, 4 + len(seen["numbers"])))
    assert seen["items"] == ["user"]


def test_objects_and_calls_follow_their_schemas(seen: Any) -> None:
    assert set(seen["parsed"]) == {"legs", "mood"}
    assert seen["call"] == ["function_call", "clock", ["zone"]]
    assert seen["next"] == [True, "incomplete"]


def test_a_response_in_the_background_is_cancelled(seen: Any) -> None:
    assert seen["cancelled"] == ["queued", "cancelled"]


def test_errors_have_their_classes_and_codes(seen: Any) -> None:
    assert seen["errors"] == [
        ["NotFoundError", 404, "model_not_found"],
        ["BadRequestError", 400, "previous_response_not_found"],
    ]
