"""Calls of POST /v1/completions, each answer checked against its schema; chunks joined as clients
do.
"""

import copy
from typing import Any

from server.schema.completions import Completion
from tests.support.event_stream import parse_event_stream
from tests.support.live_server import LiveServer

PATH = "/v1/completions"


def request(**fields: Any) -> dict[str, Any]:
    """The fields for the bundled model, greedy."""
    body = {"model": "soliton-default", "prompt": "Once upon a time", "temperature": 0}
    return {**body, **fields}


def fake_request(**fields: Any) -> dict[str, Any]:
    return {"model": "fake", "prompt": "hello", **fields}


def complete(server: LiveServer, body: dict[str, Any]) -> Any:
    """The whole answer."""
    answer = server.post(PATH, body)
    assert answer.status == 200, answer.body
    Completion.model_validate(answer.json)
    return answer.json


def stream(server: LiveServer, body: dict[str, Any]) -> list[Any]:
    """All chunks but [DONE]."""
    answer = server.post(PATH, {**body, "stream": True})
    assert answer.status == 200, answer.body
    parsed = parse_event_stream(answer.body)
    assert parsed.data[-1] == "[DONE]"
    for chunk in parsed.chunks:
        Completion.model_validate(chunk)
    return parsed.chunks


def refusal(server: LiveServer, body: dict[str, Any]) -> tuple[int, str | None]:
    """Status and param of an error."""
    answer = server.post(PATH, body)
    return answer.status, answer.error["param"]


def joined(chunks: list[Any]) -> list[dict[str, Any]]:
    """The choices that the chunks add up to, by index."""
    choices: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        for piece in chunk["choices"]:
            if piece["index"] in choices:
                _append(choices[piece["index"]], piece)
            else:
                choices[piece["index"]] = copy.deepcopy(piece)
    return [choice for _, choice in sorted(choices.items())]


def _append(choice: dict[str, Any], piece: dict[str, Any]) -> None:
    assert choice["finish_reason"] is None, "only the last chunk of a choice has a finish reason"
    for key, value in piece.items():
        if key == "logprobs" and value is not None:
            for name, values in value.items():
                choice[key][name].extend(values)
        elif key in ("text", "token_ids"):
            choice[key] += value
        elif key != "index":
            assert choice.get(key) is None, f"{key} comes once"
            choice[key] = value
