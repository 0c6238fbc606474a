"""From a turn to the ids of its prompt, by way of the model's own chat template.

Owns how tools get into the prompt of a model whose template has no place for them.
"""

from typing import Any

from engine import Engine, describe_tools, listed_calls, spelled_calls, template_tools

from ..request.options import Options, check_cut_length, prompt_room, truncated
from ..request.text import LONG_TEXT, check_text
from ..service import Service
from .turn import ChatTurn

_SYSTEM_ROLES = ("system", "developer")


async def prompt_ids(service: Service, turn: ChatTurn, options: Options | None = None) -> list[int]:
    """The rendered conversation, or the end of it that `options` keep.

    Raises RequestError, InvalidInputError and TemplateError.
    """
    engine = service.engine
    if options is not None:
        check_cut_length(
            options, turn.n_characters, max_seq_len=engine.max_seq_len, param="messages"
        )
    form = engine.reply_format.tools
    knows_tools = form.in_template

    def encode() -> list[int]:
        tools = turn.tools.shown
        messages = turn.messages if knows_tools else _with_tools(engine, turn)
        return engine.encode_chat(
            messages if form.writes_calls else listed_calls(messages, form.open.text),
            tools=template_tools(tools) if knows_tools and tools else None,
            documents=turn.documents or None,
            add_generation_prompt=turn.add_generation_prompt,
            continue_final_message=turn.continue_final_message,
            template_kwargs=turn.variables,
            must_fit=options is None or options.truncate_prompt_tokens is None,
        )

    input_ids = await service.large_bodies.run(encode, turn.n_characters, inline_below=LONG_TEXT)
    if options is None:
        return input_ids
    room = prompt_room(options, max_seq_len=engine.max_seq_len, default_max_tokens=1)
    return list(truncated(input_ids, options, room=room))


def _with_tools(engine: Engine, turn: ChatTurn) -> list[dict[str, Any]]:
    """The messages for a template that tells of no tools: they stand in the system message, after
    the text that the template would have written there by itself.
    """
    example = engine.reply_format.tools.example
    messages = [dict(each) for each in turn.messages] if example else spelled_calls(turn.messages)
    if not turn.tools.shown:
        return messages
    description = describe_tools(turn.tools.shown, example)
    check_text(description, param=turn.tools.param)
    if messages[0]["role"] not in _SYSTEM_ROLES and engine.template is not None:
        default = engine.template.default_system(turn.variables)
        description = f"{default}\n\n{description}" if default else description
    return _with_description(messages, description)


def _with_description(messages: list[dict[str, Any]], description: str) -> list[dict[str, Any]]:
    """The conversation with `description` in its system message, the first one."""
    first, *others = messages
    if first["role"] in _SYSTEM_ROLES:
        return [{**first, "content": f"{first['content']}\n\n{description}"}, *others]
    return [{"role": "system", "content": description}, *messages]
