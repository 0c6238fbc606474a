"""From the body of a generation route to what the engine does and what the answer looks like.

Owns the types between a wire and the routes that begin its streams: its own, and those that branch.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..answer.shape import GeneratedAnswer
from ..answer.sse import SSE, Framing
from ..lease.waiter import Waiter
from ..schema.common import GenerationRequest
from ..service import Service
from ..stream.jobs import CompletionJob


class Generation(NamedTuple):
    """One request, ready to be queued."""

    jobs: Sequence[CompletionJob]
    answer: GeneratedAnswer
    service: Service
    """Of the model that it is for."""


@dataclass(frozen=True, slots=True)
class Wire:
    """One family of bodies and answers."""

    name: str
    body: type[GenerationRequest]
    generation: Callable[[Service, Any, Waiter], Awaitable[Generation]]
    """Takes a body of that type."""
    has_prompt: bool
    """Whether `prompt` of a body may be token ids."""
    framing: Framing = SSE
