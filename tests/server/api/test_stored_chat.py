"""Stored chat completions through the official clients, in Python and in Node."""

from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from engine import Engine
from tests.support.client_process import run_node
from tests.support.live_server import LiveServer, live_server

pytestmark = pytest.mark.clients

MODEL = "soliton-default"
MESSAGES: list[ChatCompletionMessageParam] = [
    {"role": "developer", "content": "Tell short stories."},
    {"role": "user", "content": [{"type": "text", "text": "A story about a frog, please."}]},
]


@pytest.fixture
def server(bundled_engine: Engine) -> Iterator[LiveServer]:
    with live_server(bundled_engine) as server:
        yield server


@pytest.fixture
def client(server: LiveServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="-", max_retries=0) as client:
        yield client


def ask(client: openai.OpenAI, **metadata: str) -> Any:
    return client.chat.completions.create(
        model=MODEL, messages=MESSAGES, max_completion_tokens=8, store=True, metadata=metadata
    )


def test_a_reply_is_retrieved_as_it_was(client: openai.OpenAI) -> None:
    told = ask(client, topic="frogs")
    stored = client.chat.completions.retrieve(told.id)
    assert stored.choices == told.choices
    assert stored.usage == told.usage
    assert stored.to_dict()["metadata"] == {"topic": "frogs"}


def test_a_streamed_reply_is_stored_as_a_whole(client: openai.OpenAI) -> None:
    chunks = list(
        client.chat.completions.create(
            model=MODEL, messages=MESSAGES, max_completion_tokens=8, store=True, stream=True
        )
    )
    stored = client.chat.completions.retrieve(chunks[0].id)
    content = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert stored.choices[0].message.content == content
    assert stored.object == "chat.completion"


def test_replies_are_listed_in_pages_and_found_by_metadata(client: openai.OpenAI) -> None:
    told = [ask(client, number=str(i), parity=str(i % 2)) for i in range(5)]
    client.completions.create(model=MODEL, prompt="x", extra_body={"store": True})
    assert {one.id for one in client.chat.completions.list(limit=2)} == {one.id for one in told}
    odd = client.chat.completions.list(metadata={"parity": "1"})
    assert {one.id for one in odd} == {told[1].id, told[3].id}
    assert not list(client.chat.completions.list(model="another"))


def test_the_messages_are_those_that_were_sent(client: openai.OpenAI) -> None:
    told = ask(client)
    messages = list(client.chat.completions.messages.list(told.id))
    assert [message.id for message in messages] == [f"{told.id}-0", f"{told.id}-1"]
    assert messages[0].content == "Tell short stories."
    [part] = messages[1].content_parts or []
    assert part.type == "text"
    assert part.text == "A story about a frog, please."


def test_metadata_is_replaced_and_a_reply_deleted(client: openai.OpenAI) -> None:
    told = ask(client, topic="frogs")
    updated = client.chat.completions.update(told.id, metadata={"kind": "story"})
    assert updated.to_dict()["metadata"] == {"kind": "story"}
    assert client.chat.completions.delete(told.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.retrieve(told.id)
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.delete(told.id)


def test_what_was_not_stored_is_not_found(client: openai.OpenAI) -> None:
    told = client.chat.completions.create(model=MODEL, messages=MESSAGES, max_completion_tokens=2)
    with pytest.raises(openai.NotFoundError) as error:
        client.chat.completions.retrieve(told.id)
    assert error.value.code == "stream_not_found"


def test_the_node_client_does_all_of_it(server: LiveServer) -> None:
    seen = run_node("stored", server)
    assert seen["retrieved"] == seen["told"]
    assert seen["listed"] == [seen["id"]]
    assert seen["messages"] == [["user", "A story about a frog, please."]]
    assert seen["updated"] == {"kind": "story"}
    assert seen["deleted"] is True
    assert seen["after"] == ["NotFoundError", 404]
    whole = seen["whole"]
    assert seen["streamed"] == whole, "what the client does not know passes through it"
    before, after = (whole["healed"][name]["text"] for name in ("before", "after"))
    assert after.startswith(before)
    suppressed = [each["text"].lower() for each in whole["suppressed"]]
    assert all("the" in text or "was" in text for text in suppressed)
    assert {*whole["suppressed"][0]} == {"text", "n_tokens", "n_kept"}
    assert seen["chatStreamed"] == seen["chat"]
    assert seen["chat"]
