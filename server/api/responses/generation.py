"""What a body of /v1/responses asks for: a job for the engine, and the shape of its answer.

Raises all that can be wrong with it, before anything is queued. The body's input is whole: what it
refers to has been put in its place.
"""

from dataclasses import replace

from ...answer.head import answer_head
from ...answer.logprobs import TokenNames
from ...answer.metadata import Include
from ...errors import RequestError
from ...lease.waiter import Waiter
from ...request.no_effect import effect_warnings, stream_option_warnings
from ...request.options import Options, generation_options, requested_logprobs
from ...request.text import LONG_TEXT
from ...request.unknown_fields import check_unknown_fields
from ...schema.responses import ResponsesRequest
from ...service import Service
from ..chat.job import reply_job
from ..chat.reply import ReplyShape
from ..generation import Generation
from .answer import ResponseAnswer
from .fields import LOGPROBS, check_prompt_fields, field_warnings, own_includes
from .fitting import fitted
from .ids import RESPONSE
from .response import asked_summary, described
from .turn import read_turn, unused_variables


async def responses_generation(
    service: Service, body: ResponsesRequest, waiter: Waiter
) -> Generation:
    """Raises RequestError, InvalidInputError and TemplateError."""
    n_body, strict = waiter.n_body, bool(body.strict)
    warnings = await service.large_bodies.run(
        lambda: check_unknown_fields(body, body.parts(), strict=strict), n_body
    )
    check_prompt_fields(body)
    warnings += field_warnings(body)
    warnings += stream_option_warnings(body)
    service = service.serving(body.model or None)
    engine = service.engine
    if body.n not in (None, 1):
        raise RequestError("n must be 1: a response is one reply", param="n")
    n_top = requested_logprobs(body, body.top_logprobs or None, param="top_logprobs")
    shape = _shape(service, body, has_logprobs=n_top is not None)
    options = _options(service, body)
    turn, tools, more = await service.large_bodies.run(
        lambda: read_turn(body, n_body=n_body, strict=strict), n_body, inline_below=LONG_TEXT
    )
    warnings += more
    if body.truncation == "auto":
        turn, more = await fitted(service, turn, options)
        warnings += more
    prepared = await reply_job(
        service, body, turn, options, waiter, shape=shape, n_top=n_top, prompt_param="input"
    )
    job = prepared.job
    warnings += effect_warnings(body, job, engine.tokenizer)
    warnings += unused_variables(body, engine.template, strict=strict)
    # OpenAI stores what does not say otherwise: only what asks for it is told that nothing is kept.
    asked = body if "store" in body.model_fields_set else body.model_copy(update={"store": None})
    warnings += service.storing_warnings(body if service.kept.can_keep else asked)
    head = answer_head(
        id_prefix=RESPONSE,
        separator="",
        object_="response",
        model=body.model or service.model_id,
        fingerprint=engine.fingerprint,
        replica=service.replica,
    )
    answer = ResponseAnswer(
        head=head,
        once={"warnings": warnings} if warnings else {},
        jobs=[job],
        new_reader=prepared.new_reader,
        shape=shape,
        calls=tools.calls,
        asked=described(body, job.settings, head, status="in_progress"),
        describes_all=bool(body.n_probs) or shape.include.wants_tokens,
        in_summary=asked_summary(body) is not None,
    )
    return Generation([job], answer, service)


def _options(service: Service, body: ResponsesRequest) -> Options:
    options = generation_options(body, vocab_size=service.engine.config.vocab_size)
    wanted, other = body.max_output_tokens, options.max_tokens
    if wanted is None:
        return options
    if other not in (None, wanted):
        raise RequestError(
            "max_output_tokens and max_tokens are two names of one setting, and their values "
            "differ: send one of them",
            param="max_output_tokens",
        )
    return replace(options, max_tokens=wanted)


def _shape(service: Service, body: ResponsesRequest, *, has_logprobs: bool) -> ReplyShape:
    ids = ["token_ids"] if body.return_token_ids else []
    include = Include.of([*own_includes(body), *ids], watches=body.watch_names)
    is_included = LOGPROBS in (body.include or ())
    tokenizer = service.engine.tokenizer
    return ReplyShape(
        tokenizer=tokenizer,
        eos_token_ids=service.engine.eos_token_ids,
        names=TokenNames(tokenizer, as_ids=bool(body.return_tokens_as_token_ids)),
        logprobs=has_logprobs or is_included or include.wants_tokens,
        token_ids=False,  # they stand in the logprobs
        legacy_call=False,
        include=include,
    )
