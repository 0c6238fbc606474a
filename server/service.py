"""One model behind the lease of all, ready to be asked: what the routes share.

Owns how a request's jobs get into the queue, and which model a name means. Knows no field of a
request and no shape of an answer.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from engine import Engine, Reuse

from .errors import ModelNotFoundError
from .http.large_bodies import LargeBodies
from .http.slow_readers import SlowReaders
from .kept.registry import KeptStreams
from .lease.deadlines import TimeLimits
from .lease.lease import EngineLease
from .lease.served_model import ServedModel
from .lease.shelf import Shelf
from .lease.trials import Trials
from .lease.waiter import Waiter
from .lease.watchdog import Watchdog
from .request.constraint_check import ConstraintCheck
from .request.storing import storing_warnings
from .request.unknown_fields import Warnings
from .schema.common import GenerationRequest
from .settings import Settings
from .stream.jobs import CompletionJob, isolation_key
from .stream.metrics import Metrics
from .stream.pace import Pace
from .stream.pause import Pause
from .stream.score import ScoreJob, ScoreStream
from .stream.stream import CompletionStream

T = TypeVar("T", bound=CompletionStream)


@dataclass(frozen=True, slots=True)
class Service:
    """One model, ready to be asked. `serving` leads to the others."""

    settings: Settings
    model: ServedModel
    shelf: Shelf
    lease: EngineLease
    limits: TimeLimits
    trials: Trials
    metrics: Metrics
    slow_readers: SlowReaders
    watchdog: Watchdog
    large_bodies: LargeBodies
    paces: Mapping[str, Pace]
    """By the model's name."""
    kept: KeptStreams
    on_queued: Callable[[CompletionStream], None]
    replica: str
    """The name of this server among others: see `answer_head`. Empty if it is alone."""

    @property
    def engine(self) -> Engine:
        return self.model.engine

    @property
    def model_names(self) -> tuple[str, ...]:
        """All names of the model, the one that it goes by first."""
        return self.model.names

    @property
    def model_id(self) -> str:
        return self.model.name

    @property
    def pace(self) -> Pace:
        return self.paces[self.model_id]

    @property
    def constraints(self) -> ConstraintCheck:
        return ConstraintCheck(self.engine, self.large_bodies, self.trials, self.limits)

    def serving(self, name: str | None) -> "Service":
        """The same of the model that goes by `name`; None means this one. Raises
        ModelNotFoundError.
        """
        if name is None or name in self.model_names:
            return self
        for model in self.shelf.models:
            if name in model.names:
                return self.of(model)
        served = " or ".join(repr(name) for model in self.shelf.models for name in model.names)
        raise ModelNotFoundError(
            f"the model does not exist on this server: send {served}, or no model at all; GET "
            "/v1/models lists the names",
            param="model",
        )

    def of(self, model: ServedModel) -> "Service":
        """The same of another model of this server."""
        return self if model is self.model else replace(self, model=model)

    def of_engine(self, fingerprint: str) -> "Service":
        """The same of the model whose engine has this fingerprint."""
        models = self.shelf.models
        return self.of(next((m for m in models if m.engine.fingerprint == fingerprint), self.model))

    @property
    def each(self) -> "Iterator[Service]":
        """The same of all models."""
        return map(self.of, self.shelf.models)

    def has(self, name: str) -> bool:
        """Whether a model goes by this name."""
        return any(name in model.names for model in self.shelf.models)

    def storing_warnings(self, body: GenerationRequest) -> Warnings:
        """What the body says of keeping the answer and has no effect. Raises RequestError."""
        return storing_warnings(
            body, is_kept=self.kept.keeps(body.wants_kept), can_keep=self.kept.can_keep
        )

    def start(
        self,
        jobs: Sequence[CompletionJob],
        waiter: Waiter,
        *,
        is_steered: bool = False,
        pause: Pause | None = None,
    ) -> CompletionStream:
        """Queue the jobs, as one; callers take turns. `is_steered`, `pause`: see CompletionStream.

        Raises QueueFullError and UnavailableError.
        """
        make = partial(CompletionStream, is_steered=is_steered, pause=pause)
        return self._queued(make, jobs, waiter)

    def start_score(self, job: ScoreJob, waiter: Waiter) -> ScoreStream:
        """Queue the job. Raises like `start`."""
        return self._queued(ScoreStream, (job,), waiter)

    def expected_reuse(self, job: CompletionJob | ScoreJob, key: str) -> Reuse:
        """How much of the job's prompt would be cached, if the caller `key` sent it now."""
        own = isolation_key(key, job.options.isolation_key)
        options = replace(job.options, isolation_key=own)
        return self.engine.generator.expected_reuse(job.input_ids, options)

    def _ended(self, stream: CompletionStream) -> None:
        self.metrics.ended(stream)
        self.pace.ended(stream)

    def _queued(self, make: Callable[..., T], jobs: Sequence[Any], waiter: Waiter) -> T:
        """`make`: a kind of stream; `jobs`: as it takes them."""
        stream = make(
            jobs,
            self.model,
            self.lease,
            key=waiter.key,
            request_id=waiter.request_id,
            limits=self.limits,
            since=waiter.since,
            max_unread_bytes=self.settings.max_unread_bytes,
            on_ended=self._ended,
            on_told=lambda stream: self.watchdog.told(stream.error),
        )
        waiter.state["stream"] = stream
        self.on_queued(stream)
        return stream
