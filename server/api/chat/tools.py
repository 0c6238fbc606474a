"""The tools of OpenAI's chat wire.

Owns that `functions` and `function_call` are the older names of `tools` and `tool_choice`.
"""

from collections.abc import Sequence

from engine import Tool

from ...chat.tools import OfferedTool, ToolChoice, ToolUse, tool_use
from ...errors import RequestError
from ...schema.chat import ChatCompletionRequest
from ...schema.tools import AllowedToolsChoice, Function, FunctionName, NamedTool
from ...schema.tools import Tool as WireTool


def chat_tools(body: ChatCompletionRequest) -> ToolUse:
    """What the body says of tools. Raises RequestError, naming the field."""
    if not body.has_functions:
        return tool_use(
            _of_tools(body.tools), _choice(body), parallel=_is_parallel(body), param="tools"
        )
    if body.tools or body.tool_choice is not None:
        raise RequestError(
            "functions and function_call are older forms of tools and tool_choice: send one kind",
            param="functions" if body.functions else "function_call",
        )
    functions = [_offered(f"functions[{i}]", one) for i, one in enumerate(body.functions or ())]
    return tool_use(functions, _legacy_choice(body), parallel=False, param="functions")


def shown_tools(tools: Sequence[WireTool] | None) -> ToolUse:
    """Tools of a prompt that is only rendered."""
    return tool_use(_of_tools(tools), ToolChoice("tool_choice"), param="tools")


def _of_tools(tools: Sequence[WireTool] | None) -> list[OfferedTool]:
    return [_offered(f"tools[{i}].function", one.function) for i, one in enumerate(tools or ())]


def _offered(path: str, function: Function) -> OfferedTool:
    tool = Tool(function.name, function.parameters, function.description, f"{path}.parameters")
    return OfferedTool(tool, path, strict=bool(function.strict))


def _choice(body: ChatCompletionRequest) -> ToolChoice | None:
    wire = body.tool_choice
    if wire == "none":
        return None
    if wire is None or isinstance(wire, str):
        return ToolChoice("tool_choice", required=wire == "required")
    if isinstance(wire, NamedTool):
        return ToolChoice("tool_choice", required=True, names=(wire.function.name,))
    assert isinstance(wire, AllowedToolsChoice)
    allowed = wire.allowed_tools
    return ToolChoice(
        "tool_choice.allowed_tools.tools",
        required=allowed.mode == "required",
        names=tuple(tool.function.name for tool in allowed.tools),
    )


def _is_parallel(body: ChatCompletionRequest) -> bool:
    if body.parallel_tool_calls is not None:
        return body.parallel_tool_calls
    # Clients that name a tool read one call.
    return not isinstance(body.tool_choice, NamedTool)


def _legacy_choice(body: ChatCompletionRequest) -> ToolChoice | None:
    wire = body.function_call
    if wire == "none":
        return None
    if isinstance(wire, FunctionName):
        return ToolChoice("function_call", required=True, names=(wire.name,))
    return ToolChoice("function_call")
