"""Sends the requests of server/api/examples.py to the bundled model and writes its answers.

Values that differ in every run (ids, times, the machine) keep their published value, so that the
file changes only when an answer does.
"""

import asyncio
import json
import re
import sys
import threading
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT)]

from engine import DEFAULT_MODEL, Engine, StreamingGenerator  # noqa: E402
from server.api.examples import (  # noqa: E402
    ANSWERS,
    EXAMPLES,
    LINES,
    LOAD,
    MODEL,
    UNLOAD,
    Example,
)
from tests.support.event_stream import parse_event_stream  # noqa: E402
from tests.support.live_server import LiveServer, live_server, read_answer, wait_until  # noqa: E402

Answers = dict[str, Any]

# Keys whose values differ from run to run; an id only if it was made for the answer.
VOLATILE = re.compile(
    r"created|created_at|completed_at|request_id|.*_duration|modified_at|size|digest|system_fingerprint|fingerprint|version|device|build_info|compute|threads|weights|n_written|n_read|.*_ms|.*_per_\w+"
)
MADE_ID = re.compile(r"(cmpl-|chatcmpl-|msg-|score-)?\w+(-\d+)?")
ID_KEYS = ("id", "answer_id", "first_id", "last_id", "item_id", "call_id")
# The lines of /metrics to keep; the others contain times.
METRICS = re.compile(r".*\bsoliton_(?:completions|prompt_tokens|completion_tokens)_total\b.*\n")
# Route -> the parameter of a path that names its answer, if that is kept.
KEPT_AS = {"/v1/chat/completions": "completion_id", "/v1/responses": "response_id"}
SHORT = {"model": MODEL, "prompt": "Once", "max_tokens": 1}


def record() -> Answers:
    """The answers of the bundled model, by path."""
    engine = Engine.load(DEFAULT_MODEL, device="cpu")
    answers: Answers = {}
    ids: dict[str, str] = {}  # of the last answers that were kept
    with (
        TemporaryDirectory() as slots,
        live_server(engine, slot_save_path=slots, admin_keys=["secret"]) as server,
    ):
        for example in EXAMPLES:
            if "{paused_id}" in example.path:
                ids["paused_id"] = paused(server)
            answer = answer_to(example, server, ids)
            answers.setdefault(example.path, {})[example.name] = answer
            if isinstance(example.body, dict) and example.body.get("store"):
                ids[KEPT_AS.get(example.path, "stream_id")] = answer["id"]
    answers["errors"] = {**refusals(engine), **failures(engine)}
    return answers


def answer_to(example: Example, server: LiveServer, ids: dict[str, str]) -> Any:
    url = example.url(ids)
    if example.body is None:
        answer = server.request(example.verb, url)
    else:
        body = example.body
        if isinstance(body, dict) and "id" in body:
            body = {**body, "id": ids["paused_id"]}
        admin = {"x-admin-key": "secret"} if example.path in (LOAD, UNLOAD) else {}
        answer = server.post(url, body, **admin)
    assert answer.status == example.status, answer.body
    if example.path in LINES and example.streamed:
        return [json.loads(line) for line in answer.body.splitlines()]
    if example.streamed:
        events = parse_event_stream(answer.body)
        assert (events.data[-1] == "[DONE]") == bool(example.end)
        return events.chunks
    if example.path == "/metrics":
        return "".join(METRICS.findall(answer.body.decode()))
    return answer.json


def paused(server: LiveServer) -> str:
    """The id of a stream that is paused before its first token."""
    wait = {**SHORT, "max_tokens": 500, "ignore_eos": True}
    body = {**SHORT, "max_tokens": 20, "store": True, "background": True, "stream": True}
    with server.send("/v1/completions", wait) as blocker:
        wait_until(lambda: server.running)
        with server.send("/v1/completions", body):
            wait_until(lambda: server.lease.n_waiting)
            id_ = str(server.get("/v1/streams?limit=1").json["data"][0]["id"])
            answer = server.post(f"/v1/streams/{id_}/control", {"action": "pause"})
            assert answer.status == 200, answer.body
        read_answer(blocker)
    return id_


def refusals(engine: Engine) -> Answers:
    """Errors of requests that never reach the engine, by code."""
    url = "/v1/completions"
    by_code: Answers = {}
    with live_server(engine, max_body_bytes=1024) as server:
        by_code["invalid_json"] = server.post(url, b"{").json
        by_code["wrong_query"] = server.get("/v1/streams?limit=0").json
        kept = server.post(url, {**SHORT, "store": True}).json["id"]
        by_code["wrong_state"] = server.post(f"/v1/streams/{kept}/control", {"action": "stop"}).json
        by_code["model_not_found"] = server.post(url, {**SHORT, "model": "another"}).json
        by_code["body_too_large"] = server.post(url, {**SHORT, "prompt": "x" * 2000}).json
        by_code["unsupported_media_type"] = server.request("POST", url, b"{}").json
        by_code["not_implemented"] = server.post("/v1/embeddings", SHORT).json
        by_code["origin_not_allowed"] = server.post(url, SHORT, origin="http://example.com").json
        by_code["host_not_allowed"] = server.post(url, SHORT, host="example.com").json
        asyncio.run(server.lease.close())
        by_code["unavailable"] = server.post(url, SHORT).json
    with live_server(engine, api_keys=["secret"]) as server:
        by_code["invalid_api_key"] = server.post(url, SHORT).json
    with live_server(engine, first_token_timeout=1e-6) as server:
        by_code["first_token_timeout"] = server.post(url, SHORT).json
    return by_code


def failures(engine: Engine) -> Answers:
    """Errors of a request whose engine fails, and of a request that finds the queue full."""
    is_full = threading.Event()

    def fail(*_: Any, **__: Any) -> None:
        is_full.wait(60)
        raise RuntimeError("as planned")

    with (
        mock.patch.object(StreamingGenerator, "begin", fail),
        live_server(engine, max_queue=2) as server,
        server.send("/v1/completions", SHORT) as runs,
    ):
        wait_until(lambda: server.running)
        with (
            server.send("/v1/completions", SHORT),
            server.send("/v1/completions", SHORT),
        ):
            wait_until(lambda: server.lease.n_waiting == 2)
            full = server.post("/v1/completions", SHORT).json
        is_full.set()
        return {"queue_full": full, "engine_error": read_answer(runs).json}


def keep(published: Any, recorded: Any, key: str = "") -> Any:
    """`recorded`, with the published values of what differs in every run."""
    if isinstance(recorded, dict):
        fields = published if isinstance(published, dict) else {}
        return {name: keep(fields.get(name), value, name) for name, value in recorded.items()}
    if isinstance(recorded, list):
        values = published if isinstance(published, list) else []
        return [keep(old, new, key) for old, new in zip_longest(values[: len(recorded)], recorded)]
    made = key in ID_KEYS and isinstance(recorded, str) and MADE_ID.fullmatch(recorded)
    return published if published is not None and (made or VOLATILE.fullmatch(key)) else recorded


def main() -> None:
    published = json.loads(ANSWERS.read_text()) if ANSWERS.exists() else {}
    ANSWERS.write_text(json.dumps(keep(published, record()), indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
