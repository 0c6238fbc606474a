"""The wire of tools: what a request offers, what it demands, and calls, in history and answers."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from pydantic import Field

from .common import JsonObject, RequestModel, ResponseModel, one_message

MAX_TOOLS = 128

ToolName = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")]


class Function(RequestModel):
    """A function that the model may call."""

    name: ToolName
    description: str | None = None
    parameters: JsonObject | None = Field(
        default=None, description="JSON schema of the arguments, an object. Absent: no arguments."
    )
    strict: bool | None = Field(
        default=None,
        description="true: the arguments of a call follow `parameters` in every case. They do so "
        "anyway where `tool_choice` demands a call.",
    )


class Tool(RequestModel):
    """A function, as all tools are."""

    type: Literal["function"]
    function: Function


class FunctionName(RequestModel):
    """One of the functions by its name."""

    name: ToolName


class NamedTool(RequestModel):
    """One of the tools by its name."""

    type: Literal["function"]
    function: FunctionName


class AllowedTools(RequestModel):
    """Some of the tools, to be called or not (auto) or in any case (required)."""

    mode: Literal["auto", "required"]
    tools: list[NamedTool] = Field(min_length=1, max_length=MAX_TOOLS)


class AllowedToolsChoice(RequestModel):
    """All tools are shown to the model, and only these may be called."""

    type: Literal["allowed_tools"]
    allowed_tools: AllowedTools


Tools = Annotated[list[Tool], Field(max_length=MAX_TOOLS)]
Functions = Annotated[list[Function], Field(max_length=MAX_TOOLS)]
ToolChoice = Annotated[
    Literal["none", "auto", "required"] | NamedTool | AllowedToolsChoice,
    one_message(
        'must be "none", "auto", "required", or an object that names a function or allowed tools'
    ),
]
FunctionChoice = Annotated[
    Literal["none", "auto"] | FunctionName,
    one_message('must be "none", "auto", or an object with the name of a function'),
]


class CalledFunction(RequestModel):
    """A call that the model made earlier; `arguments` is JSON text."""

    name: str
    arguments: str


class ToolCall(RequestModel):
    """A tool call of an earlier reply."""

    id: str
    type: Literal["function"]
    function: CalledFunction


class FunctionCallAnswer(ResponseModel):
    """A call; `arguments` is JSON text, cut off where the reply is."""

    name: str
    arguments: str


class ToolCallAnswer(ResponseModel):
    """A tool that the reply calls. The result goes into a message of role tool with this `id`."""

    id: str
    type: Literal["function"]
    function: FunctionCallAnswer


class FunctionCallDelta(ResponseModel):
    """The name once, then the arguments in pieces."""

    name: str | None = None
    arguments: str


class ToolCallDelta(ResponseModel):
    """The next piece of a call: `id`, `type` and the name in its first one only."""

    index: int
    id: str | None = None
    type: Literal["function"] | None = None
    function: FunctionCallDelta


def choice_parts(
    choice: str | NamedTool | AllowedToolsChoice | None,
) -> Iterator[tuple[str, RequestModel]]:
    """The objects that `tool_choice` is made of, each with its path."""
    if choice is None or isinstance(choice, str):
        return
    yield "tool_choice", choice
    if isinstance(choice, NamedTool):
        yield "tool_choice.function", choice.function
        return
    allowed = "tool_choice.allowed_tools"
    yield allowed, choice.allowed_tools
    for i, tool in enumerate(choice.allowed_tools.tools):
        yield f"{allowed}.tools[{i}]", tool
        yield f"{allowed}.tools[{i}].function", tool.function


def tool_parts(tools: Sequence[Tool]) -> Iterator[tuple[str, RequestModel]]:
    """The objects that tools are made of, each with its path."""
    for i, tool in enumerate(tools):
        yield f"tools[{i}]", tool
        yield f"tools[{i}].function", tool.function
