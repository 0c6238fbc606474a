"""The wire of GET /v1/models, of TabbyAPI's GET /v1/model, and of the health routes."""

from typing import Literal

from pydantic import Field

from .common import ResponseModel


class ModelMeta(ResponseModel):
    """Sizes of the model."""

    architecture: str
    n_params: int
    n_vocab: int
    n_ctx_train: int
    n_ctx: int = Field(description="The context that this server runs it with.")
    n_embd: int = Field(description="The width of its layers.")
    size: int = Field(description="Bytes of the weights in memory.")


class ModelStatus(ResponseModel):
    """Where its weights are."""

    value: Literal["loaded", "loading", "unloaded"]


class ModelCard(ResponseModel):
    """A served model. `max_model_len` is the context that this server runs it with."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    max_model_len: int
    aliases: list[str] = Field(description="All its names, this one among them.")
    tags: list[str] = Field(description="None.")
    meta: ModelMeta
    status: ModelStatus | None = Field(
        default=None, description="Only of a server with several models, as llama-server has it."
    )


class ModelParameters(ResponseModel):
    """How the model runs, in TabbyAPI's names."""

    max_seq_len: int = Field(description="The context in tokens.")
    cache_size: int = Field(description="Tokens whose keys and values are held at once.")
    cache_mode: str = Field(description="The format of keys and values.")
    max_batch_size: int = Field(description="1: one sequence at a time.")
    prompt_template_content: str | None = Field(description="The chat template; null: none.")
    use_vision: bool


class CurrentModel(ModelCard):
    """The served model, as TabbyAPI answers."""

    parameters: ModelParameters


class ModelList(ResponseModel):
    """The models of this server, each once under each of its names."""

    object: Literal["list"]
    data: list[ModelCard]


class Health(ResponseModel):
    """The server answers, or is ready for work."""

    status: Literal["ok"]


class Readiness(Health):
    """The server is ready for work."""

    state: Literal["asleep"] | None = Field(
        default=None,
        description="Only there while no weights are in memory: the next request loads them first.",
    )
