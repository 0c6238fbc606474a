"""POST /v1/completions: OpenAI's wire format, on the bundled model if the text matters."""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import pytest

from engine import Engine, TokenRecord, TopToken
from server.answer.logprobs import TokenNames, chat_entries, legacy_logprobs
from tests.support.completion_calls import complete, fake_request, request, stream
from tests.support.fake_engine import FakeEngine, fake_reply
from tests.support.live_server import LiveServer, live_server

PROMPT = "Once upon a time"


@pytest.fixture(scope="module")
def server(bundled_engine: Engine) -> Iterator[LiveServer]:
    with live_server(bundled_engine) as server:
        yield server


def text_of(answer: Any) -> str:
    return str(answer["choices"][0]["text"])


def joined(chunks: list[Any]) -> tuple[str, dict[str, list[Any]] | None, str]:
    """Text, logprobs and finish_reason of a streamed answer, joined as a client does."""
    choices = [chunk["choices"][0] for chunk in chunks if chunk["choices"]]
    logprobs: dict[str, list[Any]] | None = None
    for choice in choices:
        for name, values in (choice["logprobs"] or {}).items():
            logprobs = logprobs or {}
            logprobs.setdefault(name, []).extend(values)
    reasons = [choice["finish_reason"] for choice in choices]
    assert reasons[:-1] == [None] * (len(reasons) - 1), "only the last chunk says why it ended"
    return "".join(choice["text"] for choice in choices), logprobs, reasons[-1]


def test_the_answer_is_what_the_engine_generates(
    server: LiveServer, bundled_engine: Engine
) -> None:
    answer = complete(server, request(max_tokens=20))
    generator = bundled_engine.generator
    input_ids = bundled_engine.tokenizer.encode(PROMPT)
    settings = dataclasses.replace(bundled_engine.default_settings, temperature=0)
    generator.begin_stream_ex(input_ids, settings, max_new_tokens=20)
    alone, eos = "", False
    while not eos:
        result = generator.stream_ex()
        alone, eos = alone + result.chunk, result.eos
    assert text_of(answer) == alone
    assert answer["object"] == "text_completion"
    assert answer["id"].startswith("cmpl-")
    assert answer["model"] == "soliton-default"
    assert answer["system_fingerprint"] == bundled_engine.fingerprint
    assert answer["usage"]["prompt_tokens"] == len(input_ids)
    assert answer["usage"]["completion_tokens"] == 20
    assert answer["usage"]["total_tokens"] == len(input_ids) + 20
    assert "warnings" not in answer


@pytest.mark.parametrize("logprobs", [None, 0, 3])
@pytest.mark.parametrize("temperature", [0, 1.3])
def test_streamed_and_whole_say_the_same(
    server: LiveServer, temperature: float, logprobs: int | None
) -> None:
    body = request(max_tokens=40, temperature=temperature, seed=11, logprobs=logprobs)
    whole = complete(server, body)
    chunks = stream(server, {**body, "stream_options": {"include_usage": True}})
    text, lists, reason = joined(chunks)
    assert text == text_of(whole)
    assert lists == whole["choices"][0]["logprobs"]
    assert reason == whole["choices"][0]["finish_reason"]
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert chunks[-1]["usage"][name] == whole["usage"][name]


def test_a_stream_ends_with_reason_then_usage_and_repeats_its_head(server: LiveServer) -> None:
    chunks = stream(server, request(max_tokens=5, stream_options={"include_usage": True}))
    *token_chunks, usage = chunks
    assert len({(c["id"], c["created"], c["model"], c["system_fingerprint"]) for c in chunks}) == 1
    assert all(chunk["usage"] is None for chunk in token_chunks)
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 5
    last = token_chunks[-1]["choices"][0]
    assert last["finish_reason"] == "length"
    assert last["text"], "the reason comes with the last token"


def test_without_include_usage_no_chunk_has_usage(server: LiveServer) -> None:
    assert not any("usage" in chunk for chunk in stream(server, request(max_tokens=3)))


