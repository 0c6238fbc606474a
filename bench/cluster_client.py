"""Clients of a server, in a process of their own: python -m bench.cluster_client URL PLAN

Owns what a client sees: when each answer began, when it ended, and what was wrong with it. The plan
is JSON: `clients` at once, each with `requests` of `body` one after another, or for `seconds`.
Prints a list of answers: [seconds to the first event, seconds in all, error or ""].
"""

import http.client
import json
import sys
import threading
import time
from typing import Any
from urllib.parse import urlsplit

Answer = tuple[float, float, str]


def ask(connection: http.client.HTTPConnection, body: bytes) -> Answer:
    """One streamed answer."""
    begun = time.perf_counter()
    headers = {"content-type": "application/json"}
    connection.request("POST", "/v1/completions", body, headers)
    response = connection.getresponse()
    line = response.readline()
    first_s = time.perf_counter() - begun
    lines = [line, *response.read().split(b"\n")]
    took_s = time.perf_counter() - begun
    if response.status != 200:
        return first_s, took_s, f"{response.status}"
    if any(line.startswith(b'data: {"error"') for line in lines):
        return first_s, took_s, "error event"
    return first_s, took_s, "" if b"data: [DONE]" in lines else "cut off"


def main() -> None:
    url, plan = urlsplit(sys.argv[1]), json.loads(sys.argv[2])
    answers = list[Answer]()
    threads = [
        threading.Thread(target=_client, args=(url.netloc, plan, i, answers))
        for i in range(plan["clients"])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps(answers))


def _client(netloc: str, plan: dict[str, Any], index: int, answers: list[Answer]) -> None:
    connection = http.client.HTTPConnection(netloc, timeout=120)
    end = time.monotonic() + plan.get("seconds", 1e9)
    for n in range(plan.get("requests", 10**9)):
        if time.monotonic() >= end:
            break
        prompt = f"client {index}, request {n}: {plan['body']['prompt']}"
        body = json.dumps({**plan["body"], "prompt": prompt, "stream": True}).encode()
        try:
            answers.append(ask(connection, body))
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            answers.append((0.0, 0.0, type(error).__name__))


if __name__ == "__main__":
    main()
