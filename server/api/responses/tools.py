"""The tools of /v1/responses, as functions: a model knows no others.

Owns what each type of tool is to the model, and by which name it goes there. Those that OpenAI runs
are refused; web_search, which agents offer unasked, is left out with a warning.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from engine import Tool

from ...chat.tools import OfferedTool, ToolChoice, ToolUse, tool_use
from ...errors import RequestError
from ...request.unknown_fields import Warnings, warning
from ...schema.responses import PromptOfResponse
from ...schema.responses_tools import SERVED_TOOLS, ChosenTool, ResponsesTool, ToolFormat
from .output import NamedCall

LOCAL_SHELL = "local_shell"
_LEFT_OUT = ("web_search", "web_search_preview")
_KINDS = {"function": "function_call", "custom": "custom_tool_call"}
_SHELL = Tool(
    LOCAL_SHELL,
    {
        "type": "object",
        "properties": {
            "command": {
                "type": "array",
                "items": {"type": "string"},
                "description": "The program and its arguments.",
            },
            "workdir": {"type": "string", "description": "The directory to run it in."},
            "timeout_ms": {"type": "integer", "description": "The time it may take."},
        },
        "required": ["command"],
    },
    "Runs a command on the user's machine, and returns what it prints.",
)


class ReadTools(NamedTuple):
    """The tools of a request."""

    use: ToolUse
    calls: Mapping[str, NamedCall]
    """What a call is to the client, by the name that the model knows."""
    warnings: Warnings


class _Offer(NamedTuple):
    offered: OfferedTool
    call: NamedCall


def shown_name(name: str, namespace: str | None) -> str:
    """The name by which the model knows a tool."""
    return f"{namespace}__{name}" if namespace else name


def custom_arguments(text: str) -> dict[str, Any]:
    """The arguments of a custom tool's call."""
    return {"input": text}


def response_tools(body: PromptOfResponse, *, strict: bool) -> ReadTools:
    """What the body says of tools. Raises RequestError, naming the field."""
    warnings: Warnings = []
    offers: list[_Offer] = []
    for i, tool in enumerate(body.tools or ()):
        path = f"tools[{i}]"
        if tool.type.startswith(_LEFT_OUT):
            message = "this server runs no tools: the model was not offered this one"
            warnings.append(warning(path, message, strict=strict))
        else:
            offers += _offers(tool, path, None)
            warnings += [*_unenforced(tool, path, strict=strict)]
    choice = _choice(body, [offer.call for offer in offers])
    use = tool_use(
        [offer.offered for offer in offers], choice, parallel=_is_parallel(body), param="tools"
    )
    calls = {offer.offered.tool.name: offer.call for offer in offers}
    return ReadTools(use, calls, warnings)


def _offers(tool: ResponsesTool, path: str, namespace: str | None) -> Iterator[_Offer]:
    if tool.type not in SERVED_TOOLS or (namespace and tool.type not in _KINDS):
        raise RequestError(
            f"{path}.type: this server runs no tools; send one that the client runs, of type "
            f"{', '.join(_KINDS if namespace else SERVED_TOOLS)}",
            param=f"{path}.type",
        )
    if tool.type == LOCAL_SHELL:
        call = NamedCall("local_shell_call", LOCAL_SHELL)
        yield _Offer(OfferedTool(_SHELL, path, strict=False), call)
        return
    if tool.name is None:
        raise RequestError(f"{path}.name is missing", param=f"{path}.name")
    if tool.type == "namespace":
        for j, inner in enumerate(tool.tools or ()):
            yield from _offers(inner, f"{path}.tools[{j}]", tool.name)
        return
    name = shown_name(tool.name, namespace)
    call = NamedCall(_KINDS[tool.type], tool.name, namespace)
    if tool.type == "custom":
        yield _Offer(_custom(tool, name, path), call)
    else:
        one = Tool(name, tool.parameters, tool.description, f"{path}.parameters")
        yield _Offer(OfferedTool(one, path, strict=bool(tool.strict)), call)


def _custom(tool: ResponsesTool, name: str, path: str) -> OfferedTool:
    """A function with one argument, the text."""
    text: dict[str, Any] = {"type": "string"}
    description, is_enforced = tool.description or "", False
    form = tool.format
    if form is not None and form.type == "grammar":
        definition, is_enforced = _grammar(form, f"{path}.format")
        if is_enforced:
            text["pattern"] = f"^(?:{definition})$"
        else:
            description += f"\n\nThe input follows this grammar, in Lark:\n{definition}"
    parameters = {
        "type": "object",
        "properties": {"input": text},
        "required": ["input"],
        "additionalProperties": False,
    }
    one = Tool(name, parameters, description.strip() or None, f"{path}.format.definition")
    return OfferedTool(one, path, strict=is_enforced)


def _grammar(form: ToolFormat, path: str) -> tuple[str, bool]:
    """The definition, and whether it is a regex."""
    if form.definition is None:
        raise RequestError(f"{path}.definition is missing", param=f"{path}.definition")
    if form.syntax not in ("lark", "regex"):
        raise RequestError(f"{path}.syntax must be lark or regex", param=f"{path}.syntax")
    return form.definition, form.syntax == "regex"


def _unenforced(tool: ResponsesTool, path: str, *, strict: bool) -> Iterator[dict[str, str]]:
    """A warning for a grammar that the model is only shown."""
    form = tool.format
    if form is not None and form.type == "grammar" and form.syntax == "lark":
        message = "the model is shown the grammar; inside of a call it is not enforced"
        yield warning(f"{path}.format", message, strict=strict)
    for j, inner in enumerate(tool.tools or ()):
        yield from _unenforced(inner, f"{path}.tools[{j}]", strict=strict)


def _choice(body: PromptOfResponse, calls: Sequence[NamedCall]) -> ToolChoice | None:
    wire = body.tool_choice
    if wire == "none":
        return None
    if wire is None or isinstance(wire, str):
        return ToolChoice("tool_choice", required=wire == "required")
    if wire.type != "allowed_tools":
        return ToolChoice(
            "tool_choice", required=True, names=(_chosen(wire, "tool_choice", calls),)
        )
    if wire.mode not in ("auto", "required"):
        raise RequestError("tool_choice.mode must be auto or required", param="tool_choice.mode")
    names = tuple(
        _chosen(tool, f"tool_choice.tools[{j}]", calls) for j, tool in enumerate(wire.tools or ())
    )
    if not names:
        raise RequestError("tool_choice.tools is empty", param="tool_choice.tools")
    return ToolChoice("tool_choice.tools", required=wire.mode == "required", names=names)


def _chosen(wire: ChosenTool, path: str, calls: Sequence[NamedCall]) -> str:
    """The name that the model knows of the tool that is chosen."""
    if wire.type not in (*_KINDS, LOCAL_SHELL):
        raise RequestError(
            f"{path}.type must be {', '.join((*_KINDS, LOCAL_SHELL))}: this server runs no tools",
            param=f"{path}.type",
        )
    name = LOCAL_SHELL if wire.type == LOCAL_SHELL else wire.name
    if name is None:
        raise RequestError(f"{path}.name is missing", param=f"{path}.name")
    for call in calls:
        if call.name == name and wire.namespace in (None, call.namespace):
            return shown_name(call.name, call.namespace)
    raise RequestError(f"{path} names a tool that is not among the tools", param=path)


def _is_parallel(body: PromptOfResponse) -> bool:
    if body.parallel_tool_calls is not None:
        return body.parallel_tool_calls
    # Clients that name a tool read one call.
    wire = body.tool_choice
    return wire is None or isinstance(wire, str) or wire.type == "allowed_tools"
