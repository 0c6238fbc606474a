"""The command `soliton cluster serve` with the real Ray: two replicas of the built-in model."""

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.ray_cluster import PYTHON, ROOT, RayCluster, need_ray, ray_cluster

pytestmark = pytest.mark.timeout(500)

LONG = {"prompt": "Once upon a time", "max_tokens": 900, "ignore_eos": True, "stream": True}


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    need_ray()
    with ray_cluster("--replicas", "2", "--speculate", "off", "--prefix-cache-mb", "32") as it:
        yield it


@pytest.fixture(scope="module")
def client(cluster: RayCluster) -> Iterator[httpx.Client]:
    with cluster.client() as client:
        yield client


def name_in(id_: str) -> str:
    return id_.partition("-")[2][:8]


def test_the_official_client_reads_what_it_reads_of_one_server(cluster: RayCluster) -> None:
    chat: Any = {"messages": [{"role": "user", "content": "Tell me a story."}], "max_tokens": 24}
    with openai.OpenAI(base_url=f"{cluster.url}/v1", api_key="none") as client:
        [model] = [card.id for card in client.models.list()]
        whole = client.chat.completions.create(model=model, temperature=0, **chat)
        stream = client.chat.completions.create(model=model, temperature=0, stream=True, **chat)
        text = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
        assert text == whole.choices[0].message.content
        assert text
        with pytest.raises(openai.NotFoundError, match="does not exist"):
            client.chat.completions.create(model="another", **chat)


def test_ids_find_their_replica(client: httpx.Client) -> None:
    names = set()
    for i in range(4):
        body = {"prompt": f"{i} dogs", "max_tokens": 4, "store": True}
        id_ = client.post("/v1/completions", json=body).json()["id"]
        names.add(name_in(id_))
        assert client.get(f"/v1/streams/{id_}").status_code == 200
        branch = client.post(f"/v1/streams/{id_}/branch", json={"max_tokens": 4})
        assert name_in(branch.json()["id"]) == name_in(id_)
    assert len(names) == 2, "requests spread"
    first = client.post("/v1/responses", json={"input": "Hi", "max_output_tokens": 16}).json()
    after = {"input": "Go on", "previous_response_id": first["id"], "max_output_tokens": 16}
    assert client.post("/v1/responses", json=after).status_code == 200
    gone = client.get(f"/v1/streams/cmpl-{'0' * 32}")
    assert gone.status_code == 404
    assert "no replica of this cluster is called 00000000" in gone.text


def test_conversations_return_to_what_is_kept(client: httpx.Client) -> None:
    said = [[{"role": "user", "content": f"{name} {'went home ' * 60}"}] for name in "abcdef"]
    seen = list[dict[int, str]]()
    n_cached = 0
    for turn in range(3):
        seen.append({})
        for i, messages in enumerate(said):
            body = {"messages": messages, "max_tokens": 8}
            answer = client.post("/v1/chat/completions", json=body).json()
            seen[-1][i] = name_in(answer["id"])
            if turn:
                n_cached += answer["usage"]["prompt_tokens_details"]["cached_tokens"] > 100
            reply = answer["choices"][0]["message"]["content"]
            messages += [
                {"role": "assistant", "content": reply},
                {"role": "user", "content": "And then? " * 60},
            ]
    assert seen[0] == seen[1] == seen[2]
    assert len(set(seen[0].values())) == 2
    assert n_cached == 12


def test_metrics_are_of_all_replicas(client: httpx.Client) -> None:
    families = {f.name: f for f in text_string_to_metric_families(client.get("/metrics").text)}
    waiting = families["soliton_requests_waiting"].samples
    assert len({sample.labels["replica"] for sample in waiting}) == 2
    assert client.get("/health").json() == {"status": "ok"}


def test_a_hang_up_frees_the_replica(client: httpx.Client) -> None:
    with client.stream("POST", "/v1/completions", json=LONG) as answer:
        assert "id" in json.loads(next(answer.iter_lines()).removeprefix("data: "))
    until = time.monotonic() + 10
    while any(
        line.startswith("soliton_requests_running") and line.endswith(" 1.0")
        for line in client.get("/metrics").text.splitlines()
    ):
        assert time.monotonic() < until, "the engine still works for a client that is gone"


def test_a_killed_replica_loses_only_what_it_had_begun(
    cluster: RayCluster, client: httpx.Client
) -> None:
    """Runs last: the replica comes back later."""
    events, waiting = list[dict[str, Any]](), list[httpx.Response]()
    pids = cluster.pids_by_name()
    with client.stream("POST", "/v1/completions", json={**LONG, "n": 16}) as answer:
        lines = answer.iter_lines()
        first = json.loads(next(lines).removeprefix("data: "))
        queued = [threading.Thread(target=_ask, args=(cluster, waiting)) for _ in range(6)]
        for thread in queued:
            thread.start()
        os.kill(pids[name_in(first["id"])], signal.SIGKILL)
        killed = time.monotonic()
        for line in lines:
            if line.startswith("data: {"):
                events.append(json.loads(line.removeprefix("data: ")))
            assert line != "data: [DONE]"
    assert events[-1]["error"]["message"] == "the replica of this request has ended"
    answer = client.post("/v1/completions", json={"prompt": "Next", "max_tokens": 4})
    assert answer.status_code == 200
    assert name_in(answer.json()["id"]) != name_in(first["id"])
    assert time.monotonic() - killed < 30, "far less on a machine that does nothing else"
    for thread in queued:
        thread.join()
    assert [answer.status_code for answer in waiting] == [200] * 6, "nothing queued is lost"


def _ask(cluster: RayCluster, answers: list[httpx.Response]) -> None:
    with cluster.client() as client:
        body = {"prompt": "The dog", "max_tokens": 16}
        answers.append(client.post("/v1/completions", json=body))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["serve", "--replicas", "0"], "--replicas must be 1 or more, not 0"),
        (["serve", "--port", "high"], "--port must be a whole number from 0 to 65535"),
        (["start"], "the command of a cluster is serve, not 'start'"),
        ([], "the command of a cluster is serve, and it is missing"),
    ],
)
def test_wrong_options_are_refused_before_ray_starts(options: list[str], said: str) -> None:
    need_ray()
    command = [str(PYTHON), "-m", "server", "cluster", *options]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert result.returncode == 2
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_the_example_builds() -> None:
    """What `serve deploy` does with the file, before Ray starts anything."""
    need_ray()
    code = """
import yaml
from ray._common.utils import import_attr
from ray.serve import Application
from ray.serve.schema import ServeDeploySchema
config = ServeDeploySchema(**yaml.safe_load(open("examples/cluster.yaml")))
[app] = config.applications
assert isinstance(import_attr(app.import_path)(app.args), Application)
try:
    import_attr(app.import_path)({"prefix_cache": 7})
except ValueError as error:
    assert "prefix_cache" in str(error), error
else:
    raise AssertionError("a wrong option was not noticed")
"""
    result = subprocess.run(
        [str(PYTHON), "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stderr
