"""A recorded conversation of an agent, over HTTP, with a model that has recurrent layers."""

from pathlib import Path
from typing import Any

import pytest

from engine import Engine
from tests.support.agent_trace import TOOLS, agent_trace
from tests.support.family_models import FAMILY_MODELS
from tests.support.live_server import LiveServer, live_server
from tests.support.tiny_models import save_model

CHAT = "/v1/chat/completions"
CHUNK = 512  # tokens of a pass over a prompt
MAX_SEQ_LEN = 20480
# One control token opens every message, as in the templates of the families with such layers.
TEMPLATE = (
    "{% for m in messages %}<|user|>{{ m.role }}\n{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|user|>assistant\n{% endif %}"
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hybrid")
    save_model(path, FAMILY_MODELS["qwen3_5"], max_position_embeddings=MAX_SEQ_LEN)
    (path / "chat_template.jinja").write_text(TEMPLATE, "utf-8")
    return path


def loaded(directory: Path, **options: Any) -> Engine:
    return Engine.load(directory, device="cpu", max_seq_len=MAX_SEQ_LEN, **options)


def answer(server: LiveServer, messages: Any, **fields: Any) -> Any:
    body = {
        "messages": messages,
        "tools": TOOLS,
        "temperature": 0,
        "max_tokens": 12,
        "ignore_eos": True,
        "logprobs": True,
        "top_logprobs": 3,
        "return_token_ids": True,
        "include": ["cache"],
        **fields,
    }
    found = server.post(CHAT, body)
    assert found.status == 200, found.body
    return found.json


def shared(first: list[int], second: list[int]) -> int:
    pairs = zip(first, second, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))


def test_an_agents_turns_compute_what_is_new(directory: Path) -> None:
    seen: list[list[int]] = []
    excesses: list[int] = []
    cached, empty = loaded(directory, prefix_bytes=2**26), loaded(directory, prefix_bytes=0)
    with live_server(cached) as server, live_server(empty) as other:
        for index, turn in enumerate(agent_trace(0.1)):
            found = answer(server, turn.messages)
            prompt, (choice,) = found["prompt_token_ids"], found["choices"]
            usage = found["usage"]["prompt_tokens_details"]["cached_tokens"]
            assert choice["cache"]["reused"] == usage
            alike = max((shared(each, prompt[:-1]) for each in seen), default=0)
            excesses.append(alike - usage)
            seen.append([*prompt, *choice["token_ids"]])
            if index in (0, 9, 12, 16, 23, 29):
                # A salt of its own: nothing is known.
                fresh = answer(other, turn.messages, cache_salt=str(index))["choices"][0]
                assert fresh["cache"]["reused"] == 0
                assert fresh["message"] == choice["message"]
                assert fresh["logprobs"] == choice["logprobs"], turn.what
    assert len(seen[-1]) > 6 * CHUNK, "the conversation is much longer than a chunk"
    assert max(excesses) <= CHUNK, "at most one chunk is computed again"
    assert sum(excesses) - max(excesses) < 100, "and hardly anything but once"
