"""/lora-adapters: there are none."""

from typing import Any

from fastapi import APIRouter

from ...errors import RequestError
from ...http.json_body import JsonRoute
from ...schema.errors import llama_errors
from ...schema.llama_slots import AdapterScales, AdaptersSet

_ERRORS = llama_errors(400, 401, 403, 413, 415, 421)


def adapter_routes() -> APIRouter:
    router = APIRouter(tags=["system"], route_class=JsonRoute)

    @router.get("/lora-adapters", responses=llama_errors(401, 421))
    async def list_adapters() -> list[Any]:
        """llama-server's list of LoRA adapters: this server has none."""
        return []

    @router.post("/lora-adapters", response_model=AdaptersSet, responses=_ERRORS)
    async def scale_adapters(body: AdapterScales) -> dict[str, bool]:
        """Their scales: an empty list is all that can be set."""
        if body.root:
            raise RequestError("this server has no LoRA adapters: send an empty list")
        return {"success": True}

    return router
