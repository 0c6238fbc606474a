"""Engine.load and describe: the parts put together, one clear line for what cannot be loaded."""

import gc
import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import torch

from engine import (
    Engine,
    InvalidInputError,
    LoadOptions,
    ModelLoadError,
    SamplingSettings,
    TemplateError,
    describe,
)
from engine.device.cpu.ops import CpuOps
from engine.device.cpu.program import CpuProgram
from engine.device.formats import kv_bytes_per_token
from engine.device.memory import context_length, host_bytes
from engine.model_files import ModelFiles
from tests.support.tiny_models import byte_level_tokenizer, save_model


@pytest.fixture
def model(tiny_model: Path, tmp_path: Path) -> Path:
    """A copy of the tiny model that a test may damage."""
    return Path(shutil.copytree(tiny_model, tmp_path / "copied"))


def edit_json(file: Path, **keys: Any) -> None:
    values = json.loads(file.read_text("utf-8")) if file.exists() else {}
    file.write_text(json.dumps({**values, **keys}), "utf-8")


def test_everything_is_there(tiny_engine: Engine, tiny_model: Path) -> None:
    assert tiny_engine.model_id == "tiny-llama"
    assert tiny_engine.config.architecture == "LlamaForCausalLM"
    assert tiny_engine.max_seq_len == 256
    assert tiny_engine.eos_token_ids == (4,)
    assert tiny_engine.created == int((tiny_model / "config.json").stat().st_mtime)
    assert tiny_engine.template is not None


def test_a_chat_is_rendered_and_encoded(tiny_engine: Engine) -> None:
    messages = [{"role": "user", "content": "hi"}]
    assert tiny_engine.render_chat(messages) == "<|user|>hi<|end|><|assistant|>"
    ids = tiny_engine.encode_chat(messages)
    assert tiny_engine.tokenizer.decode(ids) == "<|user|>hi<|end|><|assistant|>"
    opened = tiny_engine.encode_chat(messages, continue_final_message=True, must_fit=True)
    assert tiny_engine.tokenizer.decode(opened) == "<|user|>hi"
    misspelt: dict[str, Any] = {"tols": []}
    with pytest.raises(TypeError, match="tols"):
        tiny_engine.render_chat(messages, **misspelt)


def test_generates_what_transformers_generates(tmp_path: Path) -> None:
    oracle = save_model(tmp_path)
    loaded = Engine.load(tmp_path, device="cpu")
    token_ids = loaded.tokenizer.encode("Once upon a time")
    loaded.generator.begin_stream_ex(
        torch.tensor([token_ids]),
        SamplingSettings(temperature=0.0),
        max_new_tokens=64,
        ignore_eos=True,
    )
    while not (result := loaded.generator.stream_ex()).eos:
        token_ids += [token.token_id for token in result.tokens]
    token_ids += [token.token_id for token in (*result.tokens, *result.dropped)]
    with torch.no_grad():
        logits = oracle(torch.tensor([token_ids[:-1]])).logits[0]
    assert token_ids[-64:] == logits[-64:].argmax(dim=1).tolist()


def test_the_fingerprint_changes_with_what_changes_answers(tiny_model: Path, model: Path) -> None:
    def fingerprint(path: Path, **options: Any) -> str:
        return Engine.load(path, device="cpu", **options).fingerprint

    first = fingerprint(tiny_model)
    assert first == fingerprint(tiny_model)
    assert first != fingerprint(tiny_model, dtype="bfloat16")
    assert first != fingerprint(tiny_model, quantize="8bit")
    assert first != fingerprint(tiny_model, kv_cache="8bit")
    assert fingerprint(model) == first, "a copy that keeps the times is the same model"
    os.utime(model / "model.safetensors", (1, 1))
    assert fingerprint(model) != first


