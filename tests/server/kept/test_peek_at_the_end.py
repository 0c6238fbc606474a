"""A peek at a stream whose client leaves at that moment: it sees all that would follow."""

import json
from concurrent.futures import ThreadPoolExecutor

from engine import Engine
from tests.support.event_reader import EventReader
from tests.support.live_server import live_server, wait_until


def test_a_client_that_leaves_cuts_no_peek(tiny_engine: Engine) -> None:
    body = {
        "prompt": "Once upon a time", "temperature": 1.5, "max_tokens": 200, "ignore_eos": True,
        "stream": True, "store": True,
    }  # fmt: skip
    with live_server(tiny_engine) as server, ThreadPoolExecutor(1) as pool:
        for seed in range(40):
            reader = EventReader(server.send("/v1/completions", {**body, "seed": seed}))
            reader.read(1)
            id_ = json.loads(reader.frames[0].removeprefix(b"data: "))["id"]
            asked = pool.submit(server.post, f"/v1/streams/{id_}/peek", {"top": 3, "tokens": 6})
            reader.hang_up()
            answer = asked.result()
            assert answer.status == 200, answer.body
            assert [len(one["tokens"]) for one in answer.json["alternatives"]] == [6] * 3
            wait_until(lambda: server.running is None)
