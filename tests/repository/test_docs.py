"""What the documents mention exists: links, verbs, commands, flags, routes, and code that runs.

test_readme_examples.py runs the commands of the pages, test_how_to.py checks the configuration
files in docs/how-to, and test_examples.py runs examples/.
"""

import dataclasses
import re
import runpy
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml
from fastapi import FastAPI

from engine import (
    InvalidInputError,
    Prefill,
    PromptToken,
    Reuse,
    SamplingSettings,
    StreamOptions,
    StreamResult,
    TokenRecord,
    TopToken,
)
from engine.sampling.settings import STAGE_NAMES
from server.__main__ import main
from server.app import create_app
from server.settings import Settings
from tests.support.fake_engine import FakeEngine

ROOT = Path(__file__).parents[2]
COMMANDS_PAGE = (ROOT / "docs" / "commands.md").read_text()
API_PAGE = (ROOT / "docs" / "api.md").read_text()
GENERATOR_PAGE = (ROOT / "docs" / "generator.md").read_text()
SAMPLING_PAGE = (ROOT / "docs" / "sampling.md").read_text()
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "examples" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
VERBS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))


def code_of(document: Path) -> str:
    """Everything in backticks, inline or fenced."""
    return "\n".join(re.findall(r"```.*?```|`[^`\n]+`", document.read_text(), re.S))


def rows(page: str, header: str) -> list[list[str]]:
    """The cells of all tables whose first column is called `header`, without backticks."""
    tables = re.findall(rf"^\| {re.escape(header)} \|.*\n\|[-|]*\|\n((?:\|.*\n)+)", page, re.M)
    lines = "".join(tables).splitlines()
    return [[cell.strip().strip("`") for cell in line.split("|")[1:-1]] for line in lines]


