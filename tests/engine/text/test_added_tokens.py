"""Added tokens decode as the tokenizers library decodes them, at once and token by token."""

from pathlib import Path
from typing import NamedTuple

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers

from engine import Tokenizer
from engine.text.text_stream import TextStream
from tests.engine.text.test_tokenizer import id_of
from tests.support.tiny_models import byte_level_tokenizer, save_tokenizer

LETTERS = "abcxy<>s/"
CHARACTERS = [*LETTERS, " ", "  ", "    ", "\u2581", "\u2581\u2581", "\u00e9", "\u4f60", "\n"]
MARKS = ["<s>", "<s\u2581p>", "<s p>", "<x y>", "<x\u2581y>", "\u2581\u2581\u2581\u2581"]
TEXTS = st.lists(st.sampled_from([*CHARACTERS, *MARKS]), max_size=12).map("".join)
FIRST_BYTE = 2  # the id of <0x00>
# As in Gemma, Gemma without Fuse, Llama 2, and the older form of the same.
DECODERS = {
    "gemma": [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()],
    "no fuse": [decoders.Replace("\u2581", " "), decoders.ByteFallback()],
    "llama": [
        decoders.Replace("\u2581", " "),
        decoders.ByteFallback(),
        decoders.Fuse(),
        decoders.Strip(" ", 1, 0),
    ],
    "strips nothing": [
        decoders.Replace("\u2581", " "),
        decoders.ByteFallback(),
        decoders.Fuse(),
        decoders.Strip(" ", 0, 0),
    ],
    "metaspace": [decoders.ByteFallback(), decoders.Metaspace()],
}


class Pair(NamedTuple):
    ours: Tokenizer
    library: tokenizers.Tokenizer

    def decoded_behind(self, token_ids: list[int]) -> str:
        """What the library decodes the ids to after another token: decoders strip the first."""
        letter = id_of(self.library, "a")
        text: str = self.library.decode([letter, *token_ids], skip_special_tokens=False)
        assert text.startswith("a")
        return text[1:]


