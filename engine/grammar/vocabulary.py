"""The vocabulary of a model, for llguidance.

Owns which tokens are text to a grammar, which are special, and the tokens added to them. Knows no
grammar.
"""

from collections.abc import Callable
from typing import Protocol

from ..errors import InvalidInputError
from ..text.vocabulary import Vocabulary

_SPECIAL_MARKER = 0xFF  # llguidance's, before the name of a special token; never occurs in text


class ConstrainableTokenizer(Vocabulary, Protocol):
    def encode_continuation(self, text: str) -> list[int]: ...


class GrammarVocabulary:
    """The tokens of a model for llguidance, and after them some that no model can draw.

    These are a token for every byte that has none, so that a matcher can take any bytes, and one
    token for "the end", so that a model may have several end tokens or none.
    """

    def __init__(
        self, tokenizer: ConstrainableTokenizer, vocab_size: int, eos_token_ids: tuple[int, ...]
    ) -> None:
        import llguidance

        self.vocab_size = vocab_size
        self.special: dict[int, str] = {}
        data: list[bytes] = []
        for token_id in range(vocab_size):
            token = tokenizer.token_bytes(token_id)
            if token_id in eos_token_ids or tokenizer.is_control(token_id):
                self.special[token_id] = token.decode(errors="replace")
            elif token[:1] == bytes([_SPECIAL_MARKER]):
                token = b""  # part of a text that is not UTF-8
            data.append(token)
        self._set_byte_ids(data)
        self.end_id = len(data)
        data.append(b"")
        source = _TokenSource(tokenizer, data, self.special, self.end_id)
        self.tokenizer = llguidance.LLTokenizer(source)  # type: ignore[arg-type]
        source.greedy = self.tokenizer.greedy_tokenize

    def _set_byte_ids(self, data: list[bytes]) -> None:
        """Finds or appends a token for every byte."""
        single = {
            token[0]: token_id
            for token_id, token in enumerate(data)
            if len(token) == 1 and token_id not in self.special
        }
        for byte in range(_SPECIAL_MARKER):
            if byte not in single:
                single[byte] = len(data)
                data.append(bytes([byte]))
        self._byte_ids = single

    def ids_of(self, data: bytes) -> list[int]:
        """A token per byte, up to the first 0xFF, which no text contains."""
        text, _, _ = data.partition(bytes([_SPECIAL_MARKER]))
        return [self._byte_ids[byte] for byte in text]


class _TokenSource:
    """The vocabulary that LLTokenizer reads. It is called for the usual tokens of a forced text."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(
        self,
        tokenizer: ConstrainableTokenizer,
        tokens: list[bytes],
        special: dict[int, str],
        end_id: int,
    ) -> None:
        self._tokenizer = tokenizer
        self.tokens = tokens
        self.eos_token_id = end_id
        self.special_token_ids = [*special, end_id]
        self.greedy: Callable[[str], list[int]] = lambda text: []

    def __call__(self, text: str) -> list[int]:
        """Never raises: the caller is Rust code, which would panic."""
        try:
            token_ids = self._tokenizer.encode_continuation(text)
        except InvalidInputError:
            token_ids = []
        exact = b"".join(self.tokens[token_id] for token_id in token_ids) == text.encode()
        return token_ids if exact else self.greedy(text)
