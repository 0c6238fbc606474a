"""GET /props and /health: what runs here, and whether it works."""

from engine import Engine
from server.schema.models import CurrentModel
from server.schema.props import Props, Slot
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import live_server, wait_until


def test_props_say_what_runs_and_how(bundled_engine: Engine) -> None:
    with live_server(bundled_engine, served_model_name=("a-name",), max_queue=3) as server:
        props = server.get("/props").json
    Props.model_validate(props)
    assert props["model_alias"] == "a-name"
    assert props["total_slots"] == 1
    assert props["system_fingerprint"] == bundled_engine.fingerprint
    assert props["build_info"].startswith("soliton ")
    defaults = props["default_generation_settings"]
    assert defaults["n_ctx"] == bundled_engine.max_seq_len
    assert defaults["params"]["temperature"] == bundled_engine.default_settings.temperature
    ops = bundled_engine.model.ops
    assert props["engine"]["threads"] == ops.n_threads
    assert (props["engine"]["weights"], props["engine"]["kv_cache"]) == (ops.format, ops.kv_format)
    assert props["engine"]["max_queue"] == 3


def test_the_one_slot_is_as_large_as_the_context_and_says_whether_it_works() -> None:
    fake = FakeEngine(max_seq_len=96)
    with live_server(fake.as_engine, speculate="off") as server:
        [slot] = server.get("/slots").json
        Slot.model_validate(slot)
        assert slot == {"id": 0, "n_ctx": 96, "speculative": False, "is_processing": False}
        fake.model.decode_gate.clear()
        with server.send("/completion", {"prompt": "hello", "n_predict": 2}):
            wait_until(lambda: server.get("/slots").json[0]["is_processing"])
            fake.model.decode_gate.set()


def test_tabby_s_model_says_how_it_runs(bundled_engine: Engine) -> None:
    with live_server(bundled_engine, served_model_name=("one", "two")) as server:
        model, listed = server.get("/v1/model").json, server.get("/v1/model/list")
        assert listed.json == server.get("/v1/models").json
    CurrentModel.model_validate(model)
    assert {**listed.json["data"][0], "parameters": model["parameters"]} == model
    parameters = model["parameters"]
    assert (model["id"], parameters["max_seq_len"]) == ("one", bundled_engine.max_seq_len)
    assert bundled_engine.template is not None
    assert parameters["prompt_template_content"] == bundled_engine.template.source


def test_a_model_without_a_template_says_so_by_an_empty_one() -> None:
    fake = FakeEngine()
    fake.template = None
    with live_server(fake.as_engine) as server:
        assert server.get("/props").json["chat_template"] == ""
        assert server.get("/tokenizer_info").json["chat_template"] is None


def test_health_is_open_and_all_else_needs_the_key() -> None:
    with live_server(FakeEngine().as_engine, api_keys=("key",)) as server:
        for path in ("/health", "/health/live", "/health/ready"):
            assert (server.get(path).status, server.get(path).json) == (200, {"status": "ok"})
        for path in (
            "/props",
            "/tokenizer_info",
            "/metrics",
            "/v1/models",
            "/v1/model",
            "/slots",
            "/openapi.json",
        ):
            assert server.get(path).status == 401, path
            assert server.get(path, authorization="Bearer key").status == 200, path
        for path in ("/tokenize", "/detokenize", "/apply-template", "/v1/token/encode"):
            assert server.post(path, {}).error["code"] == "invalid_api_key"
            assert server.post(path, {}, authorization="Bearer key").status == 400
