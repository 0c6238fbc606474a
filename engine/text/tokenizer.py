"""Text <-> token ids, with the `tokenizers` library.

Owns the exact bytes of every token, and which texts are control tokens. Knows no template, and
nothing of the model but its number of embedding rows. `tokenizer_json.py` and `gguf/` own where a
tokenizer comes from.
"""

import json
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import tokenizers

from ..errors import ContextLengthError, InvalidInputError, ModelLoadError, is_panic
from .token_bound import TokenBound, token_bound
from .token_bytes import Spelling, spelling_of
from .tokenizer_json import TOKENIZER_FILE, open_tokenizer, special_tokens

logger = logging.getLogger(__name__)

# Models round their number of rows up, but by much less than this.
_LEAST_SHARE_OF_ROWS = 0.75
_MAX_PIECE = 8192  # characters of one token
# From this length on, the library's batch encoder is used: only it lets other threads run. It is
# slower for short texts, and starts threads of its own.
_LONG_TEXT = 8192
_MARKER = re.compile(r"[<\[].*[>\]]", re.DOTALL)
_PLAIN_TAG = re.compile(r"</?\w+>", re.ASCII)


class Tokenizer:
    """Encodes and decodes. Every id is below the model's number of embedding rows."""

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        spelling: Spelling,
        pieces: Mapping[int, str],
        special: Mapping[str, str],
        eos_token_ids: Sequence[int] | None = None,
        verbatim: Iterable[int] = (),
        fill_in: tuple[str, str, str] | None = None,
        files: tuple[str, str] | None = None,
    ) -> None:
        """`pieces`: the vocabulary by id; `special`: texts by role (bos_token, eos_token).

        `eos_token_ids`: the tokens that end an answer; None means eos_token. `verbatim`: added
        tokens that are not spelled as pieces are, though the vocabulary lists them. `fill_in`: the
        tokens before a prefix, before a suffix and before what belongs between them. `files`: those
        before the name of a repository and before that of a file.
        """
        self._backend = backend
        self._spelling = spelling
        self._pieces = pieces
        self._token_bytes: dict[int, bytes] = {}  # filled on demand
        added = backend.get_added_tokens_decoder()
        self._added = {token_id: token.content for token_id, token in added.items()}
        model = backend.model
        # Added tokens that are not pieces of the plain vocabulary as well.
        self._beside = frozenset(verbatim) | {
            token_id for token_id, text in self._added.items() if model.token_to_id(text) is None
        }
        self.special_tokens = dict(special)
        """Texts by role, as chat templates call it: bos_token, eos_token and so on."""
        self.fill_in = fill_in
        """For filling in the middle, if the model says which tokens it uses."""
        self.files = files
        self._added_ids = {text: token_id for token_id, text in self._added.items()}
        self._special = frozenset(token_id for token_id, token in added.items() if token.special)
        self._control = frozenset(
            token_id for token_id, text in self._added.items() if self._is_control(token_id, text)
        )
        self.control_texts = frozenset(self._added[token_id] for token_id in self._control)
        self.control_pattern = _alternatives(self.control_texts)
        self.vocab_size = max(pieces, default=-1) + 1
        self.bos_token_id = self._special_id(special, "bos_token")
        if eos_token_ids is None:
            eos_token_id = self._special_id(special, "eos_token")
            eos_token_ids = () if eos_token_id is None else (eos_token_id,)
        self.eos_token_ids = tuple(eos_token_ids)
        self.opening_ids, self.closing_ids = self._template_ids()

    @property
    def adds_bos(self) -> bool:
        """Whether `encode` begins a text with BOS."""
        return self.bos_token_id is not None and self.bos_token_id in self.opening_ids

    @classmethod
    def load(cls, path: Path, vocab_size: int) -> "Tokenizer":
        """Reads `path`/tokenizer.json; ids must be below `vocab_size`. Raises ModelLoadError."""
        file = path / TOKENIZER_FILE
        backend, vocabulary = open_tokenizer(path)
        pieces = {token_id: piece for piece, token_id in vocabulary.items()}
        if len(pieces) != len(vocabulary):
            raise ModelLoadError(f"{file}: vocabulary: two tokens share one id")
        check_pieces(pieces, vocab_size, f"{file}: vocabulary")
        try:
            spelling = spelling_of(_decoder(backend))
        except ValueError as error:
            raise ModelLoadError(f"{file}: {error}") from error
        return cls(backend, spelling=spelling, pieces=pieces, special=special_tokens(path))

    def encode(
        self, text: str, *, add_special_tokens: bool = True, parse_special: bool = True
    ) -> list[int]:
        """`add_special_tokens` adds what tokenizer.json puts around a text (Llama: BOS before it).

        If `parse_special` is False, the text of a control token stays text. Raises
        InvalidInputError for lone surrogates.
        """
        token_ids = self.encode_pieces([(text, True)] if parse_special else self._divided(text))
        if not parse_special and not self._control.isdisjoint(token_ids):
            # A normalizer turned other characters into the text of a control token.
            token_ids = [part for token_id in token_ids for part in self._as_text(token_id)]
        if add_special_tokens:
            return [*self.opening_ids, *token_ids, *self.closing_ids]
        return token_ids

    def check_length(self, text: str, max_seq_len: int, *, param: str) -> None:
        """Raise ContextLengthError for a long text that certainly has `max_seq_len` tokens or more.

        This takes a small part of the time of encoding.
        """
        if len(text) >= _LONG_TEXT:
            n_least = self.least_tokens(text)
            if n_least >= max_seq_len:
                raise ContextLengthError(n_least, max_seq_len, param=param, at_least=True)

    def least_tokens(self, text: str) -> int:
        """`text` has at least this many tokens; 0 if the vocabulary gives no bound."""
        return 0 if self._bound is None else self._bound.least(text)

    def encode_pieces(self, pieces: Iterable[tuple[str, bool]]) -> list[int]:
        """Ids of the joined text of (text, parse_special) pieces; nothing is added around them.

        A piece with False is spelled in the smallest tokens, so that any text stays text.
        """
        token_ids: list[int] = []
        first = True
        for text, parse in pieces:
            _check_text(text)
            if parse:
                encoded = self._encoded(text)
                # SentencePiece tokenizers put a space before each text that they encode.
                token_ids += encoded if first else self._without_added_space(encoded, text)
            else:
                token_ids += self._spell(text)
            first = False
        return token_ids

    def encode_continuation(self, text: str) -> list[int]:
        """Ids of a text that follows other text: no added space, no control token."""
        token_ids = self.encode_pieces([("", True), *self._divided(text)])
        return [part for token_id in token_ids for part in self._as_text(token_id)]

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """The bytes of all tokens as text; malformed UTF-8 becomes U+FFFD."""
        kept = (
            self.token_bytes(token_id)
            for token_id in token_ids
            if not (skip_special_tokens and token_id in self._special)
        )
        return b"".join(kept).decode("utf-8", errors="replace")

    def text_start(self, token_ids: Sequence[int], text: str) -> int | None:
        """The character of `decode(token_ids)` at which `text` begins; `token_ids` encode `text`.

        Before it come the name of BOS, and the space that SentencePiece puts before a text. None if
        a normalizer has changed the text.
        """
        n_closing = len(self.closing_ids)
        if n_closing and list(token_ids[-n_closing:]) == self.closing_ids:
            token_ids = token_ids[:-n_closing]
        decoded = self.decode(token_ids)
        return len(decoded) - len(text) if decoded.endswith(text) else None

    def added_token_id(self, text: str) -> int | None:
        """The id of the token that tokenizer.json adds under this text, or None. Pieces of the
        plain vocabulary do not count.
        """
        return self._added_ids.get(text)

    def token_bytes(self, token_id: int) -> bytes:
        """The exact bytes of a token; empty for an embedding row without a token."""
        data = self._token_bytes.get(token_id)
        if data is None:
            data = self._token_bytes[token_id] = self._bytes_of(token_id)
        return data

    def spelled(self, token_id: int) -> str:
        """The token as tokenizer.json spells it; empty for an embedding row without a token."""
        return self._added.get(token_id) or self._pieces.get(token_id, "")

    def is_special(self, token_id: int) -> bool:
        """Whether tokenizer.json marks the token as special."""
        return token_id in self._special

    def is_control(self, token_id: int) -> bool:
        """Whether the token is special, or a role marker that tokenizer.json forgot to mark so."""
        return token_id in self._special or token_id in self._control

    @cached_property
    def _bound(self) -> TokenBound | None:
        pieces = {*self._pieces.values(), *self._added.values()}
        pieces |= {str(self._backend.id_to_token(token_id)) for token_id in self._added}
        texts = {self._bytes_of(token_id) for token_id in (*self._pieces, *self._added)}
        texts |= {self._spelling.written(piece) for piece in pieces}
        texts |= {text.encode() for text in self._added.values()}
        return token_bound(self._backend, texts)

    def _encoded(self, text: str) -> list[int]:
        try:
            if len(text) < _LONG_TEXT:
                token_ids: list[int] = self._backend.encode(text, add_special_tokens=False).ids
            else:
                token_ids = self._backend.encode_batch_fast([text], add_special_tokens=False)[0].ids
        except BaseException as error:
            if not is_panic(error):
                raise
            # For example, its pattern takes too many steps for this text.
            raise InvalidInputError(
                "the model's tokenizer cannot encode this text", param="prompt"
            ) from error
        return token_ids

    def _bytes_of(self, token_id: int) -> bytes:
        if token_id in self._added:
            # As the library decodes it, which is after the normalizer, if there is one.
            added = str(self._backend.id_to_token(token_id))
            is_beside = token_id in self._beside
            spell = self._spelling.added_to_bytes if is_beside else self._spelling.to_bytes
            return spell(added)
        piece = self._pieces.get(token_id)
        return b"" if piece is None else self._spelling.to_bytes(piece)

    def _is_control(self, token_id: int, text: str) -> bool:
        """Special tokens, and role markers that some models forgot to mark, such as `<|User|>`."""
        if token_id in self._special:
            return bool(text)
        return is_marker(text)

    def _special_id(self, special: Mapping[str, str], role: str) -> int | None:
        return self._backend.token_to_id(special[role]) if role in special else None

    def _template_ids(self) -> tuple[list[int], list[int]]:
        """The ids that the post-processor puts before and after a text."""
        probe = self._backend.encode("a", add_special_tokens=True)
        added = list(zip(probe.ids, probe.special_tokens_mask, strict=True))
        n_before = next((i for i, (_, is_added) in enumerate(added) if not is_added), len(added))
        before = [token_id for token_id, _ in added[:n_before]]
        return before, [token_id for token_id, is_added in added[n_before:] if is_added]

    def _divided(self, text: str) -> list[tuple[str, bool]]:
        """The text as pieces; those that are the text of a control token are to be spelled."""
        pieces: list[tuple[str, bool]] = []
        position = 0
        for match in self.control_pattern.finditer(text):
            pieces += [(text[position : match.start()], True), (match[0], False)]
            position = match.end()
        return [*pieces, (text[position:], True)]

    def _as_text(self, token_id: int) -> list[int]:
        return self._spell(self._added[token_id]) if token_id in self._control else [token_id]

    def _spell(self, text: str) -> list[int]:
        """Ids of single characters or bytes; never a control token."""
        token_ids: list[int] = []
        for character in text:
            for pieces in self._spelling.to_pieces(character):
                found = [
                    token_id
                    for piece in pieces
                    if (token_id := self._backend.token_to_id(piece)) is not None
                ]
                if len(found) == len(pieces) and self._control.isdisjoint(found):
                    token_ids += found
                    break
            else:
                raise InvalidInputError(
                    f"the vocabulary cannot spell the character {character!r}", param="prompt"
                )
        return token_ids

    def _without_added_space(self, token_ids: list[int], text: str) -> list[int]:
        if not token_ids or token_ids[0] in self._control:
            return token_ids
        head = b"".join(self.token_bytes(token_id) for token_id in token_ids[: len(text) + 1])
        if len(head) - len(head.lstrip(b" ")) <= self._spelling.leading_spaces(text):
            return token_ids
        rest = self.token_bytes(token_ids[0])[1:].decode("utf-8", errors="replace")
        whole = self._backend.token_to_id(rest) if rest else None
        if whole is not None and self.token_bytes(whole) == rest.encode():
            return [whole, *token_ids[1:]]
        return [*self._spell(rest), *token_ids[1:]]


