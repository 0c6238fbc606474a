"""What a request says of the next reply of a conversation, in the engine's words.

Every API that serves conversations makes a ChatTurn of its own wire; from there on there is one way
to a prompt and to what constrains the reply.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine import ConstraintSpec

from .tools import ToolUse


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatTurn:
    """One turn. Its texts can be encoded: none has a lone surrogate."""

    messages: Sequence[Mapping[str, Any]]
    """As Engine.encode_chat takes them."""
    n_characters: int
    """About how much there is to render, to decide where that is done."""
    tools: ToolUse = field(default_factory=ToolUse)
    wanted: ConstraintSpec | None = None
    """What the text of the reply must be, if the request says."""
    documents: Sequence[Mapping[str, Any]] = ()
    variables: Mapping[str, Any] = field(default_factory=dict)
    """Of the chat template."""
    add_generation_prompt: bool = True
    """Whether the prompt ends with the beginning of a reply."""
    continue_final_message: bool = False
    """Whether the prompt ends inside of the last message, which the reply continues."""
