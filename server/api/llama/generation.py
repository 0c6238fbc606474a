"""What a body of /completion or /infill asks for: jobs for the engine, and the shape of their
answer.

Raises all that can be wrong with it, before anything is queued.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from ...answer.choices import check_choices
from ...answer.head import answer_head
from ...answer.logprobs import TokenNames
from ...answer.metadata import REQUEST_NAMES, TOKEN_NAMES, Include
from ...lease.waiter import Waiter
from ...request.aliases import given
from ...request.no_effect import effect_warnings, stream_option_warnings
from ...request.options import Options, generation_options, requested_logprobs
from ...request.text import LONG_TEXT
from ...request.unknown_fields import Warnings, check_unknown_fields
from ...schema.llama_completion import InfillRequest, LlamaCompletionRequest, LlamaFields
from ...service import Service
from ...stream.jobs import CompletionJob
from ..completions.generation import prompt_jobs, text_options
from ..completions.prompts import Prompt, read_prompts
from ..generation import Generation
from .answer import LlamaAnswer, LlamaShape
from .biases import with_token_biases
from .prompts import infill_prompt, listed, n_characters, plain

# `prompt` is there without being asked for.
_NAMES = tuple(name for name in (*TOKEN_NAMES, *REQUEST_NAMES) if name != "prompt")

_Prompts = Callable[[Service, Options], Awaitable[Sequence[Prompt]]]


async def llama_generation(
    service: Service, body: LlamaCompletionRequest, waiter: Waiter
) -> Generation:
    """Raises RequestError and InvalidInputError."""
    prompts = listed(body.prompt)

    async def read(service: Service, options: Options) -> Sequence[Prompt]:
        texts = await service.large_bodies.run(
            lambda: plain(prompts, service.engine.tokenizer),
            n_characters(prompts),
            inline_below=LONG_TEXT,
        )
        return await read_prompts(service, body, options, texts, default_max_tokens=1)

    return await _generation(service, body, waiter, read, n_prompts=len(prompts))


async def infill_generation(service: Service, body: InfillRequest, waiter: Waiter) -> Generation:
    """Raises NotServedError too: for a model that was not made to fill in."""

    async def read(service: Service, options: Options) -> Sequence[Prompt]:
        return [await infill_prompt(service, body, options)]

    return await _generation(service, body, waiter, read, n_prompts=1)


async def _generation(
    service: Service, body: LlamaFields, waiter: Waiter, read: _Prompts, *, n_prompts: int
) -> Generation:
    warnings = check_unknown_fields(body, body.parts(), strict=bool(body.strict))
    warnings += stream_option_warnings(body)
    service = service.serving(body.model or None)
    engine = service.engine
    n = _choices(body)
    check_choices(n, n_prompts, param="n")
    shape = _shape(service, body)
    body = with_token_biases(body, engine.tokenizer)
    options = generation_options(body, vocab_size=engine.config.vocab_size)
    prompts = await read(service, options)
    stream = replace(
        await text_options(service, body, options, waiter),
        return_top_tokens=shape.n_top or 0,
        return_trace="trace" in shape.include,
    )
    jobs = await prompt_jobs(
        service,
        body,
        options,
        prompts,
        waiter,
        n=n,
        stream=stream,
        default_max_tokens=None,
        token_by_token=bool(body.stream) and shape.n_top is not None,
        progress=bool(body.stream) and "progress" in shape.include,
    )
    warnings += effect_warnings(body, jobs[0], engine.tokenizer)
    warnings += service.storing_warnings(body)
    return Generation(jobs, _answer(service, body, shape, prompts, jobs, warnings), service)


def _answer(
    service: Service,
    body: LlamaFields,
    shape: LlamaShape,
    prompts: Sequence[Prompt],
    jobs: Sequence[CompletionJob],
    warnings: Warnings,
) -> LlamaAnswer:
    n = len(jobs) // len(prompts)
    return LlamaAnswer(
        head=answer_head(
            id_prefix="cmpl",
            object_="completion",
            model=body.model or service.model_id,
            fingerprint=service.engine.fingerprint,
            replica=service.replica,
        ),
        once={"warnings": warnings} if warnings else {},
        jobs=jobs,
        prompts=[prompt for prompt in prompts for _ in range(n)],
        # As llama-server: a list of one prompt is one prompt.
        is_list=len(jobs) > 1,
        shape=shape,
    )


def _choices(body: LlamaFields) -> int:
    said = given(body, {"n": "n", "n_cmpl": "n"}, {})
    if "n" not in said:
        return 1
    n: int = said["n"].value
    check_choices(n, 1, param=said["n"].param)
    return n


def _shape(service: Service, body: LlamaFields) -> LlamaShape:
    # The other switches have keys of their own in this answer.
    switches = [name for name in body.includes if name in ("progress", "stop")]
    include = Include.of(
        [*(body.include or ()), *switches], allowed=_NAMES, watches=body.watch_names
    )
    n_top = requested_logprobs(body, body.logprobs or None, param="logprobs")
    tokenizer = service.engine.tokenizer
    return LlamaShape(
        tokenizer=tokenizer,
        eos_token_ids=service.engine.eos_token_ids,
        names=TokenNames(tokenizer, as_ids=bool(body.return_tokens_as_token_ids)),
        n_top=0 if n_top is None and include.wants_tokens else n_top,
        after_sampling=bool(body.post_sampling_probs),
        token_ids=bool(body.return_tokens or body.return_token_ids),
        is_stream=bool(body.stream),
        timings_per_token=bool(body.timings_per_token),
        max_seq_len=service.engine.max_seq_len,
        fields=tuple(body.response_fields or ()),
        include=include,
    )
