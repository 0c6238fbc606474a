"""GET /api/tags, /api/ps, /api/version and POST /api/show: the models, as Ollama lists them."""

import hashlib
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter

from ...request.unknown_fields import Warnings, check_unknown_fields
from ...schema.common import RequestWarning
from ...schema.errors import OLLAMA_ERRORS, Responses
from ...schema.ollama import (
    OllamaDetails,
    OllamaModel,
    OllamaModels,
    OllamaRunning,
    OllamaRunningModels,
    OllamaShow,
    OllamaShown,
    OllamaVersion,
)
from ...service import Service
from ...version import own_version
from .bodies import model_name

# It never expires.
_NEVER = "9999-12-31T23:59:59Z"


def ollama_model_routes(service: Service) -> APIRouter:
    """The routes."""
    router = APIRouter(tags=["models"])
    errors: Responses = {status: OLLAMA_ERRORS[status] for status in (401, 404, 421)}
    asked: Responses = {
        status: OLLAMA_ERRORS[status] for status in (400, 401, 403, 404, 413, 415, 421)
    }

    @router.get("/api/tags", responses=errors)
    async def ollama_tags() -> OllamaModels:
        models = [
            OllamaModel(**_model(each, name)) for each in service.each for name in each.model_names
        ]
        return OllamaModels(models=models)

    @router.get("/api/ps", responses=errors)
    async def ollama_ps() -> OllamaRunningModels:
        running = [
            OllamaRunning(
                **_model(each, each.model_id),
                expires_at=_NEVER,
                size_vram=0,
                context_length=each.engine.max_seq_len,
            )
            for each in service.each
            if each.model.is_loaded
        ]
        return OllamaRunningModels(models=running)

    @router.get("/api/version", responses=errors)
    async def ollama_version() -> OllamaVersion:
        return OllamaVersion(version=own_version())

    @router.post("/api/show", response_model_exclude_unset=True, responses=asked)
    async def ollama_show(body: OllamaShow) -> OllamaShown:
        chosen = service.serving(model_name(body.model or body.name or "") or None)
        return _shown(chosen, check_unknown_fields(body, (), strict=False))

    return router


def _model(service: Service, name: str) -> dict[str, Any]:
    engine = service.engine
    return {
        "name": name,
        "model": name,
        "modified_at": _modified(service),
        "size": engine.weight_bytes,
        "digest": hashlib.sha256(engine.fingerprint.encode()).hexdigest(),
        "details": _details(service),
    }


def _details(service: Service) -> OllamaDetails:
    config = service.engine.config
    family = config.architecture.removesuffix("ForCausalLM").lower()
    return OllamaDetails(
        parent_model="",
        format="gguf",  # as of every model there: some pages leave out all others
        family=family,
        families=[family],
        parameter_size=_size(config.n_params),
        quantization_level=service.engine.model.ops.format,
    )


def _shown(service: Service, warnings: Warnings) -> OllamaShown:
    engine, config = service.engine, service.engine.config
    details = _details(service)
    form = engine.reply_format
    capabilities = ["completion"]
    if engine.template is not None and not form.tools.is_unreadable:
        capabilities.append("tools")
    if engine.template is not None and "enable_thinking" in engine.template.source:
        capabilities.append("thinking")
    return OllamaShown(
        modelfile="",
        parameters="",
        template=engine.template.source if engine.template else "",
        details=details,
        model_info={
            "general.architecture": details.family,
            "general.parameter_count": config.n_params,
            f"{details.family}.context_length": engine.max_seq_len,
        },
        capabilities=capabilities,
        modified_at=_modified(service),
        **({"warnings": [*map(RequestWarning.model_validate, warnings)]} if warnings else {}),
    )


def _modified(service: Service) -> str:
    return datetime.fromtimestamp(service.engine.created, UTC).isoformat().replace("+00:00", "Z")


def _size(n_params: int) -> str:
    if n_params >= 10**9:
        return f"{n_params / 1e9:.1f}B"
    return f"{n_params / 1e6:.1f}M"
