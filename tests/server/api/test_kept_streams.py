"""Kept streams over real sockets: who can read them, from which event on, and for how long."""

import json
import re
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from engine import Engine
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import LiveServer, live_server, read_answer, wait_until

STORY = {"prompt": "Once upon a time", "max_tokens": 40, "store": True, "seed": 3}
CHAT = {
    "messages": [{"role": "user", "content": "A story about a frog, please."}],
    "max_tokens": 40, "store": True, "seed": 3, "logprobs": True, "top_logprobs": 2,
}  # fmt: skip
ROUTES = {"/v1/completions": STORY, "/v1/chat/completions": CHAT}


@pytest.fixture(scope="module")
def server(bundled_engine: Engine) -> Iterator[LiveServer]:
    with live_server(bundled_engine) as server:
        yield server


@pytest.fixture
def fake() -> FakeEngine:
    return FakeEngine()


def without_ids(events: bytes) -> bytes:
    return re.sub(rb"(?m)^id: \d+\n", b"", events)


def id_of(events: bytes) -> str:
    return str(json.loads(events.split(b"\n\n")[0].removeprefix(b"data: "))["id"])


def frames(events: bytes) -> list[bytes]:
    return [frame + b"\n\n" for frame in events.split(b"\n\n")[:-1]]


@pytest.mark.parametrize("path", ROUTES)
def test_every_reader_gets_the_first_readers_bytes_from_any_event_on(
    server: LiveServer, path: str
) -> None:
    first = server.post(path, {**ROUTES[path], "stream": True}).body
    told = frames(first)
    events = f"/v1/streams/{id_of(first)}/events"
    assert told[-1] == b"data: [DONE]\n\n"
    for after in (0, 1, 7, len(told) - 1, len(told)):
        again = server.get(f"{events}?starting_after={after}")
        assert again.headers["content-type"].startswith("text/event-stream")
        assert without_ids(again.body) == b"".join(told[after:])
        numbers = [int(number) for number in re.findall(rb"(?m)^id: (\d+)$", again.body)]
        assert numbers == list(range(after + 1, len(told) + 1))
        by_header = server.get(events, **{"last-event-id": str(after)})
        assert by_header.body == again.body
    assert b"\nid:" not in b"\n" + first, "the route itself sends no ids"


@pytest.mark.parametrize("path", ROUTES)
def test_a_whole_answer_is_kept_with_the_events_of_a_streamed_one(
    server: LiveServer, path: str
) -> None:
    whole = server.post(path, ROUTES[path]).json
    events = server.get(f"/v1/streams/{whole['id']}/events").body
    chunks = [json.loads(frame.split(b"data: ")[1]) for frame in frames(events)[:-1]]
    assert {chunk["id"] for chunk in chunks} == {whole["id"]}
    if path == "/v1/completions":
        text = "".join(chunk["choices"][0]["text"] for chunk in chunks)
        assert text == whole["choices"][0]["text"]
    else:
        deltas = [chunk["choices"][0]["delta"].get("content", "") for chunk in chunks]
        assert "".join(deltas) == whole["choices"][0]["message"]["content"]


def test_a_stream_is_shown_with_its_tokens(server: LiveServer) -> None:
    body = {**STORY, "logprobs": 1, "return_token_ids": True}
    whole = server.post("/v1/completions", body).json
    shown = server.get(f"/v1/streams/{whole['id']}").json
    choice = whole["choices"][0]
    assert (shown["state"], shown["finish"], shown["wire"]) == ("ended", "length", "completion")
    assert shown["text"] == choice["text"]
    assert shown["token_ids"] == choice["token_ids"]
    assert shown["prompt_token_ids"] == choice["prompt_token_ids"]
    assert [token["logprob"] for token in shown["tokens"]] == choice["logprobs"]["token_logprobs"]
    assert shown["completion_tokens"] == whole["usage"]["completion_tokens"] == 40
    assert all(0 < token["p_sampled"] <= 1 for token in shown["tokens"])


