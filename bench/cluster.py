"""What a cluster costs and gains: python -m bench.cluster [TOPIC …], with Ray installed.

    added     time to the first token through the door, against the app alone
    tokens    time of a thousand tokens at a thousand a second, against the app alone
    scale     requests per second of four replicas against one
    chats     share of prompts that is kept, on 20 interleaved chats, against random routing
    kill      a replica is killed in mid stream: when the next request is answered, what is lost
    rescale   one replica, four, one again, under load: what is lost
    simulate  one to 64 replicas, with the costs that `--door-s` and `--stats-s` name; no Ray

The engines of all topics but `chats` sleep instead of computing: two cores cannot compute for four.
"""

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp

from bench.cluster_simulation import simulate
from server.app import create_app
from server.commands.listening import bound_sockets, listening
from server.settings import Settings
from tests.support.fake_engine import FakeEngine

SETTINGS = Settings(port=0, log_level="error", prefix_cache_mb=64, keep_streams="none")
BODY = {"prompt": "x" * 200, "ignore_eos": True}
_MOST_TOKENS = 8192


def sleeping(settings: Settings, *, replica: str, token_s: float) -> tuple[FastAPI, str]:
    """The app over an engine that sleeps for each token."""
    fake = FakeEngine(max_seq_len=_MOST_TOKENS)
    fake.model.token_time = token_s
    return create_app(settings, fake.as_engine, replica=replica), "sleeping"


@contextmanager
def served(app: ASGIApp) -> Iterator[str]:
    """The URL of an app that is served by a thread."""
    with bound_sockets(SETTINGS) as socks:
        ports = [sock.getsockname()[1] for sock in socks]
        server = uvicorn.Server(listening(app, SETTINGS, ports))
        thread = threading.Thread(target=server.run, args=(socks,))
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{ports[0]}"
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def alone(token_s: float) -> Iterator[str]:
    """The app alone, in a process of its own."""
    code = f"from bench.cluster import serve_alone; serve_alone({token_s})"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait()


def serve_alone(token_s: float) -> None:
    app, _ = sleeping(SETTINGS, replica="", token_s=token_s)
    with served(app) as url:
        print(url, flush=True)
        threading.Event().wait()


@contextmanager
def cluster(
    n: int, load: Callable[..., Any] | None = None, *, name: str = "bench", **options: Any
) -> Iterator[str]:
    """The URL of a door over `n` replicas. Another router needs another `name`: Ray keeps the
    first one of each.
    """
    from ray import serve

    from server.cluster.deploy import door_over, new_secret, replica_application

    if load is not None:
        options["load"] = load
    app = replica_application(SETTINGS, replicas=n, cpus=0.1, gpus=0, **options)
    handle = serve.run(app, name=name, route_prefix=None)
    try:
        with served(door_over(handle, SETTINGS, secret=new_secret())) as url:
            yield url
    finally:
        serve.delete(name)


def begun(url: str, **plan: Any) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "bench.cluster_client", url, json.dumps(plan)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def answers(client: "subprocess.Popen[str]") -> list[tuple[float, float, str]]:
    output, _ = client.communicate()
    return [(first, took, error) for first, took, error in json.loads(output)]


def asked(url: str, **plan: Any) -> list[tuple[float, float, str]]:
    return answers(begun(url, **plan))


def added() -> None:
    body, first = {**BODY, "max_tokens": 2}, dict[str, list[float]]()
    with alone(0.0) as one, cluster(1, partial(sleeping, token_s=0.0)) as many:
        for _ in range(4):
            for name, url in (("alone", one), ("cluster", many)):
                seen = asked(url, clients=1, requests=100, body=body)
                assert not any(error for *_, error in seen), seen
                first.setdefault(name, []).extend(first_s for first_s, *_ in seen[5:])
    for share, name in ((50, "p50"), (99, "p99")):
        told = {each: _percentile(times, share) * 1000 for each, times in first.items()}
        more = told["cluster"] - told["alone"]
        print(f"added {name}: {told['alone']:.2f} ms alone, {told['cluster']:.2f}: +{more:.2f} ms")


def tokens() -> None:
    body, took = {**BODY, "max_tokens": 1000}, dict[str, list[float]]()
    with alone(0.00094) as one, cluster(1, partial(sleeping, token_s=0.00094)) as many:
        for _ in range(4):
            for name, url in (("alone", one), ("cluster", many)):
                seen = asked(url, clients=1, requests=2, body=body)
                took.setdefault(name, []).extend(s for _, s, _ in seen)
    told = {name: statistics.median(times) for name, times in took.items()}
    rates = {name: 1000 / seconds for name, seconds in told.items()}
    more = told["cluster"] / told["alone"] - 1
    print(f"tokens: {rates['alone']:.0f} tok/s alone, {rates['cluster']:.0f}: {more:+.1%} time")


