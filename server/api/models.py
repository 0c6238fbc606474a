"""GET /v1/models, /v1/models/{id} and TabbyAPI's /v1/model: what this server serves."""

from typing import Literal

from fastapi import APIRouter

from ..lease.served_model import State
from ..schema.errors import error_responses
from ..schema.models import (
    CurrentModel,
    ModelCard,
    ModelList,
    ModelMeta,
    ModelParameters,
    ModelStatus,
)
from ..service import Service

_STATUS: dict[State, Literal["loaded", "loading", "unloaded"]] = {
    "loaded": "loaded", "loading": "loading", "asleep": "unloaded",
}  # fmt: skip


def model_routes(service: Service) -> APIRouter:
    """The routes."""
    router = APIRouter(tags=["models"])

    @router.get(
        "/v1/models", response_model_exclude_unset=True, responses=error_responses(401, 421)
    )
    async def list_models() -> ModelList:
        cards = [_card(each, name) for each in service.each for name in each.model_names]
        return ModelList(object="list", data=cards)

    # A name may hold slashes, as on the Hugging Face hub.
    @router.get(
        "/v1/models/{model_id:path}",
        response_model_exclude_unset=True,
        responses=error_responses(401, 404, 421),
    )
    async def get_model(model_id: str) -> ModelCard:
        return _card(service.serving(model_id), model_id)

    @router.get("/v1/model", response_model_exclude_unset=True, responses=error_responses(401, 421))
    async def current_model() -> CurrentModel:
        """TabbyAPI's name of the loaded model, with how it runs."""
        current = service.of(service.shelf.in_use)
        card = _card(current, current.model_id).model_dump(exclude_unset=True)
        return CurrentModel(**card, parameters=_parameters(current))

    return router


def _card(service: Service, name: str) -> ModelCard:
    config = service.engine.config
    card = ModelCard(
        id=name,
        object="model",
        created=service.engine.created,
        owned_by="soliton",
        max_model_len=service.engine.max_seq_len,
        aliases=list(service.model_names),
        tags=[],
        meta=ModelMeta(
            architecture=config.architecture,
            n_params=config.n_params,
            n_vocab=config.vocab_size,
            n_ctx_train=config.max_seq_len,
            n_ctx=service.engine.max_seq_len,
            n_embd=config.dim,
            size=service.engine.weight_bytes,
        ),
    )
    if len(service.shelf.models) > 1:
        card.status = ModelStatus(value=_STATUS[service.model.state])
    return card


def _parameters(service: Service) -> ModelParameters:
    engine = service.engine
    return ModelParameters(
        max_seq_len=engine.max_seq_len,
        cache_size=engine.max_seq_len,
        cache_mode=engine.model.ops.kv_format,
        max_batch_size=1,
        prompt_template_content=engine.template.source if engine.template else None,
        use_vision=False,
    )
