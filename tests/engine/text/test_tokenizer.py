"""Token ids and the exact bytes behind them, for both kinds of vocabulary."""

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors

from engine import InvalidInputError, ModelLoadError, Tokenizer
from engine.text.token_bytes import Spelling, spelling_of
from tests.support.tiny_models import (
    SPECIALS,
    byte_level_tokenizer,
    save_tokenizer,
    sentencepiece_tokenizer,
)

EMBEDDING_ROWS = 330
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]))
# Texts that come close to control tokens, and contain them.
MARKED = st.lists(
    st.sampled_from([*SPECIALS, "<|", "|>", "end", "</s>", "<s>", "</", "s>", " ", "a", "\u00e9"])
).map("".join)


def wrap(backend: tokenizers.Tokenizer, tmp_path: Path) -> Tokenizer:
    save_tokenizer(tmp_path, backend)
    return Tokenizer.load(tmp_path, EMBEDDING_ROWS)


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return wrap(byte_level_tokenizer(), tmp_path_factory.mktemp("byte-level"))


@pytest.fixture(scope="module")
def sentencepiece(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return wrap(sentencepiece_tokenizer(), tmp_path_factory.mktemp("sentencepiece"))


def joined(tokenizer: Tokenizer, token_ids: list[int]) -> bytes:
    return b"".join(tokenizer.token_bytes(token_id) for token_id in token_ids)


def id_of(backend: tokenizers.Tokenizer, text: str) -> int:
    token_id = backend.token_to_id(text)
    assert token_id is not None
    return int(token_id)


def controls(tokenizer: Tokenizer, token_ids: list[int]) -> list[int]:
    return [token_id for token_id in token_ids if tokenizer.is_special(token_id)]


@given(text=ANY_TEXT | MARKED)
def test_byte_level_tokens_are_the_bytes_of_the_text(byte_level: Tokenizer, text: str) -> None:
    token_ids = byte_level.encode(text, add_special_tokens=False)
    assert joined(byte_level, token_ids) == text.encode()
    assert byte_level.decode(token_ids) == text


@given(text=ANY_TEXT)
def test_sentencepiece_tokens_are_a_space_and_the_text(sentencepiece: Tokenizer, text: str) -> None:
    token_ids = sentencepiece.encode(text, add_special_tokens=False)
    # The vocabulary writes a space as U+2581, so a U+2581 of the text comes back as a space.
    expected = f" {text}" if text else ""
    assert joined(sentencepiece, token_ids) == expected.replace("\u2581", " ").encode()


@given(text=ANY_TEXT | MARKED)
def test_text_of_control_tokens_can_stay_text(byte_level: Tokenizer, text: str) -> None:
    token_ids = byte_level.encode(text, add_special_tokens=False, parse_special=False)
    assert controls(byte_level, token_ids) == []
    assert joined(byte_level, token_ids) == text.encode()


@given(text=MARKED)
def test_text_of_control_tokens_can_stay_text_in_sentencepiece(
    sentencepiece: Tokenizer, text: str
) -> None:
    token_ids = sentencepiece.encode(text, add_special_tokens=False, parse_special=False)
    assert controls(sentencepiece, token_ids) == []
    assert joined(sentencepiece, token_ids) in (text.encode(), f" {text}".encode())


def test_control_tokens_are_parsed_by_default(byte_level: Tokenizer) -> None:
    end = SPECIALS.index("<|end|>")
    text = "a<|end|>b"
    assert byte_level.encode(text).count(end) == 1
    assert end not in byte_level.encode(text, parse_special=False)
    assert byte_level.is_special(end)
    assert byte_level.token_bytes(end) == b"<|end|>"
    assert byte_level.decode(byte_level.encode(text)) == text
    assert byte_level.decode(byte_level.encode(text), skip_special_tokens=True) == "ab"


def test_special_token_ids_come_from_the_config(byte_level: Tokenizer) -> None:
    assert byte_level.bos_token_id == 0
    assert byte_level.eos_token_ids == (4,)
    assert 256 + len(SPECIALS) < byte_level.vocab_size <= EMBEDDING_ROWS


@pytest.mark.parametrize("parse_special", [True, False])
def test_the_post_processor_adds_bos_unless_told_not_to(
    sentencepiece: Tokenizer, parse_special: bool
) -> None:
    token_ids = sentencepiece.encode("hello", parse_special=parse_special)
    assert token_ids[0] == 1
    assert controls(sentencepiece, token_ids) == [1]
    plain = sentencepiece.encode("hello", parse_special=parse_special, add_special_tokens=False)
    assert plain == token_ids[1:]


def test_ids_are_those_of_the_library(byte_level: Tokenizer, sentencepiece: Tokenizer) -> None:
    text = "Once upon a time\n there was na\u00efve \u4f60<|end|> hello</s> x"
    assert byte_level.encode(text) == byte_level_tokenizer().encode(text).ids
    assert sentencepiece.encode(text) == sentencepiece_tokenizer().encode(text).ids


def test_bytes_of_sentencepiece_pieces(sentencepiece: Tokenizer) -> None:
    backend = sentencepiece_tokenizer()
    for piece, expected in {
        "<0x0A>": b"\n",
        "<0xE4>": b"\xe4",
        "\u2581": b" ",
        "\u2581h": b" h",
        "</s>": b"</s>",
    }.items():
        assert sentencepiece.token_bytes(id_of(backend, piece)) == expected


def test_bytes_that_are_no_character_become_the_replacement_character(
    sentencepiece: Tokenizer,
) -> None:
    token_id = id_of(sentencepiece_tokenizer(), "<0xE4>")
    assert sentencepiece.decode([token_id]) == "\ufffd"


def test_embedding_rows_without_a_token_have_no_bytes(byte_level: Tokenizer) -> None:
    assert byte_level.vocab_size < EMBEDDING_ROWS
    assert byte_level.token_bytes(byte_level.vocab_size) == b""
    assert not byte_level.is_special(byte_level.vocab_size)


@pytest.mark.parametrize("parse_special", [True, False])
def test_lone_surrogates_are_refused(byte_level: Tokenizer, parse_special: bool) -> None:
    with pytest.raises(InvalidInputError, match=r"lone surrogate \(U\+D800\)") as caught:
        byte_level.encode("a\ud800b", parse_special=parse_special)
    assert caught.value.param == "prompt"


def test_text_is_neither_cut_nor_padded(tmp_path: Path) -> None:
    backend = byte_level_tokenizer()
    backend.enable_truncation(4)
    backend.enable_padding(length=64)
    assert (
        wrap(backend, tmp_path).encode("the river")
        == byte_level_tokenizer().encode("the river").ids
    )


def test_role_markers_are_control_tokens_even_if_not_marked_special(tmp_path: Path) -> None:
    backend = byte_level_tokenizer()
    backend.add_tokens(
        [AddedToken("<\uff5cUser\uff5c>"), AddedToken("<think>"), AddedToken("otter")]
    )
    tokenizer = wrap(backend, tmp_path)
    marker, think, word = (
        id_of(backend, text) for text in ("<\uff5cUser\uff5c>", "<think>", "otter")
    )
    text = "otter <\uff5cUser\uff5c> <think>"
    token_ids = tokenizer.encode(text, parse_special=False)
    assert marker not in token_ids
    assert {think, word} <= set(token_ids)
    assert tokenizer.decode(token_ids) == text
    assert marker in tokenizer.encode(text)


def test_control_tokens_made_by_a_normalizer_stay_text(tmp_path: Path) -> None:
    backend = byte_level_tokenizer()
    backend.normalizer = normalizers.NFKC()
    backend.add_special_tokens([AddedToken("<x>", special=True, normalized=True)])
    tokenizer = wrap(backend, tmp_path)
    wide = "\uff1cx\uff1e"  # NFKC makes <x> of it
    assert controls(tokenizer, tokenizer.encode(wide))
    token_ids = tokenizer.encode(wide, parse_special=False)
    assert controls(tokenizer, token_ids) == []
    assert tokenizer.decode(token_ids) == "<x>"


@pytest.mark.parametrize("prepend_scheme", ["always", "first", "never"])
@given(text=MARKED)
def test_metaspace_vocabularies(prepend_scheme: str, text: str) -> None:
    backend = sentencepiece_tokenizer()
    backend.normalizer = normalizers.Sequence([])
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=prepend_scheme, split=False)
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    tokenizer = Tokenizer(
        backend,
        spelling=byte_fallback_spelling(),
        pieces={token_id: piece for piece, token_id in backend.get_vocab().items()},
        special={},
    )
    token_ids = tokenizer.encode(text, add_special_tokens=False, parse_special=False)
    assert controls(tokenizer, token_ids) == []
    assert joined(tokenizer, token_ids) in (text.encode(), f" {text}".encode())


