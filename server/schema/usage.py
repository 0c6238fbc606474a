"""The wire of `usage`."""

from pydantic import BaseModel, ConfigDict, Field


class PromptTokensDetails(BaseModel):
    """Of the prompt tokens, those whose keys and values were still in the cache."""

    model_config = ConfigDict(extra="forbid")

    cached_tokens: int


class CompletionTokensDetails(BaseModel):
    """Parts of the completion tokens, and what became of the text in `prediction`."""

    model_config = ConfigDict(extra="forbid")

    reasoning_tokens: int
    accepted_prediction_tokens: int
    rejected_prediction_tokens: int = Field(
        description="Predicted tokens that were tried and were wrong. They are no part of "
        "completion_tokens."
    )


class Usage(BaseModel):
    """Token counts; a sampled stop token counts as a completion token."""

    model_config = ConfigDict(extra="forbid")

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails
