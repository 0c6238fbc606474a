"""What a reply must be: calls, the form that the request asks the text to have, or nothing.

Owns how the two stand together, and that a constraint begins where the reasoning ends. Knows no
grammar.
"""

from starlette.concurrency import run_in_threadpool

from engine import ConstraintSpec, after_reasoning, calls_or_json, check_tools, tool_constraint

from .constraint import requested_constraint, schema_length
from .errors import contained
from .schema.chat import ChatCompletionRequest
from .service import Service
from .tools import ToolUse


async def reply_constraint(
    service: Service, body: ChatCompletionRequest, tools: ToolUse, *, in_reasoning: bool
) -> ConstraintSpec | None:
    """Compiled, so that a bad one is told before the queue; None: the reply is free.

    Raises RequestError and InvalidInputError, naming the field.
    """
    form = service.engine.reply_format
    asked = await service.beside(lambda: requested_constraint(body), schema_length(body))
    is_choice = asked is not None and not tools.required
    if tools.required or (tools.callable and (is_choice or tools.strict or not tools.parallel)):
        calls = tool_constraint(
            form,
            tools.callable,
            required=tools.required or is_choice,
            parallel=tools.parallel,
            in_reasoning=in_reasoning,
        )
        if asked is not None and is_choice:
            await service.check_constraint(asked.spec, param=asked.param)
            calls = calls_or_json(calls, asked.spec, param=asked.param)
        await run_in_threadpool(
            contained, check_tools, service.engine.check_constraint, calls, tools.callable
        )
        return calls
    if asked is None:
        return None
    text = after_reasoning(asked.spec, form, in_reasoning=in_reasoning)
    await service.check_constraint(text, param=asked.param)
    return text
