"""The wire of a conversation: the messages of a chat request."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema

from .common import JsonObject, RequestModel, one_message
from .tools import CalledFunction, ToolCall

MAX_MESSAGES = 16_384
MAX_PARTS = 4096
MAX_CALLS = 1024
MAX_DOCUMENTS = 1024

Documents = Annotated[list[JsonObject], Field(max_length=MAX_DOCUMENTS, fail_fast=True)]

_PART_KINDS: dict[str, Any] = {"type": "string", "enum": ["text", "refusal"]}


class ContentPart(RequestModel):
    """A part of a message; the texts of all parts are joined with newlines.

    A refusal is a part of an assistant's message. Images, audio and files are not supported.
    """

    type: Annotated[str, WithJsonSchema(_PART_KINDS)]
    text: str | None = None
    refusal: str | None = None


Content = Annotated[
    str | Annotated[list[ContentPart], Field(min_length=1, max_length=MAX_PARTS, fail_fast=True)],
    one_message(
        f"must be a string or a list of at most {MAX_PARTS} parts, each an object with a type"
    ),
]


class Message(RequestModel):
    """One turn. developer is another name for system, function an older one for tool."""

    role: Literal["developer", "system", "user", "assistant", "tool", "function"]
    content: Content | None = Field(
        default=None,
        description="null in a message of the assistant that calls tools or holds only reasoning.",
    )
    name: str | None = Field(
        default=None, description="Who speaks; in a message of role function: what was called."
    )
    tool_calls: Annotated[list[ToolCall], Field(max_length=MAX_CALLS, fail_fast=True)] | None = (
        Field(default=None, description="What the assistant called in this turn.")
    )
    tool_call_id: str | None = Field(
        default=None, description="Needed in a message of role tool: the call that it answers."
    )
    function_call: CalledFunction | None = Field(
        default=None, description="The older form of `tool_calls`."
    )
    refusal: str | None = None
    reasoning_content: str | None = Field(
        default=None, description="Extension. What the assistant thought before this turn."
    )
    reasoning: str | None = Field(
        default=None, description="Extension. Another name of `reasoning_content`."
    )


Messages = Annotated[list[Message], Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True)]


def message_parts(messages: Sequence[Message]) -> Iterator[tuple[str, RequestModel]]:
    """The objects that messages are made of, each with its path."""
    for i, message in enumerate(messages):
        yield f"messages[{i}]", message
        for j, call in enumerate(message.tool_calls or ()):
            yield f"messages[{i}].tool_calls[{j}]", call
            yield f"messages[{i}].tool_calls[{j}].function", call.function
        if message.function_call is not None:
            yield f"messages[{i}].function_call", message.function_call
        if isinstance(message.content, list):
            for j, part in enumerate(message.content):
                yield f"messages[{i}].content[{j}]", part
