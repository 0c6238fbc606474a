"""TabbyAPI's lists of models, adapters, templates and sampler overrides, and its routes that would
change them: 501.
"""

from dataclasses import asdict

from fastapi import APIRouter
from starlette.responses import Response

from engine import SamplingSettings

from ...errors import NotServedError
from ...schema.errors import tabby_errors
from ...schema.tabby import (
    AdapterList,
    OtherModels,
    Override,
    Overrides,
    Permission,
    TemplateNames,
)
from ...service import Service

_ERRORS = tabby_errors(401, 421)
_TEMPLATE = "chat_template"
_REFUSED = (
    "/v1/model/load", "/v1/model/unload", "/v1/model/embedding/load", "/v1/model/embedding/unload",
    "/v1/lora/load", "/v1/lora/unload", "/v1/template/switch", "/v1/template/unload",
    "/v1/sampling/override/switch", "/v1/sampling/override/unload", "/v1/download",
)  # fmt: skip


def tabby_routes(service: Service) -> APIRouter:
    """The routes, over one engine."""
    router = APIRouter(tags=["models"])

    @router.get("/v1/model/draft/list", responses=_ERRORS)
    async def list_draft_models() -> OtherModels:
        """Models for drafts that could be loaded: none."""
        return OtherModels(object="list", data=[])

    @router.get("/v1/model/embedding/list", responses=_ERRORS)
    async def list_embedding_models() -> OtherModels:
        """Models for embeddings that could be loaded: none."""
        return OtherModels(object="list", data=[])

    @router.get("/v1/lora", responses=_ERRORS)
    async def list_loaded_loras() -> AdapterList:
        return AdapterList(object="list", data=[])

    @router.get("/v1/lora/list", responses=_ERRORS)
    async def list_loras() -> AdapterList:
        return AdapterList(object="list", data=[])

    @router.get("/v1/template/list", responses=_ERRORS)
    async def list_templates() -> TemplateNames:
        """`chat_template`, if the model has one; GET /v1/model has its text."""
        names = [_TEMPLATE] if service.engine.template else []
        return TemplateNames(object="list", data=names)

    @router.get("/v1/sampling/override/list", responses=_ERRORS)
    async def list_overrides() -> Overrides:
        """What holds for a request that says nothing else."""
        return Overrides(
            selected_preset=None, overrides=_overrides(service.engine.default_settings), presets=[]
        )

    @router.get("/v1/auth/permission", responses=_ERRORS)
    async def read_permission() -> Permission:
        """`api`: nobody may load models."""
        return Permission(permission="api")

    _refuse_changes(router)
    return router


def _refuse_changes(router: APIRouter) -> None:
    async def refuse() -> Response:
        raise NotServedError(
            "this server keeps the model, the template and the settings that it was started with: "
            "stop it, and start it with others"
        )

    for path in _REFUSED:
        router.add_api_route(path, refuse, methods=["POST"], include_in_schema=False)


def _overrides(settings: SamplingSettings) -> dict[str, Override]:
    neutral = asdict(SamplingSettings())
    return {
        name: Override(override=value, force=False)
        for name, value in asdict(settings).items()
        if value != neutral[name]
    }
