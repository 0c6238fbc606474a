"""GET /v1/models and /v1/models/{id}: what this server serves."""

from fastapi import APIRouter

from .errors import ModelNotFoundError
from .schema.errors import error_responses
from .schema.models import ModelCard, ModelList, ModelMeta
from .service import Service


def model_routes(service: Service) -> APIRouter:
    """The routes, over one engine."""
    router = APIRouter(tags=["models"])

    @router.get("/v1/models", responses=error_responses(401, 421))
    async def list_models() -> ModelList:
        return ModelList(object="list", data=[_card(service)])

    # A name may hold slashes, as on the Hugging Face hub.
    @router.get("/v1/models/{model_id:path}", responses=error_responses(401, 404, 421))
    async def get_model(model_id: str) -> ModelCard:
        check_model(service, model_id)
        return _card(service)

    return router


def check_model(service: Service, name: str | None) -> None:
    """Raise ModelNotFoundError for another model than this server's; None names none."""
    if name not in (None, service.model_id):
        raise ModelNotFoundError(
            f"the model does not exist; this server has {service.model_id!r}", param="model"
        )


def _card(service: Service) -> ModelCard:
    config = service.engine.config
    return ModelCard(
        id=service.model_id,
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
