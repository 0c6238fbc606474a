"""Keys and prompts stay where they are: not in the log, the metrics, or an error."""

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from server.commands.serve_options import settings_from
from server.commands.terminal import CommandError
from server.process.logs import LineFormatter
from tests.support.audited_server import AuditedServer, audited_server
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import Answer, LiveServer, live_server

KEY = "canary-key-4711"
WRONG = "canary-wrong-4712"
TEXT = "canary-prompt-4713"
CANARIES = (KEY.encode(), WRONG.encode(), TEXT.encode())
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"


@pytest.fixture(scope="module", params=["debug", "info"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, tiny_model: Path
) -> Iterator[AuditedServer]:
    """The higher levels say only part of what `info` says."""
    level = str(request.param)
    directory = tmp_path_factory.mktemp(level)
    env = {"SOLITON_API_KEYS": f"{KEY},another-key"}
    with audited_server(tiny_model, directory, "--log-level", level, env=env) as server:
        yield server


def right_requests() -> Iterator[tuple[str, dict[str, Any]]]:
    body = {"model": "tiny-llama", "max_tokens": 2}
    messages = [{"role": "user", "content": TEXT}]
    for stream in (False, True):
        yield COMPLETIONS, {**body, "prompt": TEXT, "user": TEXT, "stop": TEXT, "stream": stream}
        yield CHAT, {**body, "messages": messages, "stream": stream, "metadata": {"a": TEXT}}
    yield "/tokenize", {"prompt": TEXT}
    yield "/apply-template", {"messages": messages}


def wrong_requests() -> Iterator[tuple[str, Any]]:
    body = {"model": "tiny-llama", "max_tokens": 2, "prompt": TEXT}
    for wrong in (
        {"model": TEXT}, {"prompt": [TEXT, 1]}, {"prompt": {"a": TEXT}}, {"prompt": 900 * TEXT},
        {"max_tokens": TEXT}, {"temperature": TEXT}, {"stop": [TEXT, 1.5]}, {"stop": 65 * [TEXT]},
        {"seed": TEXT}, {"include": [TEXT]}, {"logit_bias": {"1": TEXT}}, {"stream": TEXT},
        {"response_format": {"type": TEXT}}, {"sampler_order": [TEXT]}, {"suffix": TEXT},
        {"prompt": "\ud800" + TEXT}, {"best_of": TEXT}, {"guided_json": TEXT}, {"tools": TEXT},
        {"stream_options": {"include_usage": TEXT}}, {"cache_salt": 300 * TEXT},
        {"banned_strings": [300 * TEXT]}, {"chat_template": TEXT}, {"prompt_embeds": TEXT},
    ):  # fmt: skip
        yield COMPLETIONS, {**body, **wrong}
    for messages in (
        TEXT, [TEXT], [{"role": TEXT, "content": TEXT}], [{"role": "user", "content": [TEXT]}],
        [{"role": "user", "content": [{"type": TEXT, "text": TEXT}]}],
        [{"role": "tool", "content": TEXT}], [{"role": "user", "content": 900 * TEXT}],
        [{"role": "assistant", "tool_calls": [{"id": TEXT, "function": TEXT}]}],
    ):  # fmt: skip
        yield CHAT, {"model": "tiny-llama", "messages": messages}
    for text in (f'{{"prompt": "{TEXT}', f'{{"a": {TEXT}}}', f'"{TEXT}"', TEXT, f"[{TEXT}"):
        yield COMPLETIONS, text.encode()
        yield "/tokenize", text.encode()


def test_no_log_metric_or_error_has_a_key_or_a_prompt(server: AuditedServer) -> None:
    live, authorized = server.server, {"authorization": f"Bearer {KEY}"}
    answers: list[Answer] = []
    for path, body in right_requests():
        assert live.post(path, body, **authorized).status == 200
        answers.append(live.post(path, body))
        answers.append(live.post(path, body, authorization=f"Bearer {WRONG}"))
    for path, body in wrong_requests():
        answers.append(live.post(path, body, **authorized))
        assert 400 <= answers[-1].status < 500, body
    hang_up(live)
    answers += [
        live.get(f"/{TEXT}?{TEXT}={WRONG}", **authorized),
        live.get(f"/v1/models/{TEXT}", authorization=f"Bearer {KEY}", cookie=WRONG),
        live.request(TEXT, "/v1/models", None, {**authorized, "x-request-id": f"{TEXT} x"}),
        live.get("/v1/models", authorization=f"Basic {WRONG}", host=TEXT, origin=TEXT),
        malformed(live, f"GET /{TEXT} HTTP/1.1\r\nauthorization: Bearer {KEY}\r\n{TEXT}\r\n\r\n"),
        malformed(live, f"{TEXT} {KEY}\r\n\r\n"),
        live.get("/metrics", **authorized),
        live.get("/props", **authorized),
        live.get("/openapi.json", **authorized),
    ]
    assert b" is ready at " in server.output(), "and it would be here"
    said = [answer.body + str(answer.headers).encode() for answer in answers]
    for canary in CANARIES:
        assert not [text for text in said if canary in text], "an answer has it"
        assert canary not in server.output(), "the log has it"


def test_an_error_shows_nothing_of_the_machine(server: AuditedServer) -> None:
    live, authorized = server.server, {"authorization": f"Bearer {KEY}"}
    bodies = [live.get(path, **authorized).body for path in ("/none", "/v1/models/x", "/v1")]
    bodies += [live.post(path, body, **authorized).body for path, body in wrong_requests()]
    traces = re.compile(
        rb"/tmp|/home|/root|/usr|\.py|Traceback|0x[0-9a-f]{6}|[0-9]+\.[0-9]+\.[0-9]+"
    )
    assert not [body for body in bodies if traces.search(body)]
    names = {name for path in ("/none", "/health") for name in live.get(path, **authorized).headers}
    assert not names & {"server", "x-powered-by", "via"}


def hang_up(live: LiveServer) -> None:
    body = {"model": "tiny-llama", "prompt": TEXT, "max_tokens": 50, "stream": True}
    data = str(body).replace("'", '"').replace("True", "true").encode()
    with live.connect() as sock:
        sock.sendall(
            f"POST {COMPLETIONS} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {KEY}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n".encode()
            + data
        )
        assert sock.recv(12) == b"HTTP/1.1 200"


def malformed(live: LiveServer, text: str) -> Answer:
    with live.connect() as sock:
        sock.sendall(text.encode())
        received = b""
        while part := sock.recv(65536):
            received += part
    return Answer(0, {}, received)


def test_an_exception_is_logged_with_its_place_but_not_its_message(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fake = FakeEngine()
    fake.model.faults[0] = ValueError(f"cannot read {TEXT}")
    with live_server(fake.as_engine) as server, caplog.at_level(logging.DEBUG):
        answer = server.post(COMPLETIONS, {"model": "fake", "prompt": TEXT, "max_tokens": 2})
    assert (answer.status, answer.error["code"]) == (500, "engine_error")
    assert TEXT.encode() not in answer.body
    assert TEXT not in formatted(caplog, with_messages=False)
    assert "ValueError" in formatted(caplog, with_messages=False)
    assert "fake_engine.py" in formatted(caplog, with_messages=False), "where it came from"
    assert f"cannot read {TEXT}" in formatted(caplog, with_messages=True), "at debug it does"


def formatted(caplog: pytest.LogCaptureFixture, *, with_messages: bool) -> str:
    formatter = LineFormatter(with_messages=with_messages)
    lines = []
    for record in caplog.records:
        record.exc_text = None  # what another formatter made of it
        lines.append(formatter.format(record))
    return "\n".join(lines)


def test_causes_are_shown_in_their_order() -> None:
    def fail() -> None:
        try:
            raise KeyError(TEXT)
        except KeyError as error:
            raise ExceptionGroup(TEXT, [OSError(TEXT)]) from error

    try:
        fail()
    except ExceptionGroup as error:
        text = LineFormatter(with_messages=False).formatException((type(error), error, None))
    assert TEXT not in text
    classes = [line for line in text.splitlines() if line.startswith("builtins.")]
    assert classes == ["builtins.KeyError", "builtins.ExceptionGroup", "builtins.OSError"]


def test_exceptions_that_are_the_context_of_each_other_are_shown_once() -> None:
    held = OSError(TEXT)  # what remains of a task group that a library takes apart
    held.__context__ = ExceptionGroup(TEXT, [held])
    text = LineFormatter(with_messages=False).formatException((OSError, held, None))
    assert text.splitlines() == ["builtins.ExceptionGroup", "builtins.OSError"]


def test_no_control_character_reaches_the_log() -> None:
    message = "a\r\n2026-01-01 INFO forged\x1b[31m\x00\x85\u2028\x7f\tb"
    record = logging.LogRecord("x", logging.INFO, "x.py", 1, "%s", (message,), None)
    first, second = LineFormatter(with_messages=False).format(record).split("\n")
    assert first.endswith(" INFO x: a\\u000d")
    assert second == "    2026-01-01 INFO forged\\u001b[31m\\u0000\\u0085\\u2028\\u007f\tb"


@pytest.mark.parametrize(
    "arguments",
    [["--api-key", KEY], [f"--api-key={KEY}"], ["--api-keys", f"{KEY} {KEY}"], ["--config"]],
)
def test_no_message_about_an_option_has_the_key(arguments: list[str], tmp_path: Path) -> None:
    config = tmp_path / "soliton.toml"
    config.write_text(f'api_key = "{KEY}"\n')
    if arguments == ["--config"]:
        arguments = ["--config", str(config)]
    with pytest.raises(CommandError, match=r"api.key") as error:
        settings_from(arguments)
    assert KEY not in str(error.value)
