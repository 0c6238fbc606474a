"""The official Python client, as its users use it, against a live server."""

from collections.abc import AsyncIterator, Iterator

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from engine import Engine
from tests.support.fake_engine import FakeEngine, fake_reply
from tests.support.live_server import LiveServer, live_server, wait_until

pytestmark = pytest.mark.clients

MODEL = "soliton-default"
PROMPT = "Once upon a time"
MESSAGES: list[ChatCompletionMessageParam] = [
    {"role": "developer", "content": "Tell short stories."},
    {"role": "user", "content": "A story about a frog, please."},
]


@pytest.fixture(scope="module")
def server(bundled_engine: Engine) -> Iterator[LiveServer]:
    with live_server(bundled_engine, api_keys=("key",)) as server:
        yield server


@pytest.fixture
def client(server: LiveServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="key", max_retries=0) as client:
        yield client


@pytest.fixture
async def async_client(server: LiveServer) -> AsyncIterator[openai.AsyncOpenAI]:
    url = f"{server.url}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key="key", max_retries=0) as client:
        yield client


def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    model = client.models.retrieve(MODEL)
    assert (model.id, model.object, model.owned_by) == (MODEL, "model", "soliton")


def test_completion_whole_and_streamed(client: openai.OpenAI) -> None:
    whole = client.completions.create(
        model=MODEL, prompt=PROMPT, max_tokens=24, temperature=0, logprobs=2, seed=1
    )
    chunks = list(
        client.completions.create(
            model=MODEL, prompt=PROMPT, max_tokens=24, temperature=0, logprobs=2, seed=1,
            stream=True, stream_options={"include_usage": True},
        )
    )  # fmt: skip
    assert "".join(c.choices[0].text for c in chunks if c.choices) == whole.choices[0].text
    assert whole.choices[0].logprobs
    tokens = [
        token
        for chunk in chunks
        if chunk.choices and chunk.choices[0].logprobs
        for token in chunk.choices[0].logprobs.tokens or []
    ]
    assert tokens == whole.choices[0].logprobs.tokens
    assert whole.usage
    assert chunks[-1].usage
    assert chunks[-1].usage.total_tokens == whole.usage.total_tokens
    assert whole.system_fingerprint == chunks[0].system_fingerprint


def test_chat_whole_and_streamed(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(
        model=MODEL, messages=MESSAGES, max_completion_tokens=24, temperature=0,
        logprobs=True, top_logprobs=3,
    )  # fmt: skip
    chunks = list(
        client.chat.completions.create(
            model=MODEL, messages=MESSAGES, max_completion_tokens=24, temperature=0,
            logprobs=True, top_logprobs=3, stream=True, stream_options={"include_usage": True},
        )
    )  # fmt: skip
    content = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert content == whole.choices[0].message.content
    assert [c.choices[0].delta.role for c in chunks if c.choices].count("assistant") == 1
    entries = [
        entry
        for chunk in chunks
        if chunk.choices and chunk.choices[0].logprobs
        for entry in chunk.choices[0].logprobs.content or []
    ]
    assert whole.choices[0].logprobs
    assert entries == whole.choices[0].logprobs.content
    assert whole.usage
    assert whole.usage.prompt_tokens_details
    assert chunks[-1].usage
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


def test_the_stream_helper_puts_the_whole_answer_together(client: openai.OpenAI) -> None:
    # The helper rejects an answer that ends by its length, so this one ends with its first
    # sentence.
    whole = client.chat.completions.create(
        model=MODEL, messages=MESSAGES, temperature=0, logprobs=True, stop="."
    )
    with client.chat.completions.stream(
        model=MODEL, messages=MESSAGES, temperature=0, logprobs=True, stop=".",
        stream_options={"include_usage": True},
    ) as stream:  # fmt: skip
        deltas = [event.delta for event in stream if event.type == "content.delta"]
        final = stream.get_final_completion()
    choice = final.choices[0]
    assert "".join(deltas) == choice.message.content == whole.choices[0].message.content
    assert choice.message.role == "assistant", "the role came once"
    assert choice.finish_reason == whole.choices[0].finish_reason == "stop"
    assert choice.logprobs
    assert whole.choices[0].logprobs
    assert choice.logprobs.content == whole.choices[0].logprobs.content
    assert final.usage
    assert whole.usage
    assert final.usage.total_tokens == whole.usage.total_tokens


async def test_the_async_client_reads_the_same(async_client: openai.AsyncOpenAI) -> None:
    whole = await async_client.chat.completions.create(
        model=MODEL, messages=MESSAGES, temperature=0, stop="."
    )
    stream = await async_client.chat.completions.create(
        model=MODEL, messages=MESSAGES, temperature=0, stop=".", stream=True
    )
    pieces = [chunk.choices[0].delta.content or "" async for chunk in stream]
    assert "".join(pieces) == whole.choices[0].message.content
    async with async_client.chat.completions.stream(
        model=MODEL, messages=MESSAGES, temperature=0, stop="."
    ) as helper:
        final = await helper.get_final_completion()
    assert final.choices[0].message.content == whole.choices[0].message.content


def test_extensions_pass_through_extra_body(client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model=MODEL, prompt=PROMPT, max_tokens=12, extra_body={"ignore_eos": True, "adaptive_p": 1}
    )
    assert answer.usage
    assert answer.usage.completion_tokens == 12
    assert answer.model_extra
    assert [warning["param"] for warning in answer.model_extra["warnings"]] == ["adaptive_p"]


def test_the_request_id_reaches_the_client(client: openai.OpenAI) -> None:
    raw = client.completions.with_raw_response.create(model=MODEL, prompt=PROMPT, max_tokens=1)
    assert raw.request_id
    assert raw.request_id.startswith("req_")
    assert raw.parse()._request_id == raw.request_id


def test_errors_arrive_as_their_classes(client: openai.OpenAI, server: LiveServer) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        client.completions.create(model="none", prompt=PROMPT)
    assert (missing.value.code, missing.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.BadRequestError) as long:
        client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=10**6)
    assert long.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError) as wrong:
        client.completions.create(model=MODEL, prompt=PROMPT, n=0)
    assert wrong.value.param == "n"
    with pytest.raises(openai.AuthenticationError) as stranger:
        client.with_options(api_key="wrong").models.list()
    assert stranger.value.code == "invalid_api_key"
    assert stranger.value.request_id


