"""openai-agents against a live server: an agent calls its tool and answers."""

from typing import Any

import pytest

from engine import Engine
from tests.support.client_process import run_python
from tests.support.live_server import live_server

pytestmark = [pytest.mark.clients, pytest.mark.timeout(240)]

RUN = ["tool_call_item", "tool_call_output_item", "message_output_item"]


@pytest.fixture(scope="module")
def seen(bundled_engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Any:
    with live_server(bundled_engine) as server:
        return run_python("with_openai_agents", server, tmp_path_factory.mktemp("agents"))


@pytest.mark.parametrize("name", ["whole", "streamed", "stateless", "stored", "again"])
def test_the_agent_calls_its_tool_and_answers(seen: Any, name: str) -> None:
    run = seen[name]
    assert run["items"] == RUN
    assert run["text"]
    assert run["responses"] == 2
    assert run["tokens"] > 0


def test_all_ways_say_the_same(seen: Any) -> None:
    assert len(seen["asked"]) == 5
    assert len(set(seen["asked"][:4])) == 1
    texts = {seen[name]["text"] for name in ("whole", "streamed", "stateless", "stored")}
    assert len(texts) == 1
    assert seen["streamed"]["deltas"] == seen["streamed"]["text"]
