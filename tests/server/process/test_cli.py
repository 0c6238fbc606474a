"""The command line as its user meets it: output, exit codes, signals."""

import dataclasses
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from engine import SamplingSettings
from server.__main__ import main
from server.commands.arguments import add_sampling_arguments, given_sampling
from server.commands.chatting.answer import ChatSettings
from server.commands.chatting.over_http import OverHttp
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
        ["complete", "Hello", "--html", "/no/such/directory/page.html"],
        ["complete", "Hello", "--html", "/"],
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
    settings = ChatSettings({"no_such_field": 1}, max_tokens=1)
    with serving() as (_, url):
        chat = OverHttp(url, api_key=None, model=None)
        for _ in range(2):
            assert list(chat.ask([{"role": "user", "content": "Hello!"}], settings))
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
