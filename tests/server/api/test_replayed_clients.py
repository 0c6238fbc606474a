"""Clients that no registry has, or that take too long to run: their requests are replayed, and what
they read of the answers is checked. Each file in tests/clients/requests names its source.
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine import Engine
from tests.support.event_stream import parse_event_stream
from tests.support.live_server import LiveServer, live_server

REQUESTS = Path(__file__).parents[2] / "clients" / "requests"
SILLY_TAVERN = json.loads((REQUESTS / "sillytavern.json").read_text())["types"]
MIKUPAD = json.loads((REQUESTS / "mikupad.json").read_text())
LOGITLOOM = json.loads((REQUESTS / "logitloom.json").read_text())
N_TOKENS = 24
WITH_PANEL = [name for name in SILLY_TAVERN if name != "generic"]


@pytest.fixture(scope="module")
def server(bundled_engine: Engine) -> Iterator[LiveServer]:
    with live_server(bundled_engine) as server:
        yield server


def sent(server: LiveServer, request: list[Any], **changes: Any) -> Any:
    """The whole answer to a recorded request, or its events."""
    path, body = request
    answer = server.post(path, {**body, **changes})
    assert answer.status == 200, answer.body
    if "event-stream" in answer.headers["content-type"]:
        return parse_event_stream(answer.body).chunks
    return answer.json


@pytest.mark.parametrize("name", SILLY_TAVERN)
def test_sillytavern_connects_and_shows_the_model(server: LiveServer, name: str) -> None:
    recorded = SILLY_TAVERN[name]
    models = server.get(recorded["models"]).json["data"]
    assert [model["id"] for model in models] == ["soliton-default"]
    if "model" in recorded:
        assert server.get(recorded["model"]).json["id"] == "soliton-default"


@pytest.mark.parametrize("name", WITH_PANEL)
def test_sillytavern_counts_tokens(server: LiveServer, name: str, bundled_engine: Engine) -> None:
    path, body = SILLY_TAVERN[name]["tokens"]
    answer = sent(server, [path, body])
    text = next(body[key] for key in ("text", "content", "prompt") if key in body)
    # It takes the first of these.
    count = answer.get("length", answer.get("count"))
    ids = bundled_engine.tokenizer.encode(text, add_special_tokens="prompt" in body)
    assert (count, answer["tokens"]) == (len(ids), ids)


@pytest.mark.parametrize("name", SILLY_TAVERN)
def test_sillytavern_streams_a_text(server: LiveServer, name: str) -> None:
    events = sent(server, SILLY_TAVERN[name]["generate"])
    assert "".join(text_of(event) for event in events)
    whole = sent(server, SILLY_TAVERN[name]["generate"], stream=False)
    assert "".join(text_of(event) for event in events) == text_of(whole)


def text_of(event: Any) -> str:
    """As SillyTavern and mikupad find it."""
    choices = event.get("choices")
    text: str = (choices[0]["text"] if choices else "") or event.get("content") or ""
    return text


@pytest.mark.parametrize("name", WITH_PANEL)
def test_sillytavern_s_panel_has_one_token_with_its_alternatives_per_event(
    server: LiveServer, name: str
) -> None:
    """Also of a text that is written for the second time, whose tokens are drafted."""
    sent(server, SILLY_TAVERN[name]["generate"])
    events = [event for event in sent(server, SILLY_TAVERN[name]["generate"]) if text_of(event)]
    assert len(events) > 4
    for event in events:
        text, panel = text_of(event), alternatives(event)
        if name == "llamacpp":  # only the likeliest ones are listed there, as in llama-server
            [entry] = event["completion_probabilities"]
            assert entry["token"] == text
            assert len(entry["top_logprobs"]) == 10
        else:
            assert text in panel
        assert len(panel) >= 5
        assert 0 < sum(panel.values()) <= 1 + 1e-6


def alternatives(event: Any) -> dict[str, float]:
    """The probabilities of an event's first token, as SillyTavern and mikupad read them."""
    if "completion_probabilities" in event:
        tops = event["completion_probabilities"][0]["top_logprobs"]
        return {top["token"]: math.exp(top["logprob"]) for top in tops}
    logprobs = event["choices"][0]["logprobs"]["top_logprobs"][0]
    return {token: math.exp(logprob) for token, logprob in logprobs.items()}


def test_mikupad_counts_and_splits_a_text(server: LiveServer) -> None:
    counted = sent(server, MIKUPAD["count"])
    encoded = sent(server, MIKUPAD["encode"])
    assert counted["length"] == len(encoded["tokens"])
    path, _ = MIKUPAD["decode"]
    pieces = [sent(server, [path, {"tokens": [token]}])["text"] for token in encoded["tokens"]]
    assert "".join(pieces) == MIKUPAD["encode"][1]["text"]


def test_mikupad_completes_with_a_panel_and_branches(server: LiveServer) -> None:
    for _ in range(2):  # the second time, drafted
        events = [event for event in sent(server, MIKUPAD["completion"]) if text_of(event)]
        assert len(events) == N_TOKENS
        assert all(text_of(event) in alternatives(event) for event in events)
    panel = alternatives(events[4])
    other = next(token for token in panel if token != text_of(events[4]))
    prompt = MIKUPAD["completion"][1]["prompt"] + "".join(map(text_of, events[:4])) + other
    branch = sent(server, MIKUPAD["completion"], prompt=prompt)
    assert "".join(map(text_of, branch))


def test_mikupad_chats_with_a_panel(server: LiveServer) -> None:
    n_tokens = 0
    for event in sent(server, MIKUPAD["chat"]):
        [choice] = event["choices"]
        token = choice["delta"].get("content")
        if token:
            n_tokens += 1
            [entry] = choice["logprobs"]["content"]
            assert token in [top["token"] for top in entry["top_logprobs"]]
    assert n_tokens > 4


def test_logitloom_asks_who_serves(server: LiveServer) -> None:
    path, headers = LOGITLOOM["sniff"]
    [model] = server.get(path, **headers).json["data"]
    assert {"id", "owned_by"} <= set(model)


@pytest.mark.parametrize("kind", ["base", "chat"])
def test_logitloom_grows_a_tree(server: LiveServer, kind: str) -> None:
    """The likeliest tokens in each place, and from one of them on what comes then."""
    places = loom(sent(server, LOGITLOOM[kind]))
    assert len(places) == 5
    assert all(3 <= len(tops) <= 4 for _, tops in places)
    assert all(chosen == max(tops, key=lambda token: tops[token]) for chosen, tops in places)
    root = sorted(places[0][1], key=lambda token: -places[0][1][token])[1]
    path, body = LOGITLOOM[kind]
    if kind == "base":
        grown = {"prompt": body["prompt"] + root}
    else:
        reply = {"role": "assistant", "content": root}
        grown = {"messages": [*body["messages"], reply], **LOGITLOOM["flags"]}
    branch = loom(sent(server, [path, body], max_tokens=4, **grown))
    assert len(branch) == 4


def loom(answer: Any) -> list[tuple[str, dict[str, float]]]:
    """For each token of an answer: itself, and the logprobs of those that could have come."""
    logprobs = answer["choices"][0]["logprobs"]
    if "content" in logprobs:
        return [
            (entry["token"], {top["token"]: top["logprob"] for top in entry["top_logprobs"]})
            for entry in logprobs["content"]
        ]
    return list(zip(logprobs["tokens"], logprobs["top_logprobs"], strict=True))
