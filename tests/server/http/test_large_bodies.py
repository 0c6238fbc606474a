"""Large bodies: counted before they are read, read in a thread, one at a time, and their memory
given back.
"""

import asyncio
import gc
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from server.answer.sse import encode_json, encode_long_json
from server.api.chat import messages as chat_messages
from server.api.chat import turn as chat_turn
from server.api.chat.variables import MAX_UNUSED
from server.http import body_size
from server.http.body_size import MAX_CONTAINERS, MAX_DIGITS, MAX_NAMES, MAX_VALUES, excess
from server.http.large_bodies import HUGE_BODY, LARGE_BODY, LargeBodies
from server.request.options import MAX_CUT_CHARACTERS
from server.schema.chat import ChatCompletionRequest
from server.schema.completions import CompletionRequest
from server.schema.messages import MAX_MESSAGES
from server.schema.tokens import DetokenizeRequest
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import Answer, LiveServer, live_server, wait_until

ROOT = Path(__file__).parents[3]
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
CONTEXT = 140_000


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with live_server(FakeEngine(max_seq_len=CONTEXT).as_engine) as server:
        yield server


@pytest.fixture(scope="module")
def template_server(bundled_engine: Any) -> Iterator[LiveServer]:
    with live_server(bundled_engine) as server:
        yield server


def completion(prompt: str, **fields: Any) -> bytes:
    """A body with this JSON text as its prompt."""
    head = json.dumps({"model": "fake", "max_tokens": 1, **fields})[:-1]
    return f'{head},"prompt":{prompt}}}'.encode()


def assert_too_many(answer: Answer, words: str) -> None:
    assert answer.status == 400
    assert answer.error["code"] == "too_many_values"
    assert words in answer.error["message"], answer.error


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        (f"[{','.join(['0.5'] * 1_900_000)}]", "300,000 values"),
        (f"[{','.join(['[1]'] * 1_200_000)}]", "65,536 lists and objects"),
        ("[" * 4_000_000, "65,536 lists and objects"),
        ("{" + ",".join(f'"k{i}":0' for i in range(40_000)) + "}", "32,768 field names"),
        (f"[{','.join(['9' * 4300] * 100)}]", "128 digits"),
    ],
    ids=["floats", "lists", "brackets", "names", "digits"],
)
def test_a_body_of_too_much_is_refused_before_it_is_read(
    server: LiveServer, prompt: str, words: str
) -> None:
    """It is not JSON either: reading it would end with another error."""
    assert_too_many(server.post(COMPLETIONS, completion(prompt)[:-1]), words)


def test_what_is_in_a_string_does_not_count(server: LiveServer) -> None:
    text = json.dumps(',[{:\\"' * 60_000 + "9" * 1000)
    answer = server.post("/tokenize", f'{{"prompt":{text}}}'.encode())
    assert answer.status == 200
    assert answer.json["count"] == 60_000 * 6 + 1000


@pytest.mark.parametrize("piece_bytes", [1, 2, 3, 7, 64])
def test_pieces_end_anywhere(monkeypatch: pytest.MonkeyPatch, piece_bytes: int) -> None:
    monkeypatch.setattr(body_size, "_PIECE_BYTES", piece_bytes)
    for text in (r'["a\\",1]', r'["\"[[[",{"k,":"\\\""}]', r'{"a":["",""],"b":"\\\\"}'):
        n_values = 1 + counted(text)
        monkeypatch.setattr(body_size, "MAX_VALUES", n_values)
        assert excess(text.encode()) is None, text
        monkeypatch.setattr(body_size, "MAX_VALUES", n_values - 1)
        assert excess(text.encode()) is not None, text
    monkeypatch.setattr(body_size, "MAX_VALUES", 1)
    for unfinished in ('"', '"\\', '"[[[', '"\\"[,'):
        assert excess(unfinished.encode()) is None, unfinished


def counted(text: str) -> int:
    """Commas and opening brackets, derived from the parsed value."""

    def of(value: Any) -> int:
        if not isinstance(value, list | dict):
            return 0
        inside = value if isinstance(value, list) else value.values()
        return max(1, len(value)) + sum(map(of, inside))

    return of(json.loads(text))


def test_the_limits_themselves_are_allowed() -> None:
    assert excess(b"[" + b",".join([b"1"] * (MAX_VALUES - 1)) + b"]") is None
    assert excess(b"[" + b",".join([b"1"] * MAX_VALUES) + b"]") is not None
    lists = [b"[]"] * MAX_CONTAINERS
    assert excess(b"[" + b",".join(lists[1:]) + b"]") is None
    assert excess(b"[" + b",".join(lists) + b"]") is not None
    names = [b'"k%d":0' % i for i in range(MAX_NAMES)]
    assert excess(b"{" + b",".join(names) + b"}") is None
    assert excess(b"9" * MAX_DIGITS) is None
    assert excess(b"9" * (MAX_DIGITS + 1)) is not None


