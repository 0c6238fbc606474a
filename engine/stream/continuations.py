"""Continuations of one prompt, scored one after another: the prompt is computed once for all.

Owns that the cache goes back to the prompt after each of them, and the logits after the prompt,
which every continuation begins with. Knows no text but that of single tokens, and draws nothing.
"""

from collections.abc import Callable, Sequence

import numpy as np

from ..abort import AbortFlag
from ..cache.kv import KVCache
from ..cache.reuse import Reuse
from ..errors import ContextLengthError, InvalidInputError
from ..model.model import Model
from ..sampling.logits import Logits
from ..text.token_ids import check_token_ids
from ..text.vocabulary import Vocabulary
from .prompt_scorer import PromptScorer
from .result import PromptToken


class ContinuationScorer:
    """Call `score` with one continuation after another."""

    def __init__(
        self,
        model: Model,
        cache: KVCache,
        vocabulary: Vocabulary,
        prompt: Sequence[int],
        reuse: Reuse,
        *,
        n_top: int,
        abort: AbortFlag | None,
        restore: Callable[[], object],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """`cache` holds all of `prompt` but the last token, or less after an abort. `n_top`:
        alternatives per token. `restore` makes the cache hold all of the prompt again, or less
        after an abort. `on_failure` gets the error of a failed pass.
        """
        self._model = model
        self._cache = cache
        self._vocabulary = vocabulary
        self._prompt = prompt
        self._n_top = n_top
        self._abort = abort
        self._restore = restore
        self._on_failure = on_failure
        self._is_whole = cache.length == len(prompt) - 1
        self._has_ended = False
        self._after_prompt: Logits | None = None  # (1, vocab_size)
        self.reuse = reuse
        """How much of the prompt was cached."""

    def score(self, continuation: Sequence[int]) -> tuple[PromptToken, ...]:
        """How likely each token of `continuation` is after the prompt and those before it.

        As many records as tokens; fewer after an abort. Their characters count from the last token
        of the prompt. Raises InvalidInputError for an empty continuation, an id outside the
        vocabulary and after the next prompt has begun, ContextLengthError if prompt and
        continuation do not fit, NumericsError for logits with NaN or infinity.
        """
        self._check(continuation)
        try:
            return self._scored(continuation)
        except BaseException as error:
            self._has_ended = True
            self._on_failure(error)
            raise

    def end(self) -> None:
        """The cache is needed for another prompt."""
        self._has_ended = True

    def _check(self, continuation: Sequence[int]) -> None:
        if self._has_ended:
            raise InvalidInputError("the prompt is no longer in the cache: begin scoring again")
        if not continuation:
            raise InvalidInputError(
                "the continuation is empty: it needs at least one token", param="continuation"
            )
        check_token_ids("continuation", continuation, self._model.config.vocab_size)
        n_tokens, limit = len(self._prompt) + len(continuation), self._model.max_seq_len
        if n_tokens > limit:
            raise ContextLengthError(n_tokens, limit, param="continuation")

    def _scored(self, continuation: Sequence[int]) -> tuple[PromptToken, ...]:
        model, cache, abort = self._model, self._cache, self._abort
        if not self._is_whole or (abort is not None and abort.is_set()):
            return ()
        last = self._prompt[-1:]
        if self._after_prompt is None:
            # The next pass overwrites them.
            self._after_prompt = np.array(model.decode(last, cache))
        if not cache.is_whole:  # the cache has lost what the prompt ended with
            self._restore()
        if cache.length < len(self._prompt):
            return ()
        scorer = PromptScorer(
            [*last, *continuation],
            self._vocabulary,
            n_top=self._n_top,
            first_position=len(self._prompt) - 1,
        )
        scorer.take(self._after_prompt)
        model.prefill(continuation[:-1], cache, abort=abort, on_logits=scorer.take)
        cache.rollback(len(self._prompt))
        return scorer.tokens[1:]