def sentencepiece(decoder: str, *, prepends: bool, normalized: bool) -> tokenizers.Tokenizer:
    """Runs of spaces are added tokens: one of the plain vocabulary too, as in Gemma, one not."""
    pieces = ["<unk>", "<s>", *(f"<0x{byte:02X}>" for byte in range(256)), *LETTERS, "\u2581"]
    pieces += ["\u2581\u2581", "\u2581a", "ab"]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    merges = [("\u2581", "\u2581"), ("\u2581", "a"), ("a", "b")]
    library = tokenizers.Tokenizer(
        models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    steps = [normalizers.Prepend("\u2581")] if prepends else []
    library.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", "\u2581")])
    library.decoder = decoders.Sequence(DECODERS[decoder])
    library.add_special_tokens(
        [
            AddedToken("<unk>", special=True, normalized=False),
            AddedToken("<s>", special=True, normalized=False),
            AddedToken("<s\u2581p>", special=True, normalized=normalized),
        ]
    )
    runs = ("\u2581\u2581", "\u2581\u2581\u2581\u2581", "<x y>")
    library.add_tokens([AddedToken(text, normalized=normalized) for text in runs])
    return library


KINDS = {
    f"{decoder}, prepends {prepends}, normalized {normalized}": (decoder, prepends, normalized)
    for decoder in DECODERS
    for prepends in (False, True)
    for normalized in (False, True)
}


@pytest.fixture(scope="module", params=KINDS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    decoder, prepends, normalized = KINDS[request.param]
    library = sentencepiece(decoder, prepends=prepends, normalized=normalized)
    path = tmp_path_factory.mktemp("added")
    save_tokenizer(path, library)
    return Pair(Tokenizer.load(path, 300), library)


def streamed(tokenizer: Tokenizer, token_ids: list[int]) -> str:
    stream, text = TextStream(), ""
    for token_id in token_ids:
        stream.push(tokenizer.token_bytes(token_id))
        text += stream.release()
    return text + stream.finish()[0]


@settings(max_examples=40, deadline=None)
@given(text=TEXTS)
def test_encoded_texts_decode_as_in_the_library(pair: Pair, text: str) -> None:
    token_ids = pair.ours.encode(text, add_special_tokens=False)
    assert token_ids == pair.library.encode(text, add_special_tokens=False).ids
    expected = pair.decoded_behind(token_ids)
    assert pair.ours.decode(token_ids) == expected
    assert streamed(pair.ours, token_ids) == expected
    kept = [token_id for token_id in token_ids if not pair.ours.is_special(token_id)]
    shown = pair.ours.decode(token_ids, skip_special_tokens=True)
    assert shown == pair.decoded_behind(kept)


# Of bytes that are no character, the library shows each; a stream cannot wait for their end.
BYTES = [[FIRST_BYTE + byte for byte in text.encode()] for text in ("A", " ", "\u00e9", "\u4f60")]


@settings(max_examples=40, deadline=None)
@given(parts=st.lists(st.sampled_from([*BYTES, *([i] for i in range(FIRST_BYTE + 256, 274))])))
def test_any_ids_decode_as_in_the_library(pair: Pair, parts: list[list[int]]) -> None:
    token_ids = [token_id for part in parts for token_id in part]
    expected = pair.decoded_behind(token_ids)
    assert pair.ours.decode(token_ids) == expected
    assert streamed(pair.ours, token_ids) == expected


# A normalizer that puts a space before a text also puts one after each added token.
@pytest.mark.parametrize("pair", [name for name in KINDS if not KINDS[name][1]], indirect=True)
@settings(max_examples=40, deadline=None)
@given(text=TEXTS)
def test_a_run_of_spaces_stays_one_where_no_control_token_is_wanted(pair: Pair, text: str) -> None:
    token_ids = pair.ours.encode_continuation(text)
    assert not any(pair.ours.is_control(token_id) for token_id in token_ids)
    assert pair.ours.decode(token_ids) == text.replace("\u2581", " ")


@settings(max_examples=40, deadline=None)
@given(text=TEXTS, times=st.integers(1, 40))
def test_the_bound_holds_for_them(pair: Pair, text: str, times: int) -> None:
    ours = pair.ours
    assert ours.least_tokens("x" * 1000) > 0
    n_tokens = len(ours.encode(text * times, add_special_tokens=False))
    assert ours.least_tokens(text * times) <= n_tokens


def test_gemmas_runs_of_spaces(tmp_path: Path) -> None:
    library = sentencepiece("gemma", prepends=False, normalized=False)
    save_tokenizer(tmp_path, library)
    tokenizer = Tokenizer.load(tmp_path, 300)
    token_ids = tokenizer.encode("a  b", add_special_tokens=False)
    assert id_of(library, "\u2581\u2581") in token_ids
    assert tokenizer.decode(token_ids) == "a  b"
    assert [tokenizer.token_bytes(token_id) for token_id in token_ids] == [b"a", b"  ", b"b"]
    assert tokenizer.spelled(token_ids[1]) == "\u2581\u2581"


def test_added_tokens_of_byte_level_vocabularies(tmp_path: Path) -> None:
    """As in the library, but for letters that it takes for bytes of a character and loses."""
    library = byte_level_tokenizer()
    texts = ["\u0120x", "<tool\u2581call>", "   ", "\u4f60\u00e9", "\u00e7\u00e3o"]
    library.add_tokens(texts)
    library.add_tokens(["\u00c3"])  # a piece of the vocabulary, which is a byte
    save_tokenizer(tmp_path, library)
    tokenizer = Tokenizer.load(tmp_path, 330)
    for text in texts[:-1]:
        token_id = id_of(library, text)
        assert tokenizer.token_bytes(token_id).decode() == library.decode([token_id])
    lost = id_of(library, texts[-1])
    assert "\ufffd" in library.decode([lost])
    assert tokenizer.token_bytes(lost).decode() == texts[-1]
    assert tokenizer.token_bytes(id_of(library, "\u00c3")) == b"\xc3"
