"""What the keys of a GGUF file say about its tokens: roles, ends of answers, mistakes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import ModelLoadError, Tokenizer
from engine.gguf.metadata import Metadata
from engine.text.fill_in import fill_in_ids
from engine.text.gguf.tokenizer import gguf_tokenizer
from tests.support.gguf_tokenizers import (
    BYTE,
    CONTROL,
    NORMAL,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    metadata_of,
    tokenizer_of,
)

LETTERS = [*"abcdefghijklmnopqrstuvwxyz\u0120"]


def byte_level(*added: tuple[str, int], **keys: Any) -> dict[str, Any]:
    """A vocabulary of letters, and these texts with their types."""
    return {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": [*LETTERS, "ab", *(text for text, _ in added)],
        "token_type": [*[NORMAL] * (len(LETTERS) + 1), *(type_ for _, type_ in added)],
        "merges": ["a b"],
        **keys,
    }


def pieces(*added: tuple[str, int], **keys: Any) -> dict[str, Any]:
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581", *"ab"]
    types = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * 3]
    return {
        "model": "llama",
        "tokens": [*tokens, *(text for text, _ in added)],
        "token_type": [*types, *(type_ for _, type_ in added)],
        "scores": [0.0] * (len(tokens) + len(added)),
        **keys,
    }


def ends(tmp_path: Path, keys: dict[str, Any]) -> set[str]:
    tokenizer = tokenizer_of(tmp_path, keys)
    return {tokenizer.spelled(token_id) for token_id in tokenizer.eos_token_ids}


def test_roles_are_found_by_id(tmp_path: Path) -> None:
    added = [("<bos>", CONTROL), ("<eos>", CONTROL), ("<pad>", CONTROL), ("<unk>", CONTROL)]
    ids = {"bos": 28, "eos": 29, "padding": 30, "unknown": 31}
    keys = {f"{role}_token_id": token_id for role, token_id in ids.items()}
    tokenizer = tokenizer_of(tmp_path, byte_level(*added, **keys))
    assert tokenizer.special_tokens == {
        "bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>", "unk_token": "<unk>",
    }  # fmt: skip
    assert (tokenizer.bos_token_id, tokenizer.eos_token_ids) == (28, (29,))
    assert tokenizer.encode("ab") == [27], "nothing is put around a text that does not say so"


def test_bos_and_eos_are_put_around_a_text_if_the_file_says_so(tmp_path: Path) -> None:
    added = [("<bos>", CONTROL), ("<eos>", CONTROL)]
    keys = {"bos_token_id": 28, "eos_token_id": 29, "add_bos_token": True, "add_eos_token": True}
    tokenizer = tokenizer_of(tmp_path, byte_level(*added, **keys))
    assert tokenizer.encode("ab") == [28, 27, 29]
    assert tokenizer.encode("ab", add_special_tokens=False) == [27]
    assert tokenizer.adds_bos


@pytest.mark.parametrize(("pre", "adds"), [("llama-bpe", True), ("tekken", True), ("dbrx", False)])
def test_a_silent_file_adds_bos_where_its_kind_does(tmp_path: Path, pre: str, adds: bool) -> None:
    keys = byte_level(("<bos>", CONTROL), pre=pre)
    assert tokenizer_of(tmp_path, {**keys, "bos_token_id": 28}).adds_bos is adds
    silent = tokenizer_of(tmp_path, keys)
    assert silent.encode("ab") == [27], "there is no BOS to add"


def test_a_silent_file_of_pieces_has_their_usual_ids(tmp_path: Path) -> None:
    tokenizer = tokenizer_of(tmp_path, pieces())
    assert tokenizer.special_tokens == {
        "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>",
    }  # fmt: skip
    assert tokenizer.encode("ab") == [1, 259, 260, 261], "BOS, and a space before the text"
    bare = tokenizer_of(tmp_path, pieces(add_bos_token=False, add_space_prefix=False))
    assert bare.encode("ab") == [260, 261]


def test_ends_of_answers_are_found_by_id_and_by_text(tmp_path: Path) -> None:
    added = [
        ("<|im_start|>", CONTROL), ("<|im_end|>", CONTROL), ("<|endoftext|>", CONTROL),
        ("<stop>", CONTROL), ("<over>", CONTROL), ("<|eot_id|>", NORMAL), ("<end_of_turn>", NORMAL),
        ("<|eom_id|>", USER_DEFINED), ("</s>", USER_DEFINED),
    ]  # fmt: skip
    keys = byte_level(*added, eos_token_id=31, eot_token_id=32)
    assert ends(tmp_path, keys) == {
        "<stop>", "<over>", "<|im_end|>", "<|endoftext|>",
        "<|eot_id|>", "<|eom_id|>",  # they look like control tokens, whatever the file says
    }  # fmt: skip
    tokenizer = tokenizer_of(tmp_path, keys)
    assert tokenizer.encode("a<|eot_id|>") == [0, 33]
    assert tokenizer.is_special(33)


@pytest.mark.parametrize(
    ("others", "ends_answer"),
    [
        (["<|return|>", "<|call|>"], False),
        (["<|calls|>", "<|flush|>"], False),
        (["<|return|>"], True),
        ([], True),
    ],
)
def test_the_end_of_a_message_is_no_end_where_others_are(
    tmp_path: Path, others: list[str], ends_answer: bool
) -> None:
    added = [(text, CONTROL) for text in ("<|end|>", *others)]
    found = ends(tmp_path, byte_level(*added))
    assert ("<|end|>" in found) is ends_answer
    assert set(others) <= found


def test_an_unused_token_is_an_empty_row(tmp_path: Path) -> None:
    tokenizer = tokenizer_of(tmp_path, byte_level(("[PAD28]", UNUSED), ("", NORMAL), ("", UNUSED)))
    assert [tokenizer.token_bytes(token_id) for token_id in (28, 29, 30)] == [b"", b"", b""]
    assert tokenizer.vocab_size == 28


def test_a_file_names_its_tokens_for_filling_in(tmp_path: Path) -> None:
    added = [
        ("<|code_prefix|>", CONTROL),
        ("<|code_suffix|>", CONTROL),
        ("<|code_middle|>", CONTROL),
    ]
    for names in (("fim_pre", "fim_suf", "fim_mid"), ("prefix", "suffix", "middle")):
        keys = {f"{name}_token_id": 28 + index for index, name in enumerate(names)}
        tokenizer = tokenizer_of(tmp_path, byte_level(*added, **keys))
        assert fill_in_ids(tokenizer, "a", "b") == [28, 0, 29, 1, 30]
    assert tokenizer_of(tmp_path, byte_level(*added)).fill_in is None


Change = Callable[[dict[str, Any]], object]


def without(key: str) -> Change:
    return lambda keys: keys.pop(key)


def with_(**values: Any) -> Change:
    return lambda keys: keys.update(values)


MISTAKES: dict[str, tuple[Change, str]] = {
    "no model": (without("model"), "tokenizer.ggml.model: missing"),
    "bert": (with_(model="bert"), r"model: must be gpt2 .*, llama .* or gemma4 .*, not 'bert'"),
    "t5": (with_(model="t5"), r"model: must be gpt2 .*, llama .* or gemma4 .*, not 't5'"),
    "no pre": (without("pre"), r"pre: must be one of .*qwen2.*convert the model again"),
    "unknown pre": (with_(pre="qwen7"), r"pre: must be one of .*qwen2.*, not 'qwen7'"),
    "default": (with_(pre="default"), r"pre: must be one of .*, not 'default'"),
    "no tokens": (without("tokens"), "tokenizer.ggml.tokens: missing"),
    "no types": (without("token_type"), "tokenizer.ggml.token_type: missing"),
    "few types": (with_(token_type=[1]), r"token_type: must be an array of 28 numbers"),
    "type 7": (with_(token_type=[*[1] * 27, 7]), r"token_type\[27\]: must be a type from 1 to 6"),
    "twice": (with_(tokens=["a"] * 28), r"tokens\[0\]: must be another text than \[27\], not 'a'"),
    "no merges": (without("merges"), "tokenizer.ggml.merges: missing"),
    "half a merge": (with_(merges=["ab"]), r"merges\[0\]: must be two tokens with one space"),
    "three parts": (with_(merges=["a b c"]), r"merges\[0\]: must be two tokens with one space"),
    "unknown merge": (with_(merges=["a b", "a c"]), r"merges: .*`ac` out of vocabulary"),
    "unknown part": (with_(merges=["a b", "\u00e9 c"]), r"merges: .*`\u00e9` out of vocabulary"),
    "role": (with_(eos_token_id=28), r"eos_token_id: must be an integer between 0 and 27, not 28"),
    "no bos": (with_(add_bos_token=True), r"add_bos_token: must be false without .*bos_token_id"),
    "long": (with_(tokens=["x" * 9000, *LETTERS]), "a token has more than 8192 characters"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_in_byte_level_vocabularies(tmp_path: Path, mistake: str) -> None:
    change, message = MISTAKES[mistake]
    keys = byte_level()
    change(keys)
    refused(tmp_path, keys, message)


PIECE_MISTAKES: dict[str, tuple[Change, str]] = {
    "no scores": (without("scores"), "tokenizer.ggml.scores: missing"),
    "few scores": (with_(scores=[0.0]), r"scores: must be an array of 262 numbers, .* array of 1"),
    "no byte": (with_(tokens=[f"t{i}" for i in range(262)]), "a list with a token <0x00>"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", PIECE_MISTAKES)
def test_mistakes_in_pieces(tmp_path: Path, mistake: str) -> None:
    change, message = PIECE_MISTAKES[mistake]
    keys = pieces()
    change(keys)
    refused(tmp_path, keys, message)


def refused(directory: Path, keys: dict[str, Any], message: str) -> None:
    metadata = metadata_of(directory, keys)
    with pytest.raises(ModelLoadError, match=message) as caught:
        gguf_tokenizer(metadata, 300)
    assert str(caught.value).startswith(f"{directory / 'model.gguf'}: tokenizer.ggml.")
    assert str(caught.value).isprintable()


def test_a_tokenizer_larger_than_the_model(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"does not fit the model: token 'ab' has id 27"):
        gguf_tokenizer(metadata_of(tmp_path, byte_level()), 27)


ODD: tuple[Any, ...] = (
    0, -1, 2**63, 1.5, float("nan"), True, "", "a", "\0", [], ["a"], ["a", "a"], [""], ["a "],
    [" a"], ["\u2581"], ["a"] * 300,
    np.zeros(0, np.int32), np.ones(28, np.uint64) * 2**63, np.ones(28),
    np.full(262, np.nan), np.full(262, np.inf), np.ones(262, np.int8), np.ones(28, bool),
)  # fmt: skip


@given(
    make=st.sampled_from([byte_level, pieces]),
    changes=st.dictionaries(
        st.sampled_from(
            ["model", "pre", "tokens", "token_type", "merges", "scores", "bos_token_id",
             "eot_token_id", "add_bos_token", "add_eos_token", "add_space_prefix",
             "remove_extra_whitespaces", "fim_pre_token_id"]
        ),
        st.one_of(st.none(), st.sampled_from(ODD)),
        max_size=3,
    ),
)  # fmt: skip
def test_odd_values_are_refused_in_one_line_or_harmless(
    make: Callable[[], dict[str, Any]], changes: dict[str, Any]
) -> None:
    keys = make()
    for name in ("token_type", "scores"):
        if name in keys:
            keys[name] = np.array(keys[name])
    keys |= changes
    values = {f"tokenizer.ggml.{key}": value for key, value in keys.items() if value is not None}
    read = read_or_refused(Metadata(values, "model.gguf"))
    if isinstance(read, ModelLoadError):
        assert str(read).startswith("model.gguf: tokenizer.ggml.")
        assert str(read).isprintable()
    else:
        read.decode(read.encode("ab <s>\u00e9"))


def read_or_refused(metadata: Metadata) -> Tokenizer | ModelLoadError:
    try:
        return gguf_tokenizer(metadata, 300)
    except ModelLoadError as error:
        return error
