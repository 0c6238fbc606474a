"""GET /v1/models and /v1/models/{id}: what this server serves."""

from fastapi import APIRouter

from ..schema.errors import error_responses
from ..schema.models import ModelCard, ModelList, ModelMeta
from ..service import Service


def model_routes(service: Service) -> APIRouter:
    """The routes, over one engine."""
    router = APIRouter(tags=["models"])

    @router.get("/v1/models", responses=error_responses(401, 421))
    async def list_models() -> ModelList:
        cards = [_card(service, name) for name in service.model_names]
        return ModelList(object="list", data=cards)

    # A name may hold slashes, as on the Hugging Face hub.
    @router.get("/v1/models/{model_id:path}", responses=error_responses(401, 404, 421))
    async def get_model(model_id: str) -> ModelCard:
        service.check_model(model_id)
        return _card(service, model_id)

    return router


def _card(service: Service, name: str) -> ModelCard:
    config = service.engine.config
    return ModelCard(
        id=name,
        object="model",
        created=service.engine.created,
        owned_by="soliton",
        max_model_len=service.engine.max_seq_len,
        meta=ModelMeta(
            architecture=config.architecture,
            n_params=config.n_params,
            n_vocab=config.vocab_size,
            n_ctx_train=config.max_seq_len,
        ),
    )
