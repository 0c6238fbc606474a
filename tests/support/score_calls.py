"""Calls of POST /v1/score, each answer checked against its schema."""

from typing import Any

from server.schema.score import Scores
from tests.support.event_stream import parse_event_stream
from tests.support.live_server import LiveServer

PATH = "/v1/score"


def scores(server: LiveServer, **fields: Any) -> Any:
    """The whole answer."""
    answer = server.post(PATH, fields)
    assert answer.status == 200, answer.body
    Scores.model_validate(answer.json)
    return answer.json


def scored_chunks(server: LiveServer, **fields: Any) -> list[Any]:
    """All chunks but [DONE]."""
    answer = server.post(PATH, {**fields, "stream": True})
    assert answer.status == 200, answer.body
    parsed = parse_event_stream(answer.body)
    assert parsed.data[-1] == "[DONE]"
    for chunk in parsed.chunks:
        Scores.model_validate(chunk)
    return parsed.chunks


def logprobs(score: Any) -> list[float]:
    return [token["logprob"] for token in score["tokens"]]
