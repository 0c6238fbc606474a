"""One completion: from the logits of each position to text, records and the reason for its end.

Owns the running state of a stream: the order in which a token passes the sampler, the caller's
hook, the constraint and the text, and how tokens are taken back or given. Knows no prefill and no
cache.

There is one way to take a token back: everything that has seen it rolls back by one, because all of
it counts in tokens. A banned string uses this and nothing else. There is one way to give a token:
it takes the place of the drawn one. So come the tokens that a caller forces or injects, and those
that a restored stream had drawn but not shown.
"""

from collections.abc import Sequence
from dataclasses import replace

from ..errors import InvalidInputError, NoTokenError, NumericsError
from ..model.model import MAX_DECODE_ROWS
from ..sampling.logits import Row
from ..sampling.request import SampleResult
from ..text.token_ids import check_token_ids
from .decoding import Decoding
from .first_token import Tokens
from .given import Coming, instead
from .healing import Healing
from .held import HeldTokens
from .history import History, attempt_number
from .mass import Mass
from .options import NO_LIMIT, Live
from .parts import Parts
from .report import Report
from .result import Origin, StreamResult, TokenRecord, token_record
from .snapshot import GivenOrigin, Segment, Snapshot, clipped
from .stop_when import StopCondition

# Rewinds per completion before it ends with the reason "banned".
MAX_REWINDS = 1000