def test_each_choice_is_a_stream_of_its_own(server: LiveServer) -> None:
    whole = server.post("/v1/completions", {**STORY, "n": 2}).json
    for choice in whole["choices"]:
        shown = server.get(f"/v1/streams/{whole['id']}-{choice['index']}").json
        assert shown["text"] == choice["text"]
        assert (shown["answer_id"], shown["index"]) == (whole["id"], choice["index"])
    several = server.get(f"/v1/streams/{whole['id']}")
    assert (several.status, several.error["param"]) == (400, "id")
    one, all_of_it = (
        server.get(f"/v1/streams/{id_}/events").body for id_ in (f"{whole['id']}-1", whole["id"])
    )
    assert one == all_of_it


def test_the_list_is_in_pages(bundled_engine: Engine) -> None:
    with live_server(bundled_engine) as server:
        body = {**STORY, "max_tokens": 1}
        ids = [server.post("/v1/completions", body).json["id"] for _ in range(5)]
        listed: list[str] = []
        path = "/v1/streams?order=asc&limit=2"
        after = ""
        while True:
            page = server.get(path + after).json
            listed += [each["id"] for each in page["data"]]
            if not page["has_more"]:
                break
            after = f"&after={page['last_id']}"
        assert sorted(listed) == sorted(ids)
        assert server.get("/v1/streams?limit=0").error["param"] == "limit"


def test_a_deleted_stream_is_gone(server: LiveServer) -> None:
    id_ = server.post("/v1/completions", STORY).json["id"]
    answer = server.request("DELETE", f"/v1/streams/{id_}")
    assert answer.json == {"id": id_, "object": "stream.deleted", "deleted": True}
    for path in (f"/v1/streams/{id_}", f"/v1/streams/{id_}/events"):
        gone = server.get(path)
        assert (gone.status, gone.error["code"]) == (404, "stream_not_found")
    assert server.request("DELETE", f"/v1/streams/{id_}").status == 404


@pytest.mark.parametrize(
    ("keeps", "store", "is_kept"),
    [
        ("stored", None, False), ("stored", True, True), ("stored", False, False),
        ("all", None, True), ("all", False, False), ("none", True, False),
    ],
)  # fmt: skip
def test_what_is_kept(fake: FakeEngine, keeps: str, store: bool | None, is_kept: bool) -> None:
    with live_server(fake.as_engine, keep_streams=keeps) as server:
        answer = server.post("/v1/completions", {"prompt": "x", "store": store}).json
        status = server.get(f"/v1/streams/{answer['id']}").status
        assert status == (200 if is_kept else 404)
        warned = [warning["param"] for warning in answer.get("warnings", ())]
        assert warned == (["store"] if keeps == "none" else []), "nothing is dropped in silence"


def test_a_stream_belongs_to_its_key(fake: FakeEngine) -> None:
    mine, other = {"authorization": "Bearer a"}, {"authorization": "Bearer b"}
    with live_server(fake.as_engine, api_keys=("a", "b")) as server:
        body = {"prompt": "x", "store": True}
        id_ = server.post("/v1/completions", body, **mine).json["id"]
        assert server.get(f"/v1/streams/{id_}", **mine).status == 200
        assert server.get("/v1/streams", **other).json["data"] == []
        for method, path in (("GET", ""), ("GET", "/events"), ("DELETE", "")):
            foreign = server.request(method, f"/v1/streams/{id_}{path}", None, other)
            unknown = server.request(method, f"/v1/streams/cmpl-0{path}", None, other)
            assert foreign.status == unknown.status == 404
            assert foreign.body == unknown.body, "nothing tells the two apart"
        assert server.get(f"/v1/streams/{id_}", **mine).status == 200


def test_wrong_positions_are_refused(server: LiveServer) -> None:
    id_ = server.post("/v1/completions", {**STORY, "max_tokens": 2}).json["id"]
    for after in ("99", "-1", "x"):
        answer = server.get(f"/v1/streams/{id_}/events?starting_after={after}")
        assert (answer.status, answer.error["param"]) == (400, "starting_after")
    wrong = server.get(f"/v1/streams/{id_}/events", **{"last-event-id": "-1"})
    assert (wrong.status, wrong.error["param"]) == (400, "last-event-id")


@pytest.mark.parametrize(
    "metadata", [{"a": 1}, {"x" * 65: "a"}, {"a": "x" * 513}, {str(i): "" for i in range(17)}]
)
def test_wrong_metadata_is_refused(server: LiveServer, metadata: dict[str, Any]) -> None:
    answer = server.post("/v1/completions", {**STORY, "metadata": metadata})
    assert (answer.status, answer.error["param"]) == (400, "metadata")


