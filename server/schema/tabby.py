"""The wire of TabbyAPI's lists."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from .parts import RequestModel, ResponseModel


class AdapterList(ResponseModel):
    """LoRA adapters: none."""

    object: Literal["list"]
    data: list[Any]


class OtherModels(ResponseModel):
    """Models for drafts or embeddings that could be loaded: none."""

    object: Literal["list"]
    data: list[Any]


class TemplateNames(ResponseModel):
    """The model's chat template, if it has one."""

    object: Literal["list"]
    data: list[str]


class Override(ResponseModel):
    """What holds for a request that says nothing else."""

    override: Any
    force: Literal[False]


class Overrides(ResponseModel):
    """The settings that the authors of the model recommend, where they differ from none."""

    selected_preset: None
    overrides: dict[str, Override] = Field(description="By the engine's names.")
    presets: list[str] = Field(description="None.")


class Permission(ResponseModel):
    """What a key may do."""

    permission: Literal["api", "admin"]


class LoadModel(RequestModel):
    """Which model to load. What else TabbyAPI has here was said when this server was started."""

    model_name: str | None = Field(default=None, description="A name that GET /v1/models lists.")
    name: str | None = Field(default=None, description="An older name of `model_name`.")


class TabbyError(BaseModel):
    """Every error of these routes."""

    model_config = ConfigDict(extra="forbid")

    detail: str
