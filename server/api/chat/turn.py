"""From OpenAI's chat wire to a ChatTurn, for the chat route and for routes that only render.

Owns how a prompt ends, and the estimate of how much work it is: long ones are read in a thread.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from engine import ConstraintSpec

from ...chat.tools import ToolUse
from ...chat.turn import ChatTurn
from ...errors import RequestError
from ...http.large_bodies import LargeBodies
from ...request.constraint import constraint_of, schema_length
from ...request.text import LONG_TEXT
from ...schema.chat import ChatCompletionRequest
from ...schema.messages import ContentPart, Message
from ...schema.tokens import TemplateFields
from .messages import template_messages
from .tools import chat_tools, shown_tools
from .variables import template_variables

# As many characters are about as much work as a message, without its text.
_PART_LENGTH = 64

_Fields = ChatCompletionRequest | TemplateFields


async def chat_turn(
    large_bodies: LargeBodies, body: ChatCompletionRequest, *, n_body: int
) -> ChatTurn:
    """The turn of a chat request of `n_body` bytes. Raises RequestError, naming the field."""
    tools = chat_tools(body)
    n_characters = _n_characters(body, body.messages, tools, n_body)

    def read() -> ChatTurn:
        return _turn(
            body,
            body.messages,
            tools,
            variables=template_variables(body),
            wanted=constraint_of(body),
            n_characters=n_characters,
        )

    size = n_characters + schema_length(body)
    return await large_bodies.run(read, size, inline_below=LONG_TEXT)


async def template_turn(
    large_bodies: LargeBodies, fields: TemplateFields, messages: Sequence[Message], *, n_body: int
) -> ChatTurn:
    """The turn of messages that are only rendered. Raises like `chat_turn`."""
    tools = shown_tools(fields.tools)
    n_characters = _n_characters(fields, messages, tools, n_body)

    def read() -> ChatTurn:
        variables = fields.chat_template_kwargs or {}
        return _turn(fields, messages, tools, variables=variables, n_characters=n_characters)

    return await large_bodies.run(read, n_characters, inline_below=LONG_TEXT)


def content_length(content: str | Sequence[ContentPart] | None) -> int:
    """About how much work it is, in characters."""
    if content is None or isinstance(content, str):
        return len(content or "")
    return sum(_PART_LENGTH + len(part.text or "") for part in content)


def _turn(
    fields: _Fields,
    messages: Sequence[Message],
    tools: ToolUse,
    *,
    variables: Mapping[str, Any],
    wanted: ConstraintSpec | None = None,
    n_characters: int,
) -> ChatTurn:
    _check_end(fields, messages)
    goes_on = bool(fields.continue_final_message)
    return ChatTurn(
        messages=template_messages(messages),
        n_characters=n_characters,
        tools=tools,
        wanted=wanted,
        documents=fields.documents or (),
        variables=variables,
        add_generation_prompt=not goes_on and fields.add_generation_prompt is not False,
        continue_final_message=goes_on,
    )


def _check_end(fields: _Fields, messages: Sequence[Message]) -> None:
    if not fields.continue_final_message:
        return
    if fields.add_generation_prompt:
        raise RequestError(
            "continue_final_message continues the last message, add_generation_prompt begins a new "
            "one: send one of them",
            param="add_generation_prompt",
        )
    if messages[-1].role != "assistant":
        raise RequestError(
            "continue_final_message needs a last message of role assistant",
            param="continue_final_message",
        )


def _n_characters(fields: _Fields, messages: Sequence[Message], tools: ToolUse, n_body: int) -> int:
    """About how much there is to render; with tools or documents the whole body, and long."""
    if tools.shown or fields.documents:
        return max(LONG_TEXT, n_body)
    n_characters = 0
    for message in messages:
        n_characters += _PART_LENGTH + content_length(message.content)
        n_characters += len(message.reasoning_content or message.reasoning or "")
        for call in message.tool_calls or ():
            n_characters += _PART_LENGTH + len(call.function.arguments)
    return n_characters + _PART_LENGTH * len(fields.chat_template_kwargs or ())