@pytest.mark.parametrize("speculate", ["off", "ngram"])
def test_passes_are_recorded_at_load(
    model: Path, speculate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_recorded = 0
    program = CpuOps.program

    def counted(self: CpuOps, max_rows: int) -> CpuProgram:
        nonlocal n_recorded
        n_recorded += 1
        return program(self, max_rows)

    monkeypatch.setattr(CpuOps, "program", counted)
    loaded = Engine.load(model, device="cpu", speculate=speculate)
    at_load = n_recorded
    assert at_load > 0
    loaded.generator.begin_stream_ex([5, 6, 7], SamplingSettings(temperature=0.0))
    loaded.generator.stream_ex()
    assert loaded.generator.n_cached_tokens == 0, "nothing is left of it in the cache"
    assert n_recorded == at_load


@pytest.mark.parametrize("collects", [True, False])
def test_a_load_collects_no_garbage_and_leaves_the_collector_as_it_was(
    model: Path, collects: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would scan the lists of a vocabulary again and again."""
    during: list[bool] = []
    open_files = ModelFiles.open

    def noted(path: str | Path) -> ModelFiles:
        during.append(gc.isenabled())
        return open_files(path)

    monkeypatch.setattr(ModelFiles, "open", noted)
    had = gc.isenabled()
    try:
        (gc.enable if collects else gc.disable)()
        Engine.load(model, device="cpu")
        assert gc.isenabled() == collects
        (model / "tokenizer.json").write_text("{")
        with pytest.raises(ModelLoadError):
            Engine.load(model, device="cpu")
        assert gc.isenabled() == collects
    finally:
        (gc.enable if had else gc.disable)()
    assert during == [False, False]


_IMPORTED_BY_A_STREAM = """
import sys
from engine import Engine, SamplingSettings
loaded = Engine.load(sys.argv[1], device="cpu", require_native=True)
before = set(sys.modules)
loaded.generator.begin_stream_ex([5, 6, 7], SamplingSettings(temperature=0.7), max_new_tokens=3)
while not loaded.generator.stream_ex().eos:
    pass
print(*sorted(set(sys.modules) - before))
"""


def test_a_first_stream_imports_nothing(model: Path) -> None:
    """numpy imports numpy.ma when it is first used, which takes longer than a short prompt."""
    command = [sys.executable, "-c", _IMPORTED_BY_A_STREAM, str(model)]
    imported = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert imported.split() == []


def test_the_pages_of_buffers_are_there() -> None:
    """The system counts every page that is touched for the first time."""
    page, n_bytes = resource.getpagesize(), 16 * 2**20

    def faults(array: Any) -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        array.reshape(-1)[:: page // 4] = 1.0
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    buffer = CpuOps("float32").zeros((n_bytes // 4,), "float32")
    assert faults(buffer) < n_bytes // page // 100
    assert not CpuOps("float32").zeros((4, 5), "bfloat16").any()


def test_progress(tiny_model: Path) -> None:
    seen: list[tuple[int, int]] = []
    Engine.load(tiny_model, device="cpu", on_progress=lambda *done: seen.append(done))
    assert seen[-1][0] == seen[-1][1] > 0


def test_settings_of_generation_config(model: Path) -> None:
    edit_json(
        model / "generation_config.json",
        do_sample=True,
        temperature=0.7,
        top_k=20,
        top_p=0.9,
        min_p=0.05,
        repetition_penalty=1.05,
        eos_token_id=[4, 0],
    )
    loaded = Engine.load(model, device="cpu")
    assert loaded.default_settings == SamplingSettings(
        temperature=0.7, top_k=20, top_p=0.9, min_p=0.05, repetition_penalty=1.05
    )
    assert loaded.eos_token_ids == (4, 0)


def test_a_silent_or_missing_generation_config_is_neutral(model: Path) -> None:
    (model / "generation_config.json").write_text('{"top_k": null}', "utf-8")
    assert Engine.load(model, device="cpu").default_settings == SamplingSettings()
    (model / "generation_config.json").unlink()
    assert Engine.load(model, device="cpu").default_settings == SamplingSettings()


def test_do_sample_false_means_greedy(model: Path) -> None:
    edit_json(model / "generation_config.json", do_sample=False, temperature=0.6)
    assert Engine.load(model, device="cpu").default_settings.temperature == 0.0


def test_end_tokens_fall_back_to_the_tokenizers(model: Path) -> None:
    (model / "generation_config.json").unlink()
    edit_json(model / "config.json", eos_token_id=None)
    edit_json(model / "tokenizer_config.json", eos_token="<|user|>")
    assert Engine.load(model, device="cpu").eos_token_ids == (2,)


def test_without_a_template_chat_is_an_error(model: Path) -> None:
    (model / "chat_template.jinja").unlink()
    loaded = Engine.load(model, device="cpu")
    assert loaded.template is None
    with pytest.raises(TemplateError, match="copied has no chat template"):
        loaded.encode_chat([{"role": "user", "content": "hi"}])


@pytest.mark.parametrize("max_seq_len", [2, 100, 256])
def test_a_chosen_context_length(tiny_model: Path, max_seq_len: int) -> None:
    assert Engine.load(tiny_model, "cpu", "auto", max_seq_len).max_seq_len == max_seq_len


def test_long_contexts_are_capped_unless_asked_for(model: Path) -> None:
    edit_json(model / "config.json", max_position_embeddings=20_000)
    assert Engine.load(model, device="cpu").max_seq_len == 8192
    assert Engine.load(model, device="cpu", max_seq_len=10_000).max_seq_len == 10_000


def test_the_context_follows_the_memory(tiny_engine: Engine) -> None:
    config = tiny_engine.config
    per_token = kv_bytes_per_token(config, "float32")
    n_kv_heads, head_dim = config.kv_shapes[0]
    assert per_token == 4 * 2 * config.n_layers * n_kv_heads * head_dim
    available = 1000 * per_token
    lengths: dict[str, Any] = {
        "bytes_of": lambda n: n * per_token,
        "available": 100 * per_token,
    }
    assert context_length(config, None, **lengths) == 90
    assert context_length(config, 90, **lengths) == 90
    with pytest.raises(ModelLoadError, match=r"91 tokens need .* GB of KV cache; .* holds 90"):
        context_length(config, 91, **lengths)
    assert context_length(config, None, bytes_of=lengths["bytes_of"], available=available) == 256
    assert context_length(config, None, bytes_of=lengths["bytes_of"], available=None) == 256
    with pytest.raises(ModelLoadError, match="no memory is left"):
        context_length(config, None, bytes_of=lengths["bytes_of"], available=0)


def test_weights_that_do_not_fit_are_told_before_they_are_read(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_text = Path.read_text

    def scarce(path: Path, *args: Any, **options: Any) -> str:
        if path == Path("/proc/meminfo"):
            return "MemAvailable: 1 kB\n"
        return read_text(path, *args, **options)

    monkeypatch.setattr(Path, "read_text", scarce)
    with pytest.raises(ModelLoadError, match="not enough memory: the weights need"):
        Engine.load(tiny_model, device="cpu")


def test_free_memory_is_known_here() -> None:
    free = host_bytes()
    assert free is not None
    assert free > 2**20


def write_damaged_tokenizer(path: Path) -> None:
    (path / "tokenizer.json").write_text("{}", "utf-8")


def write_large_tokenizer(path: Path) -> None:
    backend = byte_level_tokenizer()
    backend.add_tokens(["otter", "beaver"])
    backend.save(str(path / "tokenizer.json"))


def cut_weights(path: Path) -> None:
    data = (path / "model.safetensors").read_bytes()
    (path / "model.safetensors").write_bytes(data[: len(data) // 2])


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no config": (lambda p: (p / "config.json").unlink(), "is not a model: config.json is missing"),
    "no weights": (lambda p: (p / "model.safetensors").unlink(), "no weights"),
    "no tokenizer": (lambda p: (p / "tokenizer.json").unlink(), "tokenizer.json: does not exist"),
    "architecture": (
        lambda p: edit_json(p / "config.json", architectures=["T5ForConditionalGeneration"]),
        "config.json: architectures: T5ForConditionalGeneration is not supported",
    ),
    "tokenizer damaged": (write_damaged_tokenizer, "tokenizer.json: damaged"),
    "tokenizer too large": (write_large_tokenizer, "does not fit the model"),
    "weights cut": (cut_weights, "model.safetensors: truncated"),
    "hidden size": (
        lambda p: edit_json(p / "config.json", hidden_size=128, head_dim=16),
        "has shape [320, 64], config.json asks for [320, 128]",
    ),
    "temperature": (
        lambda p: edit_json(p / "generation_config.json", temperature=-1),
        "generation_config.json: temperature: must be a number between 0",
    ),
    "top_p": (
        lambda p: edit_json(p / "generation_config.json", top_p=1.5),
        "generation_config.json: top_p must be between 0.0 and 1.0, not 1.5",
    ),
    "eos": (
        lambda p: edit_json(p / "generation_config.json", eos_token_id=320),
        "generation_config.json: eos_token_id: must be token ids between 0 and 319, not 320",
    ),
    "template": (
        lambda p: (p / "chat_template.jinja").write_text("{% if %}", "utf-8"),
        "chat_template.jinja: line 1:",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_directories_are_one_line(model: Path, damage: str) -> None:
    apply, message = DAMAGES[damage]
    apply(model)
    with pytest.raises(ModelLoadError) as caught:
        Engine.load(model, device="cpu")
    text = str(caught.value)
    assert text.startswith(str(model))
    assert message in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "tpu"}, "device: must be auto, cpu, cuda or cuda:N, not 'tpu'"),
        ({"device": "cuda:x"}, "device: must be auto"),
        ({"device": "cpu:1"}, "device: must be auto"),
        ({"device": "cuda:99"}, "device: cuda:99: torch finds"),
        ({"dtype": "int8"}, "dtype: must be auto, float32, bfloat16, float16, not 'int8'"),
        ({"dtype": "float16"}, "dtype: float16 needs torch and CUDA"),
        ({"quantize": "2bit"}, "quantize: must be none, 8bit, 6bit, 5bit, 4bit, not '2bit'"),
        ({"quantize": "5bit", "device": "cuda"}, "quantize: on CUDA it must be none, 8bit or 4bit"),
        ({"quantize": "6bit", "device": "cuda"}, "not 6bit (which needs device cpu"),
        ({"quantize": "8bit", "dtype": "float32"}, "dtype: must be auto where quantize is 8bit"),
        (
            {"kv_cache": "2bit"},
            "kv_cache: must be auto, float32, bfloat16, 8bit, k8v4, 4bit, not '2bit'",
        ),
        ({"max_seq_len": 257}, "max_seq_len: must be between 2 and the model's 256, not 257"),
        ({"max_seq_len": 1}, "max_seq_len: must be between 2"),
        ({"n_threads": 0}, "threads: must be 1 to"),
    ],
)
def test_wrong_options(tiny_model: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelLoadError, match=message.replace("(", r"\(")):
        Engine.load(tiny_model, **{"device": "cpu", **options})


@pytest.mark.parametrize("name", ["prefix_bytes", "prefix_disk_bytes"])
def test_numbers_of_bytes_are_not_negative(name: str) -> None:
    fields: dict[str, Any] = {name: -1}
    with pytest.raises(ModelLoadError, match=f"{name}: must be 0 or more, not -1"):
        LoadOptions(**fields)


def test_the_fields_of_the_options_are_arguments_of_load(tiny_model: Path) -> None:
    whole = Engine.load_with(tiny_model, LoadOptions(device="cpu", max_seq_len=64, dtype="float32"))
    load: Any = Engine.load  # for type checkers `path` has no name
    for loaded in (
        Engine.load(tiny_model, "cpu", "float32", 64),
        load(path=tiny_model, device="cpu", dtype="float32", max_seq_len=64),
    ):
        assert loaded.max_seq_len == whole.max_seq_len == 64
        assert loaded.fingerprint == whole.fingerprint
    assert whole.fingerprint != Engine.load(tiny_model, "cpu", quantize="8bit").fingerprint


def test_load_knows_its_arguments(tiny_model: Path) -> None:
    misspelt: dict[str, Any] = {"devcie": "cpu"}
    with pytest.raises(TypeError, match="devcie"):
        Engine.load(tiny_model, **misspelt)
    path = signature(Engine.load_with).parameters["path"]
    fields = signature(LoadOptions).parameters
    assert dict(signature(Engine.load).parameters) == {"path": path, **fields}


def test_paths_that_are_no_directory(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="nowhere: does not exist"):
        Engine.load(tmp_path / "nowhere")
    (tmp_path / "file").write_text("x")
    with pytest.raises(ModelLoadError, match="file: is not a directory"):
        Engine.load(tmp_path / "file")


def test_no_code_and_no_pickle_of_the_directory_is_used(model: Path) -> None:
    (model / "modeling_evil.py").write_text("raise SystemExit('ran')", "utf-8")
    (model / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    edit_json(model / "config.json", auto_map={"AutoModelForCausalLM": "modeling_evil.Evil"})
    opened: list[str] = []
    active = True

    def listen(event: str, arguments: tuple[Any, ...]) -> None:
        # An audit hook cannot be removed; `active` silences it after the test.
        if active and event == "open":
            opened.append(str(arguments[0]))
        assert not (active and event == "pickle.find_class")

    sys.addaudithook(listen)
    try:
        Engine.load(model, device="cpu")
    finally:
        active = False
    assert str(model / "config.json") in opened
    assert not [name for name in opened if name.endswith((".bin", "modeling_evil.py"))]


def test_describe_reads_no_weights(model: Path) -> None:
    description = describe(str(model))
    assert description.config.n_params == description.n_params
    assert description.stored_bytes == {"F32": 4 * description.n_params}
    assert description.n_files == 1
    assert description.has_chat_template
    assert description.n_tokens == 320
    assert description.default_format == "float32"
    assert description.weight_bytes("float32") == 4 * description.n_params
    norms = 7 * 64  # two in each of three layers and one at the end, float32 in every format
    matrices = description.n_params - norms
    assert description.weight_bytes("bfloat16") == 2 * matrices + 4 * norms
    assert description.weight_bytes("8bit") == matrices * 544 // 512 + 4 * norms
    assert description.weight_bytes("6bit") == matrices * 448 // 512 + 4 * norms
    tables, table = 2 * 320 * 64, 320 * 64
    of_five, of_four = (
        tables * 448 // 512 + (matrices - tables) * block // 512 + 4 * norms for block in (384, 320)
    )
    assert description.weight_bytes("5bit") == of_five
    # What the head saves with six bits instead of eight goes to fifth bits.
    fifth_bits = description.weight_bytes("4bit") - of_four
    assert 0 < fifth_bits <= table * (544 - 448) // 512
    n_kv_heads, head_dim = description.config.kv_shapes[0]
    heads = 2 * description.config.n_layers * n_kv_heads
    per_token = heads * 2 * head_dim
    assert description.kv_bytes(100, "8bit") == 100 * per_token
    assert description.kv_bytes(100, "8bit", "float32") == 100 * heads * 4 * head_dim
    assert description.kv_bytes(100, "float32", "8bit") == 100 * heads * (head_dim + 4)
    with pytest.raises(ModelLoadError, match="kv_cache: must be auto"):
        description.kv_bytes(100, "8bit", "2bit")
    pairs = 4 * -(-head_dim // 64)
    assert description.kv_bytes(100, "8bit", "4bit") == 100 * heads * (head_dim // 2 + pairs)
    of_both = (head_dim + 4) + (head_dim // 2 + pairs)
    assert description.kv_bytes(100, "8bit", "k8v4") == 100 * heads // 2 * of_both
    weights = description.weight_bytes("8bit")
    assert description.memory_bytes(100, "8bit") == weights + 100 * per_token


def test_describe_refuses_what_load_refuses(model: Path) -> None:
    cut_weights(model)
    with pytest.raises(ModelLoadError, match="truncated"):
        describe(model)
    with pytest.raises(ModelLoadError, match="does not exist"):
        describe(model / "nowhere")


def test_invalid_input_errors_are_value_errors_with_a_param(tiny_engine: Engine) -> None:
    with pytest.raises(ValueError, match="lone surrogate") as caught:
        tiny_engine.tokenizer.encode("\udfff")
    assert isinstance(caught.value, InvalidInputError)
