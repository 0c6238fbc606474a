"""One completion: from the logits of each position to text, records and the reason for its end.

Owns the running state of a stream: the order in which a token passes the sampler, the caller's
hook, the constraint and the text, and how tokens are taken back. Knows no prompt, no prefill and no
cache.

There is one way to take a token back: everything that has seen it rolls back by one, because all of
it counts in tokens. A banned string uses this and nothing else.
"""

import math
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import InvalidInputError, NoTokenError, NumericsError
from ..grammar.constraint import Constraint
from ..sampling.logits import Logits, Row
from ..sampling.request import SampleResult
from ..sampling.sampler import Sampler
from ..text.token_ids import check_token_ids
from ..text.vocabulary import Vocabulary
from .decoding import Decoding
from .healing import Healing
from .held import HeldTokens, Release
from .mass import Mass
from .options import NO_LIMIT, StreamOptions
from .result import Origin, StreamResult, Suppressed, TokenRecord, token_record
from .stop_when import StopCondition, StopConditions

# Rewinds per completion before it ends with the reason "banned".
MAX_REWINDS = 1000

_FROM_HOOK = Origin("hook", None)


class Completion:
    """A stream from its first token to its last."""

    def __init__(
        self,
        decoding: Decoding,
        sampler: Sampler,
        vocabulary: Vocabulary,
        options: StreamOptions,
        *,
        budget: int,
        stop_token_ids: frozenset[int],
        constraint: Constraint | None,
        healing: Healing | None,
        conditions: StopConditions | None = None,
    ) -> None:
        """`budget`: the most tokens to generate. `healing`: the first of them replaces the last
        token of the prompt. `conditions`: of the option `stop_when`.
        """
        self._decoding = decoding
        self._sampler = sampler
        self._vocabulary = vocabulary
        self._options = options
        self._budget = budget
        self._stop_token_ids = stop_token_ids
        self._constraint = constraint
        self._healing = healing
        self._conditions = conditions
        self._held = HeldTokens(tuple(options.stop), tuple(options.banned_strings))
        self._watched = tuple(Mass(token_ids) for token_ids in options.watch)
        self._logits: deque[Logits] = deque()  # of unreported tokens, if the caller wants them
        self._end_token: TokenRecord | None = None  # it is no part of the text
        self._stop_condition: StopCondition | None = None
        self._blocked: dict[int, list[int]] = {}  # by position: tokens that led to a banned string
        self._n_rewinds = 0
        self._taken_back: list[Suppressed] = []  # not yet in a result
        self._n_drafted = self._n_accepted = self._n_reported = 0  # in earlier results
        self.n_tokens = 0
        """Tokens of the completion so far, a stop token included."""
        self.ended = False

    @property
    def aborted(self) -> bool:
        abort = self._options.abort
        return abort is not None and abort.is_set()

    def abandon(self) -> None:
        """End early, because the caller does not want the rest."""
        if not self.ended:
            self.ended = True
            self._decoding.finish()

    def advance(self, ban_tokens: Sequence[int] = ()) -> StreamResult:
        """The tokens of one pass of the model, and the text that is now safe to show.

        `ban_tokens` are not drawn in this call.
        """
        if self.aborted:
            return self._finish("aborted")
        if self.n_tokens >= self._budget:
            return self._finish("length")
        n_left = self._options.max_tokens_per_call or NO_LIMIT
        while True:
            reason = self._step(ban_tokens)
            n_left -= 1
            if reason is not None:
                return self._finish(reason)
            if not n_left or not self._decoding.has_row or self.aborted:
                return self._result(self._held.release())

    def _step(self, ban_tokens: Sequence[int]) -> str | None:
        """Generate one token. Returns why the completion has ended, or None if it goes on."""
        decoding, constraint = self._decoding, self._constraint
        forced = constraint.forced() if constraint is not None and decoding.drafts_next else ()
        logits = decoding.next_logits(self._budget - self.n_tokens, forced)
        position = decoding.length
        sampled = self._sampled(logits, position, ban_tokens)
        if sampled is None:
            return "banned"
        hook = self._options.on_token
        replaced = self._replaced(hook(sampled), sampled, logits) if hook is not None else None
        if self._options.return_logits:
            self._logits.append(logits.copy())
        watched = tuple([p.of(logits, sampled) for p in self._watched])
        chosen = replaced or sampled
        token_id = chosen.token_id
        reason = self._end_before(chosen, logits, sampled)
        origin = decoding.accept(token_id)
        self._sampler.accept(token_id, chosen.p_sampled)
        shown = b"" if reason is not None else self._shown(token_id)
        span = self._held.push(shown)
        origin = _FROM_HOOK if replaced else origin
        record = token_record(chosen, shown, span, origin, self._vocabulary, watched)
        self.n_tokens += 1
        if reason is not None:
            self._end_token = record
            return reason
        self._held.hold(record)
        if constraint is not None:
            self._feed(constraint, token_id, shown)
        if self._held.has_ban:
            return self._take_back()
        if self._held.has_stop:
            return "stop_string"
        if constraint is not None and constraint.is_over:
            return "constraint"
        return "length" if self.n_tokens >= self._budget else None

    def _end_before(self, chosen: SampleResult, row: Row, drawn: SampleResult) -> str | None:
        """Why the text ends before the token `chosen`, if it does."""
        met = self._conditions.judge(chosen, row, drawn) if self._conditions is not None else None
        if chosen.token_id in self._stop_token_ids:
            return "stop_token"
        if met is None or self.n_tokens < self._options.min_new_tokens:
            return None
        self._stop_condition = met
        return "stop_when"

    def _sampled(
        self, logits: Row, position: int, ban_tokens: Sequence[int]
    ) -> SampleResult | None:
        """The token drawn for `position`; None if banned strings have left nothing to draw."""
        blocked = self._blocked.get(position, ()) if self._blocked else ()
        banned = ban_tokens
        if blocked:
            banned = (*banned, *blocked)
        if self.n_tokens < self._options.min_new_tokens:
            banned = (*banned, *self._stop_token_ids)
        try:
            return self._sampler.sample(
                logits, position, attempt=len(blocked), mask=self._mask(), banned=banned
            )
        except NoTokenError:
            if blocked:
                return None
            raise
        except NumericsError as error:
            if self._decoding.broke_by_guidance():
                raise InvalidInputError(
                    f"cfg_scale turns the logits at position {position} into NaN or infinity",
                    param="cfg_scale",
                ) from error
            raise NumericsError(f"position {position}: {error}") from error

    def _mask(self) -> npt.NDArray[np.int32] | None:
        """The tokens that constraint and healing allow; None allows all."""
        if self._healing is not None and self.n_tokens == 0:
            return self._healing.mask(self._constraint)
        return self._constraint.mask() if self._constraint is not None else None

    def _replaced(
        self, token_id: int | None, sampled: SampleResult, row: Row
    ) -> SampleResult | None:
        """The token that the caller's hook wants instead of the sampled one; None for no change."""
        if token_id is None or token_id == sampled.token_id:
            return None
        logits = np.asarray(row)
        check_token_ids("on_token", [token_id], logits.size)
        logprob = sampled.logprob_raw + float(logits[token_id]) - float(logits[sampled.token_id])
        return sampled._replace(
            token_id=token_id,
            logprob_raw=logprob,
            p_raw=math.exp(logprob),
            p_sampled=1.0,  # it was certain
            rank=int((logits > logits[token_id]).sum()),
        )

    def _shown(self, token_id: int) -> bytes:
        """The bytes that the next token adds to the text."""
        if self._vocabulary.is_special(token_id) and not self._options.decode_special_tokens:
            return b""
        data = self._vocabulary.token_bytes(token_id)
        if self._healing is not None and self.n_tokens == 0:
            return self._healing.added(data)
        return data

    def _feed(self, constraint: Constraint, token_id: int, shown: bytes) -> None:
        if self._healing is not None and self.n_tokens == 1:
            constraint.accept_bytes(shown)  # the rest of the token belongs to the prompt
        else:
            constraint.accept(token_id)

    def _take_back(self) -> str | None:
        """Go back to before the token in which the banned string begins. That token is not drawn
        there again. Returns why the completion has ended, if it has.
        """
        taken = self._held.take_back()
        n_tokens = taken.n_tokens
        position = self._decoding.mark() - n_tokens
        self._decoding.rollback(position)
        self._sampler.rollback(self._sampler.mark() - n_tokens)
        if self._constraint is not None:
            self._constraint.rollback(self._constraint.mark() - n_tokens)
        if self._options.return_logits:
            for _ in range(n_tokens):
                self._logits.pop()
        self.n_tokens -= n_tokens
        if self._conditions is not None:
            self._conditions.rollback(self.n_tokens)
        self._taken_back.append(Suppressed(taken.text, n_tokens, self.n_tokens))
        # After this position another text follows, in which nothing is known to be bad yet.
        self._blocked = {p: ids for p, ids in self._blocked.items() if p <= position}
        self._blocked.setdefault(position, []).append(taken.first.token_id)
        self._n_rewinds += 1
        return "banned" if self._n_rewinds >= MAX_REWINDS else None

    def _finish(self, reason: str) -> StreamResult:
        """End the stream: release what is held, or drop it after a stop."""
        self.ended = True
        self._decoding.finish()
        return self._result(self._held.finish(self._end_token), reason)

    def _result(self, release: Release, reason: str | None = None) -> StreamResult:
        text, tokens, dropped, dropped_text, stop_string = release
        options, decoding = self._options, self._decoding
        fields: dict[str, Any] = {"chunk": text, "tokens": tokens}
        if reason is not None:
            fields["eos"] = True
            fields["eos_reason"] = reason if stop_string is None else "stop_string"
            fields["stop_string"] = stop_string
            if self._stop_condition is not None:
                fields["stop_condition"] = self._stop_condition
            elif self._end_token is not None:
                fields["stop_token_id"] = self._end_token.token_id
            fields["dropped"] = dropped
            fields["dropped_text"] = dropped_text
        if options.return_probabilities:
            fields["probs"] = tuple([token.p_sampled for token in tokens])
        if options.return_logits and (tokens or dropped):
            rows = [self._logits.popleft() for _ in (*tokens, *dropped)]
            fields["logits"] = np.stack(rows)
        if self._taken_back:
            fields["suppressed"] = "".join([each.text for each in self._taken_back])
            fields["taken_back"] = tuple(self._taken_back)
            self._taken_back.clear()
        if self._healing is not None and not self._n_reported and (tokens or dropped):
            fields["healed"] = self._healing.token_id
        if decoding.n_drafted != self._n_drafted or decoding.n_accepted != self._n_accepted:
            fields["n_drafted"] = decoding.n_drafted - self._n_drafted
            fields["n_accepted"] = decoding.n_accepted - self._n_accepted
            self._n_drafted, self._n_accepted = decoding.n_drafted, decoding.n_accepted
        self._n_reported += len(tokens)
        return StreamResult(fields)
