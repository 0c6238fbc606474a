"""Clients, feature by feature, against one server whose replies are known."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.client_matrix import FEATURES, HERE, MATRIX
from tests.support.client_process import run_node, run_python
from tests.support.known_replies import HELLO, known_server
from tests.support.live_server import LiveServer

pytestmark = [pytest.mark.clients, pytest.mark.timeout(240)]

TESTED = [
    (client, feature)
    for client, cells in MATRIX.items()
    for feature in FEATURES
    if cells[feature] is HERE
]


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with known_server() as server:
        yield server


@pytest.fixture(scope="module")
def seen(server: LiveServer, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What each client saw of each feature."""
    python = run_python("with_matrix", server, tmp_path_factory.mktemp("matrix"))
    return {**python, **run_node("matrix", server)}


def test_what_is_seen_is_what_the_table_promises(seen: Any) -> None:
    assert [(client, each) for client in MATRIX for each in seen.get(client, ())] == [
        (client, each) for client in MATRIX for each in seen.get(client, ())
        if MATRIX[client][each] is HERE
    ]  # fmt: skip


@pytest.mark.parametrize(("client", "feature"), TESTED)
def test_a_client_is_served(seen: Any, client: str, feature: str) -> None:
    found = seen[client][feature]
    if feature == "stream":
        assert "".join(found) == HELLO
        assert len(found) > 3, "it came in pieces"
    elif feature == "tools":
        assert found == ["weather", {"city": "Oslo"}]
    elif feature == "schema":
        assert set(found) == {"size"}
        assert found["size"] in range(1, 10)
    elif feature == "reasoning":
        assert found == ["hm", "noon"]
    elif feature == "cancel":
        assert found is True, found
    elif feature == "error":
        status, sentence = found
        assert (status, "does not exist" in sentence) == (404, True), found
    else:
        assert "".join(found) == HELLO
