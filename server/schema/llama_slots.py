"""The wire of llama-server's slots and adapters."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, RootModel

from .parts import RequestModel, ResponseModel

MAX_ADAPTERS = 256


class SlotFile(RequestModel):
    """Where a slot is saved."""

    filename: str | None = Field(
        default=None, description="A name without a directory; not for `erase`."
    )


class SaveTimings(ResponseModel):
    """In milliseconds."""

    save_ms: float


class RestoreTimings(ResponseModel):
    """In milliseconds."""

    restore_ms: float


class SlotSaved(ResponseModel):
    """What was written."""

    id_slot: Literal[0]
    filename: str
    n_saved: int = Field(description="Tokens.")
    n_written: int = Field(description="Bytes.")
    timings: SaveTimings


class SlotRestored(ResponseModel):
    """What was read."""

    id_slot: Literal[0]
    filename: str
    n_restored: int = Field(description="Tokens.")
    n_read: int = Field(description="Bytes.")
    timings: RestoreTimings


class SlotErased(ResponseModel):
    """What was forgotten."""

    id_slot: Literal[0]
    n_erased: int = Field(description="Tokens.")


class AdapterScale(RequestModel):
    """How strong an adapter is."""

    id: int
    scale: float


class AdapterScales(RootModel[Annotated[list[AdapterScale], Field(max_length=MAX_ADAPTERS)]]):
    """Of all adapters."""


class AdaptersSet(ResponseModel):
    """There is none, so nothing was to do."""

    success: Literal[True]


class LlamaErrorDetail(BaseModel):
    """What went wrong, in llama-server's words."""

    model_config = ConfigDict(extra="forbid")

    code: int = Field(description="The status.")
    message: str
    type: str = Field(description="The word to switch on.")
    param: str | None = Field(description="The field at fault.")


class LlamaError(BaseModel):
    """Every error of the routes that are llama-server's own."""

    model_config = ConfigDict(extra="forbid")

    error: LlamaErrorDetail
