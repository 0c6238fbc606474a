"""Rows of logits for a growing sequence: passes of the model over its last token and drafts.

Owns the rows that a pass has verified ahead, and the draft they belong to. Knows no sampler and no
text. Drafts are judged by sample-and-match: the sampler draws from the row as if there were no
draft, and if it draws the proposed token, the next row is already computed. So a draft can change
the speed of a text, but never the text.
"""

import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..draft.speculator import NO_DRAFT, Draft, Speculator
from ..errors import InvalidInputError, NumericsError
from ..sampling.guidance import guided
from ..sampling.logits import Logits, Row, Rows
from .result import Origin
from .sequence import TokenSequence

MODEL = "model"
# Time one in 16 passes without a draft: their cost changes slowly. A pass that is timed cannot run
# ahead, so where passes do, it is one in 64.
_TIMED_EVERY = 16
_TIMED_EVERY_AHEAD = 64
# Run ahead when so many passes have had no draft. If the next one has a draft, the pass that ran
# ahead was in vain; if there is none, the device would have idled for some 5 to 20 % of a pass.
_QUIET_PASSES = 8


_FROM_MODEL = Origin(MODEL, None)


class Guide(NamedTuple):
    """The sequence of the negative prompt, and the strength of the guidance."""

    sequence: TokenSequence
    scale: float


