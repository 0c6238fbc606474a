"""The command line as its user meets it: output, exit codes, signals."""

import dataclasses
import http.server
import json
import os
import pty
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from engine import DEFAULT_MODEL, Engine, SamplingSettings
from server.__main__ import main
from server.commands.arguments import add_sampling_arguments, given_sampling
from server.commands.local import LocalChat
from server.commands.remote import RemoteChat
from server.commands.terminal import CommandParser

ROOT = Path(__file__).parents[3]
SOLITON = [sys.executable, "-m", "server"]
DEADLINE_S = 60.0


def one_error_line(text: str) -> bool:
    return text.startswith("soliton: error: ") and text.count("\n") == 1 and text.endswith("\n")


@contextmanager
def serving(*program: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`soliton serve` on a free port, and its URL, after the ready line."""
    command = [*(program or (*SOLITON, "serve")), "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert "http://127.0.0.1:" in line, f"the ready line should name the URL: {line!r}"
            yield process, next(word for word in line.split() if word.startswith("http://"))
        finally:
            process.kill()


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine.load(DEFAULT_MODEL, max_seq_len=128)


@pytest.mark.parametrize(
    "argv",
    [
        ["sing"],
        ["--colour"],
        ["inspect", "/no/such/model"],
        ["inspect", "--model", "/no/such/model"],
        ["inspect", "/a/model", "--model", "/another"],
        ["inspect", __file__],
        ["complete", "Hello", "--model", "/no/such/model"],
        ["complete", "Hello", "--temperature", "-1"],
        ["complete", "Hello", "--temperature", "warm"],
        ["complete", "Hello", "--temperature", "nan"],
        ["complete", "Hello", "--logit-bias", "5"],
        ["complete", "Hello", "--sampler-order", "top_q"],
        ["complete", "Hello", "--speculate", "much"],
        ["complete", "Hello", "--logprobs", "21"],
        ["complete", "Hello \ud800"],
        ["chat", "/no/such/model"],
        ["chat", "--url", "http://127.0.0.1:9"],
        ["chat", "--url", "nonsense"],
        ["bench", "--model", "/no/such/model"],
        ["pull", "no-organisation"],
        ["serve", "--model", "/no/such/model", "--port", "0"],
        ["serve", "/no/such/model", "--port", "0"],
        ["serve", "--port", "99999"],
        ["serve", "--colour", "red"],
        ["serve", "--host", "0.0.0.0"],
    ],
    ids=" ".join,
)
def test_a_command_that_fails_is_one_line_and_2(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    assert one_error_line(capsys.readouterr().err)


def test_complete_prints_text_that_a_seed_repeats(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["complete", "Once upon a time", "--max-tokens", "12", "--seed", "7"]
    texts = []
    for _ in range(2):
        assert main(argv) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]
    assert texts[0].strip()


def test_complete_prints_a_table_of_probabilities(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["complete", "Once upon a time", "--logprobs", "5", "--max-tokens", "6", "--seed", "7"]
    assert main(argv) == 0
    header, *rows = capsys.readouterr().out.split("\n\n")[0].splitlines()
    assert header.split()[:5] == ["#", "token", "p", "drawn", "logprob"]
    assert 1 <= len(rows) <= 6
    for row in rows:
        p, drawn = (float(number) for number in row.split('"')[2].split()[:2])
        assert 0 <= p <= 1
        assert 0 < drawn <= 1
        assert row.count('"') >= 2 * 5, "the chosen token and at least four others are shown"


def test_every_sampling_setting_is_a_flag() -> None:
    parser = CommandParser(prog="soliton complete", usage="", description="", examples="")
    add_sampling_arguments(parser)
    assert given_sampling(parser.read([])) == {}, (
        "an option that is not given is the model's default"
    )
    others: dict[str, tuple[str, object]] = {
        "dry_sequence_breakers": ("\n", ["\n"]),
        "logit_bias": ("5=-1.5,7=2", {5: -1.5, 7: 2.0}),
        "allowed_tokens": ("5,7", [5, 7]),
        "banned_tokens": ("9", [9]),
        "sampler_order": ("top_k, temperature", ["top_k", "temperature"]),
        "seed": ("7", 7),
    }
    for setting in dataclasses.fields(SamplingSettings):
        flag = f"--{setting.name.replace('_', '-')}"
        text, value = others.get(setting.name, ("1", 1))
        argv = [flag] if setting.type is bool else [flag, text]
        given = given_sampling(parser.read(argv))
        assert given == {setting.name: value}
        if setting.type in (int, float):
            assert type(given[setting.name]) is setting.type, f"{flag} reads another type"


def test_a_sampling_flag_reaches_the_sampler(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["complete", "Once upon a time", "--max-tokens", "1", "--allowed-tokens", "42"]
    assert main([*argv, "--logprobs", "0"]) == 0
    assert " 1.0000 " in capsys.readouterr().out, "the only allowed token is drawn for sure"


def test_drafts_change_no_text(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["complete", "Once upon a time", "--max-tokens", "24", "--seed", "7", "--speculate"]
    texts = []
    for mode in ("off", "ngram", "draft"):
        assert main([*argv, mode]) == 0
        texts.append(capsys.readouterr().out)
    assert len(set(texts)) == 1


def test_inspect_prints_sizes_and_memory(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "--context", "100"]) == 0
    text = capsys.readouterr().out
    assert "LlamaForCausalLM" in text
    assert "soliton-default" in text, "the name that serve has"
    assert "100 tokens" in text


def test_chat_reads_a_pipe_and_reset_forgets() -> None:
    result = subprocess.run(
        [*SOLITON, "chat", "--seed", "7", "--max-tokens", "12"],
        cwd=ROOT,
        input="Hello!\n/reset\nHello!\n/quit\nnever read\n",
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    half = len(result.stdout) // 2
    assert result.stdout[:half] == result.stdout[half:], "the same question gets the same answer"
    assert result.stdout.strip()


def test_serve_answers_a_chat_and_a_signal_ends_it_with_0() -> None:
    with serving() as (process, url):
        assert httpx.get(f"{url}/health/ready").is_success
        chat = subprocess.run(
            [
                *SOLITON,
                "chat",
                "--url",
                url.removeprefix("http://"),
                "--seed",
                "7",
                "--max-tokens",
                "12",
            ],
            cwd=ROOT,
            input="Hello!\n",
            capture_output=True,
            text=True,
        )
        assert (chat.returncode, chat.stderr) == (0, "")
        assert chat.stdout.strip()
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 0


def test_a_stream_that_outlasts_the_shutdown_ends_with_an_error() -> None:
    body = {
        "model": "soliton-default", "prompt": "Once", "n": 128, "max_tokens": 1000,
        "ignore_eos": True, "stream": True,
    }  # fmt: skip
    with (
        serving(*SOLITON, "serve", "--drain-seconds", "0") as (process, url),
        httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=DEADLINE_S) as answer,
    ):
        lines = answer.iter_lines()
        assert next(lines).startswith("data: ")
        process.send_signal(signal.SIGTERM)
        *_, last = [line for line in lines if line]
        assert json.loads(last.removeprefix("data: "))["error"]["code"] == "unavailable"
        assert process.wait(DEADLINE_S) == 0


def test_what_a_server_ignores_is_reported_once(capsys: pytest.CaptureFixture[str]) -> None:
    options = {"max_completion_tokens": 1, "no_such_field": 1}
    with serving() as (_, url):
        chat = RemoteChat(url, api_key=None, model=None, options=options)
        for _ in range(2):
            assert list(chat.reply([{"role": "user", "content": "Hello!"}]))
    shown = capsys.readouterr().err
    assert shown.startswith("soliton: warning: no_such_field: ")
    assert shown.count("\n") == 1


def test_a_port_in_use_is_one_line_and_2() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = subprocess.run(
            [*SOLITON, "serve", "--port", str(port)], cwd=ROOT, capture_output=True, text=True
        )
    assert result.returncode == 2
    assert one_error_line(result.stderr)
    assert f"port {port} of 127.0.0.1 is in use" in result.stderr
    proposed = int(result.stderr.rpartition("--port ")[2])
    assert port < proposed <= port + 20


def test_ctrl_c_stops_a_local_reply_between_two_tokens(engine: Engine) -> None:
    endless = SamplingSettings(logit_bias=dict.fromkeys(engine.eos_token_ids, -100))
    chat = LocalChat(engine, endless, max_tokens=None)
    reply = chat.reply([{"role": "user", "content": "Tell me a story."}])
    next(reply)
    signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        list(reply)
    assert list(LocalChat(engine, endless, max_tokens=3).reply([{"role": "user", "content": "Hi"}]))


class EndlessChat(http.server.BaseHTTPRequestHandler):
    """A server that lists one model and never ends a reply by itself."""

    protocol_version = "HTTP/1.0"
    hung_up = threading.Event()

    def do_GET(self) -> None:
        self._begin("application/json")
        self.wfile.write(b'{"data": [{"id": "endless"}]}')

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self._begin("text/event-stream")
        chunk = json.dumps({"choices": [{"index": 0, "delta": {"content": "la "}}]})
        try:
            while True:
                self.wfile.write(f"data: {chunk}\n\n".encode())
                time.sleep(0.001)
        except OSError:
            self.hung_up.set()

    def _begin(self, content_type: str) -> None:
        self.send_response(200)
        self.send_header("content-type", content_type)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Keeps the test's output quiet."""


@pytest.fixture
def endless_url() -> Iterator[str]:
    EndlessChat.hung_up.clear()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), EndlessChat) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@contextmanager
