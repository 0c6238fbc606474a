"""`soliton chat` as its user meets it: real processes in a terminal, with the built-in model."""

import json
import os
import re
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine import Engine
from tests.support.chat_servers import endless_server, scripted_server
from tests.support.live_server import LiveServer, live_server
from tests.support.terminal import DEADLINE_S, ROOT, Terminal, in_terminal

QUESTION = "Tell me a story about a lion."


@pytest.fixture(scope="module")
def soliton(bundled_engine: Engine) -> Iterator[LiveServer]:
    with live_server(bundled_engine) as server:
        yield server


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """A state directory of the test's own."""
    return {"XDG_STATE_HOME": str(tmp_path / "state")}


def answered(terminal: Terminal, typed: str, n_prompts: int) -> list[str]:
    """Type a line; the lines that it is answered with."""
    n_before = len(terminal.lines)
    terminal.type(f"{typed}\r")
    terminal.wait_for_prompt(n_prompts)
    return terminal.lines[n_before:-1]


def said(lines: list[str]) -> list[str]:
    """The answer, without the line below it."""
    return lines[: next(i for i, line in enumerate(lines) if re.match(r"\d+ tokens? · ", line))]


def without_marks(lines: list[str]) -> list[str]:
    """The words of lines, without the numbers of /why."""
    return re.sub(r"\[\d+\]", "", " ".join(lines)).split()


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (40, 12)])
def test_a_local_chat_shows_why_and_branches(columns: int, rows: int, home: dict[str, str]) -> None:
    with in_terminal(
        "chat", "--seed", "7", "--max-tokens", "60", columns=columns, rows=rows, env=home
    ) as terminal:
        terminal.wait_for_prompt()
        answer = answered(terminal, QUESTION, 2)
        assert all(len(line) < columns for line in answer)
        why = answered(terminal, "/why", 3)
        listed = [line for line in why if re.match(r'\[\d\] "', line)]
        assert 1 <= len(listed) <= 9
        text = why[: next(i for i, line in enumerate(why) if line.startswith("60 tokens"))]
        assert without_marks(text) == " ".join(said(answer)).split(), "the same text, with marks"
        assert b"\x1b[1;4;35m" in terminal.raw, "unlikely tokens have a colour"
        row = next(i for i, line in enumerate(why) if line.startswith('[2] "'))
        other = re.search(r'1 "\s*([^"]*)"', " ".join(why[row : row + 2]))
        assert other is not None
        branched = " ".join(answered(terminal, "/branch 2 1", 4)).split()
        marked = " ".join(text).split()
        at = next(i for i, word in enumerate(marked) if "[2]" in word)
        assert branched[:at] == without_marks(text)[:at], "what was before the token stays"
        assert branched[at].startswith(other[1])
        terminal.type("/quit\r")
        assert terminal.wait_for_end() == 0


def test_commands_change_the_chat(soliton: LiveServer, home: dict[str, str]) -> None:
    """/regen, /edit, /undo, /system, /set, /stats, and what is wrong with a line."""
    with in_terminal("chat", "--url", soliton.url, "--max-tokens", "20", env=home) as terminal:
        terminal.wait_for_prompt()
        first = answered(terminal, "Hello!", 2)
        assert answered(terminal, "/set temprature 1", 3) == [
            "no setting is called 'temprature'; did you mean temperature?"
        ]
        assert answered(terminal, "/set temperature 0", 4) == ["temperature is 0"]
        assert answered(terminal, "/why not", 5)[0].startswith("/why takes the number")
        assert answered(terminal, "/regn", 6)[0].startswith("no command is called /regn; did you ")
        again = answered(terminal, "/regen", 7)
        assert said(answered(terminal, "/regen", 8)) == said(again), "greedy: the same again"
        assert "The same answer" in terminal.text
        terminal.type("/edit\r")
        terminal.wait_for(lambda lines: lines[-1] == "> Hello!")
        terminal.type("\x7f, lion?")
        terminal.type("\r")
        terminal.wait_for("> Hello, lion?")
        terminal.wait_for_prompt(10)
        answered(terminal, "/undo", 11)
        assert "undone: /edit" in terminal.text
        stats = "\n".join(answered(terminal, "/stats", 12))
        for name in ("first token after", "tokens per second", "prompt", "drafts", "seed"):
            assert re.search(rf"^{name} +\d|^{name} +none", stats, re.MULTILINE), stats
        answered(terminal, "/system Be brief.", 13)
        assert answered(terminal, "/system", 14) == ["Be brief."]
        assert first


