"""What the documents say is there: links, verbs, commands, flags, routes, and code that runs."""

import re
from pathlib import Path

import pytest
import yaml

from server.__main__ import main

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
VERBS = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))


def code_of(document: Path) -> str:
    """Everything in back ticks, inline or fenced."""
    return "\n".join(re.findall(r"```.*?```|`[^`\n]+`", document.read_text(), re.S))


@pytest.fixture(params=DOCUMENTS, ids=lambda path: path.name)
def document(request: pytest.FixtureRequest) -> Path:
    assert isinstance(request.param, Path)
    return request.param


def test_links_between_files_resolve(document: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", document.read_text())
    missing = [t for t in targets if "://" not in t and not (document.parent / t).exists()]
    assert not missing


def test_files_named_in_code_exist(document: Path) -> None:
    named = re.findall(
        r"`((?:server|engine|csrc|tests|bench|training|docker|docs|scripts)/[\w./]*)`",
        document.read_text(),
    )
    assert not [name for name in named if not (ROOT / name).exists()]


def test_verbs_exist(document: Path) -> None:
    assert set(re.findall(r"(?:`|\$ )make ([a-z]+)", code_of(document))) <= VERBS


@pytest.mark.parametrize("command", ["serve", "chat", "complete", "inspect"])
def test_flags_of_commands_exist(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        main([command, "--help"])
    assert leaving.value.code == 0
    help_text = capsys.readouterr().out
    for document in DOCUMENTS:
        for line in re.findall(rf"soliton {command}\b([^`\n]*)", code_of(document)):
            for flag in re.findall(r"--[a-z-]+", line):
                assert flag in help_text, f"{document.name}: soliton {command} has no {flag}"


def test_routes_of_the_readme_are_the_contract() -> None:
    contract = yaml.safe_load((ROOT / "openapi.yaml").read_text())["paths"]
    published = {
        (method.upper(), re.sub(r"\{.*?\}", "{}", path))
        for path, methods in contract.items()
        for method in methods
    }
    shown = {
        (method, re.sub(r"\{.*?\}", "{}", path))
        for method, path in re.findall(r"`(GET|POST|DELETE) (/[^`]+)`", README)
    }
    assert shown == published


def test_the_library_example_runs_as_written(capsys: pytest.CaptureFixture[str]) -> None:
    example = re.findall(r"```python\n(.*?)```", README, re.S)[-1]
    exec(compile(example, "README.md", "exec"), {})
    assert len(capsys.readouterr().out.split()) > 5, "the example should print a story"
