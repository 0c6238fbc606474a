"""POST /infill: the prompt that llama-server would make, and its answer."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken

from engine import Engine
from server.schema.llama_completion import LlamaCompletion
from tests.support.event_stream import parse_event_stream
from tests.support.live_server import LiveServer, live_server
from tests.support.tiny_models import (
    VOCAB_SIZE,
    byte_level_tokenizer,
    save_model,
    save_tokenizer,
)

TOKENS = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>")
CODE: dict[str, Any] = {
    "input_prefix": "int main() {\n", "input_suffix": "}\n", "prompt": "  int n = ",
    "temperature": 0, "n_predict": 6, "ignore_eos": True,
}  # fmt: skip
FILES = [{"filename": "a.h", "text": "int a;\n"}, {"text": "int b;\n"}]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    path = tmp_path_factory.mktemp("infill") / "model"
    save_model(path, vocab_size=VOCAB_SIZE + len(TOKENS), max_position_embeddings=400)
    backend = byte_level_tokenizer()
    backend.add_tokens([AddedToken(name, special=True, normalized=False) for name in TOKENS])
    save_tokenizer(path, backend)
    engine = Engine.load(path, device="cpu", dtype="float32")
    with live_server(engine, keep_streams="stored") as server:
        yield server


def filled(server: LiveServer, **fields: Any) -> Any:
    answer = server.post("/infill", {**CODE, **fields})
    assert answer.status == 200, answer.body
    LlamaCompletion.model_validate(answer.json)
    return answer.json


def test_it_continues_the_text_before_the_gap(server: LiveServer) -> None:
    answer = filled(server)
    expected = "<|fim_prefix|>int main() {\n  int n = <|fim_suffix|>}\n<|fim_middle|>"
    assert answer["prompt"] == expected
    fields = {key: CODE[key] for key in ("temperature", "n_predict", "ignore_eos")}
    body = {"prompt": expected, "add_special_tokens": False, **fields}
    same = server.post("/completion", body).json
    assert same["content"] == answer["content"]


def test_other_files_come_first(server: LiveServer) -> None:
    prompt = filled(server, input_extra=FILES)["prompt"]
    assert prompt.startswith(
        "<|repo_name|>myproject\n<|file_sep|>a.h\nint a;\n<|file_sep|>tmp\nint b;\n"
        "<|file_sep|>filename\n<|fim_prefix|>"
    )


def test_control_tokens_of_the_texts_stay_text(server: LiveServer) -> None:
    tokens = server.post("/tokenize", {"content": "<|fim_middle|>"}).json["tokens"]
    assert len(tokens) == 1
    kept = filled(server, input_suffix="<|fim_middle|>", store=True)
    shown = server.get(f"/v1/streams/{kept['id']}").json
    assert shown["wire"] == "llama_infill"
    branch = server.post(f"/v1/streams/{kept['id']}/branch", {"at": 2, "n_predict": 6}).json
    assert branch["content"] == kept["content"]


def test_what_is_farthest_away_is_left_out(server: LiveServer) -> None:
    answer = filled(
        server, input_prefix="p" * 600 + "!", input_suffix="?" + "s" * 600, input_extra=FILES
    )
    assert answer["tokens_evaluated"] == 400 - 6
    assert "!  int n = <|fim_suffix|>?" in answer["prompt"]
    assert "int a" not in answer["prompt"]
    unlimited = filled(server, input_prefix="p" * 6000, n_predict=-1)
    assert unlimited["tokens_predicted"] >= 50, "room is left to write"


def test_it_is_streamed(server: LiveServer) -> None:
    answer = server.post("/infill", {**CODE, "stream": True})
    events = parse_event_stream(answer.body).chunks
    assert "".join(event["content"] for event in events) == filled(server)["content"]
    assert events[-1]["stop"] is True


@pytest.mark.parametrize(
    "fields",
    [
        {"input_extra": [{}]},
        {"input_extra": [{"filename": "ok"}]},
        {"input_extra": [{"filename": 123, "text": "abc"}]},
        {"input_extra": [{"text": 456}]},
        {"input_extra": {"text": "x"}},
        {"input_prefix": None},
        {"input_suffix": 5},
        {"prompt": [1, 2]},
        {"prompt": "\ud800"},
    ],
)
def test_wrong_bodies_are_refused(server: LiveServer, fields: dict[str, Any]) -> None:
    answer = server.post("/infill", {**CODE, **fields})
    assert (answer.status, answer.error["code"]) == (400, 400)


def test_a_model_that_was_not_made_for_it_says_so(bundled_engine: Engine, tmp_path: Path) -> None:
    with live_server(bundled_engine) as server:
        answer = server.post("/infill", CODE)
    assert (answer.status, answer.error["type"]) == (501, "not_supported_error")
    assert "infill is not supported by this model" in answer.error["message"]