def byte_fallback_spelling() -> Spelling:
    steps = [{"type": "ByteFallback"}, {"type": "Metaspace", "replacement": "\u2581"}]
    return spelling_of({"type": "Sequence", "decoders": steps})


def word_piece() -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    backend.decoder = decoders.WordPiece()
    return backend


def without_decoder() -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer(models.WordLevel({"a": 0, "?": 1}, unk_token="?"))


def replacing_decoder() -> tokenizers.Tokenizer:
    backend = sentencepiece_tokenizer()
    backend.decoder = decoders.Sequence([decoders.Replace("a", "b"), decoders.Fuse()])
    return backend


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (word_piece, "decoder WordPiece is not supported"),
        (without_decoder, "decoder none is not supported"),
        (replacing_decoder, "decoder Fuse, Replace is not supported"),
    ],
)
def test_unknown_kinds_are_refused(
    tmp_path: Path, build: Callable[[], tokenizers.Tokenizer], message: str
) -> None:
    with pytest.raises(ModelLoadError, match=message):
        wrap(build(), tmp_path)


def test_a_tokenizer_larger_than_the_model(tmp_path: Path) -> None:
    save_tokenizer(tmp_path, byte_level_tokenizer())
    with pytest.raises(ModelLoadError, match=r"does not fit the model: token .* embedding rows"):
        Tokenizer.load(tmp_path, 200)


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"model": 1}', b"\xff", b'{"a":' * 10_000])
def test_a_damaged_file(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "tokenizer.json").write_bytes(data)
    with pytest.raises(ModelLoadError, match=r"tokenizer\.json: damaged") as caught:
        Tokenizer.load(tmp_path, EMBEDDING_ROWS)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("part", ["continuing prefix", "post-processor"])
def test_a_file_that_makes_the_library_panic(tmp_path: Path, part: str) -> None:
    save_tokenizer(tmp_path, sentencepiece_tokenizer())
    file = tmp_path / "tokenizer.json"
    content = json.loads(file.read_text("utf-8"))
    if part == "post-processor":
        content["post_processor"]["single"][0]["SpecialToken"]["id"] = "nothing"
    else:
        content["model"]["continuing_subword_prefix"] = "longer than a piece"
    file.write_text(json.dumps(content), "utf-8")
    with pytest.raises(ModelLoadError, match=r"tokenizer\.json: damaged"):
        Tokenizer.load(tmp_path, EMBEDDING_ROWS)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"tokenizer\.json: does not exist"):
        Tokenizer.load(tmp_path, EMBEDDING_ROWS)


