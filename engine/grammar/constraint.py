"""Constraints on the text: which tokens may come next, as bit masks over the vocabulary.

Owns the matchers of llguidance, which is only imported for the first constraint. Knows no sampler
and no generator.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..errors import EngineError, InvalidInputError
from ..text.prefix_index import PrefixIndex, end_of_prefix
from ..text.token_ids import TokenMask
from .messages import contained, reason_in
from .vocabulary import GrammarVocabulary

if TYPE_CHECKING:
    import llguidance


class Constraint:
    """The constraint on one text, and its state after the tokens so far.

    A method that raises InvalidInputError because of a token leaves the state unchanged. If it
    raises because the grammar became too expensive, the constraint cannot be used any more.
    """

    __slots__ = (
        "_address",
        "_end",
        "_eos_bits",
        "_eos_token_ids",
        "_has_ended",
        "_mask",
        "_mask_is_current",
        "_matcher",
        "_n_bytes",
        "_param",
        "_steps",
        "_vocabulary",
        "_words",
    )

    def __init__(
        self,
        matcher: "llguidance.LLMatcher",
        vocabulary: GrammarVocabulary,
        eos_token_ids: tuple[int, ...],
        *,
        param: str | None,
    ) -> None:
        self._matcher = matcher
        self._vocabulary = vocabulary
        self._eos_token_ids = eos_token_ids
        self._eos_bits = [_place(token_id) for token_id in eos_token_ids]
        self._param = param
        # Tokens of the matcher per accepted token; 0 for an end token and for one without bytes.
        self._steps: list[int] = []
        self._has_ended = False
        n_tokens = vocabulary.tokenizer.vocab_size
        # Unsigned, because the highest bit of a word stands for a token too.
        self._words = np.zeros((n_tokens + 31) // 32, np.uint32)
        self._address, self._n_bytes = self._words.ctypes.data, self._words.nbytes
        self._mask: TokenMask = self._words[: (vocabulary.vocab_size + 31) // 32].view(np.int32)
        self._mask_is_current = False
        self._end = _place(vocabulary.end_id)

    def mask(self) -> TokenMask:
        """The tokens that may come next.

        Valid until the next call of any method. All end tokens are set if the text may end here;
        otherwise one is set only if the grammar names it. Raises InvalidInputError if the grammar
        is too expensive here, or if it allows no token of the vocabulary.
        """
        if not self._mask_is_current:
            self._compute_mask()
            self._mask_is_current = True
        return self._mask

    def accept(self, token_id: int) -> None:
        """Raises InvalidInputError if the mask forbids the token."""
        if not self._allows(token_id):
            raise InvalidInputError(
                f"token {token_id} is not allowed by the constraint here", param=self._param
            )
        n_taken = 0 if self._has_ended else self._consume([token_id])
        if not n_taken:
            self._has_ended = True  # an end token that the grammar does not name
        self._took(n_taken)

    def accept_all(self, token_ids: Sequence[int]) -> None:
        """Takes the tokens of a text that is there already; faster than one by one.

        Raises InvalidInputError if the constraint forbids one of them.
        """
        n_before = len(self._steps)
        if token_ids:
            matcher = self._matcher
            ids = list(token_ids)
            n_taken = contained(self._param, lambda: matcher.try_consume_tokens(ids))
            self._steps += [1] * n_taken
            self._mask_is_current = False
        # The rest begins with an end token, or with one that is forbidden.
        for token_id in token_ids[len(self._steps) - n_before :]:
            self.accept(token_id)

    def mask_after(self, index: PrefixIndex, prefix: bytes) -> TokenMask:
        """The mask of a healed first token, which begins with `prefix`, a part of the prompt.

        Only the bytes after the prefix belong to the text. `index`: of the same vocabulary.
        """
        token_ids = index.ids_starting_with(prefix)
        keys = [key[len(prefix) :] for key in index.keys_starting_with(prefix)]
        allowed = np.zeros(len(self._mask) * 32, np.uint8)
        i = 0
        while i < len(keys):
            n_valid = self._n_valid(keys[i])
            if n_valid == len(keys[i]):
                allowed[token_ids[i]] = 1
                i += 1
            else:  # nor is anything allowed that begins like it
                i = end_of_prefix(keys, keys[i][: n_valid + 1], i)
        return np.packbits(allowed, bitorder="little").view(np.int32)

    def accept_bytes(self, data: bytes) -> None:
        """Takes the bytes of a healed token after its prefix, as one token.

        Raises InvalidInputError if the constraint forbids them.
        """
        if self._n_valid(data) < len(data):
            raise InvalidInputError(
                f"the text {data[:100]!r} is not allowed by the constraint here", param=self._param
            )
        token_ids = self._vocabulary.ids_of(data)
        self._took(self._consume(token_ids) if token_ids else 0)

    def forced(self) -> tuple[int, ...]:
        """The next tokens, as long as the grammar leaves no choice; may be ().

        The mask allows only the first of them. The others are a draft: the model may divide the
        same text into other tokens.
        """
        if self.is_over:
            return ()
        found = contained(self._param, self._matcher.compute_ff_tokens)
        n_real = self._vocabulary.vocab_size
        first_unreal = next((i for i, token_id in enumerate(found) if token_id >= n_real), None)
        return tuple(found[:first_unreal])

    def mark(self) -> int:
        """The number of accepted tokens."""
        return len(self._steps)

    def rollback(self, mark: int) -> None:
        """Forgets all tokens after the mark."""
        if not 0 <= mark <= len(self._steps):
            raise ValueError(f"cannot roll back from {len(self._steps)} tokens to {mark}")
        if mark == len(self._steps):
            return
        n_tokens = sum(self._steps[mark:])
        if n_tokens and not contained(self._param, lambda: self._matcher.rollback(n_tokens)):
            raise EngineError(f"llguidance cannot roll back: {self._matcher.get_error()}")
        del self._steps[mark:]
        self._has_ended = False
        self._mask_is_current = False

    @property
    def is_complete(self) -> bool:
        """Whether the text may end here."""
        return self._has_ended or self._matcher.is_accepting()

    @property
    def is_over(self) -> bool:
        """Whether nothing but the end can follow."""
        return self._has_ended or self._matcher.is_stopped()

    def _compute_mask(self) -> None:
        words = self._words
        if self._has_ended:
            words.fill(0)
            may_end = True
        else:
            matcher = self._matcher
            address, n_bytes = self._address, self._n_bytes
            contained(self._param, lambda: matcher.unsafe_compute_mask_ptr(address, n_bytes))
            may_end = matcher.is_accepting()
            # The mask does not show a failure: a matcher that failed allows the end token.
            if matcher.is_stopped() and not may_end:
                raise self._failure()
        vocab_size = self._vocabulary.vocab_size
        if vocab_size % 32:
            words[vocab_size // 32] &= (1 << vocab_size % 32) - 1
        if may_end:
            for word, bit in self._eos_bits:
                words[word] |= bit
        elif not self._mask.any():
            raise InvalidInputError(
                "the vocabulary has no token that the constraint allows here", param=self._param
            )

    def _allows(self, token_id: int) -> bool:
        if not 0 <= token_id < self._vocabulary.vocab_size:
            return False
        return bool(self.mask()[token_id >> 5] >> (token_id & 31) & 1)

    def _n_valid(self, data: bytes) -> int:
        """How many of the bytes the constraint allows."""
        token_ids = self._vocabulary.ids_of(data)
        if not token_ids or self.is_over:
            return 0
        return contained(self._param, lambda: self._matcher.validate_tokens(token_ids))

    def _consume(self, token_ids: list[int]) -> int:
        """How many tokens the matcher took: all, or none if the first is an end token."""
        matcher = self._matcher
        n_taken = contained(self._param, lambda: matcher.try_consume_tokens(token_ids))
        is_end = not n_taken and token_ids[0] in self._eos_token_ids
        if matcher.is_error() or (n_taken < len(token_ids) and not is_end):
            raise self._failure()
        return n_taken

    def _took(self, n_taken: int) -> None:
        self._steps.append(n_taken)
        self._mask_is_current = False

    def _failure(self) -> InvalidInputError:
        matcher = self._matcher
        reason = reason_in(matcher.get_error()) or matcher.stop_reason()
        return InvalidInputError(
            f"the constraint cannot continue after {len(self._steps)} tokens: {reason}",
            param=self._param,
        )


def _place(token_id: int) -> tuple[int, np.uint32]:
    """The word and bit of a token in a mask."""
    return token_id >> 5, np.uint32(1 << (token_id & 31))
