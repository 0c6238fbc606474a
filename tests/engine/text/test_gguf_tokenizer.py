"""Tokenizers from GGUF files give the ids and texts of the libraries that their vocabularies come
from: transformers for byte-level BPE, sentencepiece for its own.
"""

import io
import json
import re
import unicodedata
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import tokenizers
import transformers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, pre_tokenizers, trainers

from engine import ModelLoadError, Tokenizer
from tests.support.gguf_tokenizers import (
    BYTE,
    CONTROL,
    NORMAL,
    UNKNOWN,
    USER_DEFINED,
    byte_level_keys,
    tokenizer_of,
)

CORPUS = (
    "Once upon a time there was a little otter who loved the river; she didn't like 1234567 fish.",
    "HTTPServer's paths/like/this//\n\n\tdef camelCase(x, y):\n        return x['key'] + 20_000\n",
    "na\u00efve caf\u00e9 \u2014 \u4f60\u597d\u4e16\u754c \u3053\u3093\u306b\u3061\u306f "
    "\ud55c\uad6d\uc5b4 \u041f\u0440\u0438\u0432\u0435\u0442 \u0939\u093f\u0928\u094d\u0926\u0940",
    "\U0001f680\U0001f636\u200d\U0001f32b\ufe0f $3.50 \u00a3\u20ac !!! ... ---    a    b\r\n\r\n",
)
SPECIALS = ("<|start|>", "<|end_of_text|>", "<|im_end|>")
SHOWN = ("<tool_call>", "[tool]")
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]))
# Names -> the classes of transformers for tokenizers with such patterns.
CLASSES = {
    "qwen2": "Qwen2Tokenizer",
    "qwen35": "Qwen3_5Tokenizer",
    "command-r": "CohereTokenizer",
    "gpt-2": "GPT2Tokenizer",
    "olmo": "GPTNeoXTokenizer",
}
# Texts of the corpus and the texts around them, cut and joined at random.
KNOWN_TEXT = st.lists(
    st.one_of(
        st.sampled_from([word for text in CORPUS for word in text.split()]),
        st.sampled_from([" ", "  ", "\n", "\t", "\u00a0", "'s", "1", "23", "e\u0301", "\u093f"]),
        st.characters(exclude_categories=["Cs"]),
    )
).map("".join)
TEXT = st.one_of(ANY_TEXT, KNOWN_TEXT)


