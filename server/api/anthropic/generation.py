"""What a body of /v1/messages asks for: a job for the engine, and the shape of its answer.

Raises all that can be wrong with it, before anything is queued.
"""

from dataclasses import replace

from ...answer.head import answer_head
from ...answer.logprobs import TokenNames
from ...answer.metadata import Include
from ...chat.turn import ChatTurn
from ...errors import RequestError
from ...lease.waiter import Waiter
from ...request.no_effect import effect_warnings, stream_option_warnings
from ...request.options import (
    Options,
    generation_options,
    requested_logprobs,
)
from ...request.text import LONG_TEXT
from ...request.unknown_fields import Warnings, check_unknown_fields, warning
from ...schema.anthropic import MessagesRequest, PromptOfMessages
from ...service import Service
from ..chat.job import reply_job
from ..chat.reply import ReplyShape
from ..generation import Generation
from .answer import MessageAnswer
from .errors import NO_THREADS
from .turn import turn_of, unused

# Anthropic's own models: their clients name them without being told to.
_FAMILY = "claude"


async def messages_generation(
    service: Service, body: MessagesRequest, waiter: Waiter
) -> Generation:
    """Raises RequestError, InvalidInputError and TemplateError."""
    strict = bool(body.strict)
    warnings = await service.large_bodies.run(
        lambda: check_unknown_fields(body, body.parts(), strict=strict), waiter.n_body
    )
    service, more = served_for(service, body.model, strict=strict)
    warnings += more
    engine = service.engine
    warnings += stream_option_warnings(body)
    if body.thread is not None:
        raise RequestError(
            "thread: this server keeps no conversations; send all messages, without thread",
            param="thread",
            code=NO_THREADS,
        )
    if body.n not in (None, 1):
        raise RequestError("n must be 1: a message is one reply", param="n")
    n_top = requested_logprobs(body, None, param="n_probs")
    shape = _shape(service, body, has_logprobs=n_top is not None)
    options = _options(service, body)
    turn, more = await read_turn(service, body, n_body=waiter.n_body, strict=strict)
    warnings += more
    # Clients ask for as much as Anthropic's models can say: what does not fit is left out.
    wanted = options.max_tokens
    prepared = await reply_job(
        service,
        body,
        turn,
        replace(options, max_tokens=None),
        waiter,
        shape=shape,
        n_top=n_top,
        default_max_tokens=wanted,
    )
    job = prepared.job
    warnings += effect_warnings(body, job, engine.tokenizer)
    warnings += unused(body, engine.template, strict=strict)
    warnings += service.storing_warnings(body)
    answer = MessageAnswer(
        head=answer_head(
            id_prefix="msg",
            object_="message",
            model=service.model_id,
            fingerprint=engine.fingerprint,
            replica=service.replica,
        ),
        once={"warnings": warnings} if warnings else {},
        jobs=[job],
        new_reader=prepared.new_reader,
        shape=shape,
        omits_thinking=body.thinking is not None and body.thinking.display == "omitted",
        is_cut=wanted is None or (job.options.max_new_tokens or 0) < wanted,
    )
    return Generation([job], answer, service)


async def read_turn(
    service: Service, body: PromptOfMessages, *, n_body: int, strict: bool
) -> tuple[ChatTurn, Warnings]:
    """The turn that a body of `n_body` bytes asks for. Raises RequestError."""
    drops_header = not service.settings.keep_billing_header
    return await service.large_bodies.run(
        lambda: turn_of(body, n_body=n_body, drops_header=drops_header, strict=strict),
        n_body,
        inline_below=LONG_TEXT,
    )


def served_for(service: Service, name: str | None, *, strict: bool) -> tuple[Service, Warnings]:
    """Which model answers, and a warning if the name is that of one of Anthropic's, in whose place
    the first one does.

    Raises ModelNotFoundError for any other name that is not served.
    """
    if name and name.startswith(_FAMILY) and not service.has(name):
        return service, [
            warning("model", f"{service.model_id} answers in its place", strict=strict)
        ]
    return service.serving(name or None), []


def _options(service: Service, body: MessagesRequest) -> Options:
    options = generation_options(body, vocab_size=service.engine.config.vocab_size)
    stops = (*options.stream.stop, *(body.stop_sequences or ()))
    return replace(options, stream=replace(options.stream, stop=tuple(dict.fromkeys(stops))))


def _shape(service: Service, body: MessagesRequest, *, has_logprobs: bool) -> ReplyShape:
    ids = ["token_ids"] if body.return_token_ids else []
    include = Include.of([*body.includes, *ids], watches=body.watch_names)
    tokenizer = service.engine.tokenizer
    return ReplyShape(
        tokenizer=tokenizer,
        eos_token_ids=service.engine.eos_token_ids,
        names=TokenNames(tokenizer, as_ids=bool(body.return_tokens_as_token_ids)),
        logprobs=has_logprobs or include.wants_tokens,
        token_ids=False,  # they stand in the logprobs
        legacy_call=False,
        include=include,
    )
