"""From a turn of a conversation to the engine's job for the reply, and what reads that reply.

Owns what every wire of conversations asks of the engine in the same way. Knows no body but by the
fields that all of them share.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from engine import ReplyFormat, ReplyReader

from ...chat.constraint import reply_constraint
from ...chat.prompt import prompt_ids
from ...chat.tools import ToolUse
from ...chat.turn import ChatTurn
from ...lease.waiter import Waiter
from ...request.job import completion_jobs
from ...request.options import Options
from ...request.text import negative_ids
from ...request.watch import watched_ids
from ...schema.common import GenerationRequest
from ...service import Service
from ...stream.jobs import CompletionJob
from .reply import PlainReader, Reader, ReplyShape


@dataclass(frozen=True, slots=True)
class ReplyJob:
    """One reply, before it is queued."""

    job: CompletionJob
    new_reader: Callable[[], Reader]
    """Makes what reads one reply."""


async def reply_job(
    service: Service,
    body: GenerationRequest,
    turn: ChatTurn,
    options: Options,
    waiter: Waiter,
    *,
    shape: ReplyShape,
    n_top: int | None,
    prediction: Sequence[int] = (),
    default_max_tokens: int | None = None,
    prompt_param: str = "messages",
) -> ReplyJob:
    """`prompt_param`: the field that has the conversation.

    Raises RequestError, InvalidInputError and TemplateError."""
    engine, bodies = service.engine, service.large_bodies
    input_ids = await prompt_ids(service, turn, options)
    in_reasoning = engine.reply_format.opens_in_reasoning(input_ids)
    constraint = await reply_constraint(service, turn, waiter, in_reasoning=in_reasoning)
    stream = replace(
        options.stream,
        constraint=constraint,
        prediction=prediction,
        negative_ids=await negative_ids(engine, bodies, options.negative_prompt),
        return_top_tokens=n_top or 0,
        return_trace="trace" in shape.include,
        watch=await watched_ids(engine, bodies, body.watch),
        turn_starts=engine.turn_starts(input_ids),
    )
    (job,) = completion_jobs(
        engine,
        body,
        options,
        [input_ids],
        stream=stream,
        prompt_param=prompt_param,
        default_max_tokens=default_max_tokens,
        token_by_token=bool(body.stream) and shape.describes_tokens,
        progress=bool(body.stream) and "progress" in shape.include,
    )
    new_reader = _readers(
        engine.reply_format,
        turn.tools,
        in_reasoning=in_reasoning,
        decode_special_tokens=job.options.decode_special_tokens,
    )
    return ReplyJob(job, new_reader)


def _readers(
    form: ReplyFormat, tools: ToolUse, *, in_reasoning: bool, decode_special_tokens: bool
) -> Callable[[], Reader]:
    if not form.needs_reader(reads_tools=bool(tools.callable)):
        return PlainReader
    return lambda: ReplyReader(
        form,
        in_reasoning=in_reasoning,
        tools=tools.callable,
        decode_special_tokens=decode_special_tokens,
    )
