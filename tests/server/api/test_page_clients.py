"""Web pages of other projects, unchanged, in Chromium: text streams in, probabilities show, and
another token can be chosen.
"""

import math
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from engine import Engine
from tests.support.client_process import PAGES, page_of, run_python
from tests.support.known_replies import known_server
from tests.support.live_server import LiveServer, live_server, wait_until

CHROMIUM = shutil.which("chromium")
N_TOKENS = 24
BRANCH = 5  # as in tests/clients/with_mikupad.py
SHOWN = {"tools": ["weather", {"city": "Oslo"}], "reasoning": ["hm", "noon"], "cancel": True}

pytestmark = [
    pytest.mark.clients,
    pytest.mark.timeout(240),
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed (Debian: chromium)"),
]


@pytest.fixture(scope="module")
def server(bundled_engine: Engine) -> Iterator[LiveServer]:
    with live_server(bundled_engine) as server:
        yield server


@pytest.fixture(scope="module")
def mikupad(server: LiveServer, tmp_path_factory: pytest.TempPathFactory) -> Any:
    for name in (
        "mikupad.html",
        "node_modules/react",
        "node_modules/react-dom",
        "node_modules/htm",
    ):
        page_of(name)
    home = tmp_path_factory.mktemp("mikupad")
    return run_python("with_mikupad", server, home, str(CHROMIUM), str(PAGES), "story")


@pytest.fixture(scope="module")
def llama_ui(server: LiveServer, tmp_path_factory: pytest.TempPathFactory) -> Any:
    page_of("llama-ui.html")
    home = tmp_path_factory.mktemp("llama-ui")
    return run_python("with_llama_ui", server, home, str(CHROMIUM), str(PAGES))


@pytest.fixture(scope="module")
def mikupad_endings(mikupad: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Against a server that writes slowly; `mikupad`: the page is there."""
    home = tmp_path_factory.mktemp("mikupad-endings")
    with known_server(api_keys=()) as slow:
        seen = run_python("with_mikupad", slow, home, str(CHROMIUM), str(PAGES), "endings")
        wait_until(lambda: slow.running is None, seconds=5)
    return seen


@pytest.fixture(scope="module")
def llama_ui_features(tmp_path_factory: pytest.TempPathFactory) -> Any:
    page_of("llama-ui.html")
    home = tmp_path_factory.mktemp("llama-ui-features")
    with known_server() as server:
        return run_python("with_llama_ui_matrix", server, home, str(CHROMIUM), str(PAGES))


def test_mikupad_shows_each_token_by_itself(mikupad: Any, server: LiveServer) -> None:
    request, again, _ = mikupad["requests"]
    assert request == again, "the second time all tokens are drafted"
    answer = server.post("/completion", {**request, "stream": False}).json
    tokens = [entry["token"] for entry in answer["completion_probabilities"]]
    assert len(tokens) == N_TOKENS
    assert mikupad["tokens"] == mikupad["again"] == [request["prompt"], *tokens]


def test_mikupad_s_panel_lists_the_alternatives_of_its_token(
    mikupad: Any, server: LiveServer
) -> None:
    answer = server.post("/completion", {**mikupad["requests"][0], "stream": False}).json
    for token, panel in mikupad["panels"].items():
        tops = answer["completion_probabilities"][int(token) - 1]["top_logprobs"]
        shown = [
            [top["token"].replace(" ", "␣"), f"{100 * math.exp(top['logprob']):.2f}%"]
            for top in tops
        ]
        assert panel == shown


def test_a_click_in_mikupad_s_panel_branches_there(mikupad: Any) -> None:
    chosen = mikupad["panels"][str(BRANCH)][1][0].replace("␣", " ")
    before = mikupad["again"][:BRANCH]
    assert chosen != mikupad["again"][BRANCH]
    assert mikupad["branch"][: BRANCH + 1] == [*before, chosen]
    assert len(mikupad["branch"]) == BRANCH + 1 + N_TOKENS
    assert mikupad["requests"][-1]["prompt"] == "".join(before) + chosen


def test_mikupad_counts_tokens(mikupad: Any, server: LiveServer) -> None:
    text = "".join(mikupad["branch"])
    count = server.post("/tokenize", {"content": text}).json["count"]
    assert mikupad["count"] == str(count + 1), "it adds one for a token that begins texts"


def test_mikupad_s_predictions_are_cancelled(mikupad_endings: Any) -> None:
    assert 3 < mikupad_endings["cancelled"] < 1000


def test_mikupad_tells_that_it_was_refused(mikupad_endings: Any) -> None:
    assert "400" in mikupad_endings["error"]


@pytest.mark.parametrize("feature", ["tools", "schema", "reasoning", "cancel", "error"])
def test_the_page_of_llama_cpp_has_the_feature(llama_ui_features: Any, feature: str) -> None:
    found = llama_ui_features[feature]
    if feature == "schema":
        assert set(found) == {"size"}
        assert found["size"] in range(1, 10)
    elif feature == "error":
        assert "does not exist" in found
    else:
        assert found == SHOWN[feature]


def test_the_page_of_llama_cpp_chats(llama_ui: Any) -> None:
    assert llama_ui["request"]["max_tokens"] == -1, "which means: to the end of the context"
    assert len(llama_ui["reply"].split()) > 10
    assert llama_ui["again"].endswith("2/2"), "another answer beside the first"
    assert llama_ui["notes"] == []


def test_the_page_of_llama_cpp_shows_speed_and_the_context(
    llama_ui: Any, server: LiveServer
) -> None:
    n_ctx = server.get("/props").json["default_generation_settings"]["n_ctx"]
    assert "tokens/s" in llama_ui["reply"]
    assert f"/{n_ctx} (" in llama_ui["context"]
    assert set(llama_ui["answers"].values()) == {200}, llama_ui["answers"]
