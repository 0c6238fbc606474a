"""The events of /v1/responses, read and checked: named like their type, numbered without a gap, and
each of a type of the official client.
"""

import json
from typing import Any, get_args

from openai.types.responses import Response, ResponseStreamEvent

from tests.support.live_server import LiveServer

PATH = "/v1/responses"

_UNION = get_args(ResponseStreamEvent)[0]
_CLASSES: dict[str, Any] = {
    get_args(each.model_fields["type"].annotation)[0]: each for each in get_args(_UNION)
}
Event = dict[str, Any]


def read_events(body: bytes, *, first: int = 0) -> list[Event]:
    """`first`: the number that the first of them should have."""
    events: list[Event] = []
    for frame in body.decode().split("\n\n")[:-1]:
        if frame.startswith(":"):
            continue
        name, data = frame.removeprefix("event: ").split("\ndata: ")
        event = json.loads(data)
        assert event["type"] == name
        assert event["sequence_number"] == first + len(events)
        _CLASSES[name].model_validate(event)
        events.append(event)
    return events


def streamed(server: LiveServer, **fields: Any) -> list[Event]:
    """The events that answer the fields."""
    answer = server.post(PATH, {"input": "hello", "stream": True, **fields})
    assert answer.status == 200, answer.body
    return read_events(answer.body)


def whole(server: LiveServer, **fields: Any) -> dict[str, Any]:
    """The response that answers the fields."""
    answer = server.post(PATH, {"input": "hello", **fields})
    assert answer.status == 200, answer.body
    response: dict[str, Any] = answer.json
    Response.model_validate(response)
    return response


def names(events: list[Event]) -> list[str]:
    """Their types, without what all have in common, each run of deltas once."""
    short = [event["type"].removeprefix("response.") for event in events]
    return [name for i, name in enumerate(short) if "delta" not in name or short[i - 1] != name]


def without_ids(value: Any) -> Any:
    """The value without what differs from one response to the next."""
    if isinstance(value, list):
        return [without_ids(each) for each in value]
    if not isinstance(value, dict):
        return value
    own = ("id", "call_id", "item_id", "created_at", "completed_at", "usage", "sequence_number")
    return {key: without_ids(each) for key, each in value.items() if key not in own}
