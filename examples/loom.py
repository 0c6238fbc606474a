"""A loom: read a text, look at what else could come next, and branch where you like."""

from typing import Any

import httpx

server = httpx.Client(
    base_url="http://127.0.0.1:8000/v1", headers={"authorization": "Bearer none"}, timeout=60
)


def ask(path: str, **fields: object) -> Any:
    answer = server.post(path, json=fields)
    if answer.is_error:
        raise SystemExit(answer.json()["error"]["message"])
    return answer.json()


def show(id_: str) -> None:
    """The tokens of a stream, each with its place behind it."""
    tokens = server.get(f"/streams/{id_}").json()["tokens"]
    print("".join(f"{token['token']}[{at}]" for at, token in enumerate(tokens)))


prompt = "Once upon a time"
id_ = ask("/completions", prompt=prompt, max_tokens=16, seed=7, store=True)["id"]
while True:
    print(prompt, end="")
    show(id_)
    if not (at := input("Change which token? (its place; nothing: end) ").strip()):
        break
    ways = ask(f"/streams/{id_}/peek", at=int(at), top=5, tokens=8)["alternatives"]
    for number, way in enumerate(ways):
        print(f"  {number}  {way['tokens'][0]['p_raw']:6.1%}  {way['text']!r}")
    way = ways[int(input("Which one? "))]
    id_ = ask(f"/streams/{id_}/branch", at=int(at), token_id=way["token_id"])["id"]
