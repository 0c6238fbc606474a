"""The wire of tools in /v1/responses: what a request offers, and what it demands."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from pydantic import Field

from .parts import JsonObject, RequestModel
from .sampling import setting
from .tools import MAX_TOOLS, ToolName

MAX_DEFINITION = 262_144

SERVED_TOOLS = ("function", "custom", "local_shell", "namespace")
"""Types of tools that the client runs."""


class ToolFormat(RequestModel):
    """The form of a custom tool's input."""

    type: str = Field(description="text, or grammar.")
    syntax: str | None = setting("Of type grammar: lark or regex.")
    definition: Annotated[str, Field(max_length=MAX_DEFINITION)] | None = setting(
        "Of type grammar. A regex is enforced; a grammar in Lark is shown to the model."
    )


class ResponsesTool(RequestModel):
    """A tool that the client runs. Those that OpenAI runs are refused by their type; web_search is
    left out, with a warning, where no call is demanded.
    """

    type: str = Field(description="function, custom, local_shell or namespace.")
    name: ToolName | None = setting("Of every type but local_shell.")
    description: str | None = None
    parameters: JsonObject | None = setting(
        "Of type function: JSON schema of the arguments. Absent: no arguments."
    )
    strict: bool | None = setting(
        "Of type function. true: the arguments follow the schema in every case."
    )
    format: ToolFormat | None = setting("Of type custom. null: any text.")
    tools: Annotated[list["ResponsesTool"], Field(max_length=MAX_TOOLS)] | None = setting(
        "Of type namespace."
    )
    defer_loading: bool | None = setting("Accepted and not used: all tools are shown.")
    output_schema: JsonObject | None = setting("Accepted and not used.")
    allowed_callers: Any = setting("Accepted and not used.")


class ChosenTool(RequestModel):
    """Which tools may be called, and whether one must be."""

    type: str = Field(description="function, custom, local_shell or allowed_tools.")
    name: ToolName | None = setting("Of type function and custom.")
    namespace: str | None = setting("The namespace of the tool, if it has one.")
    mode: str | None = setting("Of type allowed_tools: auto or required.")
    tools: Annotated[list["ChosenTool"], Field(max_length=MAX_TOOLS)] | None = setting(
        "Of type allowed_tools: those that may be called."
    )


def choice_parts(path: str, choice: ChosenTool) -> Iterator[tuple[str, RequestModel]]:
    """The objects that a choice of tools is made of, each with its path."""
    yield path, choice
    for i, tool in enumerate(choice.tools or ()):
        yield from choice_parts(f"{path}.tools[{i}]", tool)


def tool_parts(path: str, tools: Sequence[ResponsesTool]) -> Iterator[tuple[str, RequestModel]]:
    """The objects that tools are made of, each with its path; none of a tool that is not served."""
    for i, tool in enumerate(tools):
        if tool.type in SERVED_TOOLS:
            yield f"{path}[{i}]", tool
            if tool.format is not None:
                yield f"{path}[{i}].format", tool.format
            yield from tool_parts(f"{path}[{i}].tools", tool.tools or ())