@pytest.fixture(params=DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def document(request: pytest.FixtureRequest) -> Path:
    assert isinstance(request.param, Path)
    return request.param


def test_links_between_files_resolve(document: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", document.read_text())
    missing = [t for t in targets if "://" not in t and not (document.parent / t).exists()]
    assert not missing


def test_links_to_headings_resolve(document: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", document.read_text())
    for target, anchor in links:
        page = document.parent / target if target else document
        if "://" not in target and page.suffix == ".md":
            assert anchor in anchors_of(page), f"{target}#{anchor}"


def anchors_of(page: Path) -> set[str]:
    """Of the headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    shown = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in shown}


def test_files_named_in_code_exist(document: Path) -> None:
    named = re.findall(
        r"`((?:server|engine|csrc|tests|bench|training|docker|docs|examples|scripts)/[\w./]*)`",
        document.read_text(),
    )
    assert not [name for name in named if not (ROOT / name).exists()]


def test_verbs_exist(document: Path) -> None:
    assert set(re.findall(r"(?:`|\$ )make ([a-z-]+)", code_of(document))) <= VERBS


@pytest.mark.parametrize(
    "command", ["serve", "chat", "complete", "pull", "inspect", "doctor", "bench"]
)
def test_flags_of_commands_exist(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        main([command, "--help"])
    assert leaving.value.code == 0
    help_text = capsys.readouterr().out
    for document in DOCUMENTS:
        for line in re.findall(rf"soliton {command}\b([^`\n]*)", code_of(document)):
            for flag in re.findall(r"--[a-z-]+", line):
                assert flag in help_text, f"{document.name}: soliton {command} has no {flag}"


def test_the_index_lists_every_page() -> None:
    index = ROOT / "docs" / "README.md"
    linked = {
        (index.parent / target).resolve()
        for target in re.findall(r"\]\(([^)#]+)", index.read_text())
        if "://" not in target
    }
    pages = {path for path in DOCUMENTS if path not in (index, ROOT / "README.md")}
    assert pages <= linked


def test_the_page_of_the_api_lists_the_routes_of_the_contract() -> None:
    contract = yaml.safe_load((ROOT / "openapi.yaml").read_text())["paths"]
    published = {
        (method.upper(), re.sub(r"\{.*?\}", "{}", path))
        for path, methods in contract.items()
        for method in methods
    }
    table = " ".join(f"`{row[0]}`" for row in rows(API_PAGE, "route"))
    shown = {
        (method, re.sub(r"\{.*?\}", "{}", path))
        for method, path in re.findall(r"`(GET|POST|DELETE) (/[^`]*)`", table)
    }
    assert published <= shown
    served = {getattr(route, "path", "") for route in _app().routes}
    assert {path for _, path in shown - published} <= served, "pages that are not in the contract"


def _app() -> FastAPI:
    return create_app(Settings(), FakeEngine().as_engine)


def test_the_page_of_commands_has_the_defaults_of_the_server() -> None:
    table = rows(COMMANDS_PAGE, "option of `soliton serve`")
    assert table
    for flag, default, _ in table:
        field = Settings.model_fields[flag.removeprefix("--").replace("-", "_")]
        assert default == ("" if field.default is None else str(field.default)), flag


@pytest.mark.parametrize("page", ["generator.md", "sampling.md"])
def test_examples_print_what_the_page_shows(page: str) -> None:
    with_outputs: Callable[[str], str] = runpy.run_path(str(ROOT / "scripts/doc_examples.py"))[
        "with_outputs"
    ]
    text = (ROOT / "docs" / page).read_text()
    assert with_outputs(text) == text


def test_the_generators_page_lists_every_option() -> None:
    fields = [(field.name, repr(field.default)) for field in dataclasses.fields(StreamOptions)]
    expected = [("settings", "None"), *fields]
    assert [(row[0], row[1]) for row in rows(GENERATOR_PAGE, "option")] == expected


@pytest.mark.parametrize(
    ("header", "names"),
    [
        ("field of `Prefill`", [field.name for field in dataclasses.fields(Prefill)]),
        ("field of `PromptToken`", PromptToken._fields),
        ("field of `TokenRecord`", TokenRecord._fields),
        ("field of `TopToken`", TopToken._fields),
        ("field of `Reuse`", Reuse._fields),
    ],
)
def test_the_generators_page_lists_every_field(header: str, names: Iterable[str]) -> None:
    assert [row[0] for row in rows(GENERATOR_PAGE, header)] == list(names)


def test_the_generators_page_lists_every_key() -> None:
    keys = StreamResult.__iter__(object.__new__(StreamResult))
    assert [row[0] for row in rows(GENERATOR_PAGE, "key")] == list(keys)


def test_the_sampling_page_lists_every_setting_with_its_default() -> None:
    expected = {
        field.name: repr({} if field.default is dataclasses.MISSING else field.default)
        for field in dataclasses.fields(SamplingSettings)
    }
    expected["dry_sequence_breakers"] = "see below"
    assert {row[0]: row[2] for row in rows(SAMPLING_PAGE, "setting")} == expected


def test_the_sampling_page_has_the_ranges_that_are_checked() -> None:
    """The range of every number; the program states its own in the error for a value outside it."""
    for name, text, default, _ in rows(SAMPLING_PAGE, "setting"):
        if name != "seed" and not re.fullmatch(r"-?[\d.]+", default):
            continue
        too_large: dict[str, Any] = {name: 1e300}
        with pytest.raises(InvalidInputError) as raised:
            SamplingSettings(**too_large)
        low, high = re.findall(r"between (\S+) and (\S+),", str(raised.value))[0]
        unbounded = float(high) == 2**31 - 1
        upper = "or more" if unbounded else f"to {high.removesuffix('.0')}"
        assert text == f"{low.removesuffix('.0')} {upper}", name


def test_the_sampling_page_has_the_order_of_the_stages() -> None:
    shown = re.findall(r"takes:\n\n(.*?)\n\n", SAMPLING_PAGE, re.S)[0]
    assert tuple(re.findall(r"`(\w+)`", shown)) == STAGE_NAMES
