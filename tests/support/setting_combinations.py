"""Requests whose settings together leave nothing to sample from, and what became of them.

Owns the strategies and how an answer counts. The tests send hundreds of them, and the soak
thousands, to a server of the built-in model.
"""

import json
from typing import Any

from hypothesis import strategies as st

from tests.support.live_server import Answer, LiveServer

VOCAB_SIZE = 4096
EVERY = range(VOCAB_SIZE)
REFERENCE = {"model": "soliton-default", "prompt": "Once upon a time", "max_tokens": 8,
             "temperature": 0}  # fmt: skip

_EXTREMES = (
    -1e308, -1e38, -1e9, -100, -10, -2, -1, 0, 1e-308, 1e-45, 0.01, 0.5, 1, 2, 10, 100, 1e9, 1e38,
    1e308,
)  # fmt: skip
# The ends of each interval, and a little inside; a value outside is refused before it runs.
_REALS = {
    "temperature": (0, 100), "min_temperature": (0, 100), "max_temperature": (0, 100),
    "temperature_exponent": (0, 100), "dynatemp_range": (0, 100), "smoothing_factor": (0, 100),
    "top_p": (0, 1), "min_p": (0, 1), "top_a": (0, 1), "top_n_sigma": (0, 100), "tfs": (0, 1),
    "typical_p": (0, 1), "skew": (-10, 10), "mirostat_tau": (0, 100), "mirostat_eta": (0, 1),
    "xtc_probability": (0, 1), "xtc_threshold": (0, 1), "dry_multiplier": (0, 100),
    "dry_base": (1, 100), "repetition_penalty": (0.01, 100), "frequency_penalty": (-2, 2),
    "presence_penalty": (-2, 2), "cfg_scale": (-100, 100),
}  # fmt: skip
_WHOLES = {
    "top_k": (0, 2**31 - 1), "dry_allowed_length": (0, 100), "dry_range": (0, 2**31 - 1),
    "dry_max_ngram": (1, 100), "repetition_range": (-1, 2**31 - 1),
    "repetition_decay": (0, 2**31 - 1), "min_tokens": (0, 5), "max_tokens": (1, 5),
    "logprobs": (0, 5), "prompt_logprobs": (0, 5), "n": (1, 2), "seed": (0, 5),
}  # fmt: skip
_SWITCHES = (
    "temperature_last", "dynamic_temperature", "mirostat", "ban_eos_token", "ignore_eos",
    "token_healing", "speculate", "echo", "stream",
)  # fmt: skip
_CONSTRAINTS: tuple[dict[str, Any], ...] = (
    {"guided_regex": "[ab]{1,4}"},
    {"guided_choice": ["yes", "no"]},
    {"guided_json": {"type": "integer"}},
    {"response_format": {"type": "json_object"}},
)
_STAGES = (
    "smoothing", "temperature", "top_n_sigma", "top_k", "top_p", "top_a", "min_p", "tfs", "typical",
    "mirostat", "dynamic_temperature", "xtc",
)  # fmt: skip
_LOTS = (
    (), (0,), (2,), (0, 1, 2), tuple(EVERY), tuple(EVERY[1:]), tuple(EVERY[:-1]), tuple(EVERY[::2]),
    tuple(EVERY[1::2]), tuple(EVERY[100:110]),
)  # fmt: skip


def bodies() -> st.SearchStrategy[dict[str, Any]]:
    """Bodies with a prompt or with messages; whatever they contain, the answer is 200 or 400."""
    return st.builds(lambda body, chats: _chat(body) if chats else body, _texts(), st.booleans())


def _texts() -> st.SearchStrategy[dict[str, Any]]:
    values: dict[str, st.SearchStrategy[Any]] = dict.fromkeys(_SWITCHES, st.booleans())
    for name, (low, high) in _REALS.items():
        inside = st.sampled_from([low, high]) | st.floats(low, high)
        values[name] = st.one_of(inside, inside, inside, st.sampled_from(_EXTREMES))
    for name, (lowest, highest) in _WHOLES.items():
        values[name] = st.sampled_from([lowest, lowest + 1, highest])
    values["sampler_order"] = st.permutations(_STAGES)
    values["negative_prompt"] = st.sampled_from(["", "x", "Once upon a time"])
    values["banned_strings"] = st.sampled_from([["a"], ["e", " "], [" the"]])
    values["stop"] = st.sampled_from(["a", [" "]])
    bias = st.one_of(
        st.just(False), st.sampled_from(_EXTREMES), st.floats(-1e9, 1e9), st.just(False)
    )
    lots = st.sampled_from(_LOTS)
    values["logit_bias"] = st.builds(
        lambda ids, value, other: {str(i): value for i in ids} | other,
        lots,
        bias,
        st.dictionaries(st.integers(0, VOCAB_SIZE - 1).map(str), bias, max_size=3),
    ).map(lambda biases: dict(list(biases.items())[:VOCAB_SIZE]))
    values["allowed_tokens"] = values["banned_tokens"] = lots.map(list)
    return st.builds(
        lambda prompt, fields, constraint: {**REFERENCE, "prompt": prompt, "max_tokens": 3,
                                            **fields, **constraint},
        st.sampled_from(["Once upon a time", "a a a a a a", [1, 2, 3, 2, 3, 2], "x"]),
        st.lists(st.sampled_from(sorted(values)), unique=True, max_size=9).flatmap(
            lambda names: st.fixed_dictionaries({name: values[name] for name in names})
        ),
        st.sampled_from([{}, {}, {}, {}, {}, *_CONSTRAINTS]),
    )  # fmt: skip


def _chat(body: dict[str, Any]) -> dict[str, Any]:
    """The same for /v1/chat/completions."""
    kept = {name: value for name, value in body.items()
            if name not in ("prompt", "prompt_logprobs", "echo", "logprobs")}  # fmt: skip
    if "logprobs" in body:
        kept |= {"logprobs": True, "top_logprobs": body["logprobs"]}
    return kept | {"messages": [{"role": "user", "content": str(body["prompt"])}]}


def status_of(answer: Answer) -> int:
    """The status that the error event at the end of a stream corresponds to."""
    if answer.status != 200 or not answer.headers["content-type"].startswith("text/event-stream"):
        return answer.status
    for line in answer.body.decode().splitlines():
        if line.startswith('data: {"error":'):
            return 400 if json.loads(line[6:])["error"]["type"] == "invalid_request_error" else 500
    return 200


def send(server: LiveServer, body: dict[str, Any]) -> tuple[int, Answer]:
    path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
    answer = server.post(path, body)
    return status_of(answer), answer


def says_as_before(server: LiveServer, choices: Any) -> bool:
    """Whether the server is ready and answers the reference request as before."""
    if server.get("/health/ready").status != 200:
        return False
    found = server.post("/v1/completions", REFERENCE)
    return bool(found.status == 200 and found.json["choices"] == choices)
