"""How likely each token of a prompt was: records out of the logits that a prefill computes.

Owns the records and where the text of each token stands. Knows no model: logits come row by row.
"""

import math
from collections.abc import Sequence

from ..errors import NumericsError
from ..sampling.logits import Logits
from ..sampling.op import score
from ..sampling.request import SampleRequest, SampleResult
from ..text.text_stream import TextStream
from ..text.vocabulary import Vocabulary
from .result import PromptToken, TopToken


class PromptScorer:
    """Takes the logits after each token of a prompt but the last, in order."""

    def __init__(self, token_ids: Sequence[int], vocabulary: Vocabulary, *, n_top: int) -> None:
        """`n_top`: alternatives per token."""
        self._token_ids = token_ids
        self._vocabulary = vocabulary
        self._request = SampleRequest(u=0.0, greedy=True, n_top=n_top)
        self._text = TextStream()
        self._tokens = [self._first(token_ids[0])]

    @property
    def tokens(self) -> tuple[PromptToken, ...]:
        """As many as there have been logits for, and the first one."""
        return tuple(self._tokens)

    def take(self, rows: Logits) -> None:
        """The logits (n, vocab_size) that the next `n` tokens are judged by.

        Raises NumericsError when they are not numbers.
        """
        for row in rows:
            position = len(self._tokens)
            try:
                scored = score(row, self._token_ids[position], self._request)
            except NumericsError as error:
                raise NumericsError(f"position {position}: {error}") from error
            self._tokens.append(self._token(scored))

    def _first(self, token_id: int) -> PromptToken:
        data, start, end = self._placed(token_id)
        is_special = self._vocabulary.is_special(token_id)
        return PromptToken(token_id, data, start, end, None, None, (), is_special, None, None, None)

    def _token(self, scored: SampleResult) -> PromptToken:
        data, start, end = self._placed(scored.token_id)
        # By position: names would take twice the time.
        return PromptToken(
            scored.token_id,
            data,
            start,
            end,
            scored.logprob_raw,
            scored.p_raw,
            self._top(scored) if scored.top_ids else (),
            self._vocabulary.is_special(scored.token_id),
            scored.rank,
            scored.entropy,
            scored.margin,
        )

    def _placed(self, token_id: int) -> tuple[bytes, int, int]:
        """The bytes of the next token, and the characters that they are part of."""
        data = self._vocabulary.token_bytes(token_id)
        start, end = self._text.push(data)
        self._text.release()  # the text itself is not wanted
        return data, start, end

    def _top(self, scored: SampleResult) -> tuple[TopToken, ...]:
        token_bytes = self._vocabulary.token_bytes
        tops = []
        for token_id, logprob in zip(scored.top_ids, scored.top_logprobs_raw, strict=True):
            p = math.exp(logprob)
            tops.append(TopToken(token_id, token_bytes(token_id), logprob, p, p))
        return tuple(tops)
