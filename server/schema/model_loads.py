"""The wire of loading and unloading a model by hand, in llama-server's form."""

from typing import Literal

from pydantic import Field

from .parts import RequestModel, ResponseModel


class ModelOfLoad(RequestModel):
    """Which model."""

    model: str = Field(description="A name that GET /v1/models lists.")


class LoadDone(ResponseModel):
    """It is in memory, or out of it."""

    success: Literal[True]
