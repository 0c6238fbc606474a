"""A stream whose connection is cut goes on where it was: no event is lost or comes twice."""

import itertools
import json
from collections.abc import Iterator

import httpx

server = httpx.Client(
    base_url="http://127.0.0.1:8000/v1", headers={"authorization": "Bearer none"}, timeout=60
)
# In the background: when its client hangs up, the stream goes on.
body = {
    "prompt": "Once upon a time", "max_tokens": 60, "seed": 7, "stream": True, "store": True,
    "background": True,
}  # fmt: skip


def events(answer: httpx.Response) -> Iterator[str]:
    return (line for line in answer.iter_lines() if line.startswith("data: "))


def text(lines: list[str]) -> str:
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines if "[DONE]" not in line]
    return "".join(choice["text"] for chunk in chunks for choice in chunk["choices"])


with server.stream("POST", "/completions", json=body) as answer:
    before = list(itertools.islice(events(answer), 20))
print(f"{len(before)} events, then the connection is cut: {text(before)!r}")

path = f"/streams/{json.loads(before[0].removeprefix('data: '))['id']}/events"
with server.stream("GET", path, params={"starting_after": len(before)}) as answer:
    after = list(events(answer))
print(f"{len(after)} events after it: {text(after)!r}")

with server.stream("GET", path) as answer:
    whole = list(events(answer))
print("nothing is lost or doubled:", before + after == whole)