def test_large_prompts_go_on_working(server: LiveServer) -> None:
    ids = json.dumps([7] * 131_072)
    answer = server.post(COMPLETIONS, completion(ids))
    assert answer.status == 200, answer.body
    assert answer.json["usage"]["prompt_tokens"] == 131_072
    text = json.dumps("x" * 131_072)
    assert server.post(COMPLETIONS, completion(text)).status == 200
    decoded = server.post("/detokenize", {"tokens": [65] * 262_144})
    assert decoded.json["content"] == "A" * 262_144
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}] * 3000
    messages += messages[:1]
    answer = server.post(CHAT, {"model": "fake", "messages": messages, "max_tokens": 1})
    assert answer.status == 200, answer.body


def test_a_text_of_megabytes_is_refused_for_its_length_alone(template_server: LiveServer) -> None:
    body = {
        "model": template_server.get("/v1/models").json["data"][0]["id"],
        "prompt": "x, " * 10**6,
    }
    answer = template_server.post(COMPLETIONS, body)
    assert (answer.status, answer.error["code"]) == (400, "context_length_exceeded")


WRONG: list[tuple[type[BaseModel], str, Any]] = [
    (ChatCompletionRequest, "messages", [{"role": 1}] * 9),
    (ChatCompletionRequest, "messages", [5] * 9),
    (ChatCompletionRequest, "documents", [5] * 9),
    (ChatCompletionRequest, "messages", [{"role": "assistant", "tool_calls": [{}] * 9}]),
    (CompletionRequest, "prompt", [0.5] * 9),
    (CompletionRequest, "prompt", [[1]] * 2000),
    (CompletionRequest, "stop_token_ids", ["x"] * 9),
    (CompletionRequest, "guided_choice", [5] * 9),
    (CompletionRequest, "dry_sequence_breakers", [5] * 9),
    (CompletionRequest, "logit_bias", dict.fromkeys(map(str, range(5000)), "x")),
    (DetokenizeRequest, "tokens", ["x"] * 9),
]


@pytest.mark.parametrize(("model", "field", "value"), WRONG)
def test_a_list_of_wrong_items_is_one_error(
    model: type[BaseModel], field: str, value: list[Any]
) -> None:
    fields = {"model": "m", "prompt": "x", "messages": [{"role": "user", "content": "x"}]}
    if model is DetokenizeRequest:
        fields = {}
    with pytest.raises(ValidationError) as raised:
        model.model_validate({**fields, field: value})
    # At most the errors of an object's own fields.
    assert raised.value.error_count() <= 3
    assert raised.value.errors()[0]["loc"][0] == field


def test_too_many_messages_are_refused(server: LiveServer) -> None:
    body = b'{"model":"fake","messages":[%b]}' % b",".join([b"{}"] * 20_000)
    answer = server.post(CHAT, body)
    assert (answer.status, answer.error["param"]) == (400, "messages[0].role")
    wide = b",".join([b'{"role":"user"}'] * (MAX_MESSAGES + 1))
    answer = server.post(CHAT, b'{"model":"fake","messages":[%b]}' % wide)
    assert (answer.status, answer.error["param"]) == (400, "messages")
    assert f"{MAX_MESSAGES}" in answer.error["message"]


def test_a_wrong_large_body_is_answered_as_a_small_one_is(server: LiveServer) -> None:
    wrongs: tuple[dict[str, Any], ...] = ({"temperature": "x"}, {"stop": [""]}, {"messages": []})
    for wrong in wrongs:
        fields = {"model": "fake", "messages": [{"role": "user", "content": "x"}], **wrong}
        small = server.post(CHAT, fields)
        large = server.post(CHAT, {**fields, "user": "x" * LARGE_BODY})
        assert (small.status, small.body) == (large.status, large.body)
    for text in ("nothing", '{"a":1,"a":2}', "\xff", '{"a":"'):
        data = text.encode("latin-1")
        small, large = server.post(CHAT, data), server.post(CHAT, data + b" " * LARGE_BODY)
        assert (small.status, small.error["code"]) == (large.status, large.error["code"])
    large = server.post(CHAT, b"[" * LARGE_BODY)
    assert (large.status, large.error["code"]) == (400, "invalid_json")
    plain = server.request("POST", CHAT, b"x" * LARGE_BODY, {"content-type": "text/plain"})
    assert plain.status == 415


