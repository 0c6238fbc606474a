"""Whatever goes wrong in a request, at any point: this request says so, and no other notices."""

import http.client
import itertools
import math
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from server.answer.chunks import ChoicesAnswer, Chunks
from server.stream.jobs import Event
from tests.support.event_stream import ParsedStream, parse_event_stream
from tests.support.fake_engine import CHUNK, FakeEngine, fake_reply
from tests.support.fault_script import Hang, Point, Sleep, Spoil
from tests.support.live_server import Answer, LiveServer, live_server, read_answer, wait_until

PATH = "/v1/chat/completions"
N_TOKENS = 12
N_CHUNKS = 5


class Panic(BaseException):
    """Not an Exception: a library in Rust raises this kind when it fails."""


ERRORS = (RuntimeError, MemoryError, Panic, SystemExit, KeyboardInterrupt)
PLACES: list[tuple[Point, int]] = [
    ("render", 0),
    ("tokenize", 0),
    ("admit", 0),
    ("chunk", 0),
    ("chunk", N_CHUNKS - 1),
    ("token", 0),
    ("token", 1),
    ("token", N_TOKENS - 1),
    ("detokenize", 0),
    ("detokenize", 9),
    ("cleanup", 0),
]


@pytest.fixture(scope="module")
def fake() -> FakeEngine:
    return FakeEngine()


@pytest.fixture(scope="module")
def server(fake: FakeEngine) -> Iterator[LiveServer]:
    with live_server(fake.as_engine, wrapped=fake.faults.sending) as server:
        yield server
    assert fake.model.n_inside_max <= 1, "two callers were inside the engine at once"


