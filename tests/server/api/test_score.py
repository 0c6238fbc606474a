"""POST /v1/score: the numbers of echo, after one computation of the prompt."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest

from engine import Engine
from tests.support.completion_calls import complete, request
from tests.support.event_stream import parse_event_stream
from tests.support.fake_engine import CHUNK, FakeEngine, fake_reply
from tests.support.fault_script import Hang
from tests.support.live_server import LiveServer, live_server, read_answer, wait_until
from tests.support.score_calls import PATH, logprobs, scored_chunks, scores

PROMPT = "Once upon a time, there was a little girl named"
NAMES = [" Lily", " Tim.", " a frog", " Lily who loved to play in the garden all day long."]
MODEL = "soliton-default"


@pytest.fixture(scope="module")
def server(bundled_engine: Engine) -> Iterator[LiveServer]:
    with live_server(bundled_engine) as server:
        yield server


def as_lm_eval(engine: Engine, context: str, continuation: str) -> tuple[list[int], list[int]]:
    """The token ids of both, as lm-evaluation-harness divides them."""
    encode = engine.tokenizer.encode
    n_spaces = len(context) - len(context.rstrip())
    if n_spaces:
        continuation = context[-n_spaces:] + continuation
        context = context[:-n_spaces]
    before = encode(context)
    return before, encode(context + continuation)[len(before) :]


def echoed(server: LiveServer, prompt: list[int], continuation: list[int]) -> list[float]:
    """The logprobs of the continuation, as the prompt of a completion."""
    body = request(prompt=[*prompt, *continuation], max_tokens=0, echo=True, logprobs=1)
    lists = complete(server, body)["choices"][0]["logprobs"]
    values: list[float] = lists["token_logprobs"][len(prompt) :]
    return values


@pytest.mark.parametrize("prompt", [PROMPT, f"{PROMPT} ", "One", "", " \n"])
def test_texts_are_divided_and_scored_as_by_an_evaluation(
    server: LiveServer, bundled_engine: Engine, prompt: str
) -> None:
    texts = [name[1:] for name in NAMES] if prompt.endswith(" ") else NAMES
    answer = scores(server, prompt=prompt, continuations=texts, include=["token_ids", "rank"])
    assert [score["text"] for score in answer["scores"]] == texts
    for score, text in zip(answer["scores"], texts, strict=True):
        before, after = as_lm_eval(bundled_engine, prompt, text)
        assert [token["token_id"] for token in score["tokens"]] == after
        before = before or list(bundled_engine.eos_token_ids[:1])
        assert logprobs(score) == echoed(server, before, after), "the same to the last bit"
        assert score["logprob"] == math.fsum(logprobs(score))
        assert score["mean_logprob"] == score["logprob"] / len(after)
        assert score["is_greedy"] == all(token["rank"] == 0 for token in score["tokens"])


def test_what_the_model_would_write_is_greedy(server: LiveServer, bundled_engine: Engine) -> None:
    said = complete(server, request(prompt=PROMPT, max_tokens=9, return_token_ids=True))
    written = said["choices"][0]["token_ids"]
    other = [*written[:-1], written[-1] + 1]
    first, second = scores(server, prompt=PROMPT, continuations=[written, other])["scores"]
    assert (first["is_greedy"], second["is_greedy"]) == (True, False)
    assert first["text"] == bundled_engine.tokenizer.decode(written)
    assert logprobs(first)[:-1] == logprobs(second)[:-1]


def test_a_joint_token_does_not_hide_a_part_of_a_continuation(
    server: LiveServer, bundled_engine: Engine
) -> None:
    encode, decode = bundled_engine.tokenizer.encode, bundled_engine.tokenizer.decode
    joined, alone = encode("there was"), encode("the")
    assert joined[: len(alone)] != alone, "the tokenizer joins both"
    answer = scores(server, prompt="the", continuations=["re was"], include=["token_ids"])
    assert decode([token["token_id"] for token in answer["scores"][0]["tokens"]]) == "re was"


def test_the_prompt_is_computed_once(
    server: LiveServer, bundled_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, n_computed = bundled_engine.model, 0

    def counting(run: Callable[..., Any]) -> Callable[..., Any]:
        def counted(token_ids: Any, *args: Any, **options: Any) -> Any:
            nonlocal n_computed
            n_computed += len(token_ids)
            return run(token_ids, *args, **options)

        return counted

    monkeypatch.setattr(model, "prefill", counting(model.prefill))
    monkeypatch.setattr(model, "decode", counting(model.decode))
    prompt = bundled_engine.tokenizer.encode("Tom and Sam went to the park. " * 12)
    continuations = [[token_id] for token_id in range(300, 340)] + [[300, 301, 302]]
    first = scores(server, prompt=prompt, continuations=continuations)["usage"]
    assert n_computed == len(prompt) + 2, "one token needs no pass of its own"
    assert first["prompt_tokens"] == len(prompt) + 43
    assert first["completion_tokens"] == 0
    assert first["prompt_tokens_details"]["cached_tokens"] == 0
    again = scores(server, prompt=prompt, continuations=[[5, 6]])["usage"]
    assert again["prompt_tokens_details"]["cached_tokens"] == len(prompt) - 1
    assert n_computed == len(prompt) + 2 + 2
    salted = scores(server, prompt=prompt, continuations=[[5]], cache_salt="mine")["usage"]
    assert salted["prompt_tokens_details"]["cached_tokens"] == 0


def test_a_generation_goes_on_as_if_nothing_had_been_scored(server: LiveServer) -> None:
    body = request(prompt=PROMPT, max_tokens=12, logprobs=2)
    before = complete(server, body)["choices"]
    scores(server, prompt=PROMPT, continuations=NAMES)
    assert complete(server, body)["choices"] == before


def test_streamed_is_whole(server: LiveServer) -> None:
    fields: dict[str, Any] = {
        "model": MODEL, "prompt": PROMPT, "continuations": NAMES, "top_logprobs": 3,
        "include": ["token_ids", "bytes", "probs", "rank", "entropy", "margin", "special"],
        "not_a_field": 1,
    }  # fmt: skip
    whole = scores(server, **fields)
    chunks = scored_chunks(server, **fields, stream_options={"include_usage": True})
    assert [score for chunk in chunks for score in chunk["scores"]] == whole["scores"]
    assert [len(chunk["scores"]) for chunk in chunks] == [1, 1, 1, 1, 0]
    assert [chunk["usage"] for chunk in chunks[:-1]] == [None] * 4
    assert chunks[-1]["usage"]["prompt_tokens"] == whole["usage"]["prompt_tokens"]
    assert chunks[0]["warnings"] == whole["warnings"]
    for token in whole["scores"][3]["tokens"]:
        assert math.exp(token["logprob"]) == pytest.approx(token["p_raw"])
        assert len(token["top_logprobs"]) == 3
        assert token["rank"] == 0 or token["top_logprobs"][0]["logprob"] > token["logprob"]
    timed = scored_chunks(server, prompt=PROMPT, continuations=NAMES, include=["timings"])
    assert timed[-1]["timings"]["prompt_n"] >= 1


def test_the_progress_of_the_prompt_comes_before_the_first_score(
    shared_fake: FakeEngine, shared_server: LiveServer
) -> None:
    fields = {"continuations": ["ab", "cd"], "include": ["progress"]}
    prompt = "x" * (2 * CHUNK + 5)
    chunks = scored_chunks(shared_server, prompt=prompt, **fields)
    progress = [chunk["prompt_progress"] for chunk in chunks if "prompt_progress" in chunk]
    assert [each["processed"] for each in progress] == [CHUNK, 2 * CHUNK, 36, 37]
    assert {(each["index"], each["total"], each["cache"]) for each in progress} == {(0, 37, 0)}
    assert progress[-1]["eta_ms"] == 0
    assert [len(chunk["scores"]) for chunk in chunks] == [0, 0, 0, 0, 1, 1]
    cached = scored_chunks(shared_server, prompt=prompt, **fields)
    [only] = [chunk["prompt_progress"] for chunk in cached if "prompt_progress" in chunk]
    assert (only["processed"], only["cache"]) == (37, 36)
    whole = scores(shared_server, prompt=prompt, **fields)
    assert "prompt_progress" not in whole, "only in a stream"
    assert whole["scores"] == [score for chunk in chunks for score in chunk["scores"]]


def test_a_conversation_is_a_prompt(server: LiveServer, bundled_engine: Engine) -> None:
    messages = [{"role": "user", "content": "Is it warm in Rome?"}]
    replies = ["Yes, it is.", "No."]
    answer = scores(server, messages=messages, continuations=replies)
    prompt = bundled_engine.encode_chat(messages)
    ids = [bundled_engine.tokenizer.encode_continuation(text) for text in replies]
    by_ids = scores(server, prompt=prompt, continuations=ids)
    assert answer["scores"] == by_ids["scores"]


def test_each_score_is_sent_as_it_comes(shared_fake: FakeEngine, shared_server: LiveServer) -> None:
    hang = Hang()
    shared_fake.faults["chunk", 1] = hang
    body = {"prompt": "hello", "continuations": ["ab", "c" * CHUNK * 2], "stream": True}
    with shared_server.send(PATH, body) as sock:
        hang.begun.wait()
        received = b""
        while b"\n\n" not in received.partition(b"data: ")[2]:
            received += sock.recv(4096)
        assert b'"index":0' in received
        hang.release()
        while b"[DONE]" not in received:
            received += sock.recv(4096)
        assert b'"index":1' in received


def test_a_hang_up_frees_the_engine(shared_fake: FakeEngine, shared_server: LiveServer) -> None:
    for stream in (False, True):
        shared_fake.renew()
        shared_fake.model.prefill_gate.clear()
        body = {"prompt": "hello", "continuations": ["ab"] * 500, "stream": stream}
        with shared_server.send(PATH, body):
            wait_until(shared_fake.model.in_prefill.is_set)
        wait_until(lambda: shared_server.running is None or shared_server.running.abort.is_set())
        shared_fake.model.prefill_gate.set()
        wait_until(lambda: not shared_server.lease.busy)
        assert shared_fake.model.n_prompts < 5
        answer = shared_server.post("/v1/completions", {"prompt": "next", "max_tokens": 8})
        assert answer.json["choices"][0]["text"] == fake_reply("next", 8)


def test_it_waits_its_turn_and_is_refused_like_a_generation(fake: FakeEngine) -> None:
    body = {"prompt": "hello", "continuations": ["ab", "cd"]}
    with live_server(fake.as_engine, max_queue=1) as server:
        fake.model.decode_gate.clear()
        with (
            server.send("/v1/completions", {"prompt": "first", "max_tokens": 2}) as first,
            server.send(PATH, body) as second,
        ):
            wait_until(lambda: server.lease.n_waiting == 1)
            full = server.post(PATH, body)
            assert (full.status, full.error["code"]) == (429, "queue_full")
            fake.model.decode_gate.set()
            assert read_answer(first).status == 200
            assert len(read_answer(second).json["scores"]) == 2
    with live_server(fake.as_engine, first_token_timeout=1e-6) as server:
        late = server.post(PATH, body)
        assert (late.status, late.error["code"]) == (504, "first_token_timeout")


def test_a_failure_is_this_requests_own(fake: FakeEngine, fake_server: LiveServer) -> None:
    body = {"prompt": "hello", "continuations": ["ab", "c" * CHUNK * 2]}
    fake.faults["chunk", 1] = RuntimeError("as planned")
    answer = fake_server.post(PATH, body)
    assert (answer.status, answer.error["code"]) == (500, "engine_error")
    fake.faults["chunk", 1] = RuntimeError("as planned")
    streamed = parse_event_stream(fake_server.post(PATH, {**body, "stream": True}).body)
    assert "scores" in streamed.chunks[0]
    assert streamed.chunks[-1]["error"]["code"] == "engine_error"
    assert len(scores(fake_server, **body)["scores"]) == 2
    metrics = fake_server.get("/metrics").body.decode()
    assert 'soliton_completions_total{reason="scored"} 1.0' in metrics
    assert 'soliton_requests_total{route="/v1/score",status="200"} 2.0' in metrics


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({}, "continuations", "missing"),
        ({"continuations": []}, "continuations", "1 to 1024 texts"),
        ({"continuations": ["a", ""]}, "continuations[1]", "at least one token"),
        ({"continuations": [[], [1]]}, "continuations[0]", "at least one token"),
        ({"continuations": ["a", [1]]}, "continuations", "as many lists of token ids"),
        ({"continuations": "a"}, "continuations", "must be a list"),
        ({"continuations": [[1], [257]]}, "continuations[1]", "0 to 256"),
        ({"continuations": ["\ud800"]}, "continuations[0]", "lone surrogate"),
        ({"continuations": ["x" * 600]}, "continuations[0]", "512"),
        ({"continuations": ["a"], "prompt": [257]}, "prompt", "0 to 256"),
        ({"continuations": ["a"], "prompt": "x" * 512}, "prompt", "512"),
        ({"continuations": ["a"], "prompt": []}, "prompt", "empty"),
        ({"continuations": ["a"], "prompt": ["a"]}, "prompt", "a string or a list of token ids"),
        ({"continuations": ["a"], "include": ["trace"]}, "include", "one of token_ids, bytes"),
        ({"continuations": ["a"], "include": ["logprobs.timings"]}, "include", "one of"),
        ({"continuations": ["a"], "top_logprobs": 21}, "top_logprobs", "20"),
        ({"continuations": ["a"], "stream_options": {}}, "stream_options", "stream: true"),
        ({"continuations": ["a"], "model": "another"}, "model", "does not exist"),
        ({"continuations": ["a"], "odd": 1, "strict": True}, "odd", "does not know"),
        (
            {"continuations": ["a"], "messages": [{"role": "user", "content": "x"}], "prompt": "y"},
            "prompt",
            "exclude each other",
        ),
    ],
)
def test_what_cannot_be_scored_is_said(
    shared_server: LiveServer, fields: dict[str, Any], param: str, words: str
) -> None:
    answer = shared_server.post(PATH, fields)
    assert answer.status in (400, 404)
    assert answer.error["param"] == param
    assert words in answer.error["message"]


def test_too_much_to_encode_is_refused_at_once(server: LiveServer) -> None:
    answer = server.post(PATH, {"prompt": "a " * 5000, "continuations": ["b"] * 1024})
    assert (answer.status, answer.error["param"]) == (400, "prompt")
    assert "send fewer continuations, or token ids" in answer.error["message"]


@pytest.mark.clients
def test_the_official_client_sends_it(server: LiveServer) -> None:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        body = {"prompt": PROMPT, "continuations": NAMES}
        answer: Any = client.post("/score", body=body, cast_to=object)
        best = max(answer["scores"], key=lambda score: score["mean_logprob"])
        assert best["text"] == " Lily"
        with pytest.raises(openai.BadRequestError, match="at least one token"):
            client.post("/score", body={**body, "continuations": [""]}, cast_to=object)