def test_large_bodies_are_read_in_a_thread_one_at_a_time(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four at once: never two at a time, none on the event loop; a small one is read there."""
    within: list[int] = []
    threads: list[str] = []
    n_within = 0
    lock = threading.Lock()
    work, validate = LargeBodies.work, CompletionRequest.model_validate

    async def watched(bodies: LargeBodies, call: Callable[[], Any], n_bytes: int) -> Any:
        def noted() -> Any:
            nonlocal n_within
            with lock:
                n_within += 1
                within.append(n_within)
            try:
                return call()
            finally:
                with lock:
                    n_within -= 1

        return await work(bodies, noted, n_bytes)

    def read(value: Any) -> CompletionRequest:
        threads.append(threading.current_thread().name)
        assert n_within == 1
        return validate(value)

    monkeypatch.setattr(LargeBodies, "work", watched)
    monkeypatch.setattr(CompletionRequest, "model_validate", read)
    body = completion(json.dumps("x"), user="x" * HUGE_BODY)
    with ThreadPoolExecutor(4) as pool:
        answers = [*pool.map(lambda _: server.post(COMPLETIONS, body), range(4))]
    assert [answer.status for answer in answers] == [200] * 4
    assert set(within) == {1}
    assert len(threads) == 4
    assert all(name.startswith("AnyIO worker") for name in threads), threads
    assert server.post(COMPLETIONS, completion('"x"')).status == 200
    assert len(threads) == 4


def test_many_messages_are_rendered_in_a_thread(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []
    made = chat_messages.template_messages

    def watched(messages: Any) -> Any:
        threads.append(threading.current_thread().name)
        return made(messages)

    monkeypatch.setattr(chat_turn, "template_messages", watched)
    for n in (1, 500):
        messages = [{"role": "user", "content": ""}] * n
        server.post(CHAT, {"model": "fake", "messages": messages, "max_tokens": 1})
    on_loop, beside = threads
    assert not on_loop.startswith("AnyIO worker")
    assert beside.startswith("AnyIO worker")


def test_memory_is_given_back_after_a_large_body() -> None:
    with live_server(FakeEngine().as_engine) as server:
        bodies: LargeBodies = server.app.state.large_bodies
        server.post(COMPLETIONS, completion("[" * LARGE_BODY))  # refused, and still large
        wait_until(lambda: bodies.n_trimmed)


async def test_memory_is_given_back_for_large_bodies_only_and_once_for_many() -> None:
    bodies, n_tasks = LargeBodies(), len(asyncio.all_tasks())
    bodies.done_with(LARGE_BODY - 1)
    assert len(asyncio.all_tasks()) == n_tasks
    for _ in range(3):
        bodies.done_with(LARGE_BODY)
    assert len(asyncio.all_tasks()) == n_tasks + 1
    (trimming,) = asyncio.all_tasks() - {asyncio.current_task()}
    await trimming
    assert bodies.n_trimmed == 1


async def test_threads_switch_more_often_during_the_work() -> None:
    bodies, usual = LargeBodies(), sys.getswitchinterval()
    both = [bodies.work(sys.getswitchinterval, n) for n in (LARGE_BODY, HUGE_BODY)]
    assert max(await asyncio.gather(*both)) < usual
    assert await bodies.work(sys.getswitchinterval, LARGE_BODY - 1) == usual


async def test_no_garbage_is_collected_during_the_work() -> None:
    gc.enable()  # an earlier test, of a command that failed at its start, leaves it off
    bodies = LargeBodies()
    both = [bodies.work(gc.isenabled, n) for n in (LARGE_BODY, HUGE_BODY)]
    assert await asyncio.gather(*both) == [False, False]
    assert gc.isenabled()


BLOCKS = """
import asyncio, threading
from server.http.large_bodies import LargeBodies

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

def take(*megabytes):
    blocks = [b"x" * (size << 20) for size in megabytes]
    del blocks

before = resident()
LargeBodies()
for sizes in ((24,), (16, 16)):
    thread = threading.Thread(target=take, args=sizes)
    thread.start()
    thread.join()
print(resident() - before)
"""


def test_large_blocks_of_a_thread_go_back_at_once() -> None:
    command = [sys.executable, "-c", BLOCKS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True)
    assert int(done.stdout) < 8 * 2**20


def test_few_unused_variables_are_warned_of_and_many_refused(template_server: LiveServer) -> None:
    model = template_server.get("/v1/models").json["data"][0]["id"]

    def ask(n: int) -> Answer:
        names = {f"unused_{i}": i for i in range(n)}
        fields = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}
        return template_server.post(CHAT, {"model": model, **fields, "chat_template_kwargs": names})

    assert len(ask(MAX_UNUSED).json["warnings"]) == MAX_UNUSED
    refused = ask(MAX_UNUSED + 1)
    assert (refused.status, refused.error["param"]) == (400, "chat_template_kwargs")
    assert len(refused.body) < 500


def test_a_text_that_is_truncated_from_the_left_has_a_limit(server: LiveServer) -> None:
    def ask(n: int) -> Answer:
        body = completion(json.dumps("x" * n), truncate_prompt_tokens=5)
        return server.post(COMPLETIONS, body)

    most = max(MAX_CUT_CHARACTERS, 8 * CONTEXT)
    assert ask(most).json["usage"]["prompt_tokens"] == 5
    refused = ask(most + 1)
    assert (refused.status, refused.error["param"]) == (400, "prompt")


def test_a_schema_that_is_text_is_counted_too(server: LiveServer) -> None:
    schema = json.dumps({"enum": [[]] * 200_000}, separators=(",", ":"))
    answer = server.post(COMPLETIONS, completion('"x"', guided_json=schema))
    assert_too_many(answer, "guided_json holds more than 65,536 lists and objects")


@pytest.mark.parametrize("n", [0, 1, 4096, 4097, 10_000])
def test_a_long_list_is_encoded_like_a_short_one(n: int) -> None:
    value = {"a": list(range(n)), "b": [{"id": 1, "piece": "é"}] * n, "c": None, "d": "x"}
    assert encode_long_json(value) == encode_json(value)