def test_a_chat_with_a_soliton_branches_and_leaves_nothing_there(
    soliton: LiveServer, home: dict[str, str]
) -> None:
    def kept() -> list[str]:
        return [each["id"] for each in soliton.request("GET", "/v1/streams").json["data"]]

    before = kept()
    with in_terminal("chat", "--url", soliton.url, "--seed", "7", env=home) as terminal:
        terminal.wait_for_prompt()
        answer = answered(terminal, "Hello!", 2)
        why = answered(terminal, "/why", 3)
        assert without_marks(why)[:3] == " ".join(answer).split()[:3]
        branched = answered(terminal, "/branch 1 1", 4)
        assert branched != answer
        assert len(kept()) == len(before) + 2, "answers are kept meanwhile"
        terminal.type("\x04")
        assert terminal.wait_for_end() == 0
    assert kept() == before


def test_other_servers_are_told_from_a_soliton(home: dict[str, str]) -> None:
    with (
        scripted_server([("Hi ", []), ("there", [])], has_logprobs=False) as (url, bodies),
        in_terminal("chat", "--url", url, env=home) as terminal,
    ):
        terminal.wait_for_prompt()
        assert answered(terminal, "Hello!", 2)[0] == "Hi there"
        assert ["logprobs" in body for body in bodies] == [True, False], "asked again without"
        assert answered(terminal, "/why", 3) == ["the server sends no probabilities"]
        assert answered(terminal, "/branch", 4)[0].startswith("/branch needs a Soliton server")
        answered(terminal, "Hello!", 5)
        assert "logprobs" not in bodies[2]


def test_wide_and_split_characters(home: dict[str, str]) -> None:
    """A character of three bytes in two tokens, wide ones at the margin, and a control."""
    lion = "獅子".encode()
    reply: list[tuple[str, list[bytes]]] = [
        ("Two ", [b"Two "]),
        ("", [lion[:4]]),
        ("獅子", [lion[4:]]),
        *((char, [char.encode()]) for char in " の話をしましょう🙂 e\u0301nd\x1b[2J"),
    ]
    with (
        scripted_server(reply, has_logprobs=True) as (url, _),
        in_terminal("chat", "--url", url, columns=16, env=home) as terminal,
    ):
        terminal.wait_for_prompt()
        answered(terminal, "🙂 獅子?", 2)
        n_before = len(terminal.lines)
        terminal.type("/why\r")
        terminal.wait_for_prompt(3)
        shown = "".join("".join(terminal.lines[n_before:]).split())
        for text in ("獅子", "の話をしましょう🙂"):
            assert text in re.sub(r"\[\d\]", "", shown)
        assert "\x1b[2J" not in terminal.raw.decode(errors="replace").replace("\x1b[H\x1b[2J", "")


def test_ctrl_c_stops_the_answer_and_says_how_to_leave(home: dict[str, str]) -> None:
    hung_up = threading.Event()
    with endless_server(hung_up) as url, in_terminal("chat", "--url", url, env=home) as terminal:
        terminal.wait_for_prompt()
        terminal.type("Sing!\r")
        terminal.wait_for("la la la")
        terminal.resize(30, 24)
        terminal.wait_for(lambda lines: len(lines) > 20)
        terminal.ctrl_c()
        terminal.wait_for_prompt(1)
        assert hung_up.wait(DEADLINE_S), "the reply's connection should be closed"
        terminal.ctrl_c()
        terminal.wait_for("Ctrl-D or /quit leaves; /help")
        terminal.type("half a line")
        terminal.wait_for("> half a line")
        terminal.ctrl_c()
        terminal.wait_for_prompt()
        terminal.type("\x04")
        assert terminal.wait_for_end() == 0
    narrow = [line for line in terminal.lines if line.startswith("la la")][-3:-1]
    assert all(20 <= len(line) < 30 for line in narrow), "wrapped at the new margin"


def test_ctrl_c_stops_the_model_between_two_tokens(home: dict[str, str]) -> None:
    endless = ("--logit-bias", "4=-100", "--temperature", "1")
    with in_terminal("chat", *endless, env=home) as terminal:
        terminal.wait_for_prompt()
        terminal.type(f"{QUESTION}\r")
        terminal.wait_for(lambda lines: len(lines) > 4)
        terminal.ctrl_c()
        terminal.wait_for("stopped: /branch goes on")
        terminal.wait_for_prompt(2)
        terminal.type("/branch\r")
        terminal.wait_for(lambda lines: sum("stopped: /branch" in line for line in lines) == 1)
        terminal.ctrl_c()
        terminal.wait_for_prompt(3)
        assert "Traceback" not in terminal.text


