"""What tools gave back, in Anthropic's blocks, as the template's messages.

Owns what the model reads of each kind of part: of a reference to a tool, the tool's description; of
an image or a document, that there was one. Knows no other blocks.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine import Tool, template_tools

from ...errors import RequestError
from ...request.text import check_text
from ...request.unknown_fields import Warnings, warning
from ...schema.anthropic import Block, ResultBlock

_UNSEEN = ("image", "document")


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """The results of one conversation, and what is known of them."""

    tools: Mapping[str, Tool]
    """Those of the request, by their names."""
    strict: bool
    names: dict[str, str] = field(default_factory=dict)
    """Of the calls so far, by their ids."""
    warnings: Warnings = field(default_factory=list)

    def turn(self, block: Block, path: str) -> dict[str, Any]:
        """The message of a result. Raises RequestError, naming the part at fault."""
        id_ = text_of(block, "tool_use_id", path)
        if id_ not in self.names:
            raise RequestError(
                f"{path}.tool_use_id is not the id of a tool_use block before it",
                param=f"{path}.tool_use_id",
            )
        content = block.content or ""
        if not isinstance(content, str):
            content = "\n".join(
                self._text(part, f"{path}.content[{k}]") for k, part in enumerate(content)
            )
        check_text(content, param=f"{path}.content")
        if block.is_error:
            content = f"Error: {content}"
        return {"role": "tool", "tool_call_id": id_, "name": self.names[id_], "content": content}

    def _text(self, part: ResultBlock, path: str) -> str:
        if part.type == "text":
            return text_of(part, "text", path)
        if part.type == "tool_reference":
            return self._description(part, path)
        if part.type in _UNSEEN:
            message = f"the model reads text only; it was told that there is an {part.type} here"
            self.warnings.append(warning(path, message, strict=self.strict))
            return f"[{part.type}: this model can only read text]"
        raise RequestError(
            f"{path} must be of type text, tool_reference, {' or '.join(_UNSEEN)}", param=path
        )

    def _description(self, part: ResultBlock, path: str) -> str:
        name = text_of(part, "tool_name", path)
        if name not in self.tools:
            raise RequestError(
                f"{path}.tool_name is not among the tools: send the tool with defer_loading",
                param=f"{path}.tool_name",
            )
        (tool,) = template_tools([self.tools[name]])
        return json.dumps(tool["function"], ensure_ascii=False)


def referenced(messages: Sequence[Any]) -> set[str]:
    """The names of all tools that results refer to."""
    blocks = (each for message in messages for each in _listed(message.content))
    parts = (part for block in blocks for part in _listed(block.content))
    return {part.tool_name for part in parts if part.type == "tool_reference"}


def text_of(block: Block | ResultBlock, name: str, path: str) -> str:
    """The value of a key that must be there. Raises RequestError."""
    text: str | None = getattr(block, name)
    if text is None:
        raise RequestError(f"{path}.{name} is missing", param=f"{path}.{name}")
    check_text(text, param=f"{path}.{name}")
    return text


def _listed(content: Any) -> Sequence[Any]:
    return content if isinstance(content, list) else ()
