"""Drafts by a small model with the same vocabulary.

Owns what that model's cache holds: the keys and values of a prefix of the sequence, perhaps
followed by its own last draft, and never a position that was not computed.
"""

import time
from collections.abc import Sequence

import numpy as np

from ..abort import AbortFlag
from ..cache.kv import KVCache
from ..checkpoint.config import ModelConfig
from ..errors import ModelLoadError
from ..model.model import MAX_DECODE_ROWS, Model
from ..text.tokenizer import Tokenizer
from .confidence import Confidence
from .drafter import Origin, Prospect
from .length import Acceptance
from .row_costs import RowCosts

_PRIOR = 0.6


class ModelDrafter:
    """Greedy drafts, which end early if the model is not sure."""

    origin: Origin = "draft_model"

    def __init__(
        self,
        model: Model,
        cache: KVCache,
        row_costs: RowCosts,
        *,
        vocab_size: int,
        min_confidence: float = 0.15,
    ) -> None:
        """`row_costs`: this model's. `vocab_size`: that of the model that verifies; higher ids are
        not drafted. A draft ends before its probability as a whole, by this model's untouched
        logits, falls below `min_confidence`.
        """
        self.model = model
        self.cache = cache
        self.row_costs = row_costs
        self._n_shared = min(vocab_size, model.config.vocab_size)
        self._confidence = Confidence(self._n_shared, least=min_confidence)
        self._acceptance = Acceptance(_PRIOR)
        self._tokens: list[int] = []
        self._n_prompt = 0
        self._abort: AbortFlag | None = None
        self._isolation_key = ""  # of what the cache holds

    def begin(
        self,
        prompt_ids: Sequence[int],
        abort: AbortFlag | None = None,
        isolation_key: str = "",
    ) -> None:
        """Computes nothing yet: the first draft computes what the cache lacks of the prompt."""
        if isolation_key != self._isolation_key:
            self.cache.clear()
            self._isolation_key = isolation_key
        self._acceptance.reset()
        self._abort = abort
        self._tokens = list(prompt_ids)
        self._n_prompt = len(prompt_ids)
        self.cache.forget_from(self.cache.common_prefix(self._tokens))

    def accept(self, token_id: int) -> None:
        n = len(self._tokens)
        cached = self.cache.token_ids
        if len(cached) > n and cached[n] != token_id:
            self.cache.forget_from(n)
        self._tokens.append(token_id)

    def rollback(self, mark: int) -> None:
        # The cache keeps what follows: the same tokens may come again, which `accept` checks.
        del self._tokens[mark:]

    def prospect(self, n_max: int) -> Prospect | None:
        room = self.cache.max_seq_len - len(self._tokens) + 1
        if room < 1 or self._acceptance.is_resting():
            return None
        table = self.row_costs.table
        # The prompt does not count: it is computed once, as in the model that verifies.
        n_missing = max(len(self._tokens) - max(self.cache.length, self._n_prompt), 1)
        passes, rest = divmod(n_missing, MAX_DECODE_ROWS)
        # The pass over the missing tokens gives the first token, so `each` counts one step too
        # many: that of the token that is not sure enough.
        return Prospect(
            self._acceptance,
            min(n_max, room),
            first=passes * table[MAX_DECODE_ROWS] + table[rest],
            each=table[1],
        )

    def draft(self, n: int) -> tuple[int, ...]:
        self._confidence.begin()
        drafted: list[int] = []
        token_id = self._after_missing()
        while token_id is not None:
            drafted.append(token_id)
            if len(drafted) == n:
                break
            token_id = self._pass([token_id])
        return tuple(drafted)

    def end(self) -> None:
        # The cache stays as it is: the next prompt may begin alike.
        self._abort = None

    def _after_missing(self) -> int | None:
        """Forwards all tokens that the cache lacks, and in any case the last one.

        Returns the first token of a draft; None if there is none, if aborted, or if a token is
        unknown here.
        """
        cache, tokens = self.cache, self._tokens
        if cache.length >= len(tokens):
            cache.forget_from(len(tokens) - 1)
        missing = tokens[cache.length :]
        if max(missing) >= self._n_shared:
            return None
        if len(missing) > MAX_DECODE_ROWS:
            if not self.model.prefill(missing[:-1], cache, abort=self._abort):
                return None
            missing = missing[-1:]
        return self._pass(missing)

    def _pass(self, token_ids: Sequence[int]) -> int | None:
        """The token that follows, if the draft goes on. Corrects the costs: between two passes of
        the model that verifies little of this one is in a cache.
        """
        started = time.perf_counter()
        rows = self.model.decode(token_ids, self.cache)
        token_id = self._confidence.next(np.asarray(rows[-1]))
        self.row_costs.observe(len(token_ids), time.perf_counter() - started)
        return token_id


def check_same_vocabulary(
    config: ModelConfig,
    tokenizer: Tokenizer,
    draft_config: ModelConfig,
    draft_tokenizer: Tokenizer | None,
) -> None:
    """Raises ModelLoadError unless each id is the same token in both models.

    A draft model without a tokenizer must have as many embedding rows as the model; with one, the
    number of unused rows may differ.
    """
    if draft_tokenizer is None:
        if draft_config.vocab_size != config.vocab_size:
            raise ModelLoadError(
                f"draft model: it has {draft_config.vocab_size} embedding rows, the model has "
                f"{config.vocab_size}; both need the same vocabulary"
            )
        return
    if draft_tokenizer.vocab_size != tokenizer.vocab_size:
        raise ModelLoadError(
            f"draft model: it has {draft_tokenizer.vocab_size} tokens, the model has "
            f"{tokenizer.vocab_size}; both need the same vocabulary"
        )
    for token_id in range(tokenizer.vocab_size):
        mine, its = (each.token_bytes(token_id) for each in (tokenizer, draft_tokenizer))
        special = tokenizer.is_special(token_id) != draft_tokenizer.is_special(token_id)
        if mine != its or special:
            raise ModelLoadError(
                f"draft model: token {token_id} is {its!r}, in the model {mine!r}; "
                f"both need the same vocabulary"
            )