def test_background_needs_a_stream_that_is_kept(fake: FakeEngine) -> None:
    with live_server(fake.as_engine) as server:
        answer = server.post("/v1/completions", {"prompt": "x", "background": True})
        assert (answer.status, answer.error["param"]) == (400, "background")


def begun(server: LiveServer, fake: FakeEngine, **fields: Any) -> tuple[socket.socket, str]:
    """A stream that waits in the middle, and its id."""
    fake.model.decode_gate.clear()
    body = {"prompt": "Once", "max_tokens": 30, "store": True, "stream": True, **fields}
    sock = server.send("/v1/completions", body)
    wait_until(fake.model.in_decode.is_set)
    [stream] = server.get("/v1/streams").json["data"]
    return sock, stream["id"]


@pytest.mark.parametrize("is_background", [False, True])
def test_a_client_that_hangs_up_ends_only_what_is_not_in_the_background(
    fake: FakeEngine, is_background: bool
) -> None:
    with live_server(fake.as_engine) as server:
        sock, id_ = begun(server, fake, background=is_background)
        sock.close()
        if not is_background:
            wait_until(lambda: server.running is None or server.running.cancelled_at is not None)
        fake.model.decode_gate.set()
        wait_until(lambda: server.get(f"/v1/streams/{id_}").json["state"] == "ended")
        shown = server.get(f"/v1/streams/{id_}").json
        events = server.get(f"/v1/streams/{id_}/events").body
        if is_background:
            assert (shown["finish"], shown["completion_tokens"]) == ("length", 30)
            assert events.endswith(b"data: [DONE]\n\n")
        else:
            assert shown["finish"] == "error"
            assert b"stream_cancelled" in frames(events)[-1]


def test_readers_follow_a_running_stream_to_its_end(fake: FakeEngine) -> None:
    with live_server(fake.as_engine) as server:
        sock, id_ = begun(server, fake)
        assert server.get(f"/v1/streams/{id_}").json["state"] in ("prefilling", "running")
        seen: list[bytes] = []

        def read() -> None:
            seen.append(server.get(f"/v1/streams/{id_}/events").body)

        readers = [threading.Thread(target=read) for _ in range(8)]
        for reader in readers:
            reader.start()
        fake.model.decode_gate.set()
        with sock:
            first = read_answer(sock).body
        for reader in readers:
            reader.join()
        assert [without_ids(one) for one in seen] == 8 * [first]


def test_deleting_a_running_stream_ends_it(fake: FakeEngine) -> None:
    with live_server(fake.as_engine) as server:
        sock, id_ = begun(server, fake, background=True)
        assert server.request("DELETE", f"/v1/streams/{id_}").status == 200
        fake.model.decode_gate.set()
        with sock:
            answer = read_answer(sock)
        assert b"the stream was deleted" in answer.body
        wait_until(lambda: server.running is None)


def test_the_least_recently_read_goes_first(fake: FakeEngine) -> None:
    with live_server(fake.as_engine, keep_streams_mb=1) as server:
        body = {"prompt": "x" * 100, "max_tokens": 200, "store": True, "logprobs": 5}
        ids = [server.post("/v1/completions", body).json["id"]]
        for _ in range(100):
            ids.append(server.post("/v1/completions", body).json["id"])
            assert server.get(f"/v1/streams/{ids[0]}").status == 200, "it is read all the time"
            if server.get(f"/v1/streams/{ids[1]}/events").status == 404:
                break
            ids[1:] = [*ids[2:], ids[1]]  # it was read just now
        else:
            pytest.fail("a MiB holds 100 streams of 200 tokens with all their numbers")


def test_what_nobody_reads_is_forgotten_in_time(fake: FakeEngine) -> None:
    with live_server(fake.as_engine, keep_streams_seconds=0.2) as server:
        id_ = server.post("/v1/completions", {"prompt": "x", "store": True}).json["id"]
        wait_until(lambda: server.get("/v1/streams").json["data"] == [])
        assert server.get(f"/v1/streams/{id_}").status == 404
