"""What llama-server's own tests ask of it, asked of this server; and the keys of its answers.

docs/llama-server.md says which of its tests have no place here, and why.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine import Engine
from server.schema.llama_completion import LlamaCompletion
from tests.support.event_stream import parse_event_stream
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import LiveServer, live_server, wait_until

RECORDED = json.loads(
    (Path(__file__).parents[2] / "clients" / "requests" / "llama_server.json").read_text()
)
# Keys that have no counterpart here.
ABSENT = {
    "/props": {
        "cors_proxy_enabled",  # there is no proxy
        "media_marker",  # no media
        "ui_settings",
    },
    "/v1/models": {"models"},  # Ollama's list has a route of its own
    "meta": {"ftype", "vocab_type"},
    "metrics": {"llamacpp:n_busy_slots_per_decode", "llamacpp:n_decode_total"},
    "control": set[str](),
}
LIFE = "I believe the meaning of life is"


@pytest.fixture(scope="module")
def server(bundled_engine: Engine) -> Iterator[LiveServer]:
    with live_server(bundled_engine) as server:
        yield server


def asked(server: LiveServer, path: str, body: Any) -> Any:
    answer = server.post(path, body)
    assert answer.status == 200, answer.body
    return answer.json


def completed(server: LiveServer, **fields: Any) -> Any:
    return asked(server, "/completion", {"prompt": LIFE, "n_predict": 8, "seed": 1, **fields})


def streamed(server: LiveServer, **fields: Any) -> list[Any]:
    body = {"prompt": LIFE, "n_predict": 8, "seed": 1, "stream": True, **fields}
    answer = server.post("/completion", body)
    assert answer.status == 200, answer.body
    return parse_event_stream(answer.body).chunks


def assert_has(name: str, said: Any) -> None:
    missing = set(RECORDED["keys"][name]) - set(said) - ABSENT.get(name, set())
    assert not missing, name


def test_answers_have_its_keys(server: LiveServer) -> None:
    answer = completed(server)
    assert_has("/completion", answer)
    assert_has("generation_settings", answer["generation_settings"])
    assert_has("timings", answer["timings"])
    entry = completed(server, n_probs=2)["completion_probabilities"][0]
    assert_has("completion_probabilities", entry)
    assert_has("top_logprobs", entry["top_logprobs"][0])
    entry = completed(server, n_probs=2, post_sampling_probs=True)["completion_probabilities"][0]
    assert_has("after_sampling", entry)
    assert_has("top_probs", entry["top_probs"][0])


def test_events_have_its_keys(server: LiveServer) -> None:
    prompt = "A frog. " * 60
    progress, *_, event, last = streamed(
        server, prompt=prompt, n_probs=1, return_progress=True, timings_per_token=True
    )
    assert_has("progress_event", {**progress, "timings": None})
    assert_has("prompt_progress", progress["prompt_progress"])
    assert_has("event", event)
    assert_has("last_event", last)
    assert_has("timings", event["timings"])
    assert event["timings"]["predicted_n"] == event["tokens_predicted"]
    assert event["timings"]["prompt_n"] == last["timings"]["prompt_n"]
    assert 0 < event["timings"]["prompt_ms"] <= 1.01 * last["timings"]["prompt_ms"]


def test_other_routes_have_its_keys(server: LiveServer) -> None:
    props = server.get("/props").json
    assert_has("/props", props)
    assert_has("params", props["default_generation_settings"]["params"])
    assert_has("modalities", props["modalities"])
    assert_has("/slots", server.get("/slots").json[0])
    for path in ("/models", "/v1/models"):
        models = server.get(path).json
        assert_has("/v1/models", models)
        assert_has("model", models["data"][0])
        assert_has("meta", models["data"][0]["meta"])
        assert models["data"][0]["id"] in models["data"][0]["aliases"]
    tokens = asked(server, "/tokenize", {"content": LIFE, "with_pieces": True})
    assert_has("/tokenize", tokens)
    assert_has("pieces", tokens["tokens"][0])
    messages = {"messages": [{"role": "user", "content": "hi"}]}
    rendered = asked(server, "/apply-template", messages)
    assert_has("/apply-template", rendered)
    ids = asked(server, "/tokenize", {**messages, "return_token_strs": True})
    for path in ("/v1/chat/completions/input_tokens", "/chat/completions/input_tokens"):
        counted = asked(server, path, messages)
        assert_has("input_tokens", counted)
        assert counted["input_tokens"] == ids["count"]
    metrics = server.get("/metrics").body.decode()
    assert_has("metrics", {line.split()[2] for line in metrics.splitlines() if "# TYPE" in line})


def test_errors_have_its_words(server: LiveServer) -> None:
    image = {"prompt_string": "x", "multimodal_data": ["iVBO"]}
    requests = {
        "mm": ("/completion", {"prompt": image}),
        "grammar_bad": ("/completion", {"prompt": "x", "grammar": "root ::= ("}),
        "infill": ("/infill", {"input_prefix": "x", "input_suffix": "y"}),
    }
    for name, (path, body) in requests.items():
        answer = server.post(path, body)
        status, type_ = RECORDED["errors"][name]
        assert (answer.status, answer.error["code"], answer.error["type"]) == (
            status, status, type_,
        )  # fmt: skip
    for path in ("/props", "/embedding", "/rerank", "/v1/reranking"):
        assert server.post(path, {}).status == 501
    long = server.post("/completion", {"prompt": LIFE * 400})
    assert (long.status, long.error["type"]) == (400, "exceed_context_size_error")


def test_a_control_says_whether_it_succeeded(server: LiveServer) -> None:
    body = {"id": "chatcmpl-x", "action": "reasoning_end"}
    said = asked(server, "/v1/chat/completions/control", body)
    assert_has("control", said)
    assert said["success"] is False
    for wrong in ({"action": "reasoning_end"}, {"id": "chatcmpl-x", "action": "zap"}):
        assert server.post("/v1/chat/completions/control", wrong).status == 400


def test_a_reasoning_that_is_to_be_controlled_is_found(fake: FakeEngine) -> None:
    """As its page does it: by the id of the first chunk, while the reply runs."""
    body = {
        "messages": [{"role": "user", "content": "x"}], "stream": True, "max_tokens": 8,
        "reasoning_control": True,
    }  # fmt: skip
    with live_server(fake.as_engine) as server:
        fake.model.decode_gate.clear()
        with server.send("/v1/chat/completions", body):
            wait_until(lambda: bool(server.get("/v1/streams").json["data"]))
            [stream] = server.get("/v1/streams").json["data"]
            asking = {"id": stream["id"], "action": "pause"}
            fake.model.decode_gate.set()
            said = server.post("/v1/chat/completions/control", asking)
        assert said.status in (200, 409), said.body


@pytest.mark.parametrize("return_tokens", [False, True])
def test_a_text_is_as_long_as_asked_for(server: LiveServer, return_tokens: bool) -> None:
    answer = completed(server, n_predict=16, return_tokens=return_tokens, cache_prompt=False)
    n_prompt = len(asked(server, "/tokenize", {"content": LIFE, "add_special": True})["tokens"])
    timings = answer["timings"]
    assert (timings["cache_n"], timings["prompt_n"], timings["predicted_n"]) == (0, n_prompt, 16)
    assert (answer["truncated"], type(answer["has_new_line"])) == (False, bool)
    assert len(answer["tokens"]) == (16 if return_tokens else 0)
    assert answer["tokens_cached"] == n_prompt + 15


def test_a_stream_says_the_text_of_the_whole(server: LiveServer) -> None:
    *events, last = streamed(server, temperature=0.8)
    assert all(event["tokens"] and event["stop"] is False for event in events)
    assert (last["stop"], last["stop_type"]) == (True, "limit")
    assert last["generation_settings"]["n_predict"] == 8
    text = "".join(event["content"] for event in events)
    assert text == completed(server, temperature=0.8)["content"]


def test_seeds(server: LiveServer) -> None:
    texts = [
        completed(server, seed=seed, temperature=1, n_predict=24, cache_prompt=bool(turn))[
            "content"
        ]
        for seed in (0, 1, 42)
        for turn in range(2)
    ]
    assert texts[::2] == texts[1::2], "cached or not"
    assert len(set(texts)) == 3


def test_prompts_of_every_form(server: LiveServer) -> None:
    ids = asked(server, "/tokenize", {"content": LIFE, "add_special": True})["tokens"]
    text = completed(server, temperature=0)["content"]
    assert completed(server, temperature=0, prompt=ids)["content"] == text
    assert completed(server, temperature=0, prompt={"prompt_string": LIFE})["content"] == text
    assert completed(server, temperature=0, prompt=[LIFE])["content"] == text
    forms = [LIFE, ids, {"prompt_string": LIFE}, [LIFE], [*ids[:2], *ids[2:]]]
    answers = completed(server, temperature=0, prompt=forms)
    assert [answer["content"] for answer in answers] == [text] * len(forms)
    assert [answer["index"] for answer in answers] == list(range(len(forms)))
    mixed = completed(server, temperature=0, prompt=[5, 6, LIFE, 7, 8, LIFE, 9])
    own = asked(server, "/tokenize", {"content": LIFE})["tokens"]
    assert mixed["tokens_evaluated"] == 5 + 2 * len(own)
    with_text = completed(server, temperature=0, prompt=[LIFE, 5])
    assert with_text["tokens_evaluated"] == len(ids) + 1, "what begins with a text begins like one"


@pytest.mark.parametrize(
    "prompt", [[], [1, ["x"]], [1, {"prompt_string": "x"}], {"text": "x"}, [[["x"]]], [1.5], 7]
)
def test_prompts_of_no_form(server: LiveServer, prompt: Any) -> None:
    answer = server.post("/completion", {"prompt": prompt})
    assert (answer.status, answer.error["param"]) == (400, "prompt")


def test_only_the_fields_that_are_wanted(server: LiveServer) -> None:
    fields = ["content", "generation_settings/n_predict", "prompt", "none", "content/none"]
    answer = completed(server, response_fields=fields)
    assert set(answer) == {"content", "generation_settings/n_predict", "prompt"}
    assert (answer["generation_settings/n_predict"], answer["prompt"]) == (8, LIFE)
    *events, last = streamed(server, response_fields=["stop"])
    assert (last, all("content" in event for event in events)) == ({"stop": True}, True)
    assert "generation_settings" in completed(server, response_fields=[])


@pytest.mark.parametrize("is_object", [False, True])
@pytest.mark.parametrize("is_text", [False, True])
def test_a_bias_of_a_text_is_one_of_its_tokens(
    server: LiveServer, is_object: bool, is_text: bool
) -> None:
    body = {"temperature": 0, "n_predict": 24, "return_tokens": True}
    words = completed(server, **body)["content"].split()[:4]
    ids = asked(server, "/tokenize", {"content": " " + " ".join(words)})["tokens"]
    biases = [[f" {word}", -100] for word in words] if is_text else [[i, -100] for i in ids]
    sent = {str(key): bias for key, bias in biases} if is_object else biases
    answer = completed(server, logit_bias=sent, **body)
    assert not set(ids) & set(answer["tokens"])
    told = dict(answer["generation_settings"]["logit_bias"])
    assert set(ids) <= set(told)


def test_probabilities_after_sampling_are_of_what_was_left(server: LiveServer) -> None:
    entries = completed(server, n_probs=10, temperature=1, top_k=40, post_sampling_probs=True)
    for entry in entries["completion_probabilities"]:
        tops = [top["prob"] for top in entry["top_probs"]]
        assert all(0 < prob <= 1 for prob in (*tops, entry["prob"]))
        assert len(tops) == 10 or sum(tops) == pytest.approx(1, rel=1e-3)


def test_a_cancelled_request_frees_the_slot() -> None:
    fake = FakeEngine()
    with live_server(fake.as_engine) as server:
        fake.model.decode_gate.clear()
        with server.send("/completion", {"prompt": "hello", "n_predict": 90}):
            wait_until(lambda: server.get("/slots").json[0]["is_processing"])
            full = server.get("/slots?fail_on_no_slot=1")
            assert (full.status, full.error["code"]) == (503, 503)
        fake.model.decode_gate.set()
        wait_until(lambda: not server.get("/slots").json[0]["is_processing"])
        assert server.get("/slots?fail_on_no_slot=1").status == 200


def test_the_end_is_ignored_if_that_is_wanted(server: LiveServer) -> None:
    answer = completed(server, ignore_eos=True, n_predict=300)
    assert (answer["tokens_predicted"], answer["stop_type"]) == (300, "limit")


def test_a_time_limit_ends_a_text(server: LiveServer) -> None:
    since = time.monotonic()
    answer = completed(server, n_predict=-1, ignore_eos=True, t_max_predict_ms=60)
    assert answer["stop_type"] == "limit"
    assert time.monotonic() - since < 30


def test_text_and_tokens(server: LiveServer) -> None:
    text = "What is the capital of France ?"
    tokens = asked(server, "/tokenize", {"content": text})["tokens"]
    assert asked(server, "/detokenize", {"tokens": tokens})["content"].strip() == text
    with_bos = asked(server, "/tokenize", {"content": text, "add_special": True})["tokens"]
    assert with_bos[-len(tokens) :] == tokens
    pieces = asked(server, "/tokenize", {"content": "媽 🤗", "with_pieces": True})["tokens"]
    joined = b"".join(
        piece.encode() if isinstance(piece, str) else bytes(piece)
        for piece in (each["piece"] for each in pieces)
    )
    assert joined.decode().strip() == "媽 🤗"


def test_adapters(server: LiveServer) -> None:
    assert server.get("/lora-adapters").json == []
    assert asked(server, "/lora-adapters", []) == {"success": True}
    answer = server.post("/lora-adapters", [{"id": 0, "scale": 1}])
    assert (answer.status, answer.error["type"]) == (400, "invalid_request_error")
    assert completed(server, lora=[])["content"]


def test_the_metrics_add_up(bundled_engine: Engine) -> None:
    with live_server(bundled_engine) as server:
        answers = [completed(server, cache_prompt=cached) for cached in (False, True)]
        scraped = server.get("/metrics")
        lines = scraped.body.decode().splitlines()
    assert 0 <= time.time() - int(scraped.headers["process-start-time-unix"]) < 600
    told = dict(line.split() for line in lines if line.startswith("llamacpp:"))
    timings = [answer["timings"] for answer in answers]
    assert float(told["llamacpp:prompt_tokens_total"]) == sum(each["prompt_n"] for each in timings)
    cached = sum(each["cache_n"] for each in timings)
    assert float(told["llamacpp:prompt_tokens_cached_total"]) == cached > 0
    assert float(told["llamacpp:tokens_predicted_total"]) == 16
    n_most = max(each["cache_n"] + each["prompt_n"] for each in timings) + 8
    assert float(told["llamacpp:n_tokens_max"]) == n_most
    assert float(told["llamacpp:predicted_tokens_seconds"]) > 0


def test_whole_answers_fit_the_schema(server: LiveServer) -> None:
    for fields in ({}, {"n_probs": 2, "post_sampling_probs": True}, {"cache_prompt": False}):
        LlamaCompletion.model_validate(completed(server, **fields))
