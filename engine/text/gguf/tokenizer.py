"""A tokenizer from the metadata of a GGUF file.

Owns what the keys mean. Knows no file but through `Metadata`, and nothing of the model but its
number of embedding rows.
"""

from collections.abc import Iterator

import tokenizers
from tokenizers import AddedToken, models, normalizers, pre_tokenizers, processors

from ...gguf.metadata import Metadata
from ..token_bytes import ByteLevelSpelling, SentencePieceSpelling, Spelling
from ..tokenizer import Tokenizer, check_pieces, is_marker
from ..tokenizer_json import checked
from .ends import ENDS, ending_texts
from .sentencepiece import SPACE, merges_of, sentencepiece_backend
from .splits import SPLITS, Split
from .tokens import TOKENS, Tokens, TokenType, read_tokens, role_id

_MODEL = "tokenizer.ggml.model"
_PRE = "tokenizer.ggml.pre"
_MERGES = "tokenizer.ggml.merges"
_SCORES = "tokenizer.ggml.scores"
# Roles of tokens, as files and as chat templates call them.
_ROLES = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}
# Files may leave out SentencePiece's own ids.
_SENTENCEPIECE_IDS = {"unknown": 0, "bos": 1, "eos": 2}
# The roles for filling in the middle; older files call them otherwise.
_FILL_IN = (("fim_pre", "fim_suf", "fim_mid"), ("prefix", "suffix", "middle"))


def gguf_tokenizer(metadata: Metadata, vocab_size: int) -> Tokenizer:
    """What a file describes; ids must be below `vocab_size`. Raises ModelLoadError."""
    kind = metadata.string(_MODEL)
    if kind == "gpt2":
        return _byte_level(metadata, vocab_size)
    if kind == "llama":
        return _sentencepiece(metadata, vocab_size)
    metadata.fail(_MODEL, kind, "gpt2 (byte-level BPE) or llama (SentencePiece's BPE)")


def _byte_level(metadata: Metadata, vocab_size: int) -> Tokenizer:
    split = _split(metadata)
    tokens = read_tokens(metadata)
    pairs = list(_pairs(metadata))

    def build() -> tokenizers.Tokenizer:
        model = models.BPE(dict(tokens.ids), pairs, ignore_merges=split.whole_words)
        backend = tokenizers.Tokenizer(model)
        if split.composes:
            backend.normalizer = normalizers.NFC()
        cuts = [pre_tokenizers.Split(tokenizers.Regex(p), "isolated") for p in split.patterns]
        spelled = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        backend.pre_tokenizer = pre_tokenizers.Sequence([*cuts, spelled])
        return backend

    backend = checked(build, f"{metadata.where}: {_MERGES}")
    roles = _roles(metadata, tokens, {})
    _add_tokens(backend, tokens)
    _put_around(backend, metadata, tokens, roles, adds_bos=split.adds_bos)
    return _tokenizer(backend, metadata, tokens, roles, ByteLevelSpelling(), vocab_size)


def _sentencepiece(metadata: Metadata, vocab_size: int) -> Tokenizer:
    tokens = read_tokens(metadata)
    scores = metadata.numbers(_SCORES)
    if len(scores) != len(tokens):
        metadata.fail(_SCORES, scores, f"an array of {len(tokens)} numbers, one per token")
    for byte in range(256):
        if (text := f"<0x{byte:02X}>") not in tokens.ids:
            metadata.fail(TOKENS, metadata.strings(TOKENS), f"a list with a token {text}")
    normal = tokens.of_type(TokenType.NORMAL)
    merges = merges_of([tokens.texts[token_id] for token_id in normal], scores[normal])
    ids = {text: token_id for token_id, text in tokens.pieces().items()}

    def build() -> tokenizers.Tokenizer:
        return sentencepiece_backend(
            ids,
            merges,
            add_prefix=metadata.boolean("tokenizer.ggml.add_space_prefix", default=True),
            trim=metadata.boolean("tokenizer.ggml.remove_extra_whitespaces", default=False),
        )

    backend = checked(build, f"{metadata.where}: {TOKENS}")
    roles = _roles(metadata, tokens, _SENTENCEPIECE_IDS)
    _add_tokens(backend, tokens)
    _put_around(backend, metadata, tokens, roles, adds_bos=True)
    spelling = SentencePieceSpelling(SPACE, byte_fallback=True)
    return _tokenizer(backend, metadata, tokens, roles, spelling, vocab_size)


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


