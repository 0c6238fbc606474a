"""The sampler of one request, token by token.

Owns the running state: the context that the penalties see and mirostat's mu, both of which can be
rolled back. The arithmetic is in `op.py`, the settings are in `settings.py`. Knows no text, no
cache and no HTTP.
"""

import math
from collections.abc import Sequence

import numpy as np

from ..native import cpu as native
from ..text.token_ids import TokenMask, check_token_ids
from .logits import Logits, Row
from .op import sample
from .random_numbers import MAX_SEED, XTC, random_seed, uniform
from .request import N_PARAMETERS, Draw, SampleRequest, SampleResult
from .settings import SamplingSettings
from .token_masks import SamplerVocabulary

# The Python version costs more than the rest of the sampler without the op.
_uniform = uniform if native.MISSING else native.kernels.uniform

# Tokens of the completion that fit before the context moves to a larger array.
_ROOM = 1024


class Sampler:
    """Chooses the tokens of one request, and forgets them again on rollback.

    The context is one array that only grows. A rollback is a shorter view of it, so a step costs
    the same after any rollback.
    """

    def __init__(
        self,
        settings: SamplingSettings,
        *,
        prompt_ids: Sequence[int],
        vocabulary: SamplerVocabulary,
        work: Logits,
        n_top: int,
        trace: bool = False,
        draw: Draw = sample,
    ) -> None:
        """`work`: scratch for the op, (vocab_size,). `draw`: the op, for the rows that `sample`
        gets. Raises InvalidInputError if the settings name a token id outside the vocabulary.
        """
        vocab_size = work.shape[0]
        check_token_ids("logit_bias", tuple(settings.logit_bias), vocab_size)
        check_token_ids("banned_tokens", settings.banned_tokens, vocab_size)
        check_token_ids("allowed_tokens", settings.allowed_tokens or (), vocab_size)
        self.seed = random_seed() if settings.seed is None else settings.seed & MAX_SEED
        self._settings = settings
        self._draw = draw
        self._work = work
        self._n_prompt = len(prompt_ids)
        self._length = len(prompt_ids)
        self._context = np.empty(self._length + _ROOM, dtype=np.int32)
        self._context[: self._length] = prompt_ids
        # Mirostat's mu before the completion and after each of its tokens.
        self._mus = [2 * settings.mirostat_tau]
        self._adapts = settings.mirostat and not settings.is_greedy
        self._has_xtc = settings.xtc_probability > 0 and not settings.is_greedy
        self._banned = np.array(settings.banned_tokens, dtype=np.int32)
        self._allowed = vocabulary.allowed(settings.allowed_tokens)
        self._request = self._new_request(vocabulary, n_top, trace)

    def sample(
        self,
        logits: Row,
        position: int,
        *,
        attempt: int = 0,
        mask: TokenMask | None = None,
        banned: Sequence[int] = (),
    ) -> SampleResult:
        """Choose the token at absolute `position` from logits (vocab_size,), which stay untouched.

        `attempt` counts the rewinds to this position. `mask` (allowed tokens) and `banned` hold for
        this step only. Raises NumericsError if the logits contain NaN or +inf, or nothing finite;
        InvalidInputError if the settings cause that or leave no token.
        """
        request = self._request
        if not request.greedy:
            request.u = _uniform(self.seed, position, attempt=attempt)
            if self._has_xtc:
                request.u_xtc = _uniform(self.seed, position, purpose=XTC, attempt=attempt)
        request.mask = self._both(mask)
        request.banned_ids = self._banned
        if banned:
            request.banned_ids = np.concatenate([self._banned, np.array(banned, dtype=np.int32)])
        return self._draw(logits, request, work=self._work)

    def accept(self, token_id: int, p_sampled: float) -> None:
        """Append a token to the completion. `p_sampled`: the probability of drawing it."""
        if self._length == self._context.size:
            self._context = np.concatenate([self._context, np.empty_like(self._context)])
        self._context[self._length] = token_id
        self._set_length(self._length + 1)
        if self._adapts:
            self._mus.append(self._mu_after(p_sampled))
            self._request.mirostat_mu = self._mus[-1]

    @property
    def mus(self) -> Sequence[float]:
        """Mirostat's mu before the completion and after each of its tokens; () without mirostat."""
        return tuple(self._mus) if self._adapts else ()

    def resume(self, token_ids: Sequence[int], mus: Sequence[float] = ()) -> None:
        """Go on after a completion of these tokens, with the `mus` of the sampler that drew them:
        one more than tokens. Without them mirostat begins anew here.
        """
        n_tokens = len(token_ids)
        length = self._n_prompt + n_tokens
        if length > self._context.size:
            grown = np.empty(length + _ROOM, dtype=np.int32)
            grown[: self._n_prompt] = self._context[: self._n_prompt]
            self._context = grown
        self._context[self._n_prompt : length] = token_ids
        self._set_length(length)
        if self._adapts:
            self._mus = list(mus) or [self._mus[0]] * (n_tokens + 1)
            self._request.mirostat_mu = self._mus[-1]

    def mark(self) -> int:
        """The number of accepted tokens of the completion."""
        return self._length - self._n_prompt

    def rollback(self, mark: int) -> None:
        """Forget all tokens that were accepted after `mark`."""
        if not 0 <= mark <= self.mark():
            raise ValueError(f"mark: {mark}, allowed: 0 to {self.mark()}")
        self._set_length(self._n_prompt + mark)
        if self._adapts:
            del self._mus[mark + 1 :]
            self._request.mirostat_mu = self._mus[-1]

    def _set_length(self, length: int) -> None:
        self._length = length
        self._request.context = self._context[:length]

    def _mu_after(self, p_sampled: float) -> float:
        settings = self._settings
        if p_sampled <= 0:  # the token was not drawn, so its surprise means nothing
            return self._mus[-1]
        return mirostat_mu(self._mus[-1], p_sampled, settings.mirostat_tau, settings.mirostat_eta)

    def _both(self, mask: TokenMask | None) -> TokenMask | None:
        if mask is None or self._allowed is None:
            return self._allowed if mask is None else mask
        return mask & self._allowed

    def _new_request(self, vocabulary: SamplerVocabulary, n_top: int, trace: bool) -> SampleRequest:
        settings = self._settings
        stages = settings.stages()
        has_dry = settings.dry_multiplier > 0
        return SampleRequest(
            u=0.0,
            greedy=settings.is_greedy,
            n_top=n_top,
            want_trace=trace,
            context=self._context[: self._length],
            n_prompt=self._n_prompt,
            repetition_penalty=settings.repetition_penalty,
            frequency_penalty=settings.frequency_penalty,
            presence_penalty=settings.presence_penalty,
            repetition_range=settings.repetition_range,
            repetition_decay=settings.repetition_decay,
            bias_ids=np.array(list(settings.logit_bias), dtype=np.int32),
            bias_deltas=np.array(list(settings.logit_bias.values()), dtype=np.float32),
            dry_multiplier=settings.dry_multiplier,
            dry_base=settings.dry_base,
            dry_allowed_length=settings.dry_allowed_length,
            dry_range=settings.dry_range,
            dry_max_ngram=settings.dry_max_ngram,
            dry_breakers=(
                vocabulary.dry_breakers(settings.dry_sequence_breakers) if has_dry else None
            ),
            stages=np.array([stage for stage, _ in stages], dtype=np.int32),
            parameters=np.array([values for _, values in stages]).reshape(-1, N_PARAMETERS),
            mirostat_mu=self._mus[0],
            xtc_protected=vocabulary.xtc_protected() if self._has_xtc else None,
            skew=settings.skew,
        )


def mirostat_mu(mu: float, p_drawn: float, tau: float, eta: float) -> float:
    """The next mu: a step of rate eta towards tau bits of average surprise (arXiv 2007.14966)."""
    return mu + eta * (tau + math.log2(p_drawn))