def is_marker(text: str) -> bool:
    """Whether a text looks like a control token.

    Plain tags such as <think> are content: templates and models write them themselves.
    """
    return bool(_MARKER.fullmatch(text)) and not _PLAIN_TAG.fullmatch(text)


def check_pieces(pieces: Mapping[int, str], vocab_size: int, where: str) -> None:
    """Whether a vocabulary, by id, fits a model of `vocab_size` rows. Raises ModelLoadError."""
    if max(map(len, pieces.values()), default=0) > _MAX_PIECE:
        raise ModelLoadError(f"{where}: a token has more than {_MAX_PIECE} characters")
    highest = max(pieces, default=-1)
    if highest >= vocab_size:
        raise ModelLoadError(
            f"{where}: does not fit the model: token {pieces[highest][:40]!r} has id {highest}, "
            f"the model has {vocab_size} embedding rows"
        )
    if highest < vocab_size * _LEAST_SHARE_OF_ROWS:
        logger.warning(
            "%s: %d tokens for %d embedding rows: is it the tokenizer of another model?",
            where,
            len(pieces),
            vocab_size,
        )


def _decoder(backend: tokenizers.Tokenizer) -> Mapping[str, object] | None:
    """The `decoder` of tokenizer.json, without writing out the vocabulary."""
    if backend.decoder is None:
        return None
    state: Mapping[str, object] = json.loads(backend.decoder.__getstate__())
    return state


def _alternatives(texts: Iterable[str]) -> re.Pattern[str]:
    """Matches any of `texts`, the longest first; nothing if there are none."""
    longest_first = sorted(texts, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(
            f"the text holds a lone surrogate (U+{ord(text[error.start]):04X}), "
            f"which is not a valid character",
            param="prompt",
        ) from error
