"""Help and mistakes on the command line: what is listed, proposed and explained."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from engine import benchmark
from server.__main__ import main
from server.commands import bench
from server.commands.arguments import add_model_arguments
from server.commands.serve_options import GROUPS
from server.commands.terminal import CommandParser
from server.settings import Settings
from server.suggest import did_you_mean

ROOT = Path(__file__).parents[3]
COMMANDS = ("serve", "chat", "complete", "pull", "inspect", "bench", "health")


def help_of(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    with pytest.raises(SystemExit) as end:
        main([*argv, "--help"])
    assert end.value.code == 0
    return capsys.readouterr().out


def error_of(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert main(list(argv)) == 2
    text = capsys.readouterr().err
    assert text.startswith("soliton: error: ")
    assert text.count("\n") == 1
    return text.removeprefix("soliton: error: ").rstrip("\n")


def test_without_a_command_the_help_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2, "a script that forgot the command should notice"
    shown = capsys.readouterr()
    assert shown.out == help_of(capsys)
    assert shown.err == ""
    assert all(f"\n  {command} " in shown.out for command in COMMANDS)


def test_help_may_be_asked_for_by_word(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["help", "inspect"])
    assert capsys.readouterr().out == help_of(capsys, "inspect")


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_every_help_ends_with_two_examples(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    examples = help_of(capsys, *command.split()).partition("\nexamples:\n")[2].splitlines()
    assert len(examples) == 2
    for line in examples:
        assert f"{line} ".startswith(f"  soliton {command}".rstrip() + " ")


@pytest.mark.parametrize("command", ["complete", "chat"])
def test_sampling_comes_last(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    headings = re.findall(r"^(\w[\w ]*):$", help_of(capsys, command), re.MULTILINE)
    assert headings[-2:] == ["sampling", "examples"]
    assert help_of(capsys, command).startswith(
        f"usage: soliton {command} [MODEL] [OPTION …]\n"
    ) or (command == "complete")


def test_every_option_of_serve_is_in_one_group_with_its_default(
    capsys: pytest.CaptureFixture[str],
) -> None:
    listed = [name for options in GROUPS.values() for name in options]
    assert sorted([*listed, "model", "models"]) == sorted(Settings.model_fields)
    text = " ".join(help_of(capsys, "serve").split())
    for name in listed:
        flag = f"--{name.replace('_', '-')}"
        said = re.search(rf"{flag} (.*?)(?= --[a-z]| examples:)", text)
        assert said, f"{flag} is not in the help"
        if Settings.model_fields[name].annotation is not bool:
            assert "default: " in said[1], flag
            assert "X" not in said[1].split()[0], flag


def test_no_help_loads_the_engine_or_a_server() -> None:
    code = f"""
import sys
from server.__main__ import main
for command in {["", *COMMANDS]!r}:
    try:
        main([*command.split(), "--help"])
    except SystemExit as end:
        assert end.code == 0
    loaded = {{"torch", "fastapi", "uvicorn", "engine", "httpx"}} & set(sys.modules)
    assert not loaded, f"soliton {{command}} --help loads {{loaded}}"
"""
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("usage: ") == 1 + len(COMMANDS)


def test_bench_names_the_parts_and_shapes_that_the_engine_measures() -> None:
    assert list(bench.PARTS) == [*benchmark.PARTS, "http"]
    assert list(bench.SHAPES) == list(benchmark.SHAPES)


def test_serve_and_chat_say_the_same_of_the_same_option() -> None:
    parser = CommandParser(prog="x", usage="", description="", examples="")
    add_model_arguments(parser)
    metavars = {name: text for options in GROUPS.values() for name, text in options.items()}
    for action in parser._actions[1:]:
        field = Settings.model_fields[action.dest]
        assert action.metavar == metavars[action.dest]
        if action.dest != "speculate":  # serve has other recent answers too
            said = str(action.help).partition(" (default: ")[0]
            assert said == str(field.description).partition(" (default: ")[0]


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ("serv", "unknown command 'serv'; did you mean serve?"),
        (
            "sing",
            "unknown command 'sing': use serve, chat, complete, pull, inspect, bench, doctor, "
            "cluster or health",
        ),
        ("serve --prot 8822", "unrecognized argument: --prot; did you mean --port?"),
        ("serve --zzz", "unrecognized argument: --zzz (see"),
        ("complete x --top-q 1", "unrecognized argument: --top-q; did you mean --top-p?"),
        ("complete a b", "unrecognized argument: b (see"),
        ("complete", "PROMPT is missing"),
        ("serve --port", "--port needs a value"),
        ("serve --require-native=1", "--require-native takes no value"),
        ("serve --port abc", "--port must be a whole number from 0 to 65535, not 'abc'"),
        ("serve --port 70000", "--port must be a whole number from 0 to 65535, not '70000'"),
        ("serve --threads 0", "--threads must be a whole number of at least 1, not '0'"),
        ("serve --body-timeout 0", "--body-timeout must be a number above 0, not '0'"),
        ("serve --body-timeout inf", "--body-timeout must be a finite number above 0, not 'inf'"),
        ("serve --queue-timeout x", "--queue-timeout must be a number above 0, or off, not 'x'"),
        ("serve --log-level x", "--log-level must be debug, info, warning or error, not 'x'"),
        ("serve --allow-hosts ,", "--allow-hosts: the list is empty"),
        ("chat --threads 0", "--threads must be 1 or more, not 0"),
        ("complete x --max-tokens a", "--max-tokens must be a whole number, not 'a'"),
        ("complete x --temperature a", "--temperature must be a finite number, not 'a'"),
        ("complete x --logit-bias 5", "--logit-bias must be token ids with their values, such as"),
        ("complete x --banned-tokens a", "--banned-tokens must be token ids with commas between"),
    ],
)
def test_a_mistake_is_explained_in_own_words(
    argv: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert error_of(capsys, *argv.split()).startswith(expected)


def test_a_wrong_value_names_where_it_was_set(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "soliton.toml"
    path.write_text('max_queue = "many"\nserved_model_name = 5\n')
    assert error_of(capsys, "serve", "--config", str(path)) == (
        "served_model_name in the file of --config must be a list of texts, not 5; max_queue in "
        "the file of --config must be a whole number of at least 0, not 'many'"
    )
    monkeypatch.setenv("SOLITON_MAX_QUEUE", "-1")
    monkeypatch.setenv("SOLITON_PORT", "tcp://10.0.0.1:8000")
    message = error_of(capsys, "serve")
    assert "SOLITON_MAX_QUEUE must be a whole number of at least 0, not '-1'" in message
    assert "a service named soliton" in message, "Kubernetes sets this variable"
    monkeypatch.setenv("SOLITON_PORT", "x" * 10_000)
    assert len(error_of(capsys, "serve")) < 300


def test_unknown_variables_are_warned_of_at_the_start() -> None:
    env = {**os.environ, "SOLITON_PROT": "canary", "SOLITON_ZZZ": "1"}
    command = [sys.executable, "-m", "server", "serve", "--port", "0"]
    with subprocess.Popen(
        command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert "is ready at" in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=60)
    warnings = [line.partition(": ")[2] for line in log.splitlines() if " WARNING " in line]
    assert warnings == [
        "no option has the variable SOLITON_PROT; did you mean SOLITON_PORT?",
        "no option has the variable SOLITON_ZZZ",
    ]
    assert "canary" not in log


def test_a_suggestion_takes_no_time_for_a_long_word() -> None:
    assert did_you_mean("prot", ["port", "host"]) == "; did you mean port?"
    assert did_you_mean("é" * 10**6, ["port", json.dumps("x" * 50)]) == ""