def test_logprobs_are_four_lists_that_fit_the_text(server: LiveServer) -> None:
    answer = complete(server, request(max_tokens=30, temperature=1.0, seed=5, logprobs=4))
    lists = answer["choices"][0]["logprobs"]
    whole_text = PROMPT + text_of(answer)
    assert len({len(values) for values in lists.values()}) == 1
    rows = zip(*(lists[name] for name in lists), strict=True)
    for token, logprob, top, offset in rows:
        assert whole_text[offset:].startswith(token) or token.startswith("bytes:")
        assert top[token] == logprob
        assert 4 <= len(top) <= 5
        assert all(-9999.0 <= value <= 0.0 for value in top.values())
        assert sum(math.exp(value) for value in top.values()) <= 1.0 + 1e-6
    assert lists["text_offset"][0] == len(PROMPT)


def test_logprobs_zero_is_the_chosen_token_alone(server: LiveServer) -> None:
    lists = complete(server, request(max_tokens=4, logprobs=0))["choices"][0]["logprobs"]
    assert [list(top) for top in lists["top_logprobs"]] == [[token] for token in lists["tokens"]]
    assert [*map(list, (top.values() for top in lists["top_logprobs"]))] == [
        [logprob] for logprob in lists["token_logprobs"]
    ]


def test_logprobs_are_raw_whatever_the_temperature(server: LiveServer) -> None:
    cold, hot = (
        complete(server, request(max_tokens=1, logprobs=5, temperature=t, seed=1))["choices"][0]
        for t in (0, 2.0)
    )
    for name, logprob in cold["logprobs"]["top_logprobs"][0].items():
        if name in hot["logprobs"]["top_logprobs"][0]:
            assert hot["logprobs"]["top_logprobs"][0][name] == pytest.approx(logprob, abs=1e-5)


def test_token_ids_text_and_lists_of_one_are_the_same_prompt(
    server: LiveServer, bundled_engine: Engine
) -> None:
    input_ids = bundled_engine.tokenizer.encode(PROMPT)
    prompts: list[Any] = [PROMPT, [PROMPT], input_ids, [input_ids]]
    answers = [complete(server, request(prompt=p, max_tokens=8, logprobs=1)) for p in prompts]
    assert len({text_of(answer) for answer in answers}) == 1
    n_characters = len(bundled_engine.tokenizer.decode(input_ids))
    assert answers[2]["choices"][0]["logprobs"]["text_offset"][0] == n_characters


def test_a_seed_repeats_the_text(server: LiveServer) -> None:
    def text(seed: int) -> str:
        return text_of(complete(server, request(max_tokens=24, temperature=1.0, seed=seed)))

    assert text(7) == text(7)
    assert len({text(seed) for seed in range(4)}) > 1


def test_stop_strings_end_the_text_before_them(server: LiveServer) -> None:
    free = text_of(complete(server, request(max_tokens=40)))
    stop = free[10:14]
    for value in (stop, ["\u2603", stop]):
        answer = complete(server, request(max_tokens=40, stop=value))
        assert text_of(answer) == free[: free.index(stop)]
        assert answer["choices"][0]["finish_reason"] == "stop"


def test_logit_bias_forces_and_forbids(server: LiveServer, bundled_engine: Engine) -> None:
    token_id = bundled_engine.tokenizer.encode(" the", add_special_tokens=False)[0]
    forced = complete(server, request(max_tokens=2, logit_bias={str(token_id): 100}))
    name = bundled_engine.tokenizer.token_bytes(token_id).decode()
    assert text_of(forced) == name * 2
    best = complete(server, request(max_tokens=1, logprobs=2))["choices"][0]["logprobs"]
    first, second = best["top_logprobs"][0]
    first_id = bundled_engine.tokenizer.encode(first, add_special_tokens=False)[0]
    banned = complete(server, request(max_tokens=1, logit_bias={str(first_id): -100}))
    assert text_of(banned) == second


