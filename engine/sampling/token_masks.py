"""Sets of tokens that samplers need, as bit masks.

Owns the masks of DRY's sequence breakers, of the tokens that XTC spares and of the tokens that the
tokenizer has. Each is made once, at first use. Knows no logits and no request.
"""

import re
from collections.abc import Iterable, Sequence

from ..text.token_ids import TokenMask, set_of_ids
from ..text.vocabulary import Vocabulary

# Sets of breakers whose masks are kept. Nearly every request uses the default set.
_MAX_BREAKER_SETS = 8


class SamplerVocabulary:
    """The tokens of one model, for the samplers of all its requests."""

    def __init__(self, vocabulary: Vocabulary, vocab_size: int) -> None:
        """`vocab_size`: the model's; the tokenizer may have fewer tokens."""
        self._vocabulary = vocabulary
        self.vocab_size = vocab_size
        self._n_tokens: int | None = None
        self._xtc_protected: TokenMask | None = None
        self._dry_breakers: dict[frozenset[str], TokenMask] = {}

    def allowed(self, token_ids: Iterable[int] | None) -> TokenMask | None:
        """The ids of `token_ids` (None: all) that are tokens. Returns None if all ids are allowed.

        Models often have more embedding rows than their tokenizer has tokens. The extra rows stand
        for no text, so they must not be drawn.
        """
        if self._n_tokens is None:
            is_special, token_bytes = self._vocabulary.is_special, self._vocabulary.token_bytes
            ids = reversed(range(self.vocab_size))
            last = next((i for i in ids if token_bytes(i) or is_special(i)), -1)
            self._n_tokens = last + 1
        n_tokens = self._n_tokens
        if token_ids is not None:
            return set_of_ids((i for i in token_ids if i < n_tokens), self.vocab_size)
        return set_of_ids(range(n_tokens), self.vocab_size) if n_tokens < self.vocab_size else None

    def xtc_protected(self) -> TokenMask:
        """Special tokens and tokens whose bytes contain a newline."""
        if self._xtc_protected is None:
            self._xtc_protected = self._special_or_holding(["\n"])
        return self._xtc_protected

    def dry_breakers(self, strings: Sequence[str]) -> TokenMask:
        """Special tokens and tokens whose bytes contain one of `strings`."""
        key = frozenset(strings)
        mask = self._dry_breakers.get(key)
        if mask is None:
            if len(self._dry_breakers) == _MAX_BREAKER_SETS:
                del self._dry_breakers[next(iter(self._dry_breakers))]  # the oldest
            mask = self._dry_breakers[key] = self._special_or_holding(key)
        return mask

    def _special_or_holding(self, strings: Iterable[str]) -> TokenMask:
        alternatives = [re.escape(string.encode()) for string in strings]
        holds = re.compile(b"|".join(alternatives)).search if alternatives else None
        is_special, token_bytes = self._vocabulary.is_special, self._vocabulary.token_bytes
        ids = [
            i
            for i in range(self.vocab_size)
            if is_special(i) or (holds is not None and holds(token_bytes(i)))
        ]
        return set_of_ids(ids, self.vocab_size)