def test_only_a_sentencepiece_model(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes(b"\n")
    with pytest.raises(ModelLoadError) as caught:
        Tokenizer.load(tmp_path, EMBEDDING_ROWS)
    message = str(caught.value)
    assert "tokenizer.json: does not exist, and tokenizer.model is not supported" in message
    assert "`pip install transformers sentencepiece protobuf`" in message
    assert f'AutoTokenizer.from_pretrained("{tmp_path}").save_pretrained("{tmp_path}")' in message
    assert "\n" not in message


def test_the_command_that_is_told_converts_a_tokenizer(tmp_path: Path) -> None:
    path = tmp_path / "it's a \u00e9"
    path.mkdir()
    backend = byte_level_tokenizer()
    backend.model.save(str(path))
    values = {"model_type": "qwen2", "tokenizer_class": "Qwen2Tokenizer"}
    for name in ("config.json", "tokenizer_config.json"):
        (path / name).write_text(json.dumps(values), "utf-8")
    with pytest.raises(ModelLoadError, match=r"vocab\.json is not supported") as caught:
        Tokenizer.load(path, EMBEDDING_ROWS)
    command = shlex.split(str(caught.value).split("then `")[1].rstrip("`"))
    assert command[:2] == ["python", "-c"]
    subprocess.run([sys.executable, *command[1:]], check=True, capture_output=True)
    assert Tokenizer.load(path, EMBEDDING_ROWS).decode([id_of(backend, "a")]) == "a"


def test_two_tokens_with_one_id(tmp_path: Path) -> None:
    save_tokenizer(tmp_path, byte_level_tokenizer())
    file = tmp_path / "tokenizer.json"
    content = json.loads(file.read_text("utf-8"))
    content["model"]["vocab"]["twice"] = 100
    file.write_text(json.dumps(content), "utf-8")
    with pytest.raises(ModelLoadError, match="two tokens share one id"):
        Tokenizer.load(tmp_path, EMBEDDING_ROWS)


def test_what_the_post_processor_adds_behind(tmp_path: Path) -> None:
    backend = byte_level_tokenizer()
    backend.post_processor = processors.TemplateProcessing(
        single="<|system|> $A <|end|>",
        pair="$A $B",
        special_tokens=[("<|system|>", 1), ("<|end|>", 4)],
    )
    tokenizer = wrap(backend, tmp_path)
    for text in ("", "a", "a<|user|>"):
        assert tokenizer.encode(text) == backend.encode(text).ids


@given(text=ANY_TEXT | MARKED)
def test_a_continuation_is_exactly_its_bytes(
    byte_level: Tokenizer, sentencepiece: Tokenizer, text: str
) -> None:
    for tokenizer, expected in (
        (byte_level, text),
        (sentencepiece, text.replace("\u2581", " ")),
    ):
        token_ids = tokenizer.encode_continuation(text)
        assert joined(tokenizer, token_ids) == expected.encode()
        assert not any(tokenizer.is_control(token_id) for token_id in token_ids)


def test_role_markers_are_control_tokens_even_where_nobody_said_so(tmp_path: Path) -> None:
    backend = byte_level_tokenizer()
    backend.add_tokens([AddedToken("<|User|>"), AddedToken("<think>")])
    tokenizer = wrap(backend, tmp_path)
    marker, tag, special, letter = (
        id_of(backend, text) for text in ("<|User|>", "<think>", "<|end|>", "a")
    )
    assert tokenizer.is_control(marker)
    assert not tokenizer.is_special(marker)
    assert tokenizer.is_control(special)
    assert not tokenizer.is_control(tag)
    assert not tokenizer.is_control(letter)


def test_a_long_text_has_the_ids_of_its_backend(byte_level: Tokenizer) -> None:
    text = "The quick brown f\u00f6x. " * 1000
    backend = byte_level_tokenizer()
    expected = backend.encode(text, add_special_tokens=False).ids
    assert byte_level.encode(text, add_special_tokens=False) == expected


def test_it_tells_the_roles_and_the_spelling_of_tokens(byte_level: Tokenizer) -> None:
    backend = byte_level_tokenizer()
    for token_id in range(byte_level.vocab_size):
        assert byte_level.spelled(token_id) == (backend.id_to_token(token_id) or "")
    assert byte_level.spelled(EMBEDDING_ROWS - 1) == ""
    for role, text in byte_level.special_tokens.items():
        assert role.endswith("_token")
        assert byte_level.is_special(id_of(backend, text))
    ids = byte_level.encode("a")
    assert byte_level.adds_bos == (ids[0] == byte_level.bos_token_id)


@pytest.mark.parametrize("text", ["he", " he", "s", "h\u00e9</s> \u4f60", "", "<s>he"])
def test_where_a_text_begins_among_its_decoded_tokens(tmp_path: Path, text: str) -> None:
    save_tokenizer(tmp_path, sentencepiece_tokenizer())
    tokenizer = Tokenizer.load(tmp_path, 400)
    token_ids = tokenizer.encode(text, parse_special=False)
    start = tokenizer.text_start(token_ids, text)
    assert start is not None
    decoded = tokenizer.decode(token_ids)
    assert decoded[start:] == text
    assert decoded[:start] in ("<s> ", "<s>"), "BOS, and most often a space"


def test_where_a_text_begins_before_what_the_tokenizer_puts_behind_it(tmp_path: Path) -> None:
    backend = byte_level_tokenizer()
    backend.post_processor = processors.TemplateProcessing(
        single="<|user|> $A <|end|>", special_tokens=[("<|user|>", 2), ("<|end|>", 4)]
    )
    save_tokenizer(tmp_path, backend)
    tokenizer = Tokenizer.load(tmp_path, 320)
    assert tokenizer.text_start(tokenizer.encode("a\u00e9b"), "a\u00e9b") == len("<|user|>")
    plain = tokenizer.encode("a\u00e9b", add_special_tokens=False)
    assert tokenizer.text_start(plain, "a\u00e9b") == 0
    assert tokenizer.text_start(plain, "ae\u0301b") is None, "as a normalizer would have it"
