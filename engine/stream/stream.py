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
        """`speculator`: who drafts for it, if anybody. `on_failure` is told what a step raised,
        which leaves the caches in an unknown state.
        """
        self._completion = completion
        self._vocab_size = vocab_size
        self._speculator = speculator
        self._on_failure = on_failure
        self.prefill = prefill
        """What the prompt had reused, its seed and, if wanted, the prompt's own probabilities."""

    @property
    def n_completion_tokens(self) -> int:
        """Tokens sampled so far, a stop token included."""
        return self._completion.n_tokens

    @property
    def draft_counts(self) -> Mapping[str, DraftCount]:
        """Draft statistics of this stream by drafter; empty without drafting."""
        return dict(self._speculator.stats.by_origin.items()) if self._speculator else {}

    def step(self, ban_tokens: Sequence[int] = ()) -> StreamResult:
        """Generate the tokens of one pass and return what has become safe to show.

        `ban_tokens` are not drawn in this call. Raises InvalidInputError after the end,
        NumericsError when the model's logits are not numbers, and what a hook raises; the stream
        has then ended.
        """
        completion = self._completion
        if completion.ended:
            raise InvalidInputError("no stream is running: call begin_stream_ex first")
        if ban_tokens:
            check_token_ids("ban_tokens", ban_tokens, self._vocab_size)
        try:
            return completion.advance(ban_tokens)
        except InvalidInputError:  # of the settings, before anything was done to the caches
            completion.abandon()
            raise
        except BaseException as error:
            completion.ended = True
            self._on_failure(error)
            raise

    def end(self) -> None:
        """The caller does not want the rest."""
        self._completion.abandon()
