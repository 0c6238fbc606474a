"""A replica's name in the ids of what it keeps."""

from typing import Any

import pytest

from server.answer.head import answer_head
from server.api.responses.ids import input_id, output_id
from server.cluster.ids import named_replica, new_name

NAME = "0123abcd"


def made(prefix: str, separator: str = "-") -> str:
    head = answer_head(
        id_prefix=prefix,
        separator=separator,
        object_="",
        model="",
        fingerprint="",
        replica=NAME,
    )
    return str(head["id"])


@pytest.mark.parametrize("prefix", ["chatcmpl", "cmpl", "score", "ollama"])
def test_paths_name_a_replica(prefix: str) -> None:
    id_ = made(prefix)
    assert named_replica(f"/v1/streams/{id_}", None) == NAME
    assert named_replica(f"/v1/streams/{id_}-1/branch", {"messages": []}) == NAME
    assert named_replica(f"/v1/chat/completions/{id_}/messages", None) == NAME


@pytest.mark.parametrize("field", ["previous_response_id", "id"])
def test_bodies_name_one(field: str) -> None:
    assert named_replica("/v1/responses", {"input": "hi", field: made("resp_", "")}) == NAME


def test_items_of_a_response_name_one() -> None:
    response = made("resp_", "")
    for id_ in (output_id(response, "message", 3), input_id(response, "function_call_output", 1)):
        body = {"input": [{"role": "user"}, {"type": "item_reference", "id": id_}]}
        assert named_replica("/v1/responses", body) == NAME


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"content": "chatcmpl-" + NAME + "0" * 24}]},
        {"id": NAME + "0" * 24},
        {"id": "chatcmpl-" + NAME},
        {"id": "chatcmpl-" + NAME.upper() + "0" * 24},
        {"id": 7, "input": [None, {"type": "item_reference"}]},
        [],
    ],
)
def test_nothing_else_does(body: Any) -> None:
    assert named_replica("/v1/chat/completions", body) == ""


def test_names_differ() -> None:
    assert len({new_name() for _ in range(100)}) == 100
