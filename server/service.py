"""What the generation routes share: the engine behind its lease, and from wire to engine words.

Every rule here is checked before the request is queued. Knows both kinds of requests through the
fields that they have in common; knows no shape of an answer.
"""

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from engine import ConstraintSpec, ContextLengthError, Engine, InvalidInputError, StreamResult

from .errors import ModelNotFoundError, RequestError, contained
from .http.large_bodies import LARGE_BODY, LargeBodies
from .http.slow_readers import SlowReaders
from .lease.deadlines import Deadlines, TimeLimits
from .lease.lease import EngineLease
from .lease.trials import Trials
from .lease.waiter import Waiter
from .lease.watchdog import Watchdog
from .request.constraint import requested_constraint, schema_length
from .request.no_effect import no_effect_warnings, short_choice_warnings
from .request.options import generation_options
from .request.sampling import check_token_ids, sampling_settings
from .request.text import LONG_TEXT
from .request.unknown_fields import Warnings
from .schema.common import GenerationRequest
from .settings import Settings
from .stream.jobs import CompletionJob
from .stream.metrics import Metrics
from .stream.stream import CompletionStream

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Service:
    """One engine, ready to be asked."""

    settings: Settings
    engine: Engine
    lease: EngineLease
    trials: Trials
    metrics: Metrics
    slow_readers: SlowReaders
    watchdog: Watchdog
    large_bodies: LargeBodies
    on_queued: Callable[[CompletionStream], None]

    @property
    def model_names(self) -> tuple[str, ...]:
        """All names of the one model, the one that it goes by first."""
        return self.settings.served_model_name or (self.engine.model_id,)

    @property
    def model_id(self) -> str:
        return self.model_names[0]

    def check_model(self, name: str | None) -> None:
        """Raise ModelNotFoundError for another model; None means the served one."""
        if name is None or name in self.model_names:
            return
        served = " or ".join(map(repr, self.model_names))
        raise ModelNotFoundError(
            f"the model does not exist on this server: send {served}, or no model at all; GET "
            "/v1/models lists the names",
            param="model",
        )

    def check_request(self, body: GenerationRequest) -> None:
        """Raise for what cannot be served whatever the prompt is."""
        self.check_model(body.model or None)
        if body.stream_options is not None and not body.stream:
            raise RequestError("stream_options needs stream: true", param="stream_options")

    def jobs(
        self,
        body: GenerationRequest,
        prompts: Sequence[Sequence[int]],
        *,
        prompt_param: str,
        default_max_tokens: int | None,
        n_top: int,
        constraint: ConstraintSpec | None = None,
        prediction: Sequence[int] = (),
        prompt_top: int | None = None,
        negative_ids: Sequence[int] | None = None,
        trace: bool = False,
        token_by_token: bool = False,
        progress: bool = False,
    ) -> list[CompletionJob]:
        """The engine's view of the request: one choice for each of its prompts, a job each.

        What the request asks for must fit the context; the default may be cut short by it (None: up
        to its end). Raises InvalidInputError and ContextLengthError.
        """
        vocab_size = self.engine.config.vocab_size
        for input_ids in prompts:
            _check_prompt(input_ids, vocab_size, param=prompt_param)
        options = generation_options(body, vocab_size=vocab_size)
        default = None if options.fills_context else default_max_tokens
        budgets = [
            self._budget(len(input_ids), options.max_tokens, default, param=prompt_param)
            for input_ids in prompts
        ]
        first = CompletionJob(
            index=0,
            input_ids=prompts[0],
            settings=sampling_settings(
                body,
                self.engine.default_settings,
                vocab_size=vocab_size,
                eos_token_ids=self.engine.eos_token_ids,
            ),
            options=replace(
                options.stream,
                stop_token_ids=(
                    *self.engine.eos_token_ids,
                    *(options.stream.stop_token_ids or ()),
                ),
                constraint=constraint,
                negative_ids=negative_ids,
                prediction=prediction,
                max_tokens_per_call=1 if token_by_token else None,
                return_top_tokens=n_top,
                return_prompt_tokens=prompt_top,
                return_trace=trace,
            ),
            token_by_token=token_by_token,
            progress=progress,
            include_stop=options.include_stop,
            max_seconds=options.max_seconds,
        )
        return [
            replace(
                first, input_ids=input_ids, options=replace(first.options, max_new_tokens=budget)
            )
            for input_ids, budget in zip(prompts, budgets, strict=True)
        ]

    async def encoded(self, encode: Callable[[], T], n_characters: int) -> T:
        """The result of `encode`, which must not hold up the event loop when the text is long."""
        if n_characters >= LONG_TEXT:
            return await self.large_bodies.work(encode, n_characters)
        return contained(encode)

    async def beside(self, call: Callable[[], T], n_bytes: int) -> T:
        """The result of `call`, whose work is that of reading so many bytes of a request."""
        if n_bytes >= LARGE_BODY:
            return await self.large_bodies.work(call, n_bytes)
        return contained(call)

    async def negative_ids(self, body: GenerationRequest) -> list[int] | None:
        """The prompt to lead away from, if there is one."""
        text = body.negative_prompt
        if not text:
            return None

        def encode() -> list[int]:
            self.engine.check_length(text, param="negative_prompt")
            return self.engine.tokenizer.encode(text)

        return await self.encoded(encode, len(text))

    async def constraint(self, body: GenerationRequest, waiter: Waiter) -> ConstraintSpec | None:
        """What the text must be, compiled, so that a bad one is told before the queue."""
        requested = await self.beside(lambda: requested_constraint(body), schema_length(body))
        if requested is None:
            return None
        await self.check_constraint(requested.spec, waiter, param=requested.param)
        return requested.spec

    async def check_constraint(
        self, spec: ConstraintSpec, waiter: Waiter, *, param: str | None
    ) -> None:
        """Compile beside the event loop: what may take long in turn, as long as `waiter` is there.

        Raises InvalidInputError for `param`, and what Trials.run raises.
        """
        work = await self.large_bodies.work(
            lambda: self.engine.constraint_work(spec, param=param), waiter.n_body
        )
        if work is not None:
            await self.trials.run(work, waiter, Deadlines(self._limits, since=waiter.since).first)

    def effect_warnings(self, body: GenerationRequest, job: CompletionJob) -> Warnings:
        """For the fields that are known and still do nothing. With `strict` a RequestError."""
        return [
            *no_effect_warnings(body, job.settings, strict=bool(body.strict)),
            *short_choice_warnings(body, job, self.engine.tokenizer),
        ]

    def stop_reason(self, result: StreamResult) -> str | int | None:
        """What the request asked to stop at, if that ended the choice; None for the model's own."""
        if result.stop_string is not None:
            return result.stop_string
        own = result.stop_token_id in self.engine.eos_token_ids
        return None if own else result.stop_token_id

    def start(self, jobs: Sequence[CompletionJob], waiter: Waiter) -> CompletionStream:
        """Queue the jobs, as one; callers take turns.

        Raises QueueFullError and UnavailableError.
        """
        stream = CompletionStream(
            jobs,
            self.engine.generator,
            self.lease,
            key=waiter.key,
            limits=self._limits,
            since=waiter.since,
            max_unread_bytes=self.settings.max_unread_bytes,
            on_ended=self.metrics.ended,
            on_told=lambda stream: self.watchdog.told(stream.error),
        )
        self.on_queued(stream)
        return stream

    def head(self, body: GenerationRequest, id_prefix: str, object_: str) -> dict[str, Any]:
        """The fields that begin every answer and every chunk of a stream.

        The model has the name that the request gave it.
        """
        return {
            "id": f"{id_prefix}-{uuid.uuid4().hex}",
            "object": object_,
            "created": int(time.time()),
            "model": body.model or self.model_id,
            "system_fingerprint": self.engine.fingerprint,
        }

    @property
    def _limits(self) -> TimeLimits:
        settings = self.settings
        return TimeLimits(
            settings.queue_timeout, settings.first_token_timeout, settings.request_timeout
        )

    def _budget(
        self, n_prompt: int, requested: int | None, default: int | None, *, param: str
    ) -> int:
        room = self.engine.max_seq_len - n_prompt
        if room <= 0:
            raise ContextLengthError(n_prompt, self.engine.max_seq_len, param=param)
        if requested is None:
            return room if default is None else min(default, room)
        if requested > room:
            raise RequestError(
                # The beginning is that of ContextLengthError, for the same clients.
                f"this model's maximum context length is {self.engine.max_seq_len} tokens; the "
                f"request asks for {n_prompt + requested}: {n_prompt} in the prompt, {requested} "
                f"to generate",
                param=param,
                code="context_length_exceeded",
            )
        return requested


def _check_prompt(input_ids: Sequence[int], vocab_size: int, *, param: str) -> None:
    if not input_ids:
        raise InvalidInputError("the prompt is empty: it needs a token", param=param)
    check_token_ids(input_ids, vocab_size, param=param)
