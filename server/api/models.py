"""GET /v1/models, /v1/models/{id} and TabbyAPI's /v1/model: what this server serves."""

from fastapi import APIRouter

from ..schema.errors import error_responses
from ..schema.models import CurrentModel, ModelCard, ModelList, ModelMeta, ModelParameters
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

    @router.get("/v1/model", responses=error_responses(401, 421))
    async def current_model() -> CurrentModel:
        """TabbyAPI's name of the loaded model, with how it runs."""
        card = _card(service, service.model_id)
        return CurrentModel(**dict(card), parameters=_parameters(service))

    return router


def _card(service: Service, name: str) -> ModelCard:
    config = service.engine.config
    return ModelCard(
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
