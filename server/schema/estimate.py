"""The wire of POST /v1/estimate."""

from typing import Literal

from pydantic import Field

from .common import RequestWarning
from .metadata import CacheExplanation
from .parts import ResponseModel


class QueueEstimate(ResponseModel):
    """The wait for the engine, if the request came now."""

    position: int = Field(description="Requests that would be served before it.")
    wait_ms: float | None = Field(
        description="What they will probably take: as many times the mean of the last requests. "
        "null if nothing is known."
    )


class Estimate(ResponseModel):
    """What a request would cost. Times are null until the server has served requests."""

    object: Literal["estimate"]
    model: str
    prompt_tokens: int = Field(description="Of all prompts; several choices count a prompt once.")
    cached_tokens: int = Field(description="Those that would not be computed.")
    tokens_to_compute: int
    max_tokens: int = Field(description="The most tokens that may come, of all choices together.")
    queue: QueueEstimate
    time_to_first_token_ms: float | None = Field(
        description="In the engine, behind `queue.wait_ms`."
    )
    time_per_token_ms: float | None = Field(description="Of those behind the first.")
    cache: CacheExplanation = Field(
        description='Of the first prompt: what `include: ["cache"]` would say of it.'
    )
    warnings: list[RequestWarning] | None = Field(
        default=None, description="Fields of the request that would have no effect."
    )
