"""Best of several branches: keep the beginning of a text, and take its most likely end."""

import math
from typing import Any

import httpx

server = httpx.Client(
    base_url="http://127.0.0.1:8000/v1", headers={"authorization": "Bearer none"}, timeout=60
)
AT, BRANCHES = 12, 4


def ask(path: str, **fields: object) -> Any:
    answer = server.post(path, json=fields)
    if answer.is_error:
        raise SystemExit(answer.json()["error"]["message"])
    return answer.json()


def mean_logprob(choice: dict[str, Any]) -> float:
    """Of its own tokens: the first AT are those of all branches."""
    own: list[float] = choice["logprobs"]["token_logprobs"][AT:]
    return sum(own) / len(own) if own else -math.inf


prompt = "Once upon a time"
stream = ask("/completions", prompt=prompt, max_tokens=AT, seed=7, store=True)
answer = ask(
    f"/streams/{stream['id']}/branch",
    at=AT,
    n=BRANCHES,
    max_tokens=AT + 16,
    temperature=1.0,
    logprobs=1,
)
for choice in sorted(answer["choices"], key=mean_logprob, reverse=True):
    print(f"{mean_logprob(choice):6.2f} per token  {prompt}{choice['text']}")