def scale() -> None:
    body, rates = {**BODY, "max_tokens": 20}, {}
    for n in (1, 4):
        with cluster(n, partial(sleeping, token_s=0.02)) as url:
            asked(url, clients=n, requests=1, body=body)
            begun_at = time.monotonic()
            seen = asked(url, clients=4 * n, seconds=15, body=body)
            rates[n] = len(seen) / (time.monotonic() - begun_at)
            assert not any(error for *_, error in seen), seen
    linear = rates[4] / rates[1] / 4
    print(
        f"scale: {rates[1]:.2f} requests/s with one, {rates[4]:.2f} with four: {linear:.3f} linear"
    )


def chats() -> None:
    """20 conversations of 3 turns on 4 real engines, in random order."""
    from bench.cluster_random import RandomRouter
    from server.cluster.router import KeptPrefixRouter

    shares = {}
    for name, router in (("kept", KeptPrefixRouter), ("random", RandomRouter)):
        with (
            cluster(4, name=name, router=router) as url,
            httpx.Client(base_url=url, timeout=120) as client,
        ):
            shares[name] = _cached_share(client, random.Random(7))
        print(f"chats, {name} routing: {shares[name]:.1%} of what could be kept was")
    print(f"chats: {shares['kept']:.1%} against {shares['random']:.1%}")


def _cached_share(client: httpx.Client, dice: random.Random) -> float:
    """Cached tokens, as a share of those that the conversation had sent or got before."""
    words = ["dog", "cat", "girl", "boat", "tree", "ball", "king", "bird"]
    said = [
        [{"role": "user", "content": f"{i}: " + " ".join(dice.choices(words, k=150))}]
        for i in range(20)
    ]
    before, n_cached, n_possible = [0] * 20, 0, 0
    turns = [i for i in range(20) for _ in range(3)]
    dice.shuffle(turns)
    for i in turns:
        answer = client.post(
            "/v1/chat/completions", json={"messages": said[i], "max_tokens": 8}
        ).json()
        usage = answer["usage"]
        n_possible += before[i]
        n_cached += min(before[i], usage["prompt_tokens_details"]["cached_tokens"])
        before[i] = usage["prompt_tokens"]
        said[i] += [
            {"role": "assistant", "content": answer["choices"][0]["message"]["content"]},
            {"role": "user", "content": " ".join(dice.choices(words, k=60))},
        ]
    return n_cached / n_possible


def kill() -> None:
    body = {**BODY, "max_tokens": 100}
    with cluster(2, partial(sleeping, token_s=0.02)) as url:
        asked(url, clients=2, requests=2, body=body)
        client = begun(url, clients=6, requests=4, body=body)
        time.sleep(3)
        os.kill(_replica_pids()[0], signal.SIGKILL)
        seen = answers(client)
    errors = [error for *_, error in seen if error]
    print(f"kill: {len(seen)} requests, {len(errors)} failed: {errors}")
    with cluster(2, partial(sleeping, token_s=0.02)) as url:
        _kill_under_a_stream(url)


def _kill_under_a_stream(url: str) -> None:
    """Each replica has a stream; one dies, the client of the other leaves, and a third one asks."""
    body = {**BODY, "max_tokens": 8000, "stream": True}
    with ExitStack() as open_streams, httpx.Client(base_url=url, timeout=60) as client:
        for _ in range(2):
            stream = client.stream("POST", "/v1/completions", json=body)
            next(open_streams.enter_context(stream).iter_raw())
        os.kill(_replica_pids()[0], signal.SIGKILL)
        at = time.monotonic()
        open_streams.close()
        client.post("/v1/completions", json={**BODY, "max_tokens": 1}).raise_for_status()
        print(f"kill: the next request answered after {time.monotonic() - at:.2f} s")


def _replica_pids() -> list[int]:
    from tests.support.ray_cluster import descendants

    return [
        pid
        for pid in descendants(os.getpid())
        if Path(f"/proc/{pid}/cmdline").read_text().startswith("ray::ServeReplica:bench")
    ]


def rescale() -> None:
    from ray import serve

    from server.cluster.deploy import replica_application

    load = partial(sleeping, token_s=0.01)
    with cluster(1, load) as url:
        client = begun(url, clients=8, seconds=45, body={**BODY, "max_tokens": 50})
        for n in (4, 1):
            app = replica_application(SETTINGS, replicas=n, cpus=0.1, gpus=0, load=load)
            serve.run(app, name="bench", route_prefix=None)
            time.sleep(8)
        seen = answers(client)
    errors = [error for *_, error in seen if error]
    print(f"rescale: {len(seen)} requests, {len(errors)} failed: {errors}")


def _percentile(values: list[float], share: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[share - 1]


TOPICS = {each.__name__: each for each in (added, tokens, scale, chats, kill, rescale)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("topics", nargs="*", default=[*TOPICS, "simulate"])
    parser.add_argument("--door-s", type=float, default=0.004, help="the door's time per request")
    parser.add_argument("--stats-s", type=float, default=0.6, help="age of what replicas publish")
    options = parser.parse_args()
    if "simulate" in options.topics:
        simulate(door_s=options.door_s, stats_s=options.stats_s)
    with_ray = [TOPICS[name] for name in options.topics if name != "simulate"]
    if not with_ray:
        return
    from server.cluster.local_ray import ray_started

    with ray_started(None, cpus=8, gpus=0):
        for topic in with_ray:
            topic()


if __name__ == "__main__":
    main()
