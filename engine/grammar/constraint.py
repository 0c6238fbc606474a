"""Constraints on the text: which tokens may come next, as bit masks over the vocabulary.

Owns the matchers of llguidance, which is imported at the first constraint only. Knows no sampler
and no generator.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from ..abort import AbortFlag
from ..errors import EngineError, InvalidInputError
from ..text.prefix_index import PrefixIndex, end_of_prefix
from ..text.token_ids import Words
from .messages import compile_error, reason_in
from .recent import Recent
from .spec import ConstraintSpec, Grammar, grammar_of
from .trial import LIMITS, Verdict, verdict_on
from .vocabulary import ConstrainableTokenizer, GrammarVocabulary

if TYPE_CHECKING:
    import llguidance

# Grammars that have passed their trial, with their size, and those that were refused, by hash:
# of each more than usually wait for the engine, so that nothing is tried twice for one request.
_N_KNOWN_GRAMMARS = 1024
# Those that are kept compiled, ready to be copied: some may be large.
_N_COMPILED_GRAMMARS = 8
_COMPILED_BYTES = 256 * 1024 * 1024
_T = TypeVar("_T")


class _Key(NamedTuple):
    """Of a grammar. Two kinds may come to the same one; what is wrong is said of a kind."""

    kind: str
    digest: bytes


class ConstraintCompiler:
    """Compiles constraints for one vocabulary; any number of threads may do so at a time.

    What it keeps between requests: the vocabulary as llguidance wants it, built at the first
    constraint; which grammars are known to compile, and why others are not used; and the last of
    them compiled, so that a request that was checked beside the engine costs the engine next to
    nothing.
    """

    def __init__(
        self, tokenizer: ConstrainableTokenizer, vocab_size: int, eos_token_ids: Sequence[int]
    ) -> None:
        """`vocab_size`: of the masks; `eos_token_ids`: what may follow a complete text."""
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._eos_token_ids = tuple(eos_token_ids)
        self._known: Recent[bytes, int] = Recent(_N_KNOWN_GRAMMARS)
        self._refused: Recent[_Key, str] = Recent(_N_KNOWN_GRAMMARS)
        self._compiled: Recent[bytes, llguidance.LLMatcher] = Recent(
            _N_COMPILED_GRAMMARS, max_weight=_COMPILED_BYTES
        )

    def compile(
        self,
        spec: ConstraintSpec,
        *,
        param: str | None = "response_format",
        abort: AbortFlag | None = None,
    ) -> "Constraint":
        """Raises InvalidInputError naming the keyword or the position that is at fault.

        With `abort` set a trial ends at once, with an EngineError.
        """
        matcher = self._ready(spec, grammar_of(spec, param=param), param, abort)
        return Constraint(matcher.deep_copy(), self._vocabulary, self._eos_token_ids, param=param)

    def work_for(
        self, spec: ConstraintSpec, *, param: str | None
    ) -> Callable[[AbortFlag], None] | None:
        """What must be done, and may take seconds, before `compile` takes no time to speak of.

        None: nothing. Takes little time itself. Raises InvalidInputError as `compile` does, for
        what the work would not find or was found before.
        """
        grammar = grammar_of(spec, param=param)
        if not grammar.foreign:
            self._ready(spec, grammar, param, None)
            return None
        key = _key(spec, grammar)
        self._check_refused(key, param)
        if self._compiled.get(key.digest) is not None:
            return None
        return lambda abort: [self._ready(spec, grammar, param, abort)].clear()

    def _ready(
        self, spec: ConstraintSpec, grammar: Grammar, param: str | None, abort: AbortFlag | None
    ) -> "llguidance.LLMatcher":
        """The matcher before its first token, for others to copy."""
        key = _key(spec, grammar)
        matcher = self._compiled.get(key.digest)
        if matcher is not None:
            return matcher
        self._check_refused(key, param)
        n_bytes = self._known.get(key.digest) if grammar.foreign else 0
        if n_bytes is None:
            verdict = self._tried(grammar, spec, abort)
            if verdict.failure is not None:
                error = compile_error(spec, verdict.failure, param)
                if verdict.lasting:
                    self._refused.put(key, str(error))
                raise error
            n_bytes = verdict.n_bytes
            self._known.put(key.digest, n_bytes)
        if abort is not None and abort.is_set():
            raise EngineError("nobody waits for this grammar any more")
        try:
            matcher = self._matcher(grammar, spec, param)
        except InvalidInputError as error:
            self._refused.put(key, str(error))
            raise
        self._compiled.put(key.digest, matcher, weight=n_bytes)
        return matcher

    def _check_refused(self, key: "_Key", param: str | None) -> None:
        refusal = self._refused.get(key)
        if refusal is not None:
            raise InvalidInputError(refusal, param=param)

    def _matcher(
        self, grammar: Grammar, spec: ConstraintSpec, param: str | None
    ) -> "llguidance.LLMatcher":
        import llguidance

        vocabulary = self._vocabulary
        limits = llguidance.LLParserLimits(**LIMITS._asdict(), verbose_errors=False)
        matcher = _call(
            param,
            lambda: llguidance.LLMatcher(
                vocabulary.tokenizer, grammar.text, log_level=0, limits=limits
            ),
        )
        if matcher.is_error():
            raise compile_error(spec, matcher.get_error(), param)
        # The library looks at the first token only when asked.
        Constraint(matcher, vocabulary, self._eos_token_ids, param=param).mask()
        return matcher

    @cached_property
    def _vocabulary(self) -> GrammarVocabulary:
        # Two threads may build it at once, which does no harm: both are the same.
        return GrammarVocabulary(self._tokenizer, self._vocab_size, self._eos_token_ids)

    def _tried(self, grammar: Grammar, spec: ConstraintSpec, abort: AbortFlag | None) -> Verdict:
        import llguidance._lib

        library = llguidance._lib.__file__
        if library is None:
            raise EngineError("llguidance has no extension module")
        # What else there is has no way to name a token.
        named = spec.kind == "lark" or bool(spec.before)
        return verdict_on(
            grammar.text,
            library=library,
            n_tokens=self._vocab_size if named else 0,
            special=self._vocabulary.special if named else {},
            abort=abort,
        )


class Constraint:
    """One text under construction.

    A method that raises InvalidInputError because of a token leaves the state as it was; one that
    raises because the grammar became too expensive leaves a constraint that is of no more use.
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
        self._steps: list[int] = []  # tokens of the matcher per token taken; 0: an end or no byte
        self._has_ended = False
        n_tokens = vocabulary.tokenizer.vocab_size
        # Unsigned, because the highest bit of a word is a token as well.
        self._words = np.zeros((n_tokens + 31) // 32, np.uint32)
        self._address, self._n_bytes = self._words.ctypes.data, self._words.nbytes
        self._mask: Words = self._words[: (vocabulary.vocab_size + 31) // 32].view(np.int32)
        self._mask_is_current = False
        self._end = _place(vocabulary.end_id)

    def mask(self) -> Words:
        """Bits of the tokens that may come next, int32 (ceil(vocab_size / 32),).

        Valid until the next call of any method. The bits of all end tokens are set where the text
        may end; elsewhere only a grammar that names one sets it. Raises InvalidInputError when the
        grammar is too expensive here, or the vocabulary has no token that it allows.
        """
        if not self._mask_is_current:
            self._compute_mask()
            self._mask_is_current = True
        return self._mask

    def accept(self, token_id: int) -> None:
        """Takes a token. Raises InvalidInputError if the mask forbids it."""
        if not self._allows(token_id):
            raise InvalidInputError(
                f"token {token_id} is not allowed by the constraint here", param=self._param
            )
        n_taken = 0 if self._has_ended else self._consume([token_id])
        if not n_taken:
            self._has_ended = True  # an end token that the grammar does not name
        self._took(n_taken)

    def mask_after(self, index: PrefixIndex, prefix: bytes) -> Words:
        """The mask of a healed first token, which begins with `prefix`, a part of the prompt.

        Only the bytes behind the prefix belong to the text. `index`: of the same vocabulary.
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
            else:  # and so is nothing that begins like it
                i = end_of_prefix(keys, keys[i][: n_valid + 1], i)
        return np.packbits(allowed, bitorder="little").view(np.int32)

    def accept_bytes(self, data: bytes) -> None:
        """Takes the bytes of a healed token that are behind its prefix, as one token.

        Raises InvalidInputError if the constraint forbids them.
        """
        if self._n_valid(data) < len(data):
            raise InvalidInputError(
                f"the text {data[:100]!r} is not allowed by the constraint here", param=self._param
            )
        token_ids = self._vocabulary.ids_of(data)
        self._took(self._consume(token_ids) if token_ids else 0)

    def forced(self) -> tuple[int, ...]:
        """Tokens that the grammar leaves no choice about, in their usual division; may be ().

        The mask allows the first of them and nothing else. The others are a draft: how a text is
        divided may look different from within.
        """
        if self.is_over:
            return ()
        found = _call(self._param, self._matcher.compute_ff_tokens)
        n_real = self._vocabulary.vocab_size
        first_unreal = next((i for i, token_id in enumerate(found) if token_id >= n_real), None)
        return tuple(found[:first_unreal])

    def mark(self) -> int:
        """How many tokens were taken."""
        return len(self._steps)

    def rollback(self, mark: int) -> None:
        """Forgets all tokens behind the mark."""
        if not 0 <= mark <= len(self._steps):
            raise ValueError(f"cannot roll back from {len(self._steps)} tokens to {mark}")
        if mark == len(self._steps):
            return
        n_tokens = sum(self._steps[mark:])
        if n_tokens and not _call(self._param, lambda: self._matcher.rollback(n_tokens)):
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
            _call(self._param, lambda: matcher.unsafe_compute_mask_ptr(address, n_bytes))
            may_end = matcher.is_accepting()
            # A matcher that failed allows the end token, so the mask does not tell.
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
        """How many of the bytes the constraint would take."""
        token_ids = self._vocabulary.ids_of(data)
        if not token_ids or self.is_over:
            return 0
        return _call(self._param, lambda: self._matcher.validate_tokens(token_ids))

    def _consume(self, token_ids: list[int]) -> int:
        """How many tokens the matcher took: all, or none if the first is an end."""
        matcher = self._matcher
        n_taken = _call(self._param, lambda: matcher.try_consume_tokens(token_ids))
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
            f"the constraint cannot go on after {len(self._steps)} tokens: {reason}",
            param=self._param,
        )


def _key(spec: ConstraintSpec, grammar: Grammar) -> _Key:
    return _Key(spec.kind, sha256(grammar.text.encode()).digest())


def _place(token_id: int) -> tuple[int, np.uint32]:
    """Word and bit of a token in a mask."""
    return token_id >> 5, np.uint32(1 << (token_id & 31))


def _call(param: str | None, function: Callable[[], _T]) -> _T:
    """Calls the library; a panic of it, which is no Exception, becomes an error of the request."""
    try:
        return function()
    except (Exception, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as panic:
        raise InvalidInputError(f"the constraint failed: {panic}", param=param) from panic
