"""Branches, peeks and replays over real sockets: exact to the last bit."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from engine import DEFAULT_MODEL, Engine
from tests.support.live_server import LiveServer, live_server

STORY = {"prompt": "Once upon a time", "max_tokens": 40, "store": True, "seed": 3}
CHAT = {
    "messages": [{"role": "user", "content": "A story about a frog, please."}],
    "max_tokens": 40, "store": True, "seed": 3,
}  # fmt: skip
# What a stream may be under, each with the route's body.
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "greedy": {"temperature": 0},
    "undrafted": {"speculate": False},
    "bans": {"banned_strings": ["the ", "was"]},
    "constraint": {"structured_outputs": {"regex": "[a-z ,]{60}"}},
    "guidance": {"negative_prompt": "Nothing", "cfg_scale": 1.5},
    "healing": {"token_healing": True, "prompt": "Once upon a ti"},
    "penalties": {"repetition_penalty": 1.2, "mirostat": True, "dry_multiplier": 0.8},
    "stop": {"stop": ["zzz", "and the"], "max_tokens": 60},
}


@pytest.fixture(scope="module")
def server(bundled_engine: Engine) -> Iterator[LiveServer]:
    with live_server(bundled_engine) as server:
        yield server


@pytest.fixture(scope="module", params=["auto", "8bit"])
def any_server(request: pytest.FixtureRequest, server: LiveServer) -> Iterator[LiveServer]:
    """With each format of keys and values."""
    if request.param == "auto":
        yield server
        return
    engine = Engine.load(DEFAULT_MODEL, device="cpu", kv_cache=request.param)
    with live_server(engine) as other:
        yield other


def begin(server: LiveServer, **fields: Any) -> dict[str, Any]:
    """The stream of a completion, as it is shown."""
    answer = server.post("/v1/completions", {**STORY, **fields})
    assert answer.status == 200, answer.body
    return shown(server, answer.json["id"])


def shown(server: LiveServer, id_: str) -> dict[str, Any]:
    stream: dict[str, Any] = server.get(f"/v1/streams/{id_}").json
    return stream


def branched(server: LiveServer, id_: str, **body: Any) -> dict[str, Any]:
    answer = server.post(f"/v1/streams/{id_}/branch", body)
    assert answer.status == 200, answer.body
    return shown(server, answer.json["id"])


def numbers(stream: dict[str, Any]) -> list[tuple[Any, ...]]:
    names = ("token_id", "logprob", "p_raw", "p_sampled", "rank", "entropy", "margin", "kept_mass")
    return [tuple(token[name] for name in names) for token in stream["tokens"]]


@pytest.mark.parametrize("name", SETTINGS)
def test_a_branch_with_the_parents_own_token_is_the_parent(
    any_server: LiveServer, name: str
) -> None:
    parent = begin(any_server, **SETTINGS[name])
    for at in (1, 9):
        branch = branched(any_server, parent["id"], at=at, token_id=parent["token_ids"][at])
        assert branch["text"] == parent["text"]
        mine, theirs = numbers(branch), numbers(parent)
        assert mine[:at] == theirs[:at], "what it inherits"
        assert mine[at + 1 :] == theirs[at + 1 :], "what it generates"
        assert mine[at][:3] == theirs[at][:3], "the token that was given, but how it was drawn"
        assert branch["parent"] == {"id": parent["id"], "at": at}
    assert len(shown(any_server, parent["id"])["children"]) == 2


@pytest.mark.parametrize("name", SETTINGS)
def test_a_replay_is_identical(any_server: LiveServer, name: str) -> None:
    parent = begin(any_server, **SETTINGS[name])
    replay = any_server.post(f"/v1/streams/{parent['id']}/replay", {}).json
    assert replay["first_difference"] is None
    assert replay["identical"] is True
    assert replay["tokens"] == len(parent["tokens"])
    assert replay["proof"]["seed"] == 3
    assert replay["proof"]["fingerprint"].startswith("fp_")


def test_a_branch_goes_on_differently_and_says_where_from(server: LiveServer) -> None:
    parent = begin(server)
    branch = branched(server, parent["id"], at=10)
    assert branch["token_ids"][:10] == parent["token_ids"][:10]
    assert branch["token_ids"] != parent["token_ids"]
    again = branched(server, parent["id"], at=10)
    assert again["token_ids"] == branch["token_ids"], "the same branch is the same"
    seeded = branched(server, parent["id"], at=10, seed=8)
    assert seeded["token_ids"] not in (parent["token_ids"], branch["token_ids"])
    of_branch = branched(server, branch["id"], at=12, token_id=branch["token_ids"][12])
    assert of_branch["token_ids"] == branch["token_ids"]
    before = branched(server, branch["id"], at=5, token_id=branch["token_ids"][5])
    assert before["token_ids"] == parent["token_ids"], "there it still was the parent"


def test_a_branch_by_text_and_with_other_settings(server: LiveServer) -> None:
    parent = begin(server)
    branch = branched(
        server, parent["id"], at=10, text=" dragon", max_tokens=20, temperature=0, stop=["zzz"]
    )
    start = "".join(token["token"] for token in parent["tokens"][:10])
    assert branch["text"].startswith(start + " dragon")
    assert branch["completion_tokens"] == 20
    replay = server.post(f"/v1/streams/{branch['id']}/replay", {}).json
    assert replay["identical"], replay["first_difference"]


def test_several_branches_at_once(server: LiveServer) -> None:
    parent = begin(server)
    answer = server.post(f"/v1/streams/{parent['id']}/branch", {"at": 10, "n": 3}).json
    texts = [choice["text"] for choice in answer["choices"]]
    assert len(set(texts)) == 3
    for index, text in enumerate(texts):
        assert shown(server, f"{answer['id']}-{index}")["text"] == text


def test_a_streamed_branch_begins_with_what_it_inherits(server: LiveServer) -> None:
    chat = server.post("/v1/chat/completions", CHAT).json
    parent = shown(server, chat["id"])
    body = {"at": 10, "token_id": parent["token_ids"][10], "stream": True}
    events = server.post(f"/v1/streams/{chat['id']}/branch", body).body.split(b"\n\n")[:-2]
    chunks = [json.loads(event.removeprefix(b"data: ")) for event in events]
    assert chunks[0]["branch"] == {"id": chat["id"], "at": 10}
    assert chunks[0]["object"] == "chat.completion.chunk"
    content = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
    assert content == chat["choices"][0]["message"]["content"]


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_branch_of_a_stream_with_usage(server: LiveServer, is_streamed: bool) -> None:
    """Options of a stream do not stand in the way of an answer that is none."""
    body = {**STORY, "stream": True, "stream_options": {"include_usage": True}}
    first = server.post("/v1/completions", body).body
    id_ = json.loads(first.split(b"\n\n")[0].removeprefix(b"data: "))["id"]
    asked = {"at": 5, "temperature": 0, "stream": is_streamed}
    answer = server.post(f"/v1/streams/{id_}/branch", asked)
    assert answer.status == 200, answer.body
    if is_streamed:
        last = json.loads(answer.body.split(b"\n\n")[-3].removeprefix(b"data: "))
        assert last["usage"]["completion_tokens"] == 40


def test_a_branch_that_is_refused_leaves_nothing_behind(server: LiveServer) -> None:
    parent = begin(server)
    before = server.get("/v1/streams?limit=100").json["data"]
    answer = server.post(f"/v1/streams/{parent['id']}/branch", {"at": 3, "token_id": 10**6})
    assert answer.status == 400
    assert server.get("/v1/streams?limit=100").json["data"] == before


def test_a_child_that_was_deleted_is_no_child_any_more(server: LiveServer) -> None:
    parent = begin(server)
    one, other = (branched(server, parent["id"], at=n)["id"] for n in (3, 4))
    assert server.request("DELETE", f"/v1/streams/{one}").status == 200
    assert shown(server, parent["id"])["children"] == [other]


def test_a_branch_computes_no_prompt_that_is_cached(server: LiveServer) -> None:
    parent = begin(server, prompt="A long time ago there was a king who had three sons and a dog")
    body = {"at": 30, "include": ["cache"]}
    answer = server.post(f"/v1/streams/{parent['id']}/branch", body).json
    cache = answer["choices"][0]["cache"]
    assert cache["reused"] == cache["wanted"], "all but the last token, always computed"


def test_a_peek_is_what_branches_say(server: LiveServer) -> None:
    parent = begin(server)
    before = shown(server, parent["id"])
    peek = server.post(f"/v1/streams/{parent['id']}/peek", {"at": 10, "top": 3, "tokens": 5}).json
    assert peek["at"] == 10
    assert len(peek["alternatives"]) == 3
    for one in peek["alternatives"]:
        branch = branched(
            server, parent["id"], at=10, token_id=one["token_id"], temperature=0, max_tokens=15
        )
        tokens = one["tokens"]
        assert [token["token_id"] for token in tokens] == branch["token_ids"][10:]
        assert [t["p_raw"] for t in tokens] == [t["p_raw"] for t in branch["tokens"][10:]]
    likeliest = [one["tokens"][0]["p_raw"] for one in peek["alternatives"]]
    assert likeliest == sorted(likeliest, reverse=True)
    after = shown(server, parent["id"])
    assert after["tokens"] == before["tokens"]


def test_a_peek_at_a_token_that_ends_the_text(server: LiveServer, bundled_engine: Engine) -> None:
    parent = begin(server)
    [end] = bundled_engine.tokenizer.encode("<|endoftext|>")
    path = f"/v1/streams/{parent['id']}/peek"
    [way] = server.post(path, {"at": 10, "token_ids": [end]}).json["alternatives"]
    assert (way["token_id"], way["text"], way["stop"]) == (end, "", "stop_token")
    assert way["tokens"] == []


@pytest.mark.parametrize(
    ("route", "body", "param"),
    [
        ("branch", {"at": 41}, "at"), ("branch", {"at": -1}, "at"),
        ("branch", {"at": 3, "token_id": 10**6}, "token_id"),
        ("branch", {"at": 3, "token_id": 5, "text": "x"}, "token_id"),
        ("branch", {"temperature": -1}, "temperature"), ("branch", {"top_p": "x"}, "top_p"),
        ("branch", {"prompt": "x"}, "prompt"), ("branch", {"n": 0}, "n"),
        ("branch", {"at": 3, "cfg_scale": 2, "negative_prompt": "x"}, "negative_prompt"),
        ("peek", {"at": 41}, "at"), ("peek", {"token_ids": [10**6]}, "token_ids"),
        ("peek", {"top": 0}, "top"), ("peek", {"tokens": 10**6}, "tokens"),
    ],
)  # fmt: skip
def test_what_is_out_of_range_is_refused(
    server: LiveServer, route: str, body: dict[str, Any], param: str
) -> None:
    parent = begin(server)
    answer = server.post(f"/v1/streams/{parent['id']}/{route}", body)
    assert (answer.status, answer.error["param"]) == (400, param), answer.body
    unknown = server.post(f"/v1/streams/cmpl-0/{route}", {})
    assert (unknown.status, unknown.error["code"]) == (404, "stream_not_found")
