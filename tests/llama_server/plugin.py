"""Reads applies.py into their tests, and stops the servers that they start.

A test that applies must pass. One that does not is not run, or, where that takes no longer than a
moment, must fail: the list cannot go on naming what has come to work.
"""

import os
from collections.abc import Iterator

import pytest
import utils  # type: ignore[import-not-found] # theirs

from tests.llama_server.applies import DIFFERS, NAMES, NOT_HERE
from tests.llama_server.stand_in import NAMES as OTHER_NAMES


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    known = {key for item in items for key in _keys(item)}
    files = {item.path.stem for item in items}
    of_files = {key for key in {**NOT_HERE, **DIFFERS} if key.partition("::")[0] in files}
    is_selection = any("::" in word for word in config.args)
    assert is_selection or of_files <= known, f"there is no {' nor '.join(of_files - known)}"
    for item in items:
        for key in _keys(item):
            if key in NOT_HERE:
                item.add_marker(pytest.mark.skip(reason=NOT_HERE[key]))
            elif key in DIFFERS:
                item.add_marker(pytest.mark.xfail(reason=DIFFERS[key], strict=True))


def _keys(item: pytest.Item) -> tuple[str, str, str]:
    """file, file::test and file::test[case]."""
    file, name = item.path.stem, item.name
    return file, f"{file}::{name.partition('[')[0]}", f"{file}::{name}"


@pytest.fixture(autouse=True)
def _servers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    monkeypatch.setenv("PORT", str(18080 + 10 * int(worker)))
    monkeypatch.setenv(OTHER_NAMES, NAMES.get(request.path.stem, ""))
    yield
    for server in list(utils.server_instances):
        server.stop()
