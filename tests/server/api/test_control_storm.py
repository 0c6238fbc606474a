"""Thousands of controls at once, over real sockets: what they do not disturb."""

import json
import threading
from collections import Counter
from typing import Any

from engine import Engine
from tests.support.fake_engine import FakeEngine, fake_reply
from tests.support.live_server import LiveServer, live_server, read_answer, wait_until

N_CLIENTS, N_EACH = 70, 3
CONTROL = {"action": "set", "settings": {"temperature": 0.9}}


def storm(server: LiveServer, id_: str, refused: list[Any]) -> Counter[int]:
    """Statuses of many controls that change nothing. `refused` gets the answers of status 429."""
    seen: Counter[int] = Counter()

    def send() -> None:
        for _ in range(N_EACH):
            answer = server.post(f"/v1/streams/{id_}/control", CONTROL)
            seen[answer.status] += 1
            if answer.status == 429:
                refused.append(answer)

    threads = [threading.Thread(target=send) for _ in range(N_CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return seen


def test_a_storm_of_controls_is_bounded_and_refused_clearly() -> None:
    fake = FakeEngine()
    fake.model.decode_gate.clear()
    with live_server(fake.as_engine) as server:
        body = {"prompt": "Once", "max_tokens": 30, "store": True, "stream": True, "seed": 1}
        sock = server.send("/v1/completions", body)
        wait_until(lambda: fake.model.held_in_decode)
        [stream] = server.get("/v1/streams").json["data"]
        found: list[Counter[int]] = []
        refused: list[Any] = []
        stormy = threading.Thread(target=lambda: found.append(storm(server, stream["id"], refused)))
        stormy.start()
        # While the engine computes a token, 64 wait for the next one, and no more.
        wait_until(lambda: refused)
        assert server.get("/health").status == 200
        fake.model.decode_gate.set()
        stormy.join(60)
        with sock:
            events = read_answer(sock).body
        [seen] = found
        assert set(seen) <= {200, 409, 429}, seen
        assert seen[429] > 0
        assert seen[200] >= 64
        answer = refused[0]
        assert (answer.error["type"], answer.error["code"]) == (
            "rate_limit_error", "too_many_controls",
        )  # fmt: skip
        assert int(answer.headers["retry-after-ms"]) > 0
        assert server.get(f"/v1/streams/{stream['id']}").json["text"] == fake_reply("Once", 30)
        n_told = sum(b'"control"' in each for each in events.split(b"\n\n"))
        assert n_told == seen[200], "each that was done is told, no other"


def test_a_storm_disturbs_neither_its_stream_nor_another(bundled_engine: Engine) -> None:
    body = {
        "prompt": "Once upon a time", "max_tokens": 300, "store": True, "stream": True, "seed": 4,
        "temperature": 0.9, "ignore_eos": True, "background": True,
    }  # fmt: skip
    other = {"prompt": "A dog", "max_tokens": 20, "seed": 8, "store": False}
    with live_server(bundled_engine) as server:
        twin = server.post("/v1/completions", {**body, "stream": False}).json
        calm = server.post("/v1/completions", other).json["choices"]
        with server.send("/v1/completions", body):
            wait_until(lambda: len(server.get("/v1/streams").json["data"]) == 2)
        id_ = server.get("/v1/streams?limit=1").json["data"][0]["id"]
        seen = storm(server, id_, [])
        assert set(seen) <= {200, 409, 429}, seen
        assert server.post("/v1/completions", other).json["choices"] == calm
        wait_until(lambda: server.get(f"/v1/streams/{id_}").json["state"] == "ended")
        text = server.get(f"/v1/streams/{id_}").json["text"]
        assert text == twin["choices"][0]["text"]
        events = server.get(f"/v1/streams/{id_}/events").body
        chunks = [json.loads(each.split(b"data: ")[1]) for each in events.split(b"\n\n")[:-2]]
        said = "".join(chunk["choices"][0]["text"] for chunk in chunks if chunk["choices"])
        assert said == text
