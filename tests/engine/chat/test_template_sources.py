"""Where a chat template comes from: the model's directory, its GGUF file, or a file of the user."""

import shutil
from pathlib import Path

import pytest

from engine import ChatTemplate, Engine, ModelLoadError
from tests.support.gguf_tokenizers import metadata_of
from tests.support.tiny_models import TEMPLATE

QUESTION = [{"role": "user", "content": "Hi"}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
OWN = "{{ bos_token }}[own]{{ messages[-1].content }}{{ eos_token }}"
BROKEN = "{% for message in messages %}"
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
KEYS = {"model": "gpt2"}


@pytest.fixture
def model(tiny_model: Path, tmp_path: Path) -> Path:
    return shutil.copytree(tiny_model, tmp_path / "model")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "own.jinja"
    file.write_text(OWN, "utf-8")
    return file


def test_a_file_replaces_the_template_of_a_directory(model: Path, file: Path) -> None:
    engine = Engine.load(model, device="cpu", chat_template=file)
    assert engine.render_chat(QUESTION) == "<|endoftext|>[own]Hi<|end|>"
    assert engine.template is not None
    assert engine.template.source == OWN
    plain = Engine.load(model, device="cpu")
    assert plain.template is not None
    assert plain.template.source == TEMPLATE
    assert plain.fingerprint != engine.fingerprint, "answers to chats differ"


def test_a_file_is_the_way_past_a_template_that_does_not_parse(model: Path, file: Path) -> None:
    own = model / "chat_template.jinja"
    own.write_text(BROKEN, "utf-8")
    with pytest.raises(ModelLoadError) as caught:
        ChatTemplate.load(model)
    assert str(caught.value).startswith(f"{own}: line 1: ")
    assert "--chat-template FILE" in str(caught.value)
    assert ChatTemplate.load(model, file) is not None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "does not exist"),
        (b"", "is empty; a chat template is text in Jinja's language"),
        (b" \n", "is empty; a chat template is text in Jinja's language"),
        (b"a\xff", "not UTF-8 at byte 1"),
        (BROKEN.encode(), "line 1: "),
        (b"x" * (256 * 1024 + 1), "262145 bytes; at most 262144 are read"),
    ],
)
def test_files_that_are_no_templates(
    model: Path, tmp_path: Path, content: bytes | None, message: str
) -> None:
    file = tmp_path / "other.jinja"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ModelLoadError) as caught:
        ChatTemplate.load(model, file)
    assert str(caught.value).startswith(f"{file}: {message}")
    assert "--chat-template" not in str(caught.value), "that is what the user just said"


def test_a_directory_is_no_file(model: Path) -> None:
    with pytest.raises(ModelLoadError, match="is not a regular file"):
        ChatTemplate.load(model, model)


def test_the_metadata_of_a_gguf_file_hold_a_template(tmp_path: Path, file: Path) -> None:
    metadata = metadata_of(tmp_path, KEYS, chat_template="{{ bos_token }}{{ messages[0].content }}")
    template = ChatTemplate.of_metadata(metadata, TOKENS)
    assert template is not None
    assert template.render(QUESTION) == template.render(QUESTION, tools=[TOOL]) == "<s>Hi"
    other = ChatTemplate.of_metadata(metadata, TOKENS, file)
    assert other is not None
    assert other.render(QUESTION) == "<s>[own]Hi</s>"


def test_the_metadata_name_a_template_for_tools(tmp_path: Path) -> None:
    metadata = metadata_of(
        tmp_path,
        KEYS,
        chat_template="plain",
        chat_template__tool_use="{{ tools | length }} tools",
        chat_template__rag="documents",
        chat_templates=["tool_use", "rag"],
    )
    template = ChatTemplate.of_metadata(metadata, TOKENS)
    assert template is not None
    assert template.render(QUESTION) == "plain"
    assert template.render(QUESTION, tools=[TOOL]) == "1 tools"


def test_metadata_without_a_template(tmp_path: Path) -> None:
    assert ChatTemplate.of_metadata(metadata_of(tmp_path, KEYS), TOKENS) is None


def test_a_template_in_metadata_that_does_not_parse(tmp_path: Path, file: Path) -> None:
    metadata = metadata_of(tmp_path, KEYS, chat_template=BROKEN)
    with pytest.raises(ModelLoadError) as caught:
        ChatTemplate.of_metadata(metadata, TOKENS)
    where = f"{tmp_path / 'model.gguf'}: tokenizer.chat_template: line 1: "
    assert str(caught.value).startswith(where)
    assert "--chat-template FILE" in str(caught.value)
    assert ChatTemplate.of_metadata(metadata, TOKENS, file) is not None
