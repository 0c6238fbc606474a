"""The door over replicas of this process: the real apps and sockets, without Ray between them."""

import asyncio
import json
import pickle
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from engine import Engine
from server.app import create_app
from server.cluster.choice import Candidate, Standing, ranked
from server.cluster.door import Door
from server.cluster.failures import ReplicaLostError
from server.cluster.prompt_steps import steps_of
from server.cluster.replica import Replica
from server.cluster.routed import Accepted, Head, HeaderList, Part, Prompt, Routed
from server.settings import Settings
from tests.support.asgi_server import asgi_server
from tests.support.fake_engine import FakeEngine, fake_reply

BODY = {"prompt": "hello", "max_tokens": 8}


class Here:
    """Replicas in this process, chosen as the router does it."""

    def __init__(self, n: int, settings: Settings) -> None:
        self.fakes = [FakeEngine(max_seq_len=8192) for _ in range(n)]
        fakes = iter(self.fakes)

        def load(settings: Settings, *, replica: str) -> tuple[FastAPI, str]:
            return create_app(settings, next(fakes).as_engine, replica=replica), "fake"

        self.replicas = [Replica(settings, load, "this") for _ in range(n)]
        self.n_lost = 0
        """Calls that find their replica gone before it answers."""
        self.called: list[str] = []
        self.spoil: Callable[[Part], Any] = lambda part: part

    async def call(self, routed: Routed) -> AsyncGenerator[Part]:
        named = [each for each in self.replicas if each.name == routed.replica] or self.replicas
        stats = [Standing.from_stats(await each.record_routing_stats()) for each in named]
        last = [
            len(self.called) - self.called[::-1].index(r.name) if r.name in self.called else 0
            for r in named
        ]
        # These engines compute nothing, so their measurements say nothing.
        told = [replace(each, byte_s=1e-4, request_s=1e-3) for each in stats]
        candidates = [Candidate(s, last=n) for s, n in zip(told, last, strict=True)]
        order = ranked(candidates, routed.prompt) if routed.prompt else [0]
        chosen = named[order[0]]
        self.called.append(chosen.name)
        if self.n_lost:
            self.n_lost -= 1
            raise ReplicaLostError("the replica of this request has ended")
        async with aclosing(chosen(routed)) as parts:  # type: ignore[type-var]
            async for part in parts:
                yield self.spoil(part)

    async def metrics(self, headers: HeaderList, seconds: float) -> Sequence[Any]:
        return [*[await each.metrics(headers) for each in self.replicas], RuntimeError("gone")]


@asynccontextmanager
async def cluster(n: int = 1, **options: Any) -> AsyncIterator[tuple[Here, httpx.AsyncClient]]:
    settings = Settings(port=0, **options)
    here = Here(n, settings)
    door = Door(here, settings, secret=b"s" * 32)
    async with asgi_server(door, settings) as url, httpx.AsyncClient(base_url=url) as client:
        try:
            yield here, client
        finally:
            for replica in here.replicas:
                await replica.end()


async def test_answers_are_those_of_the_app() -> None:
    async with cluster() as (here, client):
        whole = await client.post("/v1/completions", json=BODY)
        assert whole.status_code == 200
        assert whole.json()["choices"][0]["text"] == fake_reply("hello", 8)
        assert whole.json()["id"].startswith(f"cmpl-{here.replicas[0].name}")
        assert whole.headers["x-request-id"].startswith("req_")
        streamed = await client.post("/v1/completions", json={**BODY, "stream": True})
        events = streamed.text.strip().split("\n\n")
        assert events[-1] == "data: [DONE]"
        chunks = [json.loads(event.removeprefix("data: ")) for event in events[:-1]]
        assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == fake_reply("hello", 8)
        wrong = await client.post("/v1/completions", json={**BODY, "temperature": -1})
        assert wrong.status_code == 400
        assert (await client.head("/health")).status_code == 200


async def test_ids_lead_back_to_their_replica() -> None:
    async with cluster(3) as (here, client):
        bodies = [{**BODY, "prompt": "x" * i, "store": True} for i in range(1, 7)]
        ids = [(await client.post("/v1/completions", json=b)).json()["id"] for b in bodies]
        for id_ in ids:
            assert (await client.get(f"/v1/streams/{id_}")).status_code == 200
            branch = await client.post(f"/v1/streams/{id_}/branch", json={"max_tokens": 2})
            assert branch.status_code == 200
            assert here.called[-1] in branch.text
        gone = ids[0].replace(here.called[0], "00000000")
        answer = await client.get(f"/v1/streams/{gone}")
        assert answer.status_code == 404
        assert "no replica of this cluster is called 00000000" in answer.json()["error"]["message"]


async def test_conversations_go_where_they_are_kept() -> None:
    """Each of these engines keeps its last prompt."""
    async with cluster(3) as (here, client):
        said = {name: name * 300 for name in "abc"}
        for _ in range(3):
            for name in said:
                said[name] += "!" * 600
                body = {**BODY, "prompt": said[name], "max_tokens": 2}
                await client.post("/v1/completions", json=body)
        assert here.called == here.called[:3] * 3
        assert len(set(here.called)) == 3


