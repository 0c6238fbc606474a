"""What a body of /v1/completions asks for: jobs for the engine, and the shape of their answer.

Raises all that can be wrong with it, before anything is queued.
"""

from collections.abc import Sequence
from dataclasses import replace

from engine import Engine, StreamOptions

from ...answer.choices import check_choices, spread
from ...answer.chunks import ChoicesAnswer
from ...answer.head import answer_head
from ...answer.logprobs import TokenNames
from ...answer.metadata import Include
from ...errors import RequestError
from ...lease.waiter import Waiter
from ...request.constraint import constraint_of, schema_length
from ...request.job import completion_jobs
from ...request.no_effect import effect_warnings
from ...request.options import (
    Options,
    check_stream_options,
    generation_options,
    requested_logprobs,
)
from ...request.text import negative_ids
from ...request.unknown_fields import check_unknown_fields
from ...request.watch import watched_ids
from ...schema.common import GenerationRequest
from ...schema.completions import CompletionRequest
from ...service import Service
from ...stream.jobs import CompletionJob
from ..generation import Generation
from .answer import CompletionChoices
from .choice import ChoiceShape
from .prompts import Prompt, listed_prompts, read_prompts

DEFAULT_MAX_TOKENS = 16
_OBJECT = "text_completion"


async def completion_generation(
    service: Service, body: CompletionRequest, waiter: Waiter
) -> Generation:
    """Raises RequestError and InvalidInputError."""
    warnings = check_unknown_fields(body, body.parts(), strict=bool(body.strict))
    service = service.serving(body.model or None)
    engine = service.engine
    check_stream_options(body)
    n, n_candidates = _choices(body)
    shape = _shape(engine, body)
    listed = listed_prompts(body.prompt)
    check_choices(n_candidates, len(listed), param="best_of" if n_candidates > n else "n")
    options = generation_options(body, vocab_size=engine.config.vocab_size)
    prompts = await read_prompts(
        service, body, options, listed, default_max_tokens=DEFAULT_MAX_TOKENS,
        suffix=body.suffix or "",
    )  # fmt: skip
    stream = replace(
        await text_options(service, body, options, waiter),
        return_top_tokens=shape.logprobs or 0,
        return_prompt_tokens=shape.prompt_top,
        return_trace="trace" in shape.include,
    )
    jobs = await prompt_jobs(
        service,
        body,
        options,
        prompts,
        waiter,
        n=n_candidates,
        stream=stream,
        default_max_tokens=DEFAULT_MAX_TOKENS,
        token_by_token=bool(body.stream) and shape.describes_tokens,
        progress=bool(body.stream) and "progress" in shape.include,
    )
    warnings += effect_warnings(body, jobs[0], engine.tokenizer)
    warnings += service.storing_warnings(body)
    answer = ChoicesAnswer(
        head=answer_head(
            id_prefix="cmpl",
            object_=_OBJECT,
            model=body.model or service.model_id,
            fingerprint=engine.fingerprint,
            replica=service.replica,
        ),
        once={"warnings": warnings} if warnings else {},
        jobs=jobs,
        n=n,
        new_choices=lambda: CompletionChoices(prompts, jobs, n, shape),
        chunk_object=_OBJECT,
        include=shape.include,
        include_usage=body.include_usage,
        continuous_usage=body.continuous_usage,
    )
    return Generation(jobs, answer, service)


async def prompt_jobs(
    service: Service,
    body: GenerationRequest,
    options: Options,
    prompts: Sequence[Prompt],
    waiter: Waiter,
    *,
    n: int,
    stream: StreamOptions,
    default_max_tokens: int | None,
    token_by_token: bool,
    progress: bool,
) -> list[CompletionJob]:
    """`n` jobs per prompt, prompt by prompt. Raises RequestError and InvalidInputError."""

    def make() -> list[CompletionJob]:
        of_prompts = completion_jobs(
            service.engine,
            body,
            options,
            [prompt.input_ids for prompt in prompts],
            stream=stream,
            prompt_param="prompt",
            default_max_tokens=default_max_tokens,
            token_by_token=token_by_token,
            progress=progress,
        )
        return spread(of_prompts, n)

    # Work grows with the choices: the settings of each are checked again, with its seed.
    return await service.large_bodies.run(make, len(prompts) * n * waiter.n_body)


def _choices(body: CompletionRequest) -> tuple[int, int]:
    """How many choices per prompt are wanted, and how many are generated to choose from."""
    n = 1 if body.n is None else body.n
    check_choices(n, 1, param="n")
    if body.best_of is None:
        return n, n
    if body.best_of < n:
        raise RequestError(f"best_of must be at least n, {n}, not {body.best_of}", param="best_of")
    if body.stream and body.best_of > n:
        raise RequestError(
            "best_of greater than n cannot be streamed: the best choices are known only at the end",
            param="best_of",
        )
    return n, body.best_of


def _shape(engine: Engine, body: CompletionRequest) -> ChoiceShape:
    if body.echo and body.suffix:
        raise RequestError("echo and suffix cannot be combined", param="echo")
    include = Include.of(body.includes, watches=body.watch_names)
    n_top = requested_logprobs(body, body.logprobs, param="logprobs")
    return ChoiceShape(
        tokenizer=engine.tokenizer,
        eos_token_ids=engine.eos_token_ids,
        names=TokenNames(engine.tokenizer, as_ids=bool(body.return_tokens_as_token_ids)),
        echo=bool(body.echo),
        logprobs=0 if n_top is None and include.wants_tokens else n_top,
        prompt_logprobs=body.prompt_logprobs,
        token_ids=bool(body.return_token_ids),
        include=include,
    )


async def text_options(
    service: Service, body: GenerationRequest, options: Options, waiter: Waiter
) -> StreamOptions:
    """The options of a text, with what the body says of its form, of the text that it is led away
    from, and of the tokens that are watched. Raises RequestError and InvalidInputError.
    """
    engine, bodies = service.engine, service.large_bodies
    spec = await bodies.run(lambda: constraint_of(body), schema_length(body))
    if spec is not None:
        await service.constraints.check(spec, waiter)
    return replace(
        options.stream,
        constraint=spec,
        negative_ids=await negative_ids(engine, bodies, options.negative_prompt),
        watch=await watched_ids(engine, bodies, body.watch),
    )
