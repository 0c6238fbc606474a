"""A tokenizer put together from its parts is the one that the library reads."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors

from engine import DEFAULT_MODEL
from engine.text.assembled_bpe import assembled
from tests.engine.text.test_added_tokens import KINDS
from tests.engine.text.test_added_tokens import sentencepiece as with_runs
from tests.engine.text.test_tokenizer import MARKED
from tests.support.tiny_models import byte_level_tokenizer, sentencepiece_tokenizer

BUILT_IN = (DEFAULT_MODEL / "tokenizer.json").read_bytes()


def data_of(backend: Tokenizer) -> bytes:
    return bytes(backend.to_str().encode())


def changed(change: Callable[[dict[str, Any]], object], data: bytes = BUILT_IN) -> bytes:
    document = json.loads(data)
    change(document)
    return json.dumps(document).encode()


def check_same(data: bytes) -> Tokenizer:
    """The assembled one, which must be all that the library reads in `data`."""
    whole, parts = tokenizers.Tokenizer.from_buffer(data), assembled(data)
    assert parts is not None
    assert parts.backend.to_str() == whole.to_str()
    assert parts.vocabulary == whole.get_vocab(with_added_tokens=True)
    return parts.backend


def decorated() -> Tokenizer:
    """With each kind of added token, a part of every kind, and what a load removes again."""
    backend = byte_level_tokenizer()
    backend.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Strip()])
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(use_regex=False)]
    )
    backend.add_tokens(
        [
            AddedToken("<one>", single_word=True),
            AddedToken("<left>", lstrip=True, normalized=False),
            AddedToken("<right>", rstrip=True),
            AddedToken("\u00e9\U0001f9c0", special=True),
        ]
    )
    backend.add_special_tokens([AddedToken("<last>", normalized=True, rstrip=True)])
    last = backend.token_to_id("<last>")
    backend.post_processor = processors.TemplateProcessing("<last> $A", None, [("<last>", last)])
    backend.enable_truncation(5)
    backend.enable_padding(pad_id=1, pad_token="x")
    return backend


@pytest.mark.parametrize(
    "backend",
    [
        byte_level_tokenizer(),
        sentencepiece_tokenizer(),
        decorated(),
        *(with_runs(decoder, prepends=p, normalized=n) for decoder, p, n in KINDS.values()),
    ],
)
def test_it_is_the_same(backend: Tokenizer) -> None:
    check_same(data_of(backend))


@given(MARKED)
def test_it_encodes_the_same(text: str) -> None:
    parts = assembled(BUILT_IN)
    assert parts is not None
    ids = Tokenizer.from_buffer(BUILT_IN).encode(text).ids
    assert parts.backend.encode(text).ids == ids


@pytest.mark.parametrize(
    "options",
    [
        {"dropout": 0.25},
        {"unk_token": "a"},
        {"continuing_subword_prefix": ""},
        {"end_of_word_suffix": ""},
        {"fuse_unk": True},
        {"byte_fallback": True},
        {"ignore_merges": True},
        {"dropout": None, "unk_token": None},
    ],
)
def test_options_of_the_model_are_kept(options: dict[str, Any]) -> None:
    backend = check_same(changed(lambda document: document["model"].update(options)))
    model = json.loads(backend.to_str())["model"]
    assert {name: model[name] for name in options} == options


def test_merges_of_older_files() -> None:
    def older(document: dict[str, Any]) -> None:
        model = document["model"]
        model["merges"] = [" ".join(merge) for merge in model["merges"]]

    data = changed(older)
    assert data != changed(lambda _: None)
    assert check_same(data).to_str() == Tokenizer.from_buffer(BUILT_IN).to_str()


def unlike(name: str, value: object) -> Callable[[dict[str, Any]], object]:
    return lambda document: document["added_tokens"][0].update({name: value})


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document["model"].update(type="WordPiece"),
        lambda document: document["model"].pop("type"),
        lambda document: document["model"].update(new_option=True),
        lambda document: document["model"].update(merges=[["a", "not a piece"]]),
        lambda document: document["model"].update(merges=["#version: 0.2"]),
        lambda document: document["model"].update(vocab=["a"]),
        lambda document: document.pop("added_tokens"),
        lambda document: document.update(pre_tokenizer={"type": "Unknown"}),
        unlike("new_option", True),
        unlike("id", 1_000_000),
        unlike("content", ""),
        unlike("content", "beside the vocabulary"),
    ],
)
def test_others_are_left_to_the_library(change: Callable[[dict[str, Any]], object]) -> None:
    assert assembled(changed(change)) is None


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff", b'"\\ud800"', b"[" * 100_000])
def test_what_is_no_tokenizer_is_left_to_the_library(data: bytes) -> None:
    assert assembled(data) is None


def test_other_models_are_left_to_the_library() -> None:
    words = Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    assert assembled(data_of(words)) is None
