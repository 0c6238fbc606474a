"""How likely each token of a prompt was: records from the logits that a prefill computes.

Owns the records and the position of each token in the text. Knows no model: logits come row by row.
"""

from collections.abc import Sequence

from ..errors import NumericsError
from ..sampling.logits import Logits
from ..sampling.op import score
from ..sampling.request import SampleRequest
from ..text.text_stream import TextStream
from ..text.vocabulary import Vocabulary
from .result import PromptToken, prompt_token


class PromptScorer:
    """Takes the logits after each token of a prompt but the last, in order."""

    def __init__(
        self,
        token_ids: Sequence[int],
        vocabulary: Vocabulary,
        *,
        n_top: int,
        first_position: int = 0,
    ) -> None:
        """`n_top`: alternatives per token. `first_position`: of the first token, for errors."""
        self._token_ids = token_ids
        self._vocabulary = vocabulary
        self._first_position = first_position
        self._request = SampleRequest(u=0.0, greedy=True, n_top=n_top)
        self._text = TextStream()
        self._tokens = [self._first(token_ids[0])]

    @property
    def tokens(self) -> tuple[PromptToken, ...]:
        """The first token, and every token whose logits were taken."""
        return tuple(self._tokens)

    def take(self, rows: Logits) -> None:
        """Score the next `n` tokens with their logits (n, vocab_size).

        Raises NumericsError for NaN or infinity.
        """
        for row in rows:
            index = len(self._tokens)
            try:
                scored = score(row, self._token_ids[index], self._request)
            except NumericsError as error:
                position = self._first_position + index
                raise NumericsError(f"position {position}: {error}") from error
            data, span = self._placed(scored.token_id)
            self._tokens.append(prompt_token(scored, data, span, self._vocabulary))

    def _first(self, token_id: int) -> PromptToken:
        data, (start, end) = self._placed(token_id)
        return PromptToken(
            token_id=token_id,
            token_bytes=data,
            text_start=start,
            text_end=end,
            logprob=None,
            p_raw=None,
            top=(),
            is_special=self._vocabulary.is_special(token_id),
            rank=None,
            entropy=None,
            margin=None,
        )

    def _placed(self, token_id: int) -> tuple[bytes, tuple[int, int]]:
        """The bytes of the next token, and the characters that they are part of."""
        data = self._vocabulary.token_bytes(token_id)
        span = self._text.push(data)
        self._text.release()  # the text itself is not wanted
        return data, span
