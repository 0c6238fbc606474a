"""What a request says about tools, in one form: what is shown, what may be called, what must be.

Owns that `functions` and `function_call` are the older names of `tools` and `tool_choice`. Knows no
format that a model writes its calls in.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from engine import Tool

from ..errors import RequestError
from ..schema.chat import ChatCompletionRequest
from ..schema.tools import AllowedToolsChoice, Function, FunctionName, NamedTool

_Named = tuple[str, Function]  # a function, and where the request has it


@dataclass(frozen=True, slots=True)
class ToolUse:
    """The tools of a request."""

    shown: tuple[Tool, ...] = ()
    """What the model is told of."""
    callable: tuple[Tool, ...] = ()
    """Those of them that it may call."""
    required: bool = False
    parallel: bool = True
    strict: bool = False
    """Whether the arguments of one that may be called must follow its schema in every case."""
    legacy: bool = False
    """Whether a call is answered as `function_call`."""

    @property
    def template_tools(self) -> list[dict[str, Any]]:
        """What is shown, as chat templates take it."""
        return [{"type": "function", "function": _described(tool)} for tool in self.shown]


@dataclass(frozen=True, slots=True)
class _Choice:
    """What `tool_choice` says; `param` is the field that says it."""

    param: str
    required: bool = False
    names: tuple[str, ...] | None = None
    """None: all."""
    parallel: bool = True
    """Whether there may be several calls where the request does not say."""


def tool_use(body: ChatCompletionRequest) -> ToolUse:
    """Raises RequestError for a name that is given twice, or that is not among the tools."""
    legacy = bool(body.functions) or body.function_call is not None
    if legacy and (body.tools or body.tool_choice is not None):
        raise RequestError(
            "functions and function_call are older forms of tools and tool_choice: send one kind",
            param="functions" if body.functions else "function_call",
        )
    choice = _legacy_choice(body) if legacy else _choice(body)
    functions = list(_functions(body))
    _check_unique(functions)
    if choice is None:
        return ToolUse(legacy=legacy)
    chosen = _chosen(functions, choice)
    asked = body.parallel_tool_calls
    return ToolUse(
        shown=tuple(_tool(path, function) for path, function in functions),
        callable=tuple(_tool(path, function) for path, function in chosen),
        required=choice.required,
        parallel=not legacy and (choice.parallel if asked is None else asked),
        strict=any(function.strict for _, function in chosen),
        legacy=legacy,
    )


def _functions(body: ChatCompletionRequest) -> Iterator[_Named]:
    for i, function in enumerate(body.functions or ()):
        yield f"functions[{i}]", function
    for i, tool in enumerate(body.tools or ()):
        yield f"tools[{i}].function", tool.function


def _choice(body: ChatCompletionRequest) -> _Choice | None:
    """None: no tool may be called."""
    wire = body.tool_choice
    if wire == "none":
        return None
    if wire is None or isinstance(wire, str):
        return _Choice("tool_choice", required=wire == "required")
    if isinstance(wire, NamedTool):
        # Clients that name a tool read one call.
        return _Choice("tool_choice", True, names=(wire.function.name,), parallel=False)
    assert isinstance(wire, AllowedToolsChoice)
    allowed = wire.allowed_tools
    return _Choice(
        "tool_choice.allowed_tools.tools",
        required=allowed.mode == "required",
        names=tuple(tool.function.name for tool in allowed.tools),
    )


def _legacy_choice(body: ChatCompletionRequest) -> _Choice | None:
    wire = body.function_call
    if wire == "none":
        return None
    if isinstance(wire, FunctionName):
        return _Choice("function_call", required=True, names=(wire.name,))
    return _Choice("function_call")


def _chosen(functions: Sequence[_Named], choice: _Choice) -> Sequence[_Named]:
    if choice.names is None:
        if choice.required and not functions:
            raise RequestError("a call is required, and there are no tools", param=choice.param)
        return functions
    known = {function.name for _, function in functions}
    if not known.issuperset(choice.names):
        raise RequestError(
            f"{choice.param} names a function that is not among the tools", param=choice.param
        )
    return [named for named in functions if named[1].name in choice.names]


def _check_unique(functions: Sequence[_Named]) -> None:
    seen: set[str] = set()
    for path, function in functions:
        if function.name in seen:
            raise RequestError("two tools have the same name", param=f"{path}.name")
        seen.add(function.name)


def _tool(path: str, function: Function) -> Tool:
    return Tool(function.name, function.parameters, function.description, f"{path}.parameters")


def _described(tool: Tool) -> dict[str, Any]:
    about = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
    }
    return {name: value for name, value in about.items() if value is not None}