class Decoding:
    """The logits of one sequence, position by position."""

    def __init__(
        self,
        sequence: TokenSequence,
        *,
        guide: Guide | None,
        speculator: Speculator | None,
        is_async: bool = False,
        keeps_rows: bool = True,
        is_greedy: bool = False,
    ) -> None:
        """`speculator` has begun with the tokens of `sequence`. `is_async`: a pass may run in
        parallel with its caller; `keeps_rows`: a row is still read after its token was drawn;
        `is_greedy`: most likely that is the likeliest.
        """
        self._sequence = sequence
        self._guide = guide
        self._speculator = speculator
        self._is_async = is_async
        self._runs_ahead = guide is None and not keeps_rows
        self._guesses_next = is_greedy and not is_async
        self._begins_next = False  # the pass of the token that is accepted next
        self._timed_every = _TIMED_EVERY_AHEAD if self._runs_ahead else _TIMED_EVERY
        self._n_quiet = _QUIET_PASSES  # passes without a draft since the last one with a draft
        self._rows: Rows = np.empty((0, 0), dtype=np.float32)
        self._n_rows = self._next_row = 0
        self._unguided: tuple[Logits, ...] = ()  # with guidance: the rows that were mixed
        self._draft: Draft = NO_DRAFT
        self._is_guess = True  # the draft; otherwise its tokens are known to come
        self._n_passes = 0
        self.n_drafted = 0
        self.n_accepted = 0

    @property
    def _sequences(self) -> tuple[TokenSequence, ...]:
        """That of the prompt, and with guidance that of the negative one."""
        return (self._sequence, self._guide.sequence) if self._guide else (self._sequence,)

    @property
    def length(self) -> int:
        """Tokens of the sequence, which is the position of the next one."""
        return len(self._sequence)

    @property
    def has_row(self) -> bool:
        """Whether the logits of the next position need no pass."""
        return self._next_row < self._n_rows

    @property
    def drafts_next(self) -> bool:
        """Whether the next logits come from a pass that may hold a draft."""
        return self._speculator is not None and not self.has_row

    def next_logits(
        self, n_wanted: int, forced: Sequence[int] = (), given: Sequence[int] = ()
    ) -> Row:
        """The logits (vocab_size,) of the next position, valid until its token is accepted.

        `n_wanted`: how many more tokens may come, at least 1; `forced`: the next ones if the model
        divides the text like that; `given`: those that come in any case.
        """
        if not self.has_row:
            if given:
                self._forward_given(given)
            else:
                self._forward(n_wanted, forced)
        return self._rows[self._next_row]

    def ids_from(self, start: int) -> tuple[int, ...]:
        """The tokens from position `start` on."""
        return self._sequence.ids_from(start)

    def explained(self, error: NumericsError) -> InvalidInputError | NumericsError:
        """Why the next position's logits hold NaN or infinity: guidance, or the model's own do."""
        rows = [rows[self._next_row] for rows in self._unguided]
        if rows and all(map(_is_sound, rows)):
            return InvalidInputError(
                f"cfg_scale turns the logits at position {self.length} into NaN or infinity",
                param="cfg_scale",
            )
        return NumericsError(f"position {self.length}: {error}")

    def accept(self, token_id: int) -> Origin:
        """Append the token chosen from `next_logits`."""
        self._sequence.append(token_id)
        if self._begins_next:
            self._begins_next = False
            self._sequence.begin_next()
        if self._guide is not None:
            self._guide.sequence.append(token_id)
        if self._speculator is not None:
            self._speculator.accept(token_id)
        draft, index = self._draft, self._next_row
        self._next_row += 1
        if index == len(draft.token_ids):
            # The last row of the pass: nothing is left to drop.
            if index:
                self._judged(index, index)
            return _FROM_MODEL
        if draft.token_ids[index] != token_id:
            self._judged(index + 1, index)
            self._drop_rows()
            return Origin(MODEL, draft.token_ids[index])
        if not self._is_guess:
            return _FROM_MODEL
        self.n_accepted += 1
        return Origin(draft.origin, None)

    def mark(self) -> int:
        return len(self._sequence)

    def rollback(self, mark: int) -> None:
        """Forget the tokens after `mark`, which is at least 1, and what was verified ahead."""
        n_forgotten = len(self._sequence) - mark
        self._drop_rows()
        self._sequence.truncate(mark)
        if self._guide is not None:
            self._guide.sequence.truncate(len(self._guide.sequence) - n_forgotten)
        if self._speculator is not None:
            self._speculator.rollback(self._speculator.mark() - n_forgotten)

    @property
    def token_ids(self) -> tuple[tuple[int, ...], ...]:
        """Those of the sequence, and with guidance those of the negative one."""
        return tuple(each.ids_from(0) for each in self._sequences)

    def forget_ahead(self) -> None:
        """Forget what was verified ahead, as others are about to use the caches."""
        if self.has_row:
            if self._next_row:
                self._judged(self._next_row, self._next_row)
            self._drop_rows()

    def finish(self) -> None:
        """End the sequence and forget what was verified ahead."""
        self.forget_ahead()
        if self._speculator is not None:
            self._speculator.end()

    def _forward(self, n_wanted: int, forced: Sequence[int]) -> None:
        speculator = self._speculator
        if speculator is None:
            self._draft = NO_DRAFT
            self._run_alone(expects_next=self._runs_ahead and n_wanted > 1)
            return
        self._draft = draft = self._proposed(speculator, n_wanted, forced)
        self._is_guess = True
        self._n_passes += 1
        self._n_quiet = 0 if draft.token_ids else self._n_quiet + 1
        is_quiet = self._n_quiet >= _QUIET_PASSES and not self._is_timed(self._n_passes + 1)
        expects_next = self._runs_ahead and n_wanted > 1 and is_quiet
        if draft.token_ids or self._is_timed(self._n_passes):
            started = time.perf_counter()
            self._run(draft.token_ids)
            if self._is_async:
                self._sequence.wait()
            speculator.observe_pass(self._n_rows, time.perf_counter() - started)
            self.n_drafted += len(draft.token_ids)
            if expects_next:
                self._expect_next()
        else:
            self._run_alone(expects_next=expects_next)

    def _run_alone(self, *, expects_next: bool) -> None:
        """A pass without a draft. `expects_next`: another one will most likely follow."""
        self._run((), guesses_next=expects_next and self._guesses_next)
        if expects_next:
            self._expect_next()

    def _expect_next(self) -> None:
        """An asynchronous device runs on by itself; others begin when the token is accepted, or go
        on with what they have guessed.
        """
        if self._is_async:
            self._sequence.expect_next()
        else:
            self._begins_next = True

    def _is_timed(self, n: int) -> bool:
        """Whether the pass with this number is timed even if it has no draft."""
        return n % self._timed_every == 0

    def _forward_given(self, given: Sequence[int]) -> None:
        """A pass over tokens that are known, as many as fit, which gives the row after each."""
        room = min(each.room for each in self._sequences)
        self._draft = Draft(tuple(given[: room - 1]), NO_DRAFT.origin)
        self._is_guess = False
        self._run(self._draft.token_ids)

    def _run(self, draft: Sequence[int], *, guesses_next: bool = False) -> None:
        rows = self._sequence.forward(draft, guesses_next=guesses_next)
        if self._guide is not None:
            own = rows.copy()  # the next pass of the model overwrites them
            negative = np.asarray(self._guide.sequence.forward(draft))
            self._unguided = (own, negative)
            rows = guided(own, negative, self._guide.scale)
        self._rows, self._n_rows, self._next_row = rows, 1 + len(draft), 0

    def _proposed(self, speculator: Speculator, n_wanted: int, forced: Sequence[int]) -> Draft:
        if self._sequence.is_ahead:
            return NO_DRAFT
        room = min(n_wanted, self._sequence.room)
        if self._guide is not None:
            room = min(room, self._guide.sequence.room)
        return speculator.propose(room - 1, forced=forced) if room > 1 else NO_DRAFT

    def _judged(self, n_judged: int, n_accepted: int) -> None:
        """Report that `n_judged` tokens of the draft were compared with the drawn ones."""
        if self._speculator is not None:
            self._speculator.observe(n_judged, n_accepted)

    def _drop_rows(self) -> None:
        """Forget the rows and the draft after the tokens so far."""
        self._sequence.settle()
        if self._guide is not None:
            self._guide.sequence.settle()
        self._n_rows = self._next_row = 0
        self._draft = NO_DRAFT


def _is_sound(logits: Logits) -> bool:
    return bool(np.isfinite(logits).any() and (logits < np.inf).all())