async def test_a_byte_takes_what_prompts_took(tiny_engine: Engine) -> None:
    """Prompts of one length leave open what a token adds, and yet the measurement must hold."""
    settings = Settings(port=0)
    replica = Replica(
        settings, lambda *_, **who: (create_app(settings, tiny_engine, **who), "x"), ""
    )
    prompts = [name * 200 for name in "abcdef"]
    took = []
    for text in prompts:
        body = json.dumps({"prompt": text, "max_tokens": 1}).encode()
        prompt = Prompt(steps_of(text.encode() * 4, secret=b"s", whose=""), len(text))
        headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
        path = "/v1/completions"
        routed = Routed("POST", path, path.encode(), b"", headers, body, None, prompt=prompt)
        began = time.monotonic()
        assert b"choices" in b"".join(
            [p.body async for p in replica(routed) if isinstance(p, Head)]
        )
        took.append(time.monotonic() - began)
    stats = Standing.from_stats(await replica.record_routing_stats())
    await replica.end()
    assert stats.byte_s is not None
    assert 0 < stats.byte_s * 200 < max(took)


async def test_the_door_knows_first_that_an_answer_is_complete() -> None:
    async with cluster() as (here, client):
        seen = list[Routed]()
        call = here.call

        async def slow_to_end(routed: Routed) -> AsyncGenerator[Part]:
            seen.append(routed)
            async with aclosing(call(routed)) as parts:
                async for part in parts:
                    yield part
            await asyncio.sleep(0.5)

        here.call = slow_to_end  # type: ignore[method-assign]
        await client.post("/v1/completions", json=BODY)
        assert seen[0].delivery.is_complete
        elsewhere = pickle.loads(pickle.dumps(seen[0]))
        assert elsewhere == seen[0]
        assert not elsewhere.delivery.is_complete


async def test_a_hang_up_ends_the_request_in_its_replica() -> None:
    async with cluster() as (here, client):
        here.fakes[0].model.token_time = 0.01
        body = {**BODY, "max_tokens": 400, "ignore_eos": True, "stream": True}
        async with client.stream("POST", "/v1/completions", json=body) as answer:
            await anext(answer.aiter_lines())
        lease = here.replicas[0].app.state.lease
        for _ in range(200):
            if not lease.busy:
                break
            await asyncio.sleep(0.01)
        assert not lease.busy
        assert here.fakes[0].model.n_decoded < 200


async def test_what_waits_is_not_lost_with_its_replica() -> None:
    async with cluster(2) as (here, client):
        here.n_lost = 2
        answer = await client.post("/v1/completions", json=BODY)
        assert answer.status_code == 200
        assert len(here.called) == 3
        here.n_lost = 9
        answer = await client.post("/v1/completions", json=BODY)
        assert answer.status_code == 500
        assert "has ended" in answer.json()["error"]["message"]
        here.n_lost = 1
        control = await client.post(f"/v1/streams/cmpl-{'0' * 32}/control", json={"kind": "pause"})
        assert control.status_code == 500, "what steers a stream is not done twice"


@pytest.mark.parametrize(
    ("path", "body", "ending"),
    [
        ("/v1/completions", BODY, '{"error":{"message":"replica '),
        (
            "/v1/messages",
            {"max_tokens": 8, "messages": [{"role": "user", "content": "hi"}]},
            'event: error\ndata: {"type":"error","error":{"message":"replica ',
        ),
        ("/api/generate", {**BODY, "model": "fake"}, '{"error":"replica '),
    ],
)
async def test_nonsense_in_mid_stream_is_an_error_event(
    path: str, body: dict[str, Any], ending: str
) -> None:
    async with cluster() as (here, client):
        here.fakes[0].model.token_time = 0.005
        here.spoil = lambda part: 7 if isinstance(part, bytes) else part
        answer = await client.post(path, json={**body, "stream": True})
        assert answer.status_code == 200
        assert ending in answer.text
        assert "answered nonsense: int instead of bytes" in answer.text
        assert "[DONE]" not in answer.text


@pytest.mark.parametrize(
    ("kind", "said"),
    [(Accepted, "str instead of its name"), (Head, "str instead of the head of an answer")],
)
async def test_nonsense_before_an_answer_is_an_error(kind: type, said: str) -> None:
    async with cluster() as (here, client):
        here.spoil = lambda part: "?" if isinstance(part, kind) else part
        answer = await client.post("/v1/completions", json=BODY)
        assert answer.status_code == 500
        assert said in answer.json()["error"]["message"]


async def test_metrics_name_the_replicas() -> None:
    async with cluster(2) as (here, client):
        text = (await client.get("/metrics")).text
        for replica in here.replicas:
            assert f'soliton_requests_waiting{{replica="{replica.name}"}} 0.0' in text


async def test_keys_and_limits_hold() -> None:
    async with cluster(1, api_keys=("one", "two"), max_body_bytes=2000) as (_, client):
        assert (await client.get("/metrics")).status_code == 401
        assert (await client.post("/v1/completions", json=BODY)).status_code == 401
        auth = {"authorization": "Bearer two"}
        assert (await client.get("/metrics", headers=auth)).status_code == 200
        answer = await client.post("/v1/completions", json=BODY, headers=auth)
        assert answer.status_code == 200
        long = {**BODY, "prompt": "x" * 3000}
        assert (await client.post("/v1/completions", json=long, headers=auth)).status_code == 413
        zipped = {**auth, "content-encoding": "gzip", "content-type": "application/json"}
        answer = await client.post("/v1/completions", content=b"x", headers=zipped)
        assert answer.status_code == 415
        assert (await client.get("/v1/streams", headers=auth)).status_code == 501