@cache
def trained() -> tokenizers.Tokenizer:
    """A byte-level BPE with merges across the words of every pattern: a wrong cut changes ids."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    backend.train_from_iterator(CORPUS * 2, trainer)
    return backend


@cache
def with_added_tokens() -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer.from_str(trained().to_str())
    backend.add_special_tokens([AddedToken(text, special=True) for text in SPECIALS])
    backend.add_tokens([AddedToken(text, normalized=False) for text in SHOWN])
    return backend


def ids_of(oracle: transformers.PreTrainedTokenizerFast, text: str) -> list[int]:
    ids: list[int] = oracle.backend_tokenizer.encode(text, add_special_tokens=False).ids
    return ids


@pytest.fixture(scope="module", params=CLASSES)
def family(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Tokenizer, transformers.PreTrainedTokenizerFast]:
    """The same vocabulary from a GGUF file, and in the class that transformers has for it."""
    model = json.loads(trained().to_str())["model"]
    merges = [tuple(pair) for pair in model["merges"]]
    oracle = getattr(transformers, CLASSES[request.param])(vocab=model["vocab"], merges=merges)
    keys = byte_level_keys(trained(), request.param)
    return tokenizer_of(tmp_path_factory.mktemp("family"), keys), oracle


@given(text=TEXT)
def test_a_family_has_the_ids_of_its_own_tokenizer(
    family: tuple[Tokenizer, transformers.PreTrainedTokenizerFast], text: str
) -> None:
    tokenizer, oracle = family
    token_ids = tokenizer.encode(text, add_special_tokens=False)
    assert token_ids == ids_of(oracle, text)
    assert tokenizer.decode(token_ids) in (text, unicodedata.normalize("NFC", text))
    assert tokenizer.least_tokens(text) <= len(token_ids)


@pytest.fixture(scope="module", params=["llama-bpe", "dbrx", "tekken", "gpt-4o", "kormo"])
def read_twice(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Tokenizer, transformers.PreTrainedTokenizerFast]:
    """The same GGUF file, read here and by transformers."""
    directory = tmp_path_factory.mktemp("twice")
    keys = byte_level_keys(with_added_tokens(), request.param)
    tokenizer = tokenizer_of(directory, keys)
    oracle = transformers.PreTrainedTokenizerFast.from_pretrained(directory, gguf_file="model.gguf")
    return tokenizer, oracle


@given(text=st.lists(st.one_of(TEXT, st.sampled_from([*SPECIALS, *SHOWN]))).map("".join))
def test_a_file_gives_the_ids_that_transformers_reads(
    read_twice: tuple[Tokenizer, transformers.PreTrainedTokenizerFast], text: str
) -> None:
    tokenizer, oracle = read_twice
    token_ids = tokenizer.encode(text, add_special_tokens=False)
    assert token_ids == ids_of(oracle, text)
    assert tokenizer.decode(token_ids) == text
    assert tokenizer.decode(tokenizer.encode(text, parse_special=False)) == text


def test_added_tokens_are_found_whole_and_only_control_tokens_are_hidden(tmp_path: Path) -> None:
    keys = byte_level_keys(with_added_tokens(), "gpt-2")
    keys["tokens"] = [*keys["tokens"], "    ", "\u00e7a"]  # the latter is a letter, not a byte
    keys["token_type"] = [*keys["token_type"], USER_DEFINED, USER_DEFINED]
    tokenizer = tokenizer_of(tmp_path, keys)
    text = "a<|start|><tool_call>    b\u00e7a<|im_end|>"
    token_ids = tokenizer.encode(text)
    spelled = [tokenizer.spelled(token_id) for token_id in token_ids]
    assert spelled == ["a", "<|start|>", "<tool_call>", "    ", "b", "\u00e7a", "<|im_end|>"]
    assert tokenizer.decode(token_ids) == text
    assert tokenizer.decode(token_ids, skip_special_tokens=True) == "a<tool_call>    b\u00e7a"
    assert tokenizer.control_texts == set(SPECIALS) | {"[tool]"}, "it looks like a marker"
    plain = tokenizer.encode(text, parse_special=False)
    assert not any(tokenizer.is_control(token_id) for token_id in plain)
    assert tokenizer.decode(plain) == text


def test_a_word_that_is_a_token_needs_no_merges_where_the_name_says_so(tmp_path: Path) -> None:
    keys = byte_level_keys(trained(), "llama-bpe")
    keys["tokens"], keys["token_type"] = [*keys["tokens"], "zqj"], [*keys["token_type"], NORMAL]
    whole = tokenizer_of(tmp_path, keys)
    assert [whole.spelled(token_id) for token_id in whole.encode("zqj")] == ["zqj"]
    split = tokenizer_of(tmp_path, {**keys, "pre": "dbrx"})
    assert [split.spelled(token_id) for token_id in split.encode("zqj")] == ["z", "q", "j"]


@pytest.fixture(scope="module", params=["", "prefix", "prefix trim"])
def sentencepiece_model(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Tokenizer, sentencepiece.SentencePieceProcessor, str]:
    """A trained model, the same from a GGUF file, and how it treats spaces."""
    oracle = trained_pieces(request.param)
    directory = tmp_path_factory.mktemp("pieces")
    return tokenizer_of(directory, sentencepiece_keys(oracle, request.param)), oracle, request.param


def trained_pieces(spaces: str) -> sentencepiece.SentencePieceProcessor:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(line for text in CORPUS * 2 for line in text.splitlines() if line),
        model_writer=model,
        model_type="bpe",
        vocab_size=560,
        byte_fallback=True,
        normalization_rule_name="identity",
        add_dummy_prefix="prefix" in spaces,
        remove_extra_whitespaces="trim" in spaces,
        user_defined_symbols=[] if spaces else ["\n", "\n\n", "\u2581\u2581", "[img]"],
        minloglevel=3,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def sentencepiece_keys(oracle: sentencepiece.SentencePieceProcessor, spaces: str) -> dict[str, Any]:
    """As llama.cpp's converter writes them: user-defined tokens have spaces, and no score."""
    tokens, types, scores = [], [], []
    shown = ("\n", "\n\n", "\u2581\u2581", "[img]")
    for token_id in range(oracle.vocab_size()):
        piece, score = oracle.id_to_piece(token_id), oracle.get_score(token_id)
        type_ = NORMAL
        if oracle.is_unknown(token_id):
            type_ = UNKNOWN
        elif oracle.is_control(token_id):
            type_ = CONTROL
        elif oracle.is_byte(token_id):
            type_ = BYTE
        elif piece in shown:
            type_, piece, score = USER_DEFINED, piece.replace("\u2581", " "), -1000.0
        tokens.append(piece)
        types.append(type_)
        scores.append(score)
    return {
        "model": "llama",
        "tokens": tokens,
        "token_type": types,
        "scores": scores,
        "add_space_prefix": "prefix" in spaces,
        "remove_extra_whitespaces": "trim" in spaces,
    }


