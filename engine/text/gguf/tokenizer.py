"""A tokenizer from the metadata of a GGUF file.

Owns the kinds of vocabularies and how their parts become one tokenizer. Knows no file but
through `Metadata`, and nothing of the model but its number of embedding rows.
"""

from collections.abc import Iterator, Mapping

import tokenizers
from tokenizers import AddedToken, models, normalizers, processors

from ...gguf.metadata import Metadata
from ..token_bytes import ByteLevelSpelling, SentencePieceSpelling, Spelling
from ..tokenizer import Tokenizer, check_pieces, is_marker
from ..tokenizer_json import checked
from .ends import ENDS, ending_texts
from .roles import Roles
from .sentencepiece import SPACE, merges_of, sentencepiece_backend
from .splits import SPLITS, Split, cutter
from .tokens import TOKENS, Tokens, TokenType, read_tokens

_MODEL = "tokenizer.ggml.model"
_PRE = "tokenizer.ggml.pre"
_MERGES = "tokenizer.ggml.merges"
_SCORES = "tokenizer.ggml.scores"
# Files may leave out SentencePiece's own ids.
_SENTENCEPIECE_IDS = {"unknown": 0, "bos": 1, "eos": 2}


def gguf_tokenizer(metadata: Metadata, vocab_size: int) -> Tokenizer:
    """What a file describes; ids must be below `vocab_size`. Raises ModelLoadError."""
    kind = metadata.string(_MODEL)
    if kind == "gpt2":
        return _byte_level(metadata, vocab_size)
    if kind == "llama":
        return _sentencepiece(metadata, vocab_size)
    if kind == "gemma4":
        return _merged_pieces(metadata, vocab_size)
    allowed = "gpt2 (byte-level BPE), llama (SentencePiece's BPE) or gemma4 (its merges)"
    metadata.fail(_MODEL, kind, allowed)


def _byte_level(metadata: Metadata, vocab_size: int) -> Tokenizer:
    split = _split(metadata)
    tokens = _tokens(metadata, vocab_size)
    pairs = list(_pairs(metadata))

    def build() -> tokenizers.Tokenizer:
        model = models.BPE(dict(tokens.ids), pairs, ignore_merges=split.whole_words)
        backend = tokenizers.Tokenizer(model)
        if split.composes:
            backend.normalizer = normalizers.NFC()
        backend.pre_tokenizer = cutter(split)
        return backend

    backend = checked(build, f"{metadata.where}: {_MERGES}")
    roles = Roles(metadata, tokens, {})
    return _tokenizer(backend, tokens, roles, ByteLevelSpelling(), adds_bos=split.adds_bos)


def _sentencepiece(metadata: Metadata, vocab_size: int) -> Tokenizer:
    tokens = _tokens(metadata, vocab_size)
    scores = metadata.numbers(_SCORES)
    if len(scores) != len(tokens):
        metadata.fail(_SCORES, scores, f"an array of {len(tokens)} numbers, one per token")
    _check_bytes(metadata, tokens)
    normal = tokens.of_type(TokenType.NORMAL)
    merges = merges_of([tokens.texts[token_id] for token_id in normal], scores[normal])
    ids = {text: token_id for token_id, text in tokens.pieces.items()}

    def build() -> tokenizers.Tokenizer:
        return sentencepiece_backend(
            ids,
            merges,
            add_prefix=metadata.boolean("tokenizer.ggml.add_space_prefix", default=True),
            trim=metadata.boolean("tokenizer.ggml.remove_extra_whitespaces", default=False),
        )

    backend = checked(build, f"{metadata.where}: {TOKENS}")
    roles = Roles(metadata, tokens, _SENTENCEPIECE_IDS)
    spelling = SentencePieceSpelling(SPACE, byte_fallback=True)
    return _tokenizer(backend, tokens, roles, spelling, adds_bos=True)


