"""One stream that has been prefilled: its tokens, one pass of the model per step.

Owns that a stream which failed or ended goes no further. Knows neither how it began nor what comes
after it; `generator.py` makes it.
"""

from collections.abc import Callable, Mapping, Sequence

from ..draft.speculator import DraftCount, Speculator
from ..errors import InvalidInputError
from ..text.token_ids import check_token_ids
from .completion import Completion
from .result import Prefill, StreamResult


class Stream:
    """Call `step` until a result has `eos`."""

    def __init__(
        self,
        completion: Completion,
        prefill: Prefill,
        *,
        vocab_size: int,
        speculator: Speculator | None,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """`speculator` None: without drafts. `on_failure` gets the error of a failed step, after
        which the contents of the caches are unknown.
        """
        self._completion = completion
        self._vocab_size = vocab_size
        self._speculator = speculator
        self._on_failure = on_failure
        self.prefill = prefill
        """How much of the prompt was cached, the seed and, if asked for, the prompt's tokens."""

    @property
    def n_completion_tokens(self) -> int:
        """Tokens sampled so far, a stop token included."""
        return self._completion.n_tokens

    @property
    def draft_counts(self) -> Mapping[str, DraftCount]:
        """Draft statistics of this stream by drafter; empty without drafting."""
        return dict(self._speculator.stats.by_origin.items()) if self._speculator else {}

    def step(self, ban_tokens: Sequence[int] = ()) -> StreamResult:
        """Generate the tokens of one pass and return what is now safe to show.

        `ban_tokens` are not drawn in this call. Raises InvalidInputError after the end,
        NumericsError if the model's logits hold NaN or infinity, and what a hook raises; the stream
        has then ended.
        """
        completion = self._completion
        if completion.ended:
            raise InvalidInputError("no stream is running: call begin_stream_ex first")
        if ban_tokens:
            check_token_ids("ban_tokens", ban_tokens, self._vocab_size)
        try:
            return completion.advance(ban_tokens)
        except InvalidInputError:  # settings at fault; the caches are untouched
            completion.abandon()
            raise
        except BaseException as error:
            completion.ended = True
            self._on_failure(error)
            raise

    def end(self) -> None:
        """End early, because the caller does not want the rest."""
        self._completion.abandon()
