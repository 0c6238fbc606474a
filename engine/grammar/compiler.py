"""Compiles constraints, caches the recent ones, and has new grammars tried first.

Owns that cache and the verdicts of the trials. Imports llguidance only for the first constraint.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from ..abort import AbortFlag
from ..errors import EngineError, InvalidInputError
from .constraint import Constraint
from .messages import compile_error, contained
from .recent import Recent
from .spec import ConstraintSpec, Grammar, grammar_of
from .trial import LIMITS, Verdict, verdict_on
from .vocabulary import ConstrainableTokenizer, GrammarVocabulary

if TYPE_CHECKING:
    import llguidance

# Grammars that passed their trial, with their size, and those that were refused, by hash. That is
# more than usually wait for the engine, so that nothing is tried twice for one request.
_N_KNOWN_GRAMMARS = 1024
# Grammars that are kept compiled, ready to be copied. Some may be large.
_N_COMPILED_GRAMMARS = 8
_COMPILED_BYTES = 256 * 1024 * 1024


class _Key(NamedTuple):
    """A grammar's key. Two kinds may give the same grammar, but error messages name the kind."""

    kind: str
    digest: bytes


class ConstraintCompiler:
    """Compiles constraints for one vocabulary; several threads may do so at once.

    Between requests it keeps the vocabulary for llguidance, built for the first constraint; which
    grammars compile, and why others were refused; and the most recent ones compiled. So a request
    that was checked outside the engine's thread costs the engine next to nothing.
    """

    def __init__(
        self, tokenizer: ConstrainableTokenizer, vocab_size: int, eos_token_ids: Sequence[int]
    ) -> None:
        """`vocab_size`: of the masks; `eos_token_ids`: tokens that may follow a complete text."""
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
        param: str | None = "constraint",
        abort: AbortFlag | None = None,
    ) -> "Constraint":
        """Raises InvalidInputError naming the keyword or the position at fault.

        Setting `abort` ends a trial at once, with an EngineError.
        """
        matcher = self._ready(spec, grammar_of(spec, param=param), param, abort)
        return Constraint(matcher.deep_copy(), self._vocabulary, self._eos_token_ids, param=param)

    def work_for(
        self, spec: ConstraintSpec, *, param: str | None
    ) -> Callable[[AbortFlag], None] | None:
        """The slow part of `compile`, which may take seconds, as a function for another thread.

        None if nothing slow is left to do. Quick itself. Raises InvalidInputError as `compile`
        does, for faults that are known before the slow part.
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
        """The matcher before its first token, to be copied."""
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
            raise EngineError("the request for this grammar was cancelled")
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
        matcher = contained(
            param,
            lambda: llguidance.LLMatcher(
                vocabulary.tokenizer, grammar.text, log_level=0, limits=limits
            ),
        )
        if matcher.is_error():
            raise compile_error(spec, matcher.get_error(), param)
        # The library does not check the first token before it computes a mask.
        Constraint(matcher, vocabulary, self._eos_token_ids, param=param).mask()
        return matcher

    @cached_property
    def _vocabulary(self) -> GrammarVocabulary:
        # If two threads build it at once, both results are the same.
        return GrammarVocabulary(self._tokenizer, self._vocab_size, self._eos_token_ids)

    def _tried(self, grammar: Grammar, spec: ConstraintSpec, abort: AbortFlag | None) -> Verdict:
        import llguidance._lib

        library = llguidance._lib.__file__
        if library is None:
            raise EngineError("llguidance has no extension module")
        # No other grammar can name a token.
        named = spec.kind == "lark" or bool(spec.before)
        return verdict_on(
            grammar.text,
            library=library,
            n_tokens=self._vocab_size if named else 0,
            special=self._vocabulary.special if named else {},
            abort=abort,
        )


def _key(spec: ConstraintSpec, grammar: Grammar) -> _Key:
    return _Key(spec.kind, sha256(grammar.text.encode()).digest())
