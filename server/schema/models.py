"""The wire of GET /v1/models and of the health routes."""

from typing import Literal

from .common import ResponseModel


class ModelMeta(ResponseModel):
    """Sizes of the model."""

    architecture: str
    n_params: int
    n_vocab: int
    n_ctx_train: int


class ModelCard(ResponseModel):
    """The served model. `max_model_len` is the context that this server runs it with."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    max_model_len: int
    meta: ModelMeta


class ModelList(ResponseModel):
    """The model of this server, once under each of its names."""

    object: Literal["list"]
    data: list[ModelCard]


class Health(ResponseModel):
    """The server answers, or is ready for work."""

    status: Literal["ok"]