def _merged_pieces(metadata: Metadata, vocab_size: int) -> Tokenizer:
    """SentencePiece's pieces and spaces, put together by merges that the file lists."""
    tokens = _tokens(metadata, vocab_size)
    _check_bytes(metadata, tokens)
    pairs = list(_pairs(metadata))
    ids = {text: token_id for token_id, text in tokens.pieces.items()}

    def build() -> tokenizers.Tokenizer:
        return sentencepiece_backend(ids, pairs, add_prefix=False, trim=False)

    backend = checked(build, f"{metadata.where}: {_MERGES}")
    roles = Roles(metadata, tokens, {})
    spelling = SentencePieceSpelling(SPACE, byte_fallback=True)
    # Early files of this kind say that there is no BOS, and the model needs one.
    return _tokenizer(backend, tokens, roles, spelling, adds_bos=True, heeds_file=False)


def _check_bytes(metadata: Metadata, tokens: Tokens) -> None:
    """Whether every byte has a token. Raises ModelLoadError."""
    for byte in range(256):
        if (text := f"<0x{byte:02X}>") not in tokens.ids:
            metadata.fail(TOKENS, metadata.strings(TOKENS), f"a list with a token {text}")


def _tokens(metadata: Metadata, vocab_size: int) -> Tokens:
    tokens = read_tokens(metadata)
    check_pieces(tokens.pieces, vocab_size, f"{metadata.where}: {TOKENS}")
    return tokens


def _split(metadata: Metadata) -> Split:
    known = f"one of {', '.join(sorted(SPLITS))}"
    if not metadata.has(_PRE):
        # A guess would cut numbers and words in other places, and nobody would notice.
        metadata.fail(_PRE, None, f"{known}; convert the model again with a newer converter")
    name = metadata.string(_PRE)
    if name not in SPLITS:
        metadata.fail(_PRE, name, known)
    return SPLITS[name]


def _pairs(metadata: Metadata) -> Iterator[tuple[str, str]]:
    for index, merge in enumerate(metadata.strings(_MERGES)):
        left, _, right = merge.partition(" ")
        if not left or not right or " " in right:
            metadata.fail(f"{_MERGES}[{index}]", merge, "two tokens with one space between them")
        yield left, right


def _tokenizer(
    backend: tokenizers.Tokenizer,
    tokens: Tokens,
    roles: Roles,
    spelling: Spelling,
    *,
    adds_bos: bool,
    heeds_file: bool = True,
) -> Tokenizer:
    """Adds to `backend` what is found whole in a text, and what is put around one. `adds_bos`: if
    the file does not say it, or is not heeded.
    """
    control, shown = _control(tokens), tokens.texts_of(TokenType.USER_DEFINED)
    backend.add_special_tokens([AddedToken(text, normalized=False) for text in control])
    backend.add_tokens([AddedToken(text, normalized=False) for text in shown])
    if around := roles.around(adds_bos=adds_bos, heeds_file=heeds_file):
        backend.post_processor = _putting(around, tokens)
    ends = ending_texts([*control, *filter(is_marker, shown)])
    return Tokenizer(
        backend,
        spelling=spelling,
        pieces=tokens.pieces,
        special=roles.texts(),
        eos_token_ids=sorted({*roles.ends(), *(tokens.ids[text] for text in ends)}),
        verbatim=[tokens.ids[text] for text in (*control, *shown)],
        fill_in=roles.fill_in(),
        files=roles.files(),
    )


def _control(tokens: Tokens) -> list[str]:
    """Control tokens, and ends of answers that a file forgot to mark so."""
    forgotten = [
        text
        for text in sorted(ENDS & tokens.ids.keys())
        if is_marker(text) and tokens.types[tokens.ids[text]] == TokenType.NORMAL
    ]
    return [*tokens.texts_of(TokenType.CONTROL, TokenType.UNKNOWN), *forgotten]


def _putting(around: Mapping[str, int], tokens: Tokens) -> processors.TemplateProcessing:
    """Puts `bos` before a text and `eos` after it, those that there are."""
    return processors.TemplateProcessing(
        single=[role for role in ("bos", "$A", "eos") if role == "$A" or role in around],
        pair=None,
        special_tokens=[
            {"id": role, "ids": [token_id], "tokens": [tokens.texts[token_id]]}
            for role, token_id in around.items()
        ],
    )