def test_top_k_one_is_greedy(server: LiveServer) -> None:
    greedy = text_of(complete(server, request(max_tokens=12)))
    assert text_of(complete(server, request(max_tokens=12, temperature=1.5, top_k=1))) == greedy


def test_min_p_one_is_greedy_and_top_k_minus_one_is_off(server: LiveServer) -> None:
    greedy = text_of(complete(server, request(max_tokens=12)))
    body = request(max_tokens=12, temperature=1.5, min_p=1.0, top_k=-1)
    assert text_of(complete(server, body)) == greedy


def test_penalties_change_the_text(server: LiveServer) -> None:
    greedy = text_of(complete(server, request(max_tokens=60)))
    for field in ({"repetition_penalty": 1.8}, {"frequency_penalty": 2}, {"presence_penalty": 2}):
        assert text_of(complete(server, request(max_tokens=60, **field))) != greedy


def test_cached_tokens_are_counted(shared_server: LiveServer) -> None:
    first, again, other = (
        complete(shared_server, fake_request(prompt=prompt, max_tokens=1))["usage"]
        for prompt in ("abcdefgh", "abcdefgh", "abcdxxxx")
    )
    cached = [usage["prompt_tokens_details"]["cached_tokens"] for usage in (first, again, other)]
    assert cached == [0, 7, 4]


def test_max_tokens_is_sixteen_unless_given(shared_server: LiveServer) -> None:
    for body in (fake_request(), fake_request(max_tokens=None)):
        answer = complete(shared_server, body)
        assert text_of(answer) == fake_reply("hello", 16)
        assert answer["choices"][0]["finish_reason"] == "length"


def test_max_tokens_zero_generates_nothing(shared_server: LiveServer) -> None:
    answer = complete(shared_server, fake_request(max_tokens=0))
    assert text_of(answer) == ""
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 0


def test_the_default_ends_with_the_context(shared_server: LiveServer) -> None:
    answer = complete(shared_server, fake_request(prompt="x" * 507))
    assert answer["usage"]["completion_tokens"] == 5
    assert answer["choices"][0]["finish_reason"] == "length"


