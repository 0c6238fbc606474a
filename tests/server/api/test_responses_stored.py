"""Responses that are stored: retrieved, read again from any event on, gone on with, cancelled."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine import Engine
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import LiveServer, live_server, wait_until
from tests.support.response_events import PATH, read_events, streamed, whole, without_ids

USER = {"role": "user", "content": "hello"}
CLOCK: Any = {"type": "function", "name": "clock", "parameters": {"type": "object"}}


@pytest.fixture
def fake() -> FakeEngine:
    fake = FakeEngine(max_seq_len=2048)
    fake.model.script = b"one two three"
    return fake


@pytest.fixture
def server(fake: FakeEngine) -> Iterator[LiveServer]:
    with live_server(fake.as_engine) as server:
        yield server


def text_of(item: dict[str, Any]) -> Any:
    [part] = item["content"]
    return part["text"]


def status(server: LiveServer, id_: str) -> str:
    return str(server.get(f"{PATH}/{id_}").json["status"])


def ended(server: LiveServer, id_: str) -> dict[str, Any]:
    wait_until(lambda: status(server, id_) not in ("queued", "in_progress"))
    response: dict[str, Any] = server.get(f"{PATH}/{id_}").json
    return response


def test_a_response_is_stored_unless_it_says_otherwise(server: LiveServer) -> None:
    for fields in ({}, {"store": None}, {"store": True}):
        answer = whole(server, **fields)
        assert answer["store"] is True
        assert server.get(f"{PATH}/{answer['id']}").json == answer
    answer = whole(server, store=False)
    assert answer["store"] is False
    missing = server.get(f"{PATH}/{answer['id']}")
    assert (missing.status, missing.error["code"]) == (404, "stream_not_found")
    assert server.get(f"{PATH}/chatcmpl-1").status == 404


def test_a_server_that_keeps_nothing_says_so_where_it_is_asked(fake: FakeEngine) -> None:
    with live_server(fake.as_engine, keep_streams="none") as server:
        assert "warnings" not in whole(server)
        assert whole(server, store=True)["warnings"][0]["param"] == "store"
        assert "warnings" not in whole(server, strict=True)
        error = server.post(PATH, {"input": "x", "background": True}).error
        assert error["param"] == "background"


def test_events_are_read_again_from_any_one_on(server: LiveServer) -> None:
    told = streamed(server, include=["message.output_text.logprobs"])
    id_ = told[-1]["response"]["id"]
    for after in range(len(told)):
        again = server.get(f"{PATH}/{id_}?stream=true&starting_after={after}")
        assert read_events(again.body, first=after + 1) == told[after + 1 :]
    assert read_events(server.get(f"{PATH}/{id_}?stream=true").body) == told
    assert server.get(f"{PATH}/{id_}").json == told[-1]["response"]
    beyond = server.get(f"{PATH}/{id_}?stream=true&starting_after={len(told)}")
    assert (beyond.status, beyond.error["param"]) == (400, "starting_after")
    whole_one = server.get(f"{PATH}/{id_}?starting_after=1")
    assert (whole_one.status, whole_one.error["param"]) == (400, "starting_after")


def test_a_reader_follows_a_response_that_runs(fake: FakeEngine, server: LiveServer) -> None:
    fake.model.token_time = 0.02
    id_ = whole(server, background=True)["id"]
    wait_until(lambda: server.get(f"/v1/streams/{id_}").json["completion_tokens"] >= 3)
    told = read_events(server.get(f"{PATH}/{id_}?stream=true").body)
    assert [told[0]["type"], told[-1]["type"]] == ["response.created", "response.completed"]
    assert told[-1]["response"] == server.get(f"{PATH}/{id_}").json


def test_a_response_in_the_background_is_polled(fake: FakeEngine, server: LiveServer) -> None:
    fake.model.prefill_gate.clear()
    first = whole(server, background=True, metadata={"topic": "x"}, instructions="Be brief.")
    assert (first["status"], first["output"], first["background"]) == ("queued", [], True)
    second = whole(server, background=True)
    assert status(server, second["id"]) == "queued"
    running = server.get(f"{PATH}/{first['id']}").json
    assert running | {"status": "queued"} == first
    fake.model.prefill_gate.set()
    answer = ended(server, first["id"])
    assert answer["status"] == "completed"
    assert answer["metadata"] == {"topic": "x"}
    assert answer["output"][0]["content"][0]["text"] == "one two three"


@pytest.mark.parametrize("is_running", [True, False])
def test_a_response_is_cancelled(fake: FakeEngine, server: LiveServer, is_running: bool) -> None:
    gate = fake.model.decode_gate if is_running else fake.model.prefill_gate
    gate.clear()
    blocker = None if is_running else whole(server, background=True)["id"]
    id_ = whole(server, background=True)["id"]
    if is_running:
        wait_until(lambda: status(server, id_) == "in_progress" and fake.model.held_in_decode)
        gate.set()
    cancelled = server.post(f"{PATH}/{id_}/cancel", {})
    assert cancelled.status == 200
    gate.set()
    if cancelled.json["status"] != "completed":  # it may have been faster
        assert cancelled.json["status"] == "cancelled"
        assert cancelled.json["error"] is None
        last = read_events(server.get(f"{PATH}/{id_}?stream=true").body)[-1]
        assert last["response"] == cancelled.json
    assert server.get(f"{PATH}/{id_}").json == cancelled.json
    assert server.post(f"{PATH}/{id_}/cancel", {}).json == cancelled.json
    if blocker is not None:
        assert ended(server, blocker)["status"] == "completed"


def test_a_response_is_deleted(server: LiveServer) -> None:
    id_ = whole(server)["id"]
    deleted = server.request("DELETE", f"{PATH}/{id_}")
    assert deleted.json == {"id": id_, "object": "response", "deleted": True}
    assert server.get(f"{PATH}/{id_}").status == 404
    assert server.post(PATH, {"input": "x", "previous_response_id": id_}).status == 400


def test_an_earlier_response_is_the_conversation_before_it(
    fake: FakeEngine, server: LiveServer
) -> None:
    fake.writes(reasoning=True)
    call = b'<tool_call>\n{"name": "clock", "arguments": {"zone": "UTC"}}\n</tool_call>'
    fake.model.script = b"<think>Hm.</think>Well.\n" + call
    first = whole(server, input=[USER], instructions="Be brief.", tools=[CLOCK], n_probs=1)
    fake.model.script = b"Noon."
    result = {
        "type": "function_call_output",
        "call_id": first["output"][-1]["call_id"],
        "output": "noon",
    }
    second = whole(server, input=[result], previous_response_id=first["id"], tools=[CLOCK])
    turns = [*fake.rendered["messages"]]
    assert "warnings" not in second
    assert [turn["role"] for turn in turns] == ["user", "assistant", "tool"]
    assert turns[1]["reasoning_content"] == "Hm."
    full = [USER, *first["output"], result]
    assert (
        whole(server, input=full, tools=[CLOCK])["usage"]["input_tokens"]
        == (second["usage"]["input_tokens"])
    )
    assert fake.rendered["messages"] == turns
    references = [{"type": "item_reference", "id": item["id"]} for item in first["output"]]
    whole(server, input=[USER, *references, result], tools=[CLOCK])
    assert fake.rendered["messages"] == turns
    # It goes on when the beginning is forgotten.
    server.request("DELETE", f"{PATH}/{first['id']}")
    third = whole(server, input="And now?", previous_response_id=second["id"])
    assert third["previous_response_id"] == second["id"]
    assert [turn["role"] for turn in fake.rendered["messages"]] == [
        "user", "assistant", "tool", "assistant", "user",
    ]  # fmt: skip
    listed = server.get(f"{PATH}/{third['id']}/input_items?order=asc").json
    assert without_ids(listed["data"][1:4]) == without_ids(first["output"])
    assert text_of(listed["data"][-1]) == "And now?"


def test_a_turn_finds_the_one_before_it_in_the_cache(bundled_engine: Engine) -> None:
    def cached(server: LiveServer, **fields: Any) -> tuple[list[int], int]:
        asked = {"max_output_tokens": 8, "temperature": 0, "include": ["prompt"]}
        answer = whole(server, **asked, **fields)
        details = answer["usage"]["input_tokens_details"]
        return answer["rendered_prompt"]["token_ids"], details["cached_tokens"]

    for refers in (True, False):
        with live_server(bundled_engine) as server:
            first = whole(server, input=[USER], max_output_tokens=8, temperature=0)
            full = [USER, *first["output"], {"role": "user", "content": "more"}]
            chain = {"input": "more", "previous_response_id": first["id"]}
            prompt, n_cached = cached(server, **(chain if refers else {"input": full}))
            assert n_cached >= first["usage"]["input_tokens"] - 1
            other, _ = cached(server, **({"input": full} if refers else chain))
            assert prompt == other


def test_the_input_is_listed_in_pages(server: LiveServer) -> None:
    texts = [f"number {i}" for i in range(5)]
    id_ = whole(server, input=[{"role": "user", "content": text} for text in texts])["id"]
    first = server.get(f"{PATH}/{id_}/input_items?limit=2").json
    assert list(map(text_of, first["data"])) == texts[:2:-1]
    assert first["has_more"]
    rest = server.get(f"{PATH}/{id_}/input_items?after={first['last_id']}").json
    assert list(map(text_of, rest["data"])) == texts[2::-1]
    reference = {"type": "item_reference", "id": first["first_id"]}
    again = whole(server, input=[reference])
    listed = server.get(f"{PATH}/{again['id']}/input_items").json["data"]
    assert list(map(text_of, listed)) == texts[4:]
    id_ = whole(server, input="text")["id"]
    [item] = server.get(f"{PATH}/{id_}/input_items").json["data"]
    assert item["content"] == [{"type": "input_text", "text": "text"}]


def test_callers_see_their_own_responses_only(fake: FakeEngine) -> None:
    one, other = {"authorization": "Bearer one"}, {"authorization": "Bearer other"}
    with live_server(fake.as_engine, api_keys=["one", "other"]) as server:
        answer = server.post(PATH, {"input": "x"}, **one).json
        path = f"{PATH}/{answer['id']}"
        assert server.get(path, **one).status == 200
        for strange in (path, f"{path}/input_items", f"{path}?stream=true"):
            assert server.get(strange, **other).status == 404
        assert server.post(f"{path}/cancel", {}, **other).status == 404
        refers = {"input": "x", "previous_response_id": answer["id"]}
        assert server.post(PATH, refers, **other).status == 400
        item = {"type": "item_reference", "id": answer["output"][0]["id"]}
        assert server.post(PATH, {"input": [item]}, **other).status == 400


def test_a_kept_stream_is_branched_and_controlled(fake: FakeEngine, server: LiveServer) -> None:
    told = streamed(server, temperature=0)
    id_ = told[-1]["response"]["id"]
    stream = server.get(f"/v1/streams/{id_}").json
    assert (stream["text"], stream["wire"]) == ("one two three", "responses")
    branch = server.post(f"/v1/streams/{id_}/branch", {"at": 4, "stream": True})
    branched = read_events(branch.body)[-1]["response"]
    assert branched["branch"] == {"id": id_, "at": 4}
    assert branched["output"][0]["content"][0]["text"].startswith("one ")
    assert server.get(f"{PATH}/{branched['id']}").json == branched


def test_text_that_is_taken_back_is_not_in_the_end(fake: FakeEngine, server: LiveServer) -> None:
    fake.model.token_time = 0.02
    id_ = whole(server, background=True)["id"]
    wait_until(lambda: server.get(f"/v1/streams/{id_}").json["completion_tokens"] >= 5)
    control = {"action": "rewind", "tokens": 3}
    assert server.post(f"/v1/streams/{id_}/control", control).status == 200
    answer = ended(server, id_)
    told = read_events(server.get(f"{PATH}/{id_}?stream=true").body)
    [done] = [event["item"] for event in told if event["type"].endswith("item.done")]
    assert [done] == answer["output"]
    assert told[-1]["response"] == answer
    assert [event["control"]["action"] for event in told if "control" in event] == ["rewind"]


def test_a_response_outlives_the_server(fake: FakeEngine, tmp_path: Path) -> None:
    fake.model.script, fake.model.token_time = None, 0.02
    asked = {"max_output_tokens": 40, "temperature": 0}
    with live_server(fake.as_engine, keep_streams_dir=tmp_path) as server:
        done = whole(server, **asked)
        id_ = whole(server, **asked, background=True)["id"]
        wait_until(lambda: server.get(f"/v1/streams/{id_}").json["completion_tokens"] >= 3)
    with live_server(fake.as_engine, keep_streams_dir=tmp_path) as server:
        assert server.get(f"{PATH}/{done['id']}").json == done
        assert status(server, id_) == "in_progress"
        resumed = server.post(f"/v1/streams/{id_}/control", {"action": "resume"})
        assert resumed.status == 200, resumed.body
        answer = ended(server, id_)
        assert without_ids(answer["output"]) == without_ids(done["output"])
        told = read_events(server.get(f"{PATH}/{id_}?stream=true").body)
        assert told[-1]["response"] == answer
