"""What chat tests share: a request, its whole and its streamed answer, and the joined chunks."""

from collections.abc import Sequence
from typing import Any

from server.schema.chat import ChatCompletion, ChatCompletionChunk
from tests.support.event_stream import parse_event_stream
from tests.support.live_server import LiveServer

PATH = "/v1/chat/completions"
USER = {"role": "user", "content": "hello"}


def fake_body(**fields: Any) -> dict[str, Any]:
    return {"model": "fake", "messages": [USER], **fields}


def whole(server: LiveServer, body: dict[str, Any]) -> Any:
    """The answer, checked against its schema."""
    answer = server.post(PATH, body)
    assert answer.status == 200, answer.body
    ChatCompletion.model_validate(answer.json)
    return answer.json


def chunks(server: LiveServer, body: dict[str, Any]) -> list[Any]:
    """The chunks of the streamed answer, each checked against its schema."""
    answer = server.post(PATH, {**body, "stream": True})
    assert answer.status == 200, answer.body
    parsed = parse_event_stream(answer.body)
    assert parsed.data[-1] == "[DONE]"
    for chunk in parsed.chunks:
        ChatCompletionChunk.model_validate(chunk)
    return parsed.chunks


def joined(stream: Sequence[Any], index: int = 0) -> dict[str, Any]:
    """A choice put together from its chunks as clients do: strings are joined, calls by index."""
    message: dict[str, Any] = {"role": "", "content": ""}
    logprobs: dict[str, list[Any]] = {}
    calls: dict[int, dict[str, Any]] = {}
    finish_reason = None
    for chunk in stream:
        for choice in chunk["choices"]:
            if choice["index"] != index:
                continue
            assert finish_reason is None, "nothing comes after the finish reason"
            finish_reason = choice["finish_reason"]
            for name, value in choice["delta"].items():
                if name == "tool_calls":
                    for call in value:
                        _join(calls.setdefault(call.pop("index"), {}), call)
                elif name == "function_call":
                    _join(message.setdefault(name, {}), value)
                else:
                    message[name] = message.get(name, "") + value
            for name, entries in (choice["logprobs"] or {}).items():
                if entries is not None:
                    logprobs.setdefault(name, []).extend(entries)
    if calls:
        assert list(calls) == list(range(len(calls)))
        message["tool_calls"] = list(calls.values())
    return {"message": message, "logprobs": logprobs or None, "finish_reason": finish_reason}


def _join(into: dict[str, Any], piece: dict[str, Any]) -> None:
    for name, value in piece.items():
        if isinstance(value, dict):
            _join(into.setdefault(name, {}), value)
        else:
            into[name] = into.get(name, "") + value


def _without_ids(message: dict[str, Any]) -> dict[str, Any]:
    calls = message.get("tool_calls", ())
    assert all(call["id"].isalnum() for call in calls)
    return {**message, "tool_calls": [{**call, "id": ""} for call in calls]}


def bytes_of(entries: Sequence[Any]) -> bytes:
    """The bytes of the tokens in these logprobs entries."""
    return b"".join(bytes(entry["bytes"]) for entry in entries)


def text_of(entries: Sequence[Any]) -> str:
    """The text of the tokens in these logprobs entries."""
    return bytes_of(entries).decode()


def assert_same(stream: Sequence[Any], answer: Any) -> None:
    """The streamed answer equals the whole one, except for the ids of calls, which are random."""
    for choice in answer["choices"]:
        built = joined(stream, choice["index"])
        message = {name: value for name, value in choice["message"].items() if name != "refusal"}
        message["content"] = message["content"] or ""
        assert _without_ids(built["message"]) == _without_ids(message)
        assert built["finish_reason"] == choice["finish_reason"]
        expected = choice["logprobs"]
        if expected is not None:
            expected = {name: value for name, value in expected.items() if value is not None}
        assert built["logprobs"] == expected