def test_entries_of_several_lines_and_their_history(
    soliton: LiveServer, home: dict[str, str], tmp_path: Path
) -> None:
    """A backslash, a fence, Alt-Enter and a paste; the next start knows them."""
    chat = ("chat", "--url", soliton.url, "--max-tokens", "2")
    saved = tmp_path / "chat.json"
    with in_terminal(*chat, env=home) as terminal:
        terminal.wait_for_prompt()
        for n, typed in enumerate(
            (
                "one\\\rtwo\r",
                '"""\rthree\r  four\r"""\r',
                "five\x1b\rsix\r",
                "\x1b[200~seven\neight\x1b[201~\r",
            ),
            2,
        ):
            terminal.type(typed)
            terminal.wait_for_prompt(n)
        answered(terminal, f"/save {saved}", 6)
        terminal.type("\x04")
        assert terminal.wait_for_end() == 0
    questions = [each["content"] for each in json.loads(saved.read_text())["messages"][::2]]
    assert questions == ["one\ntwo", "three\n  four", "five\nsix", "seven\neight"]
    (history,) = Path(home["XDG_STATE_HOME"]).rglob("chat_history")
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    with in_terminal(*chat, env=home) as terminal:
        terminal.wait_for_prompt()
        terminal.type("\x1b[A\x1b[A\x1b[A\r")
        terminal.wait_for("five")
        terminal.wait_for_prompt(2)
        answered(terminal, f"/save {saved}", 3)
    assert json.loads(saved.read_text())["messages"][0]["content"] == "five\nsix"


def test_a_dumb_terminal_gets_no_escape(soliton: LiveServer, home: dict[str, str]) -> None:
    with in_terminal("chat", "--url", soliton.url, term="dumb", columns=30, env=home) as terminal:
        terminal.wait_for_prompt()
        terminal.type(f"{QUESTION}\n")
        terminal.wait_for_prompt(2)
        terminal.type("/why\n")
        terminal.wait_for_prompt(3)
        terminal.type("/edit Hello!\n")
        terminal.wait_for_prompt(4)
        terminal.type("\x04")
        assert terminal.wait_for_end() == 0
    assert b"\x1b" not in terminal.raw
    written = [line for line in terminal.lines if line[:1] != ">" and line not in QUESTION]
    assert max(map(len, written)) in range(20, 30)


def test_without_colours_there_are_none(soliton: LiveServer, home: dict[str, str]) -> None:
    with in_terminal("chat", "--url", soliton.url, env={**home, "NO_COLOR": "1"}) as terminal:
        terminal.wait_for_prompt()
        answered(terminal, "Hello!", 2)
        answered(terminal, "/why", 3)
    assert not re.search(rb"\x1b\[[\d;]*m", terminal.raw)


def test_a_pipe_gets_the_answers_and_nothing_else(soliton: LiveServer, tmp_path: Path) -> None:
    saved = tmp_path / "chat.json"

    def chat(text: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [
                sys.executable,
                "-m",
                "server",
                "chat",
                "--url",
                soliton.url,
                "--seed",
                "7",
                "--max-tokens",
                "9",
            ],
            cwd=ROOT,
            input=text,
            capture_output=True,
            text=True,
            env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
        )

    done = chat(f'Hello!\n"""\nHello!\n"""\n/save {saved}\n/reset\n/load {saved}\n/regen\n/quit\n')
    assert (done.returncode, done.stderr) == (0, "")
    messages = json.loads(saved.read_text())["messages"]
    assert [each["content"] for each in messages[::2]] == ["Hello!", "Hello!"]
    *saved_answers, regenerated, rest = done.stdout.split("\n")
    assert saved_answers == [each["content"] for each in messages[1::2]]
    assert regenerated
    assert rest == ""
    assert not (tmp_path / "soliton").exists(), "a pipe has no history"
    wrong = chat("Hello!\n/set temprature 1\nHello!\n")
    assert wrong.returncode == 2
    assert wrong.stderr == (
        "soliton: error: no setting is called 'temprature'; did you mean temperature?\n"
    )
    assert wrong.stdout.count("\n") == 1, "the chat ends with the mistake"
