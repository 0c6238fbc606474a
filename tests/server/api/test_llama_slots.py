"""POST /slots/0: what is saved goes on as it was, in another process too."""

import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from engine import DEFAULT_MODEL, Engine
from server.settings import Settings
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import LiveServer, live_server

RECORDED = json.loads(
    (Path(__file__).parents[2] / "clients" / "requests" / "llama_server.json").read_text()
)
FRANCE = "What is the capital of France? " * 5
OTHER = "A frog sat on a stone. " * 5


@pytest.fixture
def server(bundled_engine: Engine, tmp_path: Path) -> Iterator[LiveServer]:
    with live_server(bundled_engine, slot_save_path=tmp_path) as server:
        yield server


def completed(server: LiveServer, prompt: Any, **fields: Any) -> Any:
    body = {
        "prompt": prompt, "n_predict": 12, "temperature": 0.7, "seed": 3, "n_probs": 3,
        "return_tokens": True, "ignore_eos": True, **fields,
    }  # fmt: skip
    answer = server.post("/completion", body)
    assert answer.status == 200, answer.body
    return answer.json


def acted(server: LiveServer, action: str, filename: str | None = "slot.bin") -> Any:
    body = {} if filename is None else {"filename": filename}
    answer = server.post(f"/slots/0?action={action}", body)
    assert answer.status == 200, answer.body
    assert set(answer.json) == set(RECORDED["keys"][action])
    return answer.json


def test_it_goes_on_as_it_was_also_in_another_process(server: LiveServer, tmp_path: Path) -> None:
    first = completed(server, FRANCE, cache_prompt=False)
    ids = server.post("/tokenize", {"content": FRANCE, "add_special": True}).json["tokens"]
    more = [*ids, *first["tokens"]]
    saved = acted(server, "save")
    assert saved["n_saved"] == first["tokens_cached"] == len(more) - 1
    assert saved["n_written"] == (tmp_path / "slot.bin").stat().st_size
    expected = completed(server, more)
    with live_server(
        Engine.load(DEFAULT_MODEL, device="cpu", speculate="off"), slot_save_path=tmp_path
    ) as other:
        completed(other, OTHER)
        restored = acted(other, "restore")
        assert (restored["n_restored"], restored["n_read"]) == (
            saved["n_saved"], saved["n_written"],
        )  # fmt: skip
        again = completed(other, more)
    assert again["timings"]["prompt_n"] == 1
    for key in ("content", "tokens", "completion_probabilities"):
        assert again[key] == expected[key], "bit for bit"


def test_what_is_erased_is_computed_again(server: LiveServer) -> None:
    n_prompt = completed(server, FRANCE, cache_prompt=False)["tokens_evaluated"]
    assert completed(server, FRANCE)["timings"]["prompt_n"] == 1
    erased = acted(server, "erase", None)
    assert erased["n_erased"] == n_prompt + 11
    assert acted(server, "erase", None)["n_erased"] == 0
    assert server.request("POST", "/slots/0?action=erase").json["n_erased"] == 0, "without a body"
    assert completed(server, FRANCE)["timings"]["prompt_n"] >= n_prompt - 1


WRONG_NAMES = [
    "", ".", "..", "../x", "/etc/passwd", "a/b", "a\\b", "a..b", "x.", " x", "x ", "a:b", "a\nb",
    "a\x00b", "a\x7fb", "a?b", "\ud800", "\ufeffa", "a\uff0e", "a\u2215b", "x" * 256, "ü" * 128,
]  # fmt: skip


def test_no_name_leads_out_of_the_directory(server: LiveServer, tmp_path: Path) -> None:
    for name, action in product(WRONG_NAMES, ("save", "restore")):
        answer = server.post(f"/slots/0?action={action}", {"filename": name})
        assert (answer.status, answer.error["param"]) == (400, "filename"), name
    assert not list(tmp_path.iterdir())


def test_errors_have_its_words(server: LiveServer, tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"not a slot")
    requests: dict[str, tuple[str, Any]] = {
        "restore_none": ("/slots/0?action=restore", {"filename": "none"}),
        "slot_x": ("/slots/x?action=erase", {}),
        "slot_act": ("/slots/0?action=zap", {}),
        "slot_path": ("/slots/0?action=save", {"filename": "../a"}),
    }
    for name, (path, body) in requests.items():
        answer = server.post(path, body)
        status, type_ = RECORDED["errors"][name]
        assert (answer.status, answer.error["type"]) == (status, type_), answer.body
    for path, body in (
        ("/slots/1?action=erase", {}),
        ("/slots/0", {}),
        ("/slots/0?action=save", {}),
        ("/slots/0?action=restore", {"filename": "other"}),
        ("/slots/0?action=save", {"filename": 5}),
    ):
        assert server.post(path, body).status == 400
    assert (
        "no saved slot"
        in server.post("/slots/0?action=restore", {"filename": "other"}).error["message"]
    )


def test_without_a_directory_there_are_no_actions() -> None:
    with live_server(FakeEngine().as_engine) as server:
        answer = server.post("/slots/0?action=erase", {})
        assert (answer.status, answer.error["type"]) == (501, "not_supported_error")
        assert "--slot-save-path" in answer.error["message"]
    with pytest.raises(ValidationError, match="no directory"):
        Settings(slot_save_path=Path("/nowhere"))


def test_a_saved_slot_is_its_key_s(bundled_engine: Engine, tmp_path: Path) -> None:
    """Another key may restore the file, and finds nothing in it."""
    with live_server(bundled_engine, slot_save_path=tmp_path, api_keys=("one", "two")) as server:

        def asked(path: str, body: Any, key: str) -> Any:
            answer = server.post(path, body, authorization=f"Bearer {key}")
            assert answer.status == 200, answer.body
            return answer.json

        body = {"prompt": FRANCE, "n_predict": 2}
        asked("/completion", body, "one")
        asked("/slots/0?action=save", {"filename": "a"}, "one")
        for key, is_known in (("two", False), ("one", True)):
            asked("/slots/0?action=erase", {}, key)
            asked("/slots/0?action=restore", {"filename": "a"}, key)
            assert (asked("/completion", body, key)["timings"]["prompt_n"] == 1) == is_known
        assert server.post("/slots/0?action=erase", {}).status == 401