def test_busy_and_broken_engines_raise_and_the_next_request_is_served() -> None:
    fake = FakeEngine()
    with (
        live_server(fake.as_engine, max_queue=0) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="-", max_retries=0) as client,
    ):
        fake.model.decode_gate.clear()
        with server.send("/v1/completions", {"model": "fake", "prompt": "x"}):
            wait_until(fake.model.in_decode.is_set)
            with pytest.raises(openai.RateLimitError) as busy:
                client.completions.create(model="fake", prompt="x")
            assert busy.value.code == "queue_full"
            fake.model.decode_gate.set()
            wait_until(lambda: not server.lease.busy)
        fake.model.faults[2] = RuntimeError("broken")
        stream = client.completions.create(model="fake", prompt="x", stream=True)
        pieces: list[str] = []
        with pytest.raises(openai.APIError) as broken:
            pieces.extend(chunk.choices[0].text for chunk in stream)
        assert broken.value.code == "engine_error"
        # The client may know the end before the engine is free, and nothing may wait here.
        wait_until(lambda: not server.lease.busy)
        fake.model.faults[0] = RuntimeError("broken")
        with pytest.raises(openai.InternalServerError):
            client.completions.create(model="fake", prompt="x", stream=True)
        wait_until(lambda: not server.lease.busy)
        answer = client.completions.create(model="fake", prompt="x")
        assert answer.choices[0].text == fake_reply("x", 16)


def test_a_retried_request_is_served_when_there_is_room_again() -> None:
    fake = FakeEngine()
    with (
        live_server(fake.as_engine, max_queue=0) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="-", max_retries=4) as client,
    ):
        fake.model.token_time = 0.05
        with server.send("/v1/completions", {"model": "fake", "prompt": "x", "max_tokens": 8}):
            wait_until(fake.model.in_decode.is_set)
            answer = client.completions.create(model="fake", prompt="y", max_tokens=2)
        assert answer.choices[0].text == fake_reply("y", 2)


def test_a_client_that_breaks_off_frees_the_engine() -> None:
    fake = FakeEngine()
    with (
        live_server(fake.as_engine) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="-", max_retries=0) as client,
    ):
        fake.model.token_time = 0.01
        with client.completions.create(
            model="fake", prompt="x", max_tokens=500, stream=True
        ) as stream:
            next(iter(stream))
        wait_until(lambda: not server.lease.busy)
        assert fake.model.n_decoded < 500
