"""An item of a response's output, as JSON: begun, or as far as it came.

Owns the keys of each kind of item. Items and events are made of the same parts.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .custom_input import CustomInput


class NamedCall(NamedTuple):
    """What a call of a tool is to the client: the model knows it by another name."""

    kind: str
    """Of the item: function_call, custom_tool_call or local_shell_call."""
    name: str
    namespace: str | None = None


@dataclass(slots=True)
class OpenItem:
    """An item, as far as it is."""

    index: int
    kind: str
    id: str
    call: NamedCall | None = None
    call_id: str = ""
    custom: CustomInput | None = None
    """Reads what a custom tool is called with."""
    texts: list[str] = field(default_factory=list)
    logprobs: list[dict[str, Any]] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def add(self, text: str, logprobs: list[dict[str, Any]]) -> str:
        """Returns what it adds to the text."""
        added = text if self.custom is None else self.custom.add(text)
        if added:
            self.texts.append(added)
        self.logprobs += logprobs
        return added


def output_text(text: str, logprobs: list[dict[str, Any]]) -> dict[str, Any]:
    """The one part of a message."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}


def reasoning_part(text: str, *, in_summary: bool) -> dict[str, Any]:
    """The one part of reasoning."""
    return {"type": "summary_text" if in_summary else "reasoning_text", "text": text}


def begun_item(item: OpenItem, *, in_summary: bool) -> dict[str, Any]:
    """An item before its text."""
    empty = OpenItem(item.index, item.kind, item.id, item.call, item.call_id)
    said = shown_item(empty, "in_progress", in_summary=in_summary)
    for parts in ("content", "summary"):
        if parts in said:
            said[parts] = []
    return said


def shown_item(item: OpenItem, status: str, *, in_summary: bool) -> dict[str, Any]:
    """The item as far as it came. `in_summary`: where the text of reasoning stands."""
    said: dict[str, Any] = {"id": item.id, "type": item.kind, "status": status}
    if item.kind == "message":
        parts = [output_text(item.text, item.logprobs)]
        return {**said, "role": "assistant", "content": parts}
    if item.kind == "reasoning":
        parts = [reasoning_part(item.text, in_summary=in_summary)]
        said |= {
            "summary": parts if in_summary else [],
            "content": [] if in_summary else parts,
            "encrypted_content": None,
        }
    else:
        said |= _call(item)
    if item.logprobs:
        said["logprobs"] = item.logprobs
    return said


def _call(item: OpenItem) -> dict[str, Any]:
    assert item.call is not None, "a call has a name first"
    said: dict[str, Any] = {"call_id": item.call_id}
    if item.kind == "local_shell_call":
        return {**said, "action": _action(item.text)}
    said["name"] = item.call.name
    if item.call.namespace is not None:
        said["namespace"] = item.call.namespace
    return {**said, "arguments" if item.kind == "function_call" else "input": item.text}


def _action(arguments: str) -> dict[str, Any]:
    """What a command's call says; no command of one that was cut off."""
    try:
        value = json.loads(arguments)
    except ValueError:
        value = None
    said: Mapping[str, Any] = value if isinstance(value, dict) else {}
    command, limit, directory = said.get("command"), said.get("timeout_ms"), said.get("workdir")
    if isinstance(command, str):
        command = ["bash", "-lc", command]
    return {
        "type": "exec",
        "command": list(map(str, command)) if isinstance(command, list) else [],
        "env": {},
        "timeout_ms": limit if isinstance(limit, int) else None,
        "working_directory": directory if isinstance(directory, str) else None,
        "user": None,
    }