def _roles(metadata: Metadata, tokens: Tokens, defaults: dict[str, int]) -> dict[str, int]:
    """Ids by role, of the roles that there are."""
    found = {}
    for role in (*_ROLES, "eot", "eom"):
        token_id = role_id(metadata, role, tokens)
        if token_id is None and defaults.get(role, len(tokens)) < len(tokens):
            token_id = defaults[role]
        if token_id is not None:
            found[role] = token_id
    return found


def _add_tokens(backend: tokenizers.Tokenizer, tokens: Tokens) -> None:
    """Tokens that are found whole, before anything else looks at a text."""
    control = [AddedToken(text, special=True, normalized=False) for text in _control(tokens)]
    backend.add_special_tokens(control)
    shown = tokens.texts_of(TokenType.USER_DEFINED)
    backend.add_tokens([AddedToken(text, special=False, normalized=False) for text in shown])


def _control(tokens: Tokens) -> list[str]:
    """Control tokens, and ends of answers that a file forgot to mark so."""
    forgotten = [
        text
        for text in sorted(ENDS & tokens.ids.keys())
        if is_marker(text) and tokens.types[tokens.ids[text]] == TokenType.NORMAL
    ]
    return [*tokens.texts_of(TokenType.CONTROL, TokenType.UNKNOWN), *forgotten]


def _put_around(
    backend: tokenizers.Tokenizer,
    metadata: Metadata,
    tokens: Tokens,
    roles: dict[str, int],
    *,
    adds_bos: bool,
) -> None:
    """BOS before each text and EOS after it, if the file wants that. `adds_bos`: its default."""
    sides = {"bos": adds_bos and "bos" in roles, "eos": False}
    parts = ["$A"]
    specials = []
    for role, default in sides.items():
        key = f"tokenizer.ggml.add_{role}_token"
        if not metadata.boolean(key, default=default):
            continue
        if role not in roles:
            metadata.fail(key, True, f"false without tokenizer.ggml.{role}_token_id")
        token_id = roles[role]
        specials.append({"id": role, "ids": [token_id], "tokens": [tokens.texts[token_id]]})
        parts = [role, *parts] if role == "bos" else [*parts, role]
    if specials:
        backend.post_processor = processors.TemplateProcessing(
            single=parts, pair=None, special_tokens=specials
        )


def _tokenizer(
    backend: tokenizers.Tokenizer,
    metadata: Metadata,
    tokens: Tokens,
    roles: dict[str, int],
    spelling: Spelling,
    vocab_size: int,
) -> Tokenizer:
    pieces = tokens.pieces()
    check_pieces(pieces, vocab_size, f"{metadata.where}: {TOKENS}")
    shown = tokens.texts_of(TokenType.USER_DEFINED)
    control = [*_control(tokens), *filter(is_marker, shown)]
    ends = {roles[role] for role in ("eos", "eot", "eom") if role in roles}
    ends |= {tokens.ids[text] for text in ending_texts(control)}
    return Tokenizer(
        backend,
        spelling=spelling,
        pieces=pieces,
        special={_ROLES[role]: tokens.texts[i] for role, i in roles.items() if role in _ROLES},
        eos_token_ids=sorted(ends),
        verbatim=[tokens.ids[text] for text in (*control, *shown)],
        fill_in=_fill_in(metadata, tokens),
    )


def _fill_in(metadata: Metadata, tokens: Tokens) -> tuple[str, str, str] | None:
    """The tokens before the prefix, before the suffix and before what belongs between them."""
    for roles in _FILL_IN:
        found = [role_id(metadata, role, tokens) for role in roles]
        prefix, suffix, middle = (None if i is None else tokens.texts[i] for i in found)
        if prefix and suffix and middle:
            return prefix, suffix, middle
    return None