def test_a_stop_token_is_not_text_and_has_the_last_entry(
    shared_fake: FakeEngine, shared_server: LiveServer
) -> None:
    shared_fake.model.script = b"abc"
    answer = complete(shared_server, fake_request(logprobs=1))
    choice = answer["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == ("abc", "stop")
    assert choice["logprobs"]["tokens"] == ["a", "b", "c", "<|end|>"]
    assert choice["logprobs"]["text_offset"] == [5, 6, 7, 8]
    assert answer["usage"]["completion_tokens"] == 4, "the stop token was sampled too"


def test_stop_token_ids_add_to_the_models_own(
    shared_fake: FakeEngine, shared_server: LiveServer
) -> None:
    shared_fake.model.script = b"abcdef"
    assert text_of(complete(shared_server, fake_request(stop_token_ids=[ord("c")]))) == "ab"
    assert text_of(complete(shared_server, fake_request(stop_token_ids=[ord("z")]))) == "abcdef"


def test_ignore_eos_goes_on_to_the_limit(
    shared_fake: FakeEngine, shared_server: LiveServer
) -> None:
    shared_fake.model.script = b"abc"
    body = fake_request(ignore_eos=True, max_tokens=6, logprobs=0)
    answer = complete(shared_server, body)
    choice = answer["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == ("abc", "length")
    assert choice["logprobs"]["tokens"] == ["a", "b", "c", *["<|end|>"] * 3]
    assert choice["logprobs"]["text_offset"] == [5, 6, 7, 8, 8, 8]
    text, lists, _ = joined(stream(shared_server, body))
    assert (text, lists) == ("abc", choice["logprobs"])


def test_characters_and_stop_strings_are_never_cut(
    shared_fake: FakeEngine, shared_server: LiveServer
) -> None:
    shared_fake.model.script = "Käse 🧀 STOP behind".encode()
    chunks = stream(shared_server, fake_request(stop="STOP", max_tokens=40, logprobs=0))
    text, lists, reason = joined(chunks)
    assert (text, reason) == ("Käse 🧀 ", "stop")
    assert lists is not None
    assert lists["tokens"][:4] == ["K", "bytes:\\xc3", "bytes:\\xa4", "s"]
    assert lists["text_offset"][:4] == [5, 6, 6, 7]
    assert lists["tokens"][-4:] == [*"STOP"], "what ended the text comes last"
    assert lists["text_offset"][-4:] == [12, 13, 14, 15]
    for choice in (chunk["choices"][0] for chunk in chunks):
        assert "\ufffd" not in choice["text"]
        assert choice["logprobs"]["tokens"], "each chunk brings its own tokens"


def test_an_unknown_field_is_reported_once_and_never_dropped(shared_server: LiveServer) -> None:
    body = fake_request(
        max_tokens=3, adaptive_p=0.5, metadata={"a": "b"}, user="me", store=False, best_of=1,
        echo=False, suffix=None, service_tier="auto", safety_identifier="x", prompt_cache_key="y",
    )  # fmt: skip
    expected = [
        {
            "param": "adaptive_p",
            "action": "ignored",
            "message": "this server does not know the field; it had no effect",
        }
    ]
    assert complete(shared_server, body)["warnings"] == expected
    body["stream_options"] = {"flush": True}
    first, *others = stream(shared_server, body)
    assert [w["param"] for w in first["warnings"]] == [
        "adaptive_p",
        "stream_options.flush",
    ]
    assert not any("warnings" in chunk for chunk in others)


def test_null_means_the_models_default(shared_fake: FakeEngine, shared_server: LiveServer) -> None:
    nulls = dict.fromkeys(
        ("temperature", "top_p", "n", "stop", "seed", "logit_bias", "frequency_penalty", "top_k",
         "presence_penalty", "stream", "stream_options", "user", "min_p", "repetition_penalty",
         "stop_token_ids", "ignore_eos", "logprobs", "best_of", "echo")
    )  # fmt: skip
    answer = complete(shared_server, fake_request(**nulls))
    assert text_of(answer) == fake_reply("hello", 16)
    assert "warnings" not in answer


def test_long_prompts_and_short_ones_are_encoded_alike() -> None:
    fake = FakeEngine(max_seq_len=20_000)
    prompt = "long prompt " * 1000
    with live_server(fake.as_engine) as server:
        assert text_of(complete(server, fake_request(prompt=prompt))) == fake_reply(prompt, 16)


def record(token_bytes: bytes, logprob: float, *top: tuple[bytes, float]) -> TokenRecord:
    tops = tuple(TopToken(i, name, value, 0.0, 0.0) for i, (name, value) in enumerate(top))
    return TokenRecord(
        token_id=1,
        token_bytes=token_bytes,
        text_start=0,
        text_end=len(token_bytes),
        logprob=logprob,
        p_raw=0.0,
        p_sampled=0.0,
        top=tops,
        is_special=False,
        rank=0,
        entropy=0.0,
        margin=0.0,
        kept_mass=1.0,
        origin="model",
        proposed=None,
        trace=(),
    )


def test_minus_infinity_is_written_as_a_number() -> None:
    impossible = record(b"x", -math.inf, (b"y", -math.inf))
    fake = FakeEngine().tokenizer
    lists = legacy_logprobs([impossible], [0], TokenNames(fake), n_top=1)
    assert lists["top_logprobs"] == [{"y": -9999.0, "x": -9999.0}]
    (entry,) = chat_entries([impossible], TokenNames(fake))
    assert entry["logprob"] == entry["top_logprobs"][0]["logprob"] == -9999.0


def test_of_two_tokens_with_one_name_the_likelier_keeps_it() -> None:
    twins = record(b"x", -3.0, (b"x", -0.5), (b"x", -3.0))
    names = TokenNames(FakeEngine().tokenizer)
    assert legacy_logprobs([twins], [0], names, n_top=2)["top_logprobs"] == [{"x": -0.5}]