class Question:
    """A prompt that was not used before, of N_CHUNKS chunks, and its only right answer."""

    _numbers = itertools.count(100)

    def __init__(self) -> None:
        head = f"user: {next(self._numbers)} ".ljust(CHUNK * N_CHUNKS - CHUNK // 2, "?")
        self._prompt = f"{head}\nassistant: "
        self._content = head.removeprefix("user: ")

    def body(self, **fields: Any) -> dict[str, Any]:
        return {
            "model": "fake", "messages": [{"role": "user", "content": self._content}],
            "max_tokens": N_TOKENS, "logprobs": True, **fields,
        }  # fmt: skip

    def reply(self, n_tokens: int = N_TOKENS) -> str:
        return fake_reply(self._prompt, n_tokens)

    def error_of(self, answer: Answer) -> dict[str, Any]:
        """A status, or the last event; everything before it is exact."""
        if answer.headers["content-type"] == "application/json":
            assert answer.status >= 500
            return answer.error
        assert answer.status == 200
        parsed = parse_event_stream(answer.body)
        assert "[DONE]" not in parsed.data, "a stream that failed must not look complete"
        assert self.reply().startswith(text_of(parsed))
        *before, last = parsed.chunks
        assert before, "an error before the first event is a status"
        assert not any("error" in chunk for chunk in before)
        error: dict[str, Any] = last["error"]
        return error


def text_of(parsed: ParsedStream) -> str:
    deltas = [chunk["choices"][0]["delta"] for chunk in parsed.chunks if "choices" in chunk]
    return "".join(delta.get("content") or "" for delta in deltas)


def assert_next_is_exact(server: LiveServer, question: Question) -> None:
    for asked, stream in ((question, False), (Question(), True)):
        answer = server.post(PATH, asked.body(stream=stream))
        assert answer.status == 200, answer.body
        if stream:
            parsed = parse_event_stream(answer.body)
            assert parsed.data[-1] == "[DONE]"
            text = text_of(parsed)
        else:
            text = answer.json["choices"][0]["message"]["content"]
        assert text == asked.reply()
    assert server.get("/health/ready").status == 200


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("place", PLACES, ids=str)
def test_an_exception_anywhere_fails_one_request_only(
    fake: FakeEngine,
    server: LiveServer,
    place: tuple[Point, int],
    error: type[BaseException],
    stream: bool,
) -> None:
    fake.faults[place] = error("secret path /srv/x")
    question = Question()
    answer = server.post(PATH, question.body(stream=stream))
    assert fake.faults.is_over, "the point was not passed"
    code = question.error_of(answer)["code"]
    own = ("engine_error", "internal_error")
    assert code == "out_of_memory" if error is MemoryError else code in own
    assert b"secret" not in answer.body
    assert_next_is_exact(server, question)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("error", ERRORS)
def test_an_answer_that_cannot_be_written_fails_alone(
    fake: FakeEngine,
    server: LiveServer,
    monkeypatch: pytest.MonkeyPatch,
    error: type[BaseException],
    stream: bool,
) -> None:
    encoder, hang = ChoicesAnswer.encoder, Hang()

    def failing(self: ChoicesAnswer) -> Chunks:
        chunks = encoder(self)
        encode = chunks.frames
        calls = itertools.count()

        def encode_once(events: Sequence[Event]) -> bytes:
            if next(calls):
                raise error("secret")
            hang.release()
            return encode(events)

        monkeypatch.setattr(chunks, "frames", encode_once)
        return chunks

    def failing_whole(self: ChoicesAnswer, *_: object) -> bytes:
        raise error("secret")

    question = Question()
    if stream:
        fake.faults["token", 3] = hang  # so that there are two batches
    monkeypatch.setattr(ChoicesAnswer, "encoder", failing)
    monkeypatch.setattr(ChoicesAnswer, "whole", failing_whole)
    answer = server.post(PATH, question.body(stream=stream))
    monkeypatch.undo()
    question.error_of(answer)
    assert b"secret" not in answer.body
    assert_next_is_exact(server, question)


@pytest.mark.parametrize("error", ERRORS)
def test_an_answer_that_cannot_begin_frees_the_engine(
    fake: FakeEngine,
    server: LiveServer,
    monkeypatch: pytest.MonkeyPatch,
    error: type[BaseException],
) -> None:
    def failing(self: ChoicesAnswer) -> Chunks:
        raise error("secret")

    monkeypatch.setattr(ChoicesAnswer, "encoder", failing)
    monkeypatch.setattr(fake.model, "token_time", 0.5)
    answer = server.post(PATH, {**Question().body(stream=True), "max_tokens": 200})
    assert answer.status == (503 if error is MemoryError else 500)
    wait_until(lambda: not server.lease.busy)  # to its end it would take 100 s
    monkeypatch.undo()
    assert_next_is_exact(server, Question())


@pytest.mark.parametrize("place", [("tokenize", 0), ("token", 1)], ids=str)
def test_no_memory_is_a_refusal_that_may_be_repeated(
    fake: FakeEngine, server: LiveServer, place: tuple[Point, int]
) -> None:
    fake.faults[place] = MemoryError("16 GiB")
    question = Question()
    answer = server.post(PATH, question.body())
    assert (answer.status, answer.error["code"]) == (503, "out_of_memory")
    assert answer.headers["retry-after"]
    assert b"GiB" not in answer.body


@pytest.mark.parametrize("number", [0, 3])
def test_an_answer_that_cannot_be_sent_is_cut_and_never_complete(
    fake: FakeEngine, server: LiveServer, number: int
) -> None:
    fake.faults["send", number] = OSError("no route")
    question = Question()
    fake.model.token_time = 0.005  # so that the tokens come one by one
    with pytest.raises(http.client.IncompleteRead) as cut:
        server.post(PATH, question.body(stream=True))
    fake.model.token_time = 0.0
    assert fake.faults.is_over
    assert b"[DONE]" not in cut.value.partial
    assert_next_is_exact(server, question)


@pytest.mark.parametrize("place", [("chunk", 1), ("token", 2), ("cleanup", 0)], ids=str)
def test_requests_waiting_during_a_hang_are_served_exactly_when_it_ends(
    fake: FakeEngine, server: LiveServer, place: tuple[Point, int]
) -> None:
    hang = fake.faults[place] = Hang()
    question, waiting = Question(), Question()
    with (
        server.send(PATH, question.body(stream=True)) as hung,
        server.send(PATH, waiting.body()) as waiter,
    ):
        assert hang.begun.wait(20)
        assert server.get("/health/live").status == 200, "nothing but the engine hangs"
        hung.close()
        fake.faults["token", 3] = Sleep(0.01)
        hang.release()
        answer = read_answer(waiter)
        assert answer.json["choices"][0]["message"]["content"] == waiting.reply()
    assert_next_is_exact(server, question)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("number", [0, 1, 7])
@pytest.mark.parametrize(
    "spoil",
    [Spoil(math.nan), Spoil(math.inf), Spoil(math.nan, all=True), Spoil(-math.inf, all=True)],
    ids=str,
)
def test_logits_that_are_not_numbers_end_the_stream_before_their_token(
    fake: FakeEngine, server: LiveServer, spoil: Spoil, number: int, stream: bool
) -> None:
    fake.faults[number] = spoil
    question = Question()
    answer = server.post(PATH, question.body(stream=stream))
    assert question.error_of(answer)["code"] == "engine_numerics"
    if stream and number:
        text = text_of(parse_event_stream(answer.body))
        assert text == question.reply(number), "everything before the fault, and nothing after it"
    assert_next_is_exact(server, question)


def test_a_clock_that_jumps_ends_nothing_and_measures_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake, now = FakeEngine(), time.time
    fake.model.token_time = 0.01
    jumps = itertools.cycle((0.0, 86_400.0, -86_400.0, 1.0, -1.0))
    limits: dict[str, Any] = {"queue_timeout": 60, "first_token_timeout": 60, "request_timeout": 60}
    with live_server(fake.as_engine, send_timeout=60, ping_interval=60, **limits) as server:
        monkeypatch.setattr(time, "time", lambda: now() + next(jumps))
        questions = [Question() for _ in range(3)]
        socks = [server.send(PATH, each.body(stream=True)) for each in questions]
        for question, sock in zip(questions, socks, strict=True):
            with sock:
                answer = read_answer(sock)
            parsed = parse_event_stream(answer.body)
            assert text_of(parsed) == question.reply()
            assert parsed.data[-1] == "[DONE]"
            assert not parsed.comments
            assert 0 <= int(answer.headers["openai-processing-ms"]) < 60_000
        metrics = server.get("/metrics").body.decode()
        monkeypatch.undo()
    sums = [line for line in metrics.splitlines() if "_seconds_sum" in line]
    assert len(sums) > 3
    assert all(0 <= float(line.split()[-1]) < 100 for line in sums)
