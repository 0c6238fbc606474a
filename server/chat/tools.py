"""The tools of a turn: what the model is shown, what it may call, what it must.

Owns that names are unique, and that whatever is chosen is among the tools. Knows no wire, and no
format that a model writes its calls in.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from engine import Tool

from ..errors import RequestError


class OfferedTool(NamedTuple):
    """A tool of a request."""

    tool: Tool
    path: str
    """Where the request has it, such as tools[2].function."""
    strict: bool
    """Whether the arguments of a call must follow the schema in every case."""


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Which of the tools may be called."""

    param: str
    """The field that says it."""
    required: bool = False
    """Whether the reply must be a call."""
    names: tuple[str, ...] | None = None
    """None: all."""


@dataclass(frozen=True, slots=True)
class ToolUse:
    """The tools of a turn."""

    shown: tuple[Tool, ...] = ()
    """The tools that the prompt describes."""
    callable: tuple[Tool, ...] = ()
    """Those that the model may call."""
    required: bool = False
    parallel: bool = True
    """Whether there may be several calls."""
    strict: bool = False
    """Whether the arguments of one that may be called must follow its schema in every case."""
    param: str = "tools"
    """The field that has them."""


def tool_use(
    offered: Sequence[OfferedTool], choice: ToolChoice | None, *, parallel: bool = True, param: str
) -> ToolUse:
    """`choice`: None means that no tool is shown or called.

    Raises RequestError for a name that is given twice, or that is not among the tools.
    """
    _check_unique(offered)
    if choice is None:
        return ToolUse(param=param)
    chosen = _chosen(offered, choice)
    return ToolUse(
        shown=tuple(tool for tool, _, _ in offered),
        callable=tuple(tool for tool, _, _ in chosen),
        required=choice.required,
        parallel=parallel,
        strict=any(strict for _, _, strict in chosen),
        param=param,
    )


def _chosen(offered: Sequence[OfferedTool], choice: ToolChoice) -> Sequence[OfferedTool]:
    if choice.names is None:
        if choice.required and not offered:
            raise RequestError(
                f"{choice.param} requires a call, but the request has no tools", param=choice.param
            )
        return offered
    known = {tool.name for tool, _, _ in offered}
    if not known.issuperset(choice.names):
        raise RequestError(
            f"{choice.param} names a function that is not among the tools", param=choice.param
        )
    return [one for one in offered if one.tool.name in choice.names]


def _check_unique(offered: Sequence[OfferedTool]) -> None:
    seen: set[str] = set()
    for tool, path, _ in offered:
        if tool.name in seen:
            raise RequestError("two tools have the same name", param=f"{path}.name")
        seen.add(tool.name)
