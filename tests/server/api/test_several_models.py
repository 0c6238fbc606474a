"""Several models over real sockets: who answers, what is in memory, and what a failure costs."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import openai
import pytest

from engine import DEFAULT_MODEL, Engine
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import LiveServer, live_models, live_server, wait_until
from tests.support.pass_gate import PassGate, paused
from tests.support.tiny_models import save_model

ROOT = Path(__file__).parents[3]
BODY: dict[str, Any] = {"prompt": "Once upon a time, " * 4, "max_tokens": 12, "seed": 3}
TURN = 0.05
MESSAGES = [{"role": "user", "content": "hello"}]


@pytest.fixture
def fakes() -> dict[str, FakeEngine]:
    """Two engines that say who they are."""
    engines = {"one": FakeEngine(), "two": FakeEngine()}
    for name, engine in engines.items():
        engine.fingerprint = f"fp_{name}"
        engine.model.script = f"this is {name}".encode()
    return engines


@pytest.fixture
def pair(fakes: dict[str, FakeEngine]) -> Iterator[LiveServer]:
    with serving(fakes, admin_keys=("admin",)) as server:
        yield server


def serving(fakes: Mapping[str, FakeEngine], **options: Any) -> Any:
    options = {"model_turn": TURN, **options}
    return live_models({name: fake.as_engine for name, fake in fakes.items()}, **options)


def real(tiny_model: Path) -> dict[str, Engine]:
    paths = {"story": DEFAULT_MODEL, "random": tiny_model}
    return {
        name: Engine.load(path, device="cpu", prefix_bytes=2**24) for name, path in paths.items()
    }


def metrics(server: LiveServer, name: str) -> dict[str, float]:
    """By model."""
    found = {}
    for line in server.get("/metrics").body.decode().splitlines():
        if line.startswith(f'soliton_model_{name}{{model="'):
            found[line.split('"')[1]] = float(line.split()[-1])
    return found


def loaded(server: LiveServer) -> list[str]:
    return [name for name, is_loaded in metrics(server, "loaded").items() if is_loaded]


def text_of(answer: Any) -> str:
    assert answer.status == 200, answer.body
    text: str = answer.json["choices"][0]["text"]
    return text


# Who answers.


@pytest.mark.clients
def test_models_in_turn_answer_as_each_does_alone(tiny_model: Path) -> None:
    def asked(client: openai.OpenAI, model: str, seed: int) -> Any:
        answer = client.completions.create(
            model=model, prompt="Once upon a time", max_tokens=16, seed=seed, logprobs=3
        )
        return answer.choices[0].model_dump(), answer.model, answer.system_fingerprint

    alone: dict[tuple[str, int], Any] = {}
    for name, engine in real(tiny_model).items():
        with live_server(engine, served_model_name=name) as server, client_of(server) as client:
            alone |= {(name, seed): asked(client, name, seed) for seed in range(4)}
    with live_models(real(tiny_model), model_turn=TURN) as server, client_of(server) as client:
        with ThreadPoolExecutor(8) as pool:
            answers = dict(
                zip(alone, pool.map(lambda each: asked(client, *each), alone), strict=True)
            )
        assert answers == alone
        assert {model for _, model, _ in answers.values()} == {"story", "random"}
        in_turn = [asked(client, name, 0) for _ in range(2) for name in ("random", "story")]
        assert in_turn == [alone["random", 0], alone["story", 0]] * 2
        assert metrics(server, "loads_total")["random"] >= 2


def client_of(server: LiveServer) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


def test_every_wire_chooses_by_the_name(pair: LiveServer) -> None:
    def said(path: str, body: dict[str, Any]) -> str:
        answer = pair.post(path, {"model": "two", "max_tokens": 40, **body})
        assert answer.status == 200, answer.body
        return answer.body.decode()

    for path, body in (
        ("/v1/completions", {"prompt": "x"}),
        ("/v1/chat/completions", {"messages": MESSAGES}),
        ("/v1/responses", {"input": "hello"}),
        ("/v1/messages", {"messages": MESSAGES}),
        ("/completion", {"prompt": "x"}),
        ("/infill", {"input_prefix": "x", "input_suffix": "y"}),
        ("/api/generate", {"prompt": "x", "stream": False}),
        ("/api/generate", {"prompt": "x", "stream": False, "raw": True}),
        ("/api/chat", {"model": "two:latest", "messages": MESSAGES, "stream": False}),
    ):
        assert "this is two" in said(path, body), path
        assert "this is one" in said(path, {**body, "model": "one"}), path
    assert "this is one" in said("/v1/completions", {"prompt": "x", "model": None})
    assert "this is one" in said("/v1/messages", {"messages": MESSAGES, "model": "claude-x"})


def test_what_computes_nothing_chooses_too(pair: LiveServer, fakes: dict[str, FakeEngine]) -> None:
    fakes["two"].max_seq_len = 99
    for path, body in (
        ("/tokenize", {"content": "x"}),
        ("/detokenize", {"tokens": [97]}),
        ("/apply-template", {"messages": MESSAGES}),
        ("/v1/token/encode", {"text": "x"}),
        ("/v1/token/decode", {"tokens": [97]}),
        ("/v1/chat/completions/input_tokens", {"messages": MESSAGES}),
        ("/v1/responses/input_tokens", {"input": "x"}),
        ("/v1/messages/count_tokens", {"messages": MESSAGES}),
        ("/v1/estimate", {"prompt": "x"}),
        ("/v1/estimate", {"messages": MESSAGES}),
        ("/v1/estimate", {"input": "x"}),
        ("/v1/estimate", {"prompt": "x", "continuations": ["y"]}),
        ("/api/show", {}),
    ):
        assert pair.post(path, {"model": "two", **body}).status == 200, path
        assert pair.post(path, {"model": "three", **body}).status == 404, path
    assert pair.post("/tokenize", {"content": "x", "model": "two"}).json["max_model_len"] == 99
    for path in ("/props", "/slots", "/tokenizer_info"):
        shown = pair.get(f"{path}?model=two").json
        assert "99" in json.dumps(shown), path
        assert "99" not in json.dumps(pair.get(path).json), path
        assert pair.get(f"{path}?model=three").status == 404, path
    assert loaded(pair) == ["one"]
    scored = pair.post("/v1/score", {"model": "two", "prompt": "x", "continuations": ["y"]})
    assert (scored.status, scored.json["model"]) == (200, "two")
    assert loaded(pair) == ["two"]


def test_unknown_names_are_told_what_is_there(pair: LiveServer) -> None:
    error = pair.post("/v1/completions", {"model": "three", "prompt": "x"}).error
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    assert "send 'one' or 'two'" in error["message"]


def test_lists_say_what_is_there_and_what_is_loaded(pair: LiveServer) -> None:
    for name, other in (("two", "one"), ("one", "two")):
        text_of(pair.post("/v1/completions", {**BODY, "model": name}))
        for path in ("/v1/models", "/models", "/v1/model/list"):
            cards = pair.get(path).json["data"]
            assert {card["id"]: card["status"]["value"] for card in cards} == {
                name: "loaded", other: "unloaded",
            }  # fmt: skip
        assert pair.get(f"/v1/models/{other}").json["status"]["value"] == "unloaded"
        assert [each["name"] for each in pair.get("/api/tags").json["models"]] == ["one", "two"]
        assert [each["name"] for each in pair.get("/api/ps").json["models"]] == [name]
        assert pair.get("/v1/model").json["id"] == name
        assert loaded(pair) == [name]


def test_one_model_is_listed_as_ever(fakes: dict[str, FakeEngine]) -> None:
    with live_server(fakes["one"].as_engine) as server:
        [card] = server.get("/v1/models").json["data"]
        assert "status" not in card
        assert "status" not in server.get("/v1/model").json


# In memory.


def test_turns_bound_how_often_models_are_loaded(fakes: dict[str, FakeEngine]) -> None:
    turn, n = 0.4, 12
    with serving(fakes, model_turn=turn) as server, ThreadPoolExecutor(2 * n) as pool:
        names = [name for _ in range(n) for name in fakes]
        bodies = [{**BODY, "model": name} for name in names]
        begin = time.monotonic()
        answers = list(pool.map(lambda body: server.post("/v1/completions", body), bodies))
        n_turns = (time.monotonic() - begin) / turn
        assert [text_of(answer) for answer in answers] == [f"this is {name}" for name in names]
        n_loads = sum(metrics(server, "loads_total").values()) - 2
        assert n_loads <= 1 + n_turns, "the first load waits for no turn"


def test_a_flood_for_one_model_leaves_the_other_its_turn(
    fakes: dict[str, FakeEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = fakes.values()
    n_before: list[int] = []
    wake = two.wake

    def noting(*args: Any) -> None:
        n_before.append(one.model.n_prompts)
        wake(*args)

    monkeypatch.setattr(two, "wake", noting)
    one.model.decode_gate.clear()
    with serving(fakes, max_queue=8) as server, ThreadPoolExecutor(1) as pool:
        flood = [server.send("/v1/completions", BODY) for _ in range(8)]
        wait_until(lambda: server.lease.n_waiting == 7)
        other = pool.submit(server.post, "/v1/completions", {**BODY, "model": "two"})
        wait_until(lambda: server.lease.n_waiting == 8)
        one.model.decode_gate.set()
        assert text_of(other.result(20)) == "this is two"
        assert n_before == [1], "it waits only for the one that runs"
        for sock in flood:
            sock.close()


def test_both_stay_while_there_is_room(fakes: dict[str, FakeEngine]) -> None:
    with serving(fakes, models_mb=3) as server:
        for _ in range(3):
            for name in fakes:
                assert text_of(server.post("/v1/completions", {**BODY, "model": name}))
        assert loaded(server) == ["one", "two"]
        assert sum(metrics(server, "loads_total").values()) == 3, "one load beside the two at start"


def test_all_sleep_when_nothing_is_asked(fakes: dict[str, FakeEngine]) -> None:
    with serving(fakes, models_mb=3, idle_unload=0.2) as server:
        text_of(server.post("/v1/completions", {**BODY, "model": "two"}))
        wait_until(lambda: server.get("/health").json.get("state") == "asleep")
        assert loaded(server) == []
        assert text_of(server.post("/v1/completions", BODY)) == "this is one"


def test_health_answers_while_a_model_is_loaded(
    fakes: dict[str, FakeEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    loading, may_load = threading.Event(), threading.Event()
    wake = fakes["two"].wake

    def slowly(*args: Any) -> None:
        loading.set()
        assert may_load.wait(20)
        wake(*args)

    monkeypatch.setattr(fakes["two"], "wake", slowly)
    body = {**BODY, "model": "two"}
    with serving(fakes) as server, closing(server.send("/v1/completions", body)):
        assert loading.wait(20)
        assert server.get("/health").json == {"status": "ok"}
        states = {c["id"]: c["status"]["value"] for c in server.get("/v1/models").json["data"]}
        assert states == {"one": "loaded", "two": "loading"}, "the files are checked first"
        may_load.set()
        wait_until(lambda: loaded(server) == ["two"])


def test_one_model_at_a_time_is_in_memory(tmp_path: Path) -> None:
    """In a process of its own, whose memory nobody else takes part in."""
    save_model(tmp_path / "large", vocab_size=320, hidden_size=1024, intermediate_size=4096)
    command = [
        sys.executable, "-m", "server", "serve", "--model", f"small={DEFAULT_MODEL}",
        "--model", f"large={tmp_path / 'large'}", "--model-turn", "0.01", "--port", "0",
        "--panel-cache", "off", "--device", "cpu",
    ]  # fmt: skip
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("small is ready at "), "the first one's name"
            url = line.split()[4]
            with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
                sizes: list[int] = []
                for name in ("small", "large", "small", "large"):
                    client.completions.create(model=name, prompt="Once", max_tokens=4)
                    sizes.append(resident(process.pid))
                cards = {card.id: card.to_dict() for card in client.models.list()}
            meta: Any = cards["large"]["meta"]
            small, large, small_again, large_again = sizes
            assert large - small > 0.9 * meta["size"]
            assert large - small_again > 0.8 * meta["size"]
            assert large_again - large < 0.1 * meta["size"]
            assert cards["large"]["status"] == {"value": "loaded"}
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
        finally:
            process.kill()


def resident(pid: int) -> int:
    """Bytes of memory that the process has now."""
    n_pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return n_pages * os.sysconf("SC_PAGE_SIZE")


def test_a_server_that_ends_waits_for_no_turn(fakes: dict[str, FakeEngine]) -> None:
    with serving(fakes, model_turn=600.0) as server, ThreadPoolExecutor(1) as pool:
        text_of(server.post("/v1/completions", {**BODY, "model": "two"}))
        held = pool.submit(server.post, "/v1/completions", BODY)
        wait_until(lambda: metrics(server, "requests_waiting")["one"] == 1)
        assert not held.done(), "the turn of the other one has just begun"
        server.lease.stop_admitting()
        assert text_of(held.result(20)) == "this is one"


# What a failure costs.


def test_a_model_that_fails_to_load_leaves_the_other(tiny_model: Path, tmp_path: Path) -> None:
    path = tmp_path / "model"
    shutil.copytree(tiny_model, path)
    [weights] = path.glob("*.safetensors")
    engines = {
        "story": Engine.load(DEFAULT_MODEL, device="cpu"),
        "random": Engine.load(path, device="cpu"),
    }
    with live_models(engines, model_turn=TURN) as server:
        first = text_of(server.post("/v1/completions", {**BODY, "model": "story"}))
        weights.rename(tmp_path / "away")
        for _ in range(2):
            refused = server.post("/v1/completions", {**BODY, "model": "random"})
            assert (refused.status, refused.error["code"]) == (503, "model_not_loaded")
            assert "random could not be loaded" in refused.error["message"]
            assert str(tmp_path) not in refused.error["message"], "no path leaves the machine"
        assert loaded(server) == ["story"], "it did not have to leave"
        assert text_of(server.post("/v1/completions", {**BODY, "model": "story"})) == first
        assert metrics(server, "loads_failed_total") == {"story": 0, "random": 2}
        (tmp_path / "away").rename(weights)
        text_of(server.post("/v1/completions", {**BODY, "model": "random"}))
        assert loaded(server) == ["random"]


def test_a_load_that_breaks_halfway_leaves_the_other(
    fakes: dict[str, FakeEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: Any, make_room: Any) -> None:
        make_room()
        raise OSError("the disk is gone")

    monkeypatch.setattr(fakes["two"], "wake", broken)
    with serving(fakes) as server:
        refused = server.post("/v1/completions", {**BODY, "model": "two"})
        assert (refused.status, refused.error["code"]) == (500, "engine_error")
        assert "the disk" not in refused.error["message"]
        assert text_of(server.post("/v1/completions", BODY)) == "this is one"
        assert server.get("/health").status == 200


# By hand.


@pytest.mark.parametrize(
    ("header", "key"),
    [("authorization", "Bearer admin"), ("x-admin-key", "admin"), ("x-api-key", "admin")],
)
def test_an_admin_key_loads_and_unloads(pair: LiveServer, header: str, key: str) -> None:
    def act(path: str, body: Any = None) -> Any:
        answer = pair.post(path, body, **{header: key})
        assert answer.status == 200, answer.body
        return answer

    for prefix in ("/v1/models", "/models"):
        assert act(f"{prefix}/load", {"model": "two"}).json == {"success": True}
        assert loaded(pair) == ["two"]
        assert act(f"{prefix}/unload", {"model": "two"}).json == {"success": True}
        assert loaded(pair) == []
    assert b'"finished"' in act("/v1/model/load", {"model_name": "one"}).body
    assert loaded(pair) == ["one"]
    act("/v1/model/unload")
    assert loaded(pair) == []
    assert pair.get("/v1/auth/permission", **{header: key}).json == {"permission": "admin"}
    assert text_of(pair.post("/v1/completions", {**BODY, "model": "two"})) == "this is two"


@pytest.mark.parametrize(
    "path", ["/v1/models/load", "/v1/models/unload", "/v1/model/load", "/v1/model/unload"]
)
def test_nobody_else_does(fakes: dict[str, FakeEngine], path: str) -> None:
    body = {"model" if path.startswith("/v1/models") else "model_name": "two"}
    with serving(fakes, admin_keys=("admin",), api_keys=("key",)) as server:
        assert server.post(path, body).status == 401
        own = {"authorization": "Bearer key"}
        refused = server.post(path, body, **own)
        assert refused.status == 403
        assert b"an admin key is needed" in refused.body
        assert server.get("/v1/auth/permission", **own).json == {"permission": "api"}
        assert server.post(path, body, **{"x-admin-key": "wrong"}).status == 401
        assert server.post(path, body, **{"x-admin-key": "admin"}).status == 200
        assert server.post(path, body, **own, **{"x-admin-key": "admin"}).status == 200
        wrong = {"authorization": "Bearer wrong", "x-admin-key": "admin"}
        assert server.post(path, body, **wrong).status == 401
        assert server.post("/v1/completions", BODY, authorization="Bearer admin").status == 200
    with serving(fakes) as server:
        refused = server.post(path, body, **{"x-admin-key": ""})
        assert refused.status == 501
        assert b"--admin-keys" in refused.body


def test_an_unknown_model_is_not_loaded(pair: LiveServer) -> None:
    refused = pair.post("/v1/models/load", {"model": "three"}, authorization="Bearer admin")
    assert (refused.status, refused.error["code"]) == (404, "model_not_found")


def test_a_request_without_a_prompt_loads_as_at_ollama(pair: LiveServer) -> None:
    answer = pair.post("/api/generate", {"model": "two", "stream": False})
    assert answer.json["done_reason"] == "load"
    assert loaded(pair) == ["two"]


# What is counted.


def test_each_model_has_its_metrics(pair: LiveServer) -> None:
    for name, n in (("one", 1), ("two", 2)):
        for _ in range(n):
            text_of(pair.post("/v1/completions", {**BODY, "model": name}))
    assert metrics(pair, "requests_total") == {"one": 1, "two": 2}
    n_prompt = len(BODY["prompt"])
    assert metrics(pair, "prompt_tokens_total") == {"one": n_prompt, "two": 2 * n_prompt}
    assert metrics(pair, "cached_prompt_tokens_total")["one"] == 0
    assert metrics(pair, "cached_prompt_tokens_total")["two"] > 0, "kept while it slept"
    generated = len("this is one") + 1
    assert metrics(pair, "completion_tokens_total") == {"one": generated, "two": 2 * generated}
    assert min(metrics(pair, "engine_seconds_total").values()) > 0


# Streams that are kept.


def test_kept_streams_stay_with_their_model(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"model_turn": TURN, "keep_streams_dir": tmp_path}
    body = {**BODY, "max_tokens": 200, "ignore_eos": True, "store": True, "model": "random"}
    engines = real(tiny_model)
    gate = PassGate(engines["random"], monkeypatch)
    with live_models(engines, **options) as server:
        whole = text_of(server.post("/v1/completions", body))
        path = f"/v1/streams/{paused(server, gate, body)}"
        text_of(server.post("/v1/completions", {**BODY, "model": "story"}))
        assert loaded(server) == ["story"]
    with live_models(real(tiny_model), **options) as server:
        assert server.get(path).json["state"] == "paused"
        assert server.post(f"{path}/control", {"action": "resume"}).status == 200
        wait_until(lambda: server.get(path).json["state"] == "ended")
        assert server.get(path).json["text"] == whole
        assert loaded(server) == ["random"]
        assert server.post(f"{path}/replay", {}).json["identical"]
        assert server.post(f"{path}/peek", {"at": 3}).status == 200
        branch = server.post(f"{path}/branch", {"at": 5, "max_tokens": 20})
        assert branch.json["model"] == "random"
        refused = server.post(f"{path}/branch", {"at": 5, "model": "story"})
        assert (refused.status, refused.error["param"]) == (400, "model")
