"""What a reply must be: calls, the form that the request asks the text to have, or nothing.

Owns how the two stand together, and that a constraint begins where the reasoning ends. Knows no
grammar.
"""

from dataclasses import replace

from engine import (
    ConstraintSpec,
    InvalidInputError,
    after_reasoning,
    arguments_of,
    calls_or_json,
    tool_constraint,
)

from ..lease.waiter import Waiter
from ..request.constraint_check import ConstraintCheck
from ..service import Service
from .tools import ToolUse
from .turn import ChatTurn


async def reply_constraint(
    service: Service, turn: ChatTurn, waiter: Waiter, *, in_reasoning: bool
) -> ConstraintSpec | None:
    """Compiled, so that a bad one is refused before the queue; None means the reply is free.

    Raises RequestError and InvalidInputError, naming the field, and what Trials.run raises.
    """
    form, check = service.engine.reply_format, service.constraints
    asked, tools = turn.wanted, turn.tools
    is_choice = asked is not None and not tools.required
    if tools.required or (tools.callable and (is_choice or tools.strict or not tools.parallel)):
        calls = await service.large_bodies.run(
            lambda: tool_constraint(
                form,
                tools.callable,
                required=tools.required or is_choice,
                parallel=tools.parallel,
                in_reasoning=in_reasoning,
            ),
            waiter.n_body,
        )
        if asked is not None and is_choice:
            await check.check(asked, waiter)
            calls = calls_or_json(calls, asked, form, param=asked.param)
        calls = replace(calls, param=tools.param)
        await _check_tools(check, calls, tools, waiter)
        return calls
    if asked is None:
        return None
    text = after_reasoning(asked, form, in_reasoning=in_reasoning)
    await check.check(text, waiter)
    return text


async def _check_tools(
    check: ConstraintCheck, calls: ConstraintSpec, tools: ToolUse, waiter: Waiter
) -> None:
    """Compile a constraint of `tool_constraint`; if it cannot be, name the tool at fault."""
    try:
        await check.check(calls, waiter)
    except InvalidInputError:
        for tool in tools.callable:
            await check.check(arguments_of(tool), waiter)
        raise
