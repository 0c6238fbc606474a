"""Hostile files next to weights: configuration, tokenizer, template and what is kept on disk."""

import json
import logging
import os
import shutil
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import ChatTemplate, Engine, InvalidInputError, ModelLoadError, Tokenizer
from engine.checkpoint.config_json import model_config
from engine.device.cpu.matrix import PanelMatrix
from engine.device.cpu.panel_cache import PanelCache, open_panels
from engine.device.cpu.panel_file import PanelFileError, PanelWriter, read_panels
from engine.native.cpu import address, kernels
from engine.stored_tensor import StoredTensor
from tests.support.tiny_models import byte_level_tokenizer, save_tokenizer, sentencepiece_tokenizer

ROWS = 400  # of an embedding
Edit = Callable[[dict[str, Any]], object]


@pytest.fixture
def model(tiny_model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_model, tmp_path / "model"))


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(ModelLoadError) as caught:
        call()
    text = str(caught.value)
    assert text.isprintable()
    return text


def edit_json(file: Path, edit: Edit) -> None:
    values = json.loads(file.read_text("utf-8"))
    edit(values)
    file.write_text(json.dumps(values), "utf-8")


# config.json and generation_config.json

LIES: dict[str, Any] = {
    "hidden_size": (0, -1, "64", 64.0, True, 2**31, [64]),
    "num_hidden_layers": (0, 10**9, 2**63, None, "3"),
    "num_attention_heads": (0, 3, 5000),
    "num_key_value_heads": (0, 3, 8, -1),
    "head_dim": (0, 1, 15, 2**40),
    "intermediate_size": (0, 2**40),
    "vocab_size": (0, 2**31, "320"),
    "max_position_embeddings": (0, 2**40),
    "rms_norm_eps": (-1.0, 2.0, "1e-6", float("nan"), float("inf")),
    "rope_theta": (0, -1.0, float("nan"), 1e300),
    "rope_parameters": ({"rope_type": "yarn"}, {"rope_type": "linear", "factor": 0}, [], "x"),
    "eos_token_id": (-1, 320, [0, 320], "4", 2**31, [[0]], 4.0),
    "bos_token_id": (-1, 320, True),
    "architectures": ([], "LlamaForCausalLM", ["x" * 2**20], ["LlamaForCausalLM"] * 2, [1], None),
    "hidden_act": ("gelu", 1),
    "quantization_config": (
        {"quant_method": "gptq", "bits": 3, "group_size": 0},
        {"quant_method": "awq"},
        1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("key", LIES)
def test_a_config_that_lies(model: Path, key: str) -> None:
    text = (model / "config.json").read_text("utf-8")
    for lie in LIES[key]:
        # The newer key for the rotary embedding has a theta of its own.
        values = {**json.loads(text), key: lie}
        if key == "rope_theta":
            del values["rope_parameters"]
        (model / "config.json").write_text(json.dumps(values), "utf-8")
        message = refusal(lambda: model_config(model))
        assert message.startswith(f"{model / 'config.json'}: "), lie
        assert len(message) < len(str(model)) + 300


@pytest.mark.parametrize(
    "lie",
    [
        '{"temperature": NaN}',
        '{"temperature": 1e999}',
        '{"eos_token_id": [-1]}',
        '{"top_k": 1.5}',
    ],
)
def test_a_generation_config_that_lies(model: Path, lie: str) -> None:
    file = model / "generation_config.json"
    file.write_text(lie, "utf-8")
    assert refusal(lambda: Engine.load(model, device="cpu")).startswith(f"{file}: ")


# tokenizer.json


def saved(path: Path, backend: Any, edit: Edit = lambda _: None) -> Path:
    save_tokenizer(path, backend)
    edit_json(path / "tokenizer.json", edit)
    return path


def with_pattern(pattern: str) -> Edit:
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated"}
    spelled = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
    steps = [{**split, "invert": False}, {**spelled, "trim_offsets": True}]
    return lambda t: t.update(pre_tokenizer={"type": "Sequence", "pretokenizers": steps})


TOKENIZERS: dict[str, Edit] = {
    "an id of -1": lambda t: t["model"]["vocab"].update(x=-1),
    "an id of 2^31": lambda t: t["model"]["vocab"].update(x=2**31),
    "an id of 2^32": lambda t: t["model"]["vocab"].update(x=2**32),
    "an id of text": lambda t: t["model"]["vocab"].update(x="1"),
    "an id twice": lambda t: t["model"]["vocab"].update(x=7),
    "a token of a megabyte": lambda t: t["model"]["vocab"].update({"x" * 2**20: 399}),
    "a merge of what is no token": lambda t: t["model"]["merges"].append(["\u4f60", "\u597d"]),
    "a merge of one": lambda t: t["model"]["merges"].append(["a"]),
    "an added token of a negative id": lambda t: t["added_tokens"][0].update(id=-1),
    "a pattern that is none": with_pattern("(a"),
    "no model": lambda t: t.pop("model"),
    "a model of another kind": lambda t: t["model"].update(type="Pickle"),
}


@pytest.mark.parametrize("case", TOKENIZERS)
def test_a_damaged_tokenizer(tmp_path: Path, case: str) -> None:
    saved(tmp_path, byte_level_tokenizer(), TOKENIZERS[case])
    message = refusal(lambda: Tokenizer.load(tmp_path, ROWS))
    assert message.startswith(f"{tmp_path / 'tokenizer.json'}: ")
    assert len(message) < len(str(tmp_path)) + 600


@pytest.mark.parametrize("content", [b"\xff\xfe", b'{"version": "1.0", "model": ' + b"[" * 100_000])
def test_a_tokenizer_file_that_is_no_text_or_too_deep(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content)
    assert "tokenizer.json: damaged" in refusal(lambda: Tokenizer.load(tmp_path, ROWS))


def test_a_tokenizer_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "tokenizer.json").open("wb") as file:
        file.truncate(2**40)  # takes no room
    assert "bytes; at most" in refusal(lambda: Tokenizer.load(tmp_path, ROWS))


def test_tokens_that_look_like_bytes_are_text(tmp_path: Path) -> None:
    pieces = ["<0x-1>", "<0xZZ>", "<0x100>", "<0x>", "<0x1\n>"]
    edit: Edit = lambda t: t["model"]["vocab"].update(  # noqa: E731
        {piece: 300 + i for i, piece in enumerate(pieces)}
    )
    tokenizer = Tokenizer.load(saved(tmp_path, sentencepiece_tokenizer(), edit), ROWS)
    assert [tokenizer.token_bytes(300 + i) for i in range(5)] == [p.encode() for p in pieces]


def test_holes_in_the_ids_are_tokens_without_bytes(tmp_path: Path) -> None:
    edit: Edit = lambda t: t["model"]["vocab"].update(far=390)  # noqa: E731
    tokenizer = Tokenizer.load(saved(tmp_path, byte_level_tokenizer(), edit), ROWS)
    assert [tokenizer.token_bytes(i) for i in (389, 390, 391)] == [b"", b"far", b""]


@pytest.mark.parametrize("n", [64, 10_000])
def test_a_pattern_that_takes_for_ever_is_an_error_of_the_request(tmp_path: Path, n: int) -> None:
    """The library fails with a panic, which is not an Exception and would end the server."""
    tokenizer = Tokenizer.load(
        saved(tmp_path, byte_level_tokenizer(), with_pattern("(a+)+b")), ROWS
    )
    with pytest.raises(InvalidInputError, match="tokenizer cannot encode this text") as caught:
        tokenizer.encode("a" * n)
    assert caught.value.param == "prompt"
    assert tokenizer.decode(tokenizer.encode("the river")) == "the river"


def test_a_tokenizer_that_fits_by_chance_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    saved(tmp_path, byte_level_tokenizer())
    Tokenizer.load(tmp_path, ROWS)
    assert not caplog.messages
    Tokenizer.load(tmp_path, 32_000)
    (message,) = caplog.messages
    assert message.endswith(
        "320 tokens for 32000 embedding rows: is it the tokenizer of another model?"
    )


# Templates

BOMBS = {
    "expressions": "{{a}}" * 50_000,
    "comparisons": "{{a" + "<a" * 100_000 + "}}",
    "a list": "{{[" + "a()," * 50_000 + "]}}",
    "loops": "{%for a in b%}{%endfor%}" * 10_000,
    "one number": "{{" + "1" * 200_000 + "}}",
    "five megabytes": "x" * 5_000_000,
}


@pytest.mark.parametrize("kind", BOMBS)
def test_templates_that_take_long_to_compile_are_refused_at_once(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "chat_template.jinja"
    file.write_text(BOMBS[kind], "utf-8")
    begin = time.thread_time()
    message = refusal(lambda: ChatTemplate.load(tmp_path))
    assert message.startswith(f"{file}: ")
    assert len(message) < len(str(file)) + 600
    assert time.thread_time() - begin < 5, "some of these took minutes"


def test_a_large_template_of_text_is_not_one_of_many_tokens() -> None:
    source = "x" * 200_000 + "{{ messages|length }}" * 1000
    assert ChatTemplate(source, special_tokens={}, where="x").render([]).endswith("0" * 1000)


# Code of a model


def test_nothing_of_a_directory_is_imported_or_unpickled(model: Path) -> None:
    for name in ("modeling_x.py", "tokenizer.py", "config.py", "__init__.py", "sitecustomize.py"):
        (model / name).write_text("raise SystemExit('ran')", "utf-8")
    for name in ("pytorch_model.bin", "model.pkl", "training_args.bin", "tokenizer.pickle"):
        (model / name).write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    remote = {"auto_map": {"AutoModelForCausalLM": "modeling_x.X"}, "trust_remote_code": True}
    for name in ("config.json", "tokenizer_config.json", "generation_config.json"):
        edit_json(model / name, lambda values: values.update(remote))
    seen: list[str] = []
    active = True

    def listen(event: str, arguments: tuple[Any, ...]) -> None:
        if active and (
            event in ("open", "exec", "pickle.find_class") or event.startswith("import")
        ):
            seen.append(f"{event} {arguments[:2]}")

    sys.addaudithook(listen)  # never removed: `active` silences it
    try:
        Engine.load(model, device="cpu")
    finally:
        active = False
    allowed = (".json", ".safetensors", ".jinja")
    of_model = [entry for entry in seen if str(model) in entry]
    assert of_model
    assert all(any(suffix in entry for suffix in allowed) for entry in of_model)
    assert not [entry for entry in seen if "pickle.find_class" in entry]


# Packed weights kept on disk


def stored(name: str, n_rows: int, n_in: int = 32) -> StoredTensor:
    return StoredTensor(Path(), name, "F32", (n_rows, n_in), 4 * n_rows * n_in, 0, 0)


@pytest.fixture
def entry(tmp_path: Path) -> Path:
    file = tmp_path / "x.panels"
    with file.open("wb") as stream:
        writer = PanelWriter(stream, "key")
        writer.append(
            "a", PanelMatrix(np.arange(544, dtype=np.uint8), 16, 32, "8bit", is_woven=False)
        )
        writer.finish()
    return file


def rewrite_index(file: Path, edit: Callable[[Any], Any]) -> None:
    """As an attacker who knows the format does: with the right checksum."""
    trailer = struct.Struct("<8sQQ")
    data = file.read_bytes()
    kind, n, _ = trailer.unpack(data[-trailer.size :])
    begin = len(data) - trailer.size - n
    raw = np.frombuffer(json.dumps(edit(json.loads(data[begin:][:n]))).encode(), np.uint8)
    checksum = kernels.checksum(address(raw), raw.size)
    file.write_bytes(data[:begin] + raw.tobytes() + trailer.pack(kind, raw.size, checksum))


def described(**facts: Any) -> Callable[[Any], Any]:
    return lambda index: {**index, "matrices": {"a": {**index["matrices"]["a"], **facts}}}


@pytest.mark.parametrize(
    "edit",
    [
        lambda _: [],
        lambda _: {"key": "key"},
        lambda _: {"key": "key", "matrices": []},
        lambda _: {"key": "key", "matrices": {"a": 1}},
        lambda _: {"key": "key", "matrices": {"a": {}}},
        described(begin=-64),
        described(begin=1),
        described(begin=2**62),
        described(n_bytes=2**62),
        described(n_bytes=-1),
        described(n_bytes="544"),
        described(n_out=None),
        described(checksum=0),
        described(begin=64, n_bytes=480),
    ],
)
def test_an_index_that_lies_is_not_believed(entry: Path, edit: Callable[[Any], Any]) -> None:
    rewrite_index(entry, edit)
    with pytest.raises(PanelFileError):
        read_panels(entry, "key")


@pytest.mark.parametrize(
    "facts",
    [
        {"n_out": 32},
        {"n_out": 2**40},
        {"n_in": 64},
        {"n_in": 0},
        {"format": "4bit"},
        {"format": ""},
    ],
)
def test_a_matrix_of_another_shape_than_the_checkpoint_has_is_not_used(
    entry: Path, facts: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """The kernels would read beyond its end."""
    kept = PanelCache(read_panels(entry, "key"))
    assert kept.get("a", [(16, 32)], "8bit") is not None
    assert kept.get("a", [(32, 32)], "8bit") is None
    assert kept.get("a", [(16, 32)], "4bit") is None
    rewrite_index(entry, described(**facts))
    with caplog.at_level(logging.WARNING):
        assert PanelCache(read_panels(entry, "key")).get("a", [(16, 32)], "8bit") is None
    assert caplog.messages[-1] == "a: is kept as another matrix: it is packed anew"


def test_an_entry_that_was_read_may_be_cut_or_removed(model: Path, tmp_path: Path) -> None:
    tensors = {"a": stored("a", 16)}
    tensors["a"] = StoredTensor(model / "config.json", "a", "F32", (16, 32), 8, 0, 0)
    with open_panels(tmp_path / "cache", tensors, "8bit", n_bytes=1) as panels:
        panels.put("a", PanelMatrix(np.zeros(544, np.uint8), 16, 32, "8bit", is_woven=False))
    (file,) = (tmp_path / "cache").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    with open_panels(tmp_path / "cache", tensors, "8bit", n_bytes=1) as panels:
        matrix = panels.get("a", [(16, 32)], "8bit")
    assert matrix is not None
    os.truncate(file, 0)
    os.unlink(file)
    assert not matrix.sections[0].panels.any()


# Links that lead nowhere


def put_loop(file: Path) -> None:
    file.symlink_to(file.name)


def put_dangling(file: Path) -> None:
    file.symlink_to("no such blob")


@pytest.mark.parametrize("put", [put_loop, put_dangling], ids=lambda put: put.__name__)
@pytest.mark.parametrize(
    "name",
    ["chat_template.jinja", "additional_chat_templates/tool_use.jinja", "generation_config.json",
     "tokenizer_config.json", "config.json", "tokenizer.json", "model.safetensors",
     "additional_chat_templates", "."],
)  # fmt: skip
def test_a_link_that_leads_nowhere_is_told_and_not_taken_for_absent(
    model: Path, name: str, put: Callable[[Path], None]
) -> None:
    file = model / name
    file.parent.mkdir(exist_ok=True)
    if file.is_dir():
        shutil.rmtree(file)
    file.unlink(missing_ok=True)
    put(file)
    text = refusal(lambda: Engine.load(model, device="cpu"))
    assert text.startswith(str(file))
    wanted = "no such blob, which does not exist" if put is put_dangling else "symbolic links"
    assert wanted in text


def test_a_pipe_named_like_packed_weights_stops_no_start(tmp_path: Path) -> None:
    file = tmp_path / "packed.panels"
    os.mkfifo(file)
    with pytest.raises(PanelFileError, match="is not a regular file"):
        read_panels(file, "key")
