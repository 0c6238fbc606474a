"""`suppressed` and `healed` in `include`: what happened on the way to a text."""

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from engine import DEFAULT_MODEL, Engine
from server.schema.chat import ChatCompletion, ChatCompletionChunk
from tests.support.chat_client import chunks
from tests.support.chat_client import whole as reply
from tests.support.completion_calls import complete, request, stream
from tests.support.live_server import LiveServer, live_server

BANNED = {"banned_strings": [" there", " a "], "temperature": 0, "max_tokens": 24}
INCLUDE = ["suppressed", "healed"]


@pytest.fixture(scope="module", params=["off", "ngram"])
def engine(request: pytest.FixtureRequest) -> Engine:
    return Engine.load(DEFAULT_MODEL, device="cpu", speculate=request.param)


@pytest.fixture(scope="module")
def server(engine: Engine) -> Iterator[LiveServer]:
    with live_server(engine) as server:
        yield server


def told(pieces: list[Any]) -> list[Any]:
    return [event for piece in pieces for event in piece.get("suppressed", [])]


@pytest.mark.parametrize("fields", [{}, {"logprobs": 0}, {"return_token_ids": True}, {"n": 2}])
def test_what_was_taken_back_is_told(
    server: LiveServer, engine: Engine, fields: dict[str, Any]
) -> None:
    body = request(**BANNED, **fields, include=INCLUDE)
    choices = complete(server, body)["choices"]
    pieces = [chunk["choices"][0] for chunk in stream(server, body)]
    for choice in choices:
        own = [piece for piece in pieces if piece["index"] == choice["index"]]
        assert told(own) == choice["suppressed"]
        assert "".join(piece["text"] for piece in own) == choice["text"]
        free = request(max_tokens=24)
        assert choice["suppressed"][0]["text"].startswith(" there")
        assert complete(server, free)["choices"][0]["text"].startswith(", there was a")
        for event in choice["suppressed"]:
            assert event["n_tokens"] >= 1
            assert any(banned in event["text"].lower() for banned in BANNED["banned_strings"])  # type: ignore[attr-defined]
        assert choice["suppressed"][0]["n_kept"] == 1, "the comma"
        assert "healed" not in choice


def test_without_a_ban_nothing_is_told(server: LiveServer) -> None:
    body = request(max_tokens=8, include=INCLUDE)
    for piece in [*complete(server, body)["choices"], *stream(server, body)[0]["choices"]]:
        assert "suppressed" not in piece
        assert "healed" not in piece
    plain = request(**BANNED)
    assert "suppressed" not in complete(server, plain)["choices"][0]


def test_a_reply_tells_it_too(server: LiveServer) -> None:
    body = {
        "messages": [{"role": "user", "content": "A story, please."}],
        "banned_strings": [" time"], "temperature": 0, "max_tokens": 20, "include": INCLUDE,
    }  # fmt: skip
    answer = reply(server, body)
    ChatCompletion.model_validate(answer)
    streamed = chunks(server, body)
    for chunk in streamed:
        ChatCompletionChunk.model_validate(chunk)
    pieces = [choice for chunk in streamed for choice in chunk["choices"]]
    assert told(pieces) == answer["choices"][0]["suppressed"] != []
    text = "".join(piece["delta"].get("content", "") for piece in pieces)
    assert text == answer["choices"][0]["message"]["content"]
    assert " time" not in text


@pytest.mark.parametrize(
    "fields", [{}, {"logprobs": 0}, {"banned_strings": [" upon"]}, {"stop": ["zz", "Once"]}]
)
def test_which_token_was_healed_is_told(
    server: LiveServer, engine: Engine, fields: dict[str, Any]
) -> None:
    prompt = engine.tokenizer.encode("Once up")
    body = request(
        prompt=prompt, token_healing=True, max_tokens=6, include=INCLUDE, return_token_ids=True,
        **fields,
    )  # fmt: skip
    choice = complete(server, body)["choices"][0]
    healed = choice["healed"]
    decode = engine.tokenizer.decode
    assert healed["before"] == {"token_id": prompt[-1], "text": decode(prompt[-1:])}
    assert healed["after"]["token_id"] == choice["token_ids"][0]
    assert healed["after"]["text"].startswith(healed["before"]["text"])
    pieces = [chunk["choices"][0] for chunk in stream(server, body)]
    with_it = [piece for piece in pieces if "healed" in piece]
    assert [piece["healed"] for piece in with_it] == [healed]
    assert with_it[0]["token_ids"][0] == healed["after"]["token_id"]


@pytest.mark.clients
def test_the_official_client_reads_both(server: LiveServer) -> None:
    fields = {"banned_strings": [" a "], "token_healing": True, "include": INCLUDE}
    body: dict[str, Any] = {"prompt": "Once up", "temperature": 0, "max_tokens": 24}
    body |= {"model": "soliton-default", "extra_body": fields}
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        whole: Any = client.completions.create(**body).choices[0]
        parts: list[Any] = [
            chunk.choices[0] for chunk in client.completions.create(**body, stream=True)
        ]
    assert whole.suppressed
    assert all(event["text"].startswith(" a") for event in whole.suppressed)
    assert "Once up".endswith(whole.healed["before"]["text"])
    assert told([part.model_extra for part in parts]) == whole.suppressed
    healed = [part.model_extra["healed"] for part in parts if "healed" in part.model_extra]
    assert healed == [whole.healed]
