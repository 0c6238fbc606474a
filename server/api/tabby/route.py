"""TabbyAPI's lists of models, adapters, templates and sampler overrides; its routes that load and
unload a model; and those that would change the others: 501.
"""

from dataclasses import asdict

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from engine import SamplingSettings

from ...answer.sse import encode_event
from ...errors import NotServedError
from ...http.json_body import JsonRoute
from ...lease.waiter import Waiter
from ...request.unknown_fields import check_unknown_fields
from ...schema.errors import tabby_errors
from ...schema.tabby import (
    AdapterList,
    LoadModel,
    OtherModels,
    Override,
    Overrides,
    Permission,
    TemplateNames,
)
from ...service import Service
from ..loading import bring, check_admin, put_away

_ERRORS = tabby_errors(401, 421)
_LOADED = {"model_type": "model", "module": 1, "modules": 1, "status": "finished"}
_TEMPLATE = "chat_template"
_REFUSED = (
    "/v1/model/embedding/load", "/v1/model/embedding/unload",
    "/v1/lora/load", "/v1/lora/unload", "/v1/template/switch", "/v1/template/unload",
    "/v1/sampling/override/switch", "/v1/sampling/override/unload", "/v1/download",
)  # fmt: skip


def tabby_routes(service: Service) -> APIRouter:
    """The routes."""
    router = APIRouter(tags=["models"], route_class=JsonRoute)

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
        names = [_TEMPLATE] if service.shelf.in_use.engine.template else []
        return TemplateNames(object="list", data=names)

    @router.get("/v1/sampling/override/list", responses=_ERRORS)
    async def list_overrides() -> Overrides:
        """What holds for a request that says nothing else."""
        return Overrides(
            selected_preset=None,
            overrides=_overrides(service.shelf.in_use.engine.default_settings),
            presets=[],
        )

    @router.get("/v1/auth/permission", responses=_ERRORS)
    async def read_permission(request: Request) -> Permission:
        """`admin`: the key may load models."""
        return Permission(permission="admin" if request.state.is_admin else "api")

    # Like those that are refused, these are not in the contract: /v1/models/load is.
    @router.post("/v1/model/load", include_in_schema=False)
    async def load_model(body: LoadModel, request: Request) -> Response:
        """Bring a model into memory, with an admin key. One event says that it is there."""
        check_admin(service, request)
        chosen = service.serving(body.model_name or body.name or None)
        await bring(chosen, Waiter.of(request))
        warnings = check_unknown_fields(body, (), strict=False)
        event = {**_LOADED, "warnings": warnings} if warnings else _LOADED
        return Response(encode_event(event), media_type="text/event-stream")

    @router.post("/v1/model/unload", include_in_schema=False)
    async def unload_model(request: Request) -> None:
        """Give the memory of the loaded model back, with an admin key. The next request for it
        loads it again.
        """
        check_admin(service, request)
        await put_away(service.of(service.shelf.in_use), Waiter.of(request))

    _refuse_changes(router)
    return router


def _refuse_changes(router: APIRouter) -> None:
    async def refuse() -> Response:
        raise NotServedError(
            "this server keeps the models, the templates and the settings that it was started "
            "with: stop it, and start it with others"
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
