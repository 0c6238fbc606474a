"""One stream that has been prefilled: its tokens, one pass of the model per step.

Owns that a stream which failed or ended goes no further, and what its caller may do between two
steps: go back, give tokens, change settings. Knows neither how it began nor what comes after it;
`generator.py` makes it.

What is done between two steps depends on nothing but the number of tokens at that moment: the same
at the same numbers gives the same text.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ..draft.speculator import DraftCount, Speculator
from ..errors import InvalidInputError
from ..sampling.settings import SamplingSettings
from ..text.token_ids import check_token_ids
from .completion import Completion
from .options import Live, StreamOptions
from .peek import Fork, Glimpse, Rebuild, Regain, glimpses, likeliest
from .result import Prefill, StreamResult
from .snapshot import GivenOrigin, Snapshot


class Stream:
    """Call `step` until a result has `eos`.

    Every method but `snapshot`, `mark` and `end` raises InvalidInputError once the stream has
    ended; for other wrong arguments it does so too, and nothing has changed then.
    """

    def __init__(
        self,
        completion: Completion,
        prefill: Prefill,
        *,
        vocab_size: int,
        speculator: Speculator | None,
        on_failure: Callable[[BaseException], None],
        rebuild: Rebuild,
        fork: Fork,
        regain: Regain,
        live: Live,
    ) -> None:
        """`speculator` None: without drafts. `on_failure` gets the error of a failed step, after
        which the contents of the caches are unknown. `rebuild`: the completion at another place;
        `fork`: branches of one, after which `regain` is called; `live`: with what it goes on.
        """
        self._completion = completion
        self._vocab_size = vocab_size
        self._speculator = speculator
        self._on_failure = on_failure
        self._rebuild = rebuild
        self._fork = fork
        self._regain = regain
        self._live = live
        self.prefill = prefill
        """How much of the prompt was cached, the seed and, if asked for, the prompt's tokens."""
        self.n_inherited_tokens = completion.n_tokens_shown
        """Tokens that an earlier stream has shown in whole, 0 for a new one. The first record that
        `step` returns is that of the token after them.
        """
        self.n_inherited_characters = completion.n_characters_shown
        """Characters that an earlier stream has shown; the first `chunk` follows them. What it held
        and only showed at its end, as one that is aborted does, comes again.
        """

    @property
    def ended(self) -> bool:
        return self._completion.ended

    @property
    def n_completion_tokens(self) -> int:
        """Tokens of the completion so far, a stop token and those of an earlier stream included."""
        return self._completion.n_tokens

    @property
    def settings(self) -> SamplingSettings:
        """Those in force, with the seed."""
        return self._completion.segment.settings

    @property
    def options(self) -> StreamOptions:
        """Those in force, without what belongs to the caller of the moment."""
        return self._completion.segment.options

    @property
    def draft_counts(self) -> Mapping[str, DraftCount]:
        """Draft statistics of this stream by drafter; empty without drafting. They begin anew with
        `rollback`.
        """
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

    def mark(self) -> int:
        """This place, for `rollback`: the number of tokens."""
        return self._completion.snapshot().n_tokens

    def rollback(self, mark: int) -> None:
        """Go back to the first `mark` tokens. Settings and options stay as they are now.

        Without a change of these, what followed comes again: see `redraw`. Text that has been
        shown after that place comes again, too; `n_inherited_tokens` and `n_inherited_characters`
        then say after what. Costs at most one pass of the model.
        """
        completion = self._running()
        self._go_to(completion.snapshot().rewound(mark))

    def rewind(self, n_tokens: int) -> None:
        """Take the last `n_tokens` tokens back: `rollback` by their number."""
        self.rollback(self.mark() - n_tokens)

    def snapshot(self) -> Snapshot:
        """This place as plain data, for `StreamingGenerator.restore` at any later time."""
        return self._completion.snapshot()

    def force(self, token_id: int) -> None:
        """The next token is this one, after those that were forced or injected before. If it is a
        stop token, the stream ends with it.
        """
        self._give([token_id], "forced", param="token_id")

    def inject(self, token_ids: Sequence[int]) -> None:
        """The next tokens are these, as if the model had written them. Stop tokens, stop strings
        and banned strings in them do not count; one that begins in them and ends later does.
        """
        self._give(token_ids, "injected", param="token_ids")

    def set(self, settings: SamplingSettings) -> None:
        """The next tokens are drawn with these settings; without a seed with the stream's."""
        self._change(self.snapshot().changed(settings=settings))

    def redraw(self) -> None:
        """The next tokens are drawn with other random numbers. A greedy stream stays the same."""
        snapshot = self.snapshot()
        self._change(snapshot.changed(attempt=snapshot.attempt + 1))

    def ban(self, token_ids: Sequence[int] = (), strings: Sequence[str] = ()) -> None:
        """From now on these tokens are not drawn and these strings do not show.

        What has been shown stays. A string that has begun in text that is still held, or was shown,
        is prevented from completing.
        """
        settings, options = self.settings, self.options
        check_token_ids("token_ids", token_ids, self._vocab_size)
        settings = replace(settings, banned_tokens=(*settings.banned_tokens, *token_ids))
        options = replace(options, banned_strings=(*options.banned_strings, *strings))
        self._change(self.snapshot().changed(settings=settings, options=options))

    def extend(self, max_new_tokens: int | None) -> None:
        """The most tokens of the completion are now so many, perhaps fewer than before; None means
        up to the end of the context.
        """
        options = replace(self.options, max_new_tokens=max_new_tokens)
        self._change(self.snapshot().changed(options=options))

    @property
    def is_aborted(self) -> bool:
        """Whether its abort flag is set: the next step ends it, and a peek stops where it is."""
        abort = self._live.abort
        return abort is not None and abort.is_set()

    def peek(
        self, token_ids: Sequence[int] | None = None, *, top: int = 5, n_tokens: int = 12
    ) -> list[Glimpse]:
        """What would follow each of `token_ids`, or of the `top` likeliest next tokens: greedy
        continuations of `n_tokens` tokens, the first included.

        The stream stays as it is, tokens that wait to be forced or injected aside: those are as if
        they were not.
        """
        completion = self._running()
        if token_ids is not None:
            check_token_ids("token_ids", token_ids, self._vocab_size)
        for name, value, most in (("top", top, self._vocab_size), ("n_tokens", n_tokens, None)):
            if value < 1 or (most is not None and value > most):
                allowed = f"1 to {most}" if most else "1 or more"
                raise InvalidInputError(f"{name} must be {allowed}, not {value}", param=name)
        place = replace(completion.snapshot(), waiting=())
        live = self._live._replace(on_token=None, on_progress=None)
        completion.lend_caches()
        try:
            branching = self._fork(place, live, n_tokens)
            if token_ids is None:
                token_ids = likeliest(place, branching, live, top)
            found = glimpses(place, branching, live, token_ids, n_tokens)
        except InvalidInputError:
            self._regain(completion, live)
            raise
        except BaseException as error:
            completion.abandon()
            self._on_failure(error)
            raise
        self._regain(completion, live)
        return found

    def _running(self) -> Completion:
        if self._completion.ended:
            raise InvalidInputError("the stream has ended: restore a snapshot of it")
        return self._completion

    def _give(self, token_ids: Sequence[int], origin: GivenOrigin, *, param: str) -> None:
        completion = self._running()
        completion.check_given(token_ids, param=param)
        completion.give(token_ids, origin)

    def _change(self, changed: Snapshot) -> None:
        completion = self._running()
        changed.options.check(self._vocab_size)
        completion.change(changed.segments[-1])

    def _go_to(self, snapshot: Snapshot) -> None:
        self._completion.abandon()
        self._completion = completion = self._rebuild(snapshot, self._live)
        self.n_inherited_tokens = completion.n_tokens_shown
        self.n_inherited_characters = completion.n_characters_shown
