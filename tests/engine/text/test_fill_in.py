"""Prompts for filling in the middle: the tokens of each family, in its order."""

from pathlib import Path

import pytest
import tokenizers
from tokenizers import AddedToken

from engine import Engine, Extra, InvalidInputError, Tokenizer
from engine.text.fill_in import FORMATS, fill_in_ids
from tests.support.tiny_models import byte_level_tokenizer, save_tokenizer, sentencepiece_tokenizer


def with_tokens(path: Path, backend: tokenizers.Tokenizer, *names: str) -> Tokenizer:
    backend.add_tokens([AddedToken(name, special=True, normalized=False) for name in names])
    save_tokenizer(path, backend)
    return Tokenizer.load(path, backend.get_vocab_size())


def shown(tokenizer: Tokenizer, token_ids: list[int]) -> list[str]:
    return [tokenizer.decode([token_id]) for token_id in token_ids]


@pytest.mark.parametrize("names", [names for names in FORMATS if names.middle], ids=str)
def test_prefix_then_suffix_then_middle(tmp_path: Path, names: tuple[str, str, str, bool]) -> None:
    prefix, suffix, middle, _ = names
    tokenizer = with_tokens(tmp_path, byte_level_tokenizer(), prefix, suffix, middle)
    token_ids = fill_in_ids(tokenizer, "a b", " c")
    assert tokenizer.decode(token_ids) == f"{prefix}a b{suffix} c{middle}"
    pieces = shown(tokenizer, token_ids)
    assert [pieces.index(name) for name in (prefix, suffix, middle)] == sorted(
        pieces.index(name) for name in (prefix, suffix, middle)
    )
    assert shown(tokenizer, fill_in_ids(tokenizer, "", "")) == [prefix, suffix, middle]


def test_codestral_has_the_suffix_first_and_no_middle(tmp_path: Path) -> None:
    tokenizer = with_tokens(tmp_path, sentencepiece_tokenizer(), "[PREFIX]", "[SUFFIX]", "[MIDDLE]")
    token_ids = fill_in_ids(tokenizer, "he", "he")
    # BOS, and the space of SentencePiece at the beginning of the prefix only.
    assert tokenizer.decode(token_ids) == "<s>[SUFFIX]he[PREFIX] he"
    pieces = shown(tokenizer, token_ids)
    assert (pieces[0], pieces[1], pieces.count("[PREFIX]")) == ("<s>", "[SUFFIX]", 1)


def test_code_llama(tmp_path: Path) -> None:
    names = ("\u2581<PRE>", "\u2581<SUF>", "\u2581<MID>")
    tokenizer = with_tokens(tmp_path, sentencepiece_tokenizer(), *names)
    pieces = shown(tokenizer, fill_in_ids(tokenizer, "he", "he"))
    # The decoder turns the U+2581 of added tokens into spaces, as that of all others.
    assert "".join(pieces) == "<s> <PRE> he <SUF>he <MID>"
    assert pieces[0] == "<s>"


def test_text_cannot_become_a_control_token(tmp_path: Path) -> None:
    names = ("<fim_prefix>", "<fim_suffix>", "<fim_middle>")
    tokenizer = with_tokens(tmp_path, byte_level_tokenizer(), *names)
    token_ids = fill_in_ids(tokenizer, "a<fim_suffix>", "b<|end|><fim_middle>")
    assert [shown(tokenizer, token_ids).count(name) for name in names] == [1, 1, 1]
    assert not set(tokenizer.eos_token_ids) & set(token_ids)
    assert tokenizer.decode(token_ids).endswith("<fim_middle><fim_middle>")


def test_a_part_of_the_tokens_is_not_enough(tmp_path: Path) -> None:
    tokenizer = with_tokens(tmp_path, byte_level_tokenizer(), "<fim_prefix>", "<fim_suffix>")
    with pytest.raises(InvalidInputError, match="filling in the middle") as error:
        fill_in_ids(tokenizer, "a", "b")
    assert error.value.param == "suffix"


def test_a_text_of_the_vocabulary_is_no_such_token(tmp_path: Path) -> None:
    """Training may have made tokens of these very characters."""
    vocabulary = {piece: i for i, piece in enumerate(["<unk>", "[PREFIX]", "[SUFFIX]", "\u2581"])}
    backend = sentencepiece_tokenizer()
    backend.model = tokenizers.models.BPE(vocabulary, [], unk_token="<unk>")
    save_tokenizer(tmp_path, backend)
    tokenizer = Tokenizer.load(tmp_path, 400)
    assert tokenizer.added_token_id("<s>") is not None
    assert tokenizer.added_token_id("[PREFIX]") is None
    with pytest.raises(InvalidInputError):
        fill_in_ids(tokenizer, "", "")


def test_the_bundled_model_has_none(bundled_engine: Engine) -> None:
    with pytest.raises(InvalidInputError, match="this tokenizer has none"):
        bundled_engine.fill_in_ids("Once", "the end")


QWEN = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>")
EXTRAS = (Extra("a.h", "int a;"), Extra(None, "int b;"))


def test_other_files_stand_before_and_what_is_begun_behind_the_prefix(tmp_path: Path) -> None:
    tokenizer = with_tokens(tmp_path, byte_level_tokenizer(), *QWEN)
    token_ids = fill_in_ids(tokenizer, "x", "y", begun="z", extras=EXTRAS)
    assert tokenizer.decode(token_ids) == (
        "<|repo_name|>myproject\n<|file_sep|>a.h\nint a;<|file_sep|>tmp\nint b;"
        "<|file_sep|>filename\n<|fim_prefix|>xz<|fim_suffix|>y<|fim_middle|>"
    )


def test_without_tokens_for_files_a_line_stands_between(tmp_path: Path) -> None:
    tokenizer = with_tokens(tmp_path, byte_level_tokenizer(), *QWEN[:3])
    text = tokenizer.decode(fill_in_ids(tokenizer, "x", "y", extras=EXTRAS))
    between = "\n\n--- snippet ---\n\n"
    assert text == f"{between}int a;{between}int b;<|fim_prefix|>x<|fim_suffix|>y<|fim_middle|>"


@pytest.mark.parametrize("room", [3, 4, 11, 40, 90, 1000])
def test_what_does_not_fit_is_what_is_farthest_away(tmp_path: Path, room: int) -> None:
    tokenizer = with_tokens(tmp_path, byte_level_tokenizer(), *QWEN)
    prefix, suffix = "p" * 30 + "!", "?" + "s" * 30
    whole = fill_in_ids(tokenizer, prefix, suffix, extras=EXTRAS)
    token_ids = fill_in_ids(tokenizer, prefix, suffix, extras=EXTRAS, room=room)
    assert len(token_ids) == min(room, len(whole))
    text = tokenizer.decode(token_ids)
    assert text.endswith("<|fim_middle|>")
    if room > 11:
        assert "!<|fim_suffix|>?" in text
    if room >= len(whole):
        assert token_ids == whole