def in_terminal(*command: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A process, and the other end of its terminal: read what it shows, write what is typed."""
    ours, theirs = pty.openpty()
    try:
        with subprocess.Popen(
            [*SOLITON, *command],
            cwd=ROOT,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            preexec_fn=_taking_ctrl_c,
        ) as process:
            os.close(theirs)
            try:
                yield process, ours
            finally:
                process.kill()
    finally:
        os.close(ours)


def _taking_ctrl_c() -> None:
    """Ctrl-C as in a terminal, even if the tests run in the background and ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def reader_of(terminal: int) -> Callable[[str], str]:
    """A function that reads until a text is shown."""

    def read_until(expected: str) -> str:
        shown = ""
        end = time.monotonic() + DEADLINE_S
        while expected not in shown:
            ready, _, _ = select.select([terminal], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"{expected!r} should appear; shown: {shown!r}"
            shown += os.read(terminal, 65536).decode(errors="replace")
        return shown

    return read_until


def test_ctrl_c_stops_the_reply_and_not_the_program(endless_url: str) -> None:
    with in_terminal("chat", "--url", endless_url) as (process, terminal):
        read_until = reader_of(terminal)
        read_until("> ")
        os.write(terminal, b"Sing!\n")
        read_until("la la la")
        process.send_signal(signal.SIGINT)
        read_until("> ")
        assert EndlessChat.hung_up.wait(DEADLINE_S), "the reply's connection should be closed"
        process.send_signal(signal.SIGINT)
        read_until("Ctrl-C again")
        os.write(terminal, b"/quit\n")
        assert process.wait(DEADLINE_S) == 0