class Completion:
    """A stream from its first token to its last."""

    def __init__(
        self,
        snapshot: Snapshot,
        decoding: Decoding,
        parts: Parts,
        live: Live,
        *,
        prompt_ids: Sequence[int],
        shown: Sequence[bytes],
        room: int,
        healing: Healing | None,
    ) -> None:
        """`decoding`: after `prompt_ids` and those first tokens of the snapshot whose bytes `shown`
        were released; `replay` takes up the others. `healing`: the first token of the completion
        replaces the last of the prompt, which `prompt_ids` lacks. `room`: the most tokens that fit.
        Raises InvalidInputError if the constraint forbids the tokens so far.
        """
        self._start = snapshot
        self._decoding = decoding
        self._parts = parts
        self._live = live
        self._prompt_ids = prompt_ids
        self._room = room
        self._tokens = Tokens(parts, healing)
        self._history = History(snapshot)
        self._coming = Coming(snapshot, len(shown))
        self._conditions = parts.conditions(snapshot.logprob_sums[: len(shown) + 1])
        self._end_token: TokenRecord | None = None  # it is no part of the text
        self._stop_condition: StopCondition | None = None
        self._report = Report(decoding, healing, len(shown))
        self.n_tokens = len(shown)
        """Tokens of the completion so far, a stop token included."""
        self.ended = False
        segment = self._history.segment_at(self.n_tokens)
        self._held = HeldTokens(segment.options.stop, segment.options.banned_strings)
        self._held.resume(shown)
        start = self._history.constrained_from(self.n_tokens)
        self._constraint = parts.constraint(
            segment.options.constraint,
            snapshot.token_ids[start : self.n_tokens],
            healed=shown[0] if healing is not None and shown and start == 0 else None,
        )
        self._is_complete = False  # by the constraint, when the stream begins
        self._enter(segment, snapshot.mus[: self.n_tokens + 1])
        self._judge_from_here()

    @property
    def aborted(self) -> bool:
        abort = self._live.abort
        return abort is not None and abort.is_set()

    @property
    def segment(self) -> Segment:
        """The settings and options in force."""
        return self._segment

    @property
    def n_characters_shown(self) -> int:
        """Characters of the text that have been released."""
        return self._held.n_characters_shown

    @property
    def n_tokens_shown(self) -> int:
        """Tokens whose whole text has been released."""
        return self._held.n_shown

    @property
    def _token_ids(self) -> tuple[int, ...]:
        """Of the completion, with a stop token."""
        return self._decoding.ids_from(len(self._prompt_ids))

    @property
    def cached_ids(self) -> tuple[tuple[int, ...], ...]:
        """What the caches hold of it, and the token after that: of the prompt's sequence, and with
        guidance of the negative one.
        """
        return self._decoding.token_ids

    def lend_caches(self) -> None:
        """Others use the caches, until they hold `cached_ids` again."""
        self._decoding.forget_ahead()

    def abandon(self) -> None:
        """End early, because the caller does not want the rest."""
        if not self.ended:
            self.ended = True
            self._decoding.finish()

    def snapshot(self) -> Snapshot:
        """This place, for another completion to go on from."""
        if self._coming.replays:
            return self._start
        history = self._history
        token_ids = self._token_ids
        if self._end_token is not None:
            token_ids = token_ids[:-1]
        return replace(
            self._start,
            token_ids=token_ids,
            segments=history.segments,
            given=clipped(history.given, len(token_ids)),
            rewinds=tuple(history.rewinds),
            call_bans=history.all_call_bans(),
            mus=tuple(self._sampler.mus[: len(token_ids) + 1]),
            logprob_sums=self._conditions.sums[: len(token_ids) + 1],
            waiting=self._coming.waiting,
        )

    def replay(self) -> None:
        """Take up the tokens that had been drawn but not shown, so that they are held again.

        Raises InvalidInputError if those that wait after them may not come.
        """
        while self._coming.replays:
            self._follow_history()
            self._step(())
        self._follow_history()
        self._held.keep(self._history.floor(self.n_tokens))
        self._held.release()  # that much had been released
        if self._constraint is not None and self.n_tokens:
            self._is_complete = self._constraint.is_over
        self.check_given((), param="waiting")

    def check_given(self, token_ids: Sequence[int], *, param: str) -> None:
        """Raises InvalidInputError, for `param`, unless the tokens may come after those that come
        anyway.
        """
        coming = (*self._coming.token_ids(len(self._coming)), *token_ids)
        check_token_ids(param, coming, self._parts.vocab_size)
        n_left = self._budget - self.n_tokens
        if token_ids and len(coming) > n_left:
            raise InvalidInputError(
                f"{param}: {len(coming)} given tokens would come, but this stream may generate "
                f"only {n_left} more; extend it first",
                param=param,
            )
        self._tokens.check(self.n_tokens, coming, self._constraint, self._options)

    def give(self, token_ids: Sequence[int], origin: GivenOrigin) -> None:
        """The next tokens, after those that come anyway; checked by `check_given`."""
        self._coming.add(token_ids, origin)

    def change(self, segment: Segment) -> None:
        """`segment`, which starts here, holds from here on. Raises InvalidInputError for a token id
        outside the vocabulary; nothing has changed then.
        """
        self._change_to(segment)
        self._history.change(segment)
        self._judge_from_here()

    def advance(self, ban_tokens: Sequence[int] = ()) -> StreamResult:
        """The tokens of one pass of the model, and the text that is now safe to show.

        `ban_tokens` are not drawn in this call.
        """
        if self.aborted:
            return self._finish("aborted")
        if self._is_complete:
            return self._finish("constraint")
        if self.n_tokens >= self._budget:
            return self._finish("length")
        n_left = self._options.max_tokens_per_call or NO_LIMIT
        while True:
            reason = self._step(ban_tokens)
            n_left -= 1
            if reason is not None:
                return self._finish(reason)
            if not n_left or not self._decoding.has_row or self.aborted:
                return self._report.result(self._held.release(), self._options)

    def _step(self, ban_tokens: Sequence[int]) -> str | None:
        """Generate one token. Returns why the completion has ended, or None if it goes on."""
        constraint, n_tokens, coming = self._constraint, self.n_tokens, self._coming
        is_chosen = bool(coming)
        logits = self._next_logits(is_chosen)
        if ban_tokens:
            self._history.call_bans[n_tokens] = tuple(ban_tokens)
        sampled = self._sampled(logits)
        if sampled is None:
            return "banned"
        is_replayed = is_chosen and coming.replays
        chosen, given = sampled, None
        if is_chosen or self._live.on_token is not None:
            chosen, given = self._chosen(sampled, logits)
        is_callers = given in ("forced", "injected")
        if self._options.return_logits:
            self._report.keep_row(logits)
        token_id = chosen.token_id
        watched = (
            tuple([each.of(logits, sampled) for each in self._watched]) if self._watched else ()
        )
        met = self._conditions.judge(chosen, logits, sampled) if self._options.stop_when else None
        reason = None if is_replayed else self._end_before(token_id, given, met)
        origin = self._decoding.accept(token_id)
        self._sampler.accept(token_id, chosen.p_sampled)
        shown = b"" if reason is not None else self._tokens.shown(n_tokens, token_id, self._options)
        span = self._held.push(shown, is_given=is_replayed or is_callers)
        origin = Origin(given, None) if given else origin
        record = token_record(chosen, shown, span, origin, self._parts.vocabulary, watched)
        self.n_tokens += 1
        if reason is not None:
            self._end_token = record
            return reason
        self._held.hold(record)
        if constraint is not None:
            self._tokens.feed(constraint, n_tokens, token_id, shown)
        if is_callers:
            self._held.keep(self.n_tokens)
        if self._held.has_ban:
            return self._take_back()
        if self._held.has_stop:
            return "stop_string"
        if constraint is not None and constraint.is_over:
            return "constraint"
        return "length" if self.n_tokens >= self._budget else None

    def _next_logits(self, is_chosen: bool) -> Row:
        decoding, constraint = self._decoding, self._constraint
        if is_chosen:
            # A single token is shown soonest after a pass of one row, which needs no next token.
            is_single = len(self._coming) == 1 and not self._coming.replays
            given = () if is_single else self._coming.token_ids(MAX_DECODE_ROWS)
            return decoding.next_logits(1, given=given)
        forced = constraint.forced() if constraint is not None and decoding.drafts_next else ()
        return decoding.next_logits(self._budget - self.n_tokens, forced)

    def _sampled(self, logits: Row) -> SampleResult | None:
        """The token drawn for this position; None if banned strings have left nothing to draw."""
        history, n_tokens, position = self._history, self.n_tokens, self._decoding.length
        blocked = history.blocked(n_tokens)
        banned: Sequence[int] = history.call_bans.get(n_tokens, ()) if history.call_bans else ()
        if blocked:
            banned = (*banned, *blocked)
        if n_tokens < self._options.min_new_tokens:
            banned = (*banned, *self._stop_token_ids)
        attempt = attempt_number(self._segment, len(blocked))
        try:
            mask = self._tokens.mask(n_tokens, self._constraint)
            return self._sampler.sample(logits, position, attempt=attempt, mask=mask, banned=banned)
        except NoTokenError:
            if blocked:
                return None
            raise
        except NumericsError as error:
            raise self._decoding.explained(error) from error

    def _chosen(self, sampled: SampleResult, row: Row) -> tuple[SampleResult, GivenOrigin | None]:
        """The token that comes, and who chose it; None if it was drawn."""
        history, n_tokens, hook = self._history, self.n_tokens, self._live.on_token
        if self._coming.replays:
            token_id = self._coming.next_replayed()
            return instead(token_id, sampled, row, param="token_ids"), history.origin(n_tokens)
        if self._coming:
            token_id, origin = self._coming.next_waiting()
            history.give(n_tokens, origin)
            return instead(token_id, sampled, row, param="token_ids"), origin
        wanted = hook(sampled) if hook is not None else None
        if wanted is None or wanted == sampled.token_id:
            return sampled, None
        history.give(n_tokens, "hook")
        return instead(wanted, sampled, row, param="on_token"), "hook"

    def _end_before(
        self, token_id: int, given: GivenOrigin | None, met: StopCondition | None
    ) -> str | None:
        """Why the text ends before this token, if it does. Whoever gives a token wants it: no
        condition ends the text before it.
        """
        if given != "injected" and token_id in self._stop_token_ids:
            return "stop_token"
        is_given = given in ("forced", "injected")
        if met is None or is_given or self.n_tokens < self._options.min_new_tokens:
            return None
        self._stop_condition = met
        return "stop_when"

    def _take_back(self) -> str | None:
        """Go back to before the token in which the banned string begins. That token is not drawn
        there again. Returns why the completion has ended, if it has.
        """
        taken = self._held.take_back()
        n_tokens = taken.n_tokens
        self._decoding.rollback(self._decoding.mark() - n_tokens)
        self._sampler.rollback(self._sampler.mark() - n_tokens)
        if self._constraint is not None:
            self._constraint.rollback(self._constraint.mark() - n_tokens)
        self.n_tokens -= n_tokens
        self._report.take_back(taken, self.n_tokens)
        self._history.rewind(self.n_tokens, taken.first.token_id)
        self._conditions.rollback(self.n_tokens)
        self._judge_from_here()
        return "banned" if len(self._history.rewinds) >= MAX_REWINDS else None

    def _change_to(self, segment: Segment) -> None:
        """Enter a segment in the middle of the stream."""
        old, options = self._segment.options, segment.options
        if segment == self._segment:
            return
        constraint = self._constraint
        if options.constraint != old.constraint:
            constraint = self._parts.constraint(options.constraint)
        self._enter(segment, self._sampler.mus)
        self._constraint = constraint
        if (options.stop, options.banned_strings) != (old.stop, old.banned_strings):
            token_ids = self._token_ids[: self._held.n_shown]
            shown = [
                self._tokens.shown(n, token_id, options) for n, token_id in enumerate(token_ids)
            ]
            self._held = self._held.with_strings(options.stop, options.banned_strings, shown)

    def _follow_history(self) -> None:
        """Enter the segment that holds here, in the middle of what is replayed."""
        self._change_to(self._history.segment_at(self.n_tokens))
        self._judge_from_here()

    def _judge_from_here(self) -> None:
        """The conditions in force look at the tokens so far, back to where they began."""
        when = self._options.stop_when
        if when is not None:
            start = self._history.judged_from(self.n_tokens)
            self._conditions.begin(when, start, self._token_ids)

    def _enter(self, segment: Segment, mus: Sequence[float]) -> None:
        """Draw with the settings of `segment`; `mus`: of the sampler so far."""
        options = segment.options
        sampler = self._parts.sampler(segment.settings, self._prompt_ids, options)
        sampler.resume(self._token_ids, mus)
        self._segment, self._options, self._sampler = segment, options, sampler
        self._stop_token_ids = self._parts.stop_token_ids(options)
        self._watched = tuple([Mass(token_ids) for token_ids in options.watch])
        limit = options.max_new_tokens
        self._budget = self._room if limit is None else min(limit, self._room)

    def _finish(self, reason: str) -> StreamResult:
        """End the stream: release what is held, or drop it after a stop."""
        self.ended = True
        self._decoding.finish()
        return self._report.last(
            self._held.finish(self._end_token),
            self._options,
            reason,
            end_token=self._end_token,
            condition=self._stop_condition,
        )
