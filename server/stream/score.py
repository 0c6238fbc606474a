"""A request that scores continuations of a prompt, in the engine.

Owns the order of the continuations and what is counted of them; the way through the lease is that
of every request.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from typing_extensions import override

from engine import AbortFlag, StreamOptions

from ..errors import UnavailableError
from .jobs import Clocks, Event, JobEnd, Progress, Scored, TokenCounts, isolation_key
from .stream import CompletionStream


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreJob:
    """What to score, in the engine's types."""

    input_ids: Sequence[int]
    continuations: Sequence[Sequence[int]]
    options: StreamOptions
    """The stream adds `abort`, `on_progress` and the client's part of `isolation_key`."""
    progress: bool = False
    """Whether to report the progress of the prefill."""


class ScoreStream(CompletionStream):
    """A CompletionStream whose one job is a ScoreJob, and whose events are Scored, one per
    continuation, behind the Progress of their prompt.
    """

    @property
    def job(self) -> ScoreJob:
        """The one that it was made with."""
        return cast(ScoreJob, self.jobs[0])

    @override
    def ends_with(self, event: Event) -> bool:
        return isinstance(event, Scored) and event.choice == len(self.job.continuations) - 1

    @override
    def _work(self, abort: AbortFlag) -> bool:
        job, start, n_prompt = self.job, self._clock(), len(self.job.input_ids)

        def report(done: int, total: int) -> None:
            n_cached = n_prompt - 1 - total
            self._feed.append(Progress(0, n_cached + done, n_cached, start, self._clock()))

        options = dataclasses.replace(
            job.options,
            isolation_key=isolation_key(self._key, job.options.isolation_key),
            abort=abort,
            on_progress=report if job.progress else None,
        )
        scorer = self._generator.begin_scoring(job.input_ids, options)
        reuse, n_tokens = scorer.reuse, n_prompt
        first: float | None = None
        for index, continuation in enumerate(job.continuations):
            tokens = scorer.score(continuation)
            if len(tokens) < len(continuation):
                # A client that hung up does not read this; all others were cut off by the server.
                raise self._late or UnavailableError("the server is shutting down")
            now = self._clock()
            if job.progress and not index:  # the last token is computed with the first score
                self._feed.append(Progress(0, n_prompt, reuse.n_reused, start, now))
            scored = Scored(index, tokens, now)
            if self.ends_with(scored):
                self._ending = (scored,)
            else:
                self._feed.append(scored)
            self._has_token = True
            first = now if first is None else first
            n_tokens += len(continuation)
            self.counts = TokenCounts(n_prompt=n_tokens, n_cached=reuse.n_reused)
            self.clocks = Clocks(self.clocks.queued_s, now - start, 0.0, first)
        self.ends = (JobEnd("scored", reuse, {}),)
        return True