@given(text=TEXT.filter(lambda text: not {"\0", "\u2581"} & set(text)))
def test_sentencepiece_has_the_ids_of_its_own_library(
    sentencepiece_model: tuple[Tokenizer, sentencepiece.SentencePieceProcessor, str], text: str
) -> None:
    tokenizer, oracle, spaces = sentencepiece_model
    token_ids = tokenizer.encode(text, add_special_tokens=False)
    assert token_ids == oracle.encode(text)
    decoded = tokenizer.decode(token_ids)
    if not spaces:
        assert decoded == text
    elif spaces == "prefix":
        assert decoded == (f" {text}" if text else "")
    else:
        assert decoded.strip(" ") == re.sub(" +", " ", text).strip(" ")


def merged_keys(**keys: Any) -> tuple[dict[str, Any], tokenizers.Tokenizer]:
    """Gemma 4's kind of vocabulary, as llama.cpp's converter writes it, and its tokenizer in
    transformers.
    """
    specials = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "<turn|>", "<|tool_response>"]
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=[*specials, *(f"<0x{byte:02X}>" for byte in range(256))],
        show_progress=False,
    )
    backend = tokenizers.Tokenizer(models.BPE())
    backend.train_from_iterator([text.replace(" ", "\u2581") for text in CORPUS], trainer)
    model = json.loads(backend.to_str())["model"]
    merges = [tuple(pair) for pair in model["merges"]]
    family: Any = transformers.GemmaTokenizer
    oracle = family(vocab=model["vocab"], merges=merges).backend_tokenizer
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    n_specials, n_bytes = len(specials), len(specials) + 256
    types = [BYTE if n_specials <= i < n_bytes else NORMAL for i in range(len(tokens))]
    types[:n_specials] = [CONTROL] * (n_specials - 1) + [USER_DEFINED]
    found = {
        "model": "gemma4",
        "tokens": tokens,
        "token_type": types,
        "merges": [" ".join(pair) for pair in merges],
        "bos_token_id": 2,
        "eos_token_id": 1,
    }
    return {**found, **keys}, oracle


@pytest.fixture(scope="module")
def merged_pieces(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Tokenizer, tokenizers.Tokenizer]:
    keys, oracle = merged_keys()
    return tokenizer_of(tmp_path_factory.mktemp("merged"), keys), oracle


@given(text=TEXT)
def test_gemma_4_has_the_ids_of_its_own_tokenizer(
    merged_pieces: tuple[Tokenizer, tokenizers.Tokenizer], text: str
) -> None:
    tokenizer, oracle = merged_pieces
    token_ids = tokenizer.encode(text, add_special_tokens=False)
    assert token_ids == oracle.encode(text, add_special_tokens=False).ids
    assert tokenizer.decode(token_ids) == text.replace("\u2581", " ")
    assert tokenizer.least_tokens(text) <= len(token_ids)


@pytest.mark.parametrize("said", [{}, {"add_bos_token": False}, {"add_bos_token": True}])
def test_gemma_4_always_begins_with_bos(tmp_path: Path, said: dict[str, Any]) -> None:
    keys, _ = merged_keys(**said)
    tokenizer = tokenizer_of(tmp_path, keys)
    assert tokenizer.encode("a")[0] == 2
    ends = {tokenizer.spelled(token_id) for token_id in tokenizer.eos_token_ids}
    assert ends == {"<eos>", "<turn|>", "<|tool_response>"}


def test_a_vocabulary_of_merges_has_every_byte(tmp_path: Path) -> None:
    keys, _ = merged_keys()
    keys["tokens"] = [text.replace("<0x41>", "<0x4_>") for text in keys["tokens"]]
    with pytest.raises(ModelLoadError, match=r"tokenizer\.ggml\.tokens: .*a token <0x41>"):
        tokenizer_of(tmp_path, keys)


def test_text_never_becomes_a_byte_that_it_names(tmp_path: Path) -> None:
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    types = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256]
    pieces = ["\u2581", "<", "0", "x", "4", "1", ">", "<0", "x4", "1>", "<0x4"]
    tokenizer = tokenizer_of(
        tmp_path,
        {
            "model": "llama",
            "tokens": tokens + pieces,
            "token_type": types + [NORMAL] * len(pieces),
            "scores": [0.0] * (len(types) + len(pieces)),
        },
    )
    token_ids = tokenizer.encode("<0x41>", add_special_tokens=False)
    assert [tokenizer.spelled(token_id) for token_id in token_ids] == ["\u2581", "<0x4", "1>"]
    assert tokenizer.decode(token_ids) == " <0x41>"
