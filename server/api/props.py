"""GET /props and GET /slots: what runs here and how, in llama-server's shape where that fits."""

from typing import Annotated

from fastapi import APIRouter, Query

from engine import StreamOptions

from ..errors import UnavailableError
from ..schema.errors import error_responses, llama_errors
from ..schema.props import (
    DefaultGeneration,
    EngineProps,
    Modalities,
    Props,
    Slot,
    TemplateCaps,
)
from ..service import Service
from ..version import own_version
from .llama.settings import ANY_SEED, generation_settings
from .model_name import ModelName


def prop_routes(service: Service) -> APIRouter:
    """The routes. No answer holds a path of this machine."""
    router = APIRouter(tags=["system"])

    @router.get("/props", responses=error_responses(401, 404, 421))
    async def read_props(model: ModelName = None) -> Props:
        """Model, defaults, chat template, and how the engine computes."""
        return _props(service.serving(model or None))

    @router.get("/slots", responses=llama_errors(401, 404, 421, 503))
    async def read_slots(
        model: ModelName = None,
        fail_on_no_slot: Annotated[
            str, Query(description="Anything: 503 while the engine is at work.")
        ] = "",
    ) -> list[Slot]:
        """The one slot. It tells nothing of the request that runs, which is its client's own."""
        if fail_on_no_slot and service.lease.busy:
            raise UnavailableError("the one slot is at work")
        return [
            Slot(
                id=0,
                n_ctx=service.serving(model or None).engine.max_seq_len,
                speculative=service.settings.speculate != "off",
                is_processing=service.lease.busy,
            )
        ]

    return router


def _props(service: Service) -> Props:
    engine = service.engine
    special = engine.tokenizer.special_tokens
    return Props(
        model_alias=service.model_id,
        model_path=engine.model_id,
        model_ftype=engine.model.ops.format,
        build_info=f"soliton {own_version()}",
        system_fingerprint=engine.fingerprint,
        total_slots=1,
        default_generation_settings=DefaultGeneration(
            n_ctx=engine.max_seq_len,
            params=generation_settings(engine.default_settings, StreamOptions(), seed=ANY_SEED),
        ),
        # Where there is none, llama-server says so by an empty text.
        chat_template=engine.template.source if engine.template else "",
        chat_template_caps=TemplateCaps(
            supports_tools=_tool_calls(service) == "template",
            supports_tool_calls=_tool_calls(service) == "template",
        ),
        bos_token=special.get("bos_token", ""),
        eos_token=special.get("eos_token", ""),
        modalities=Modalities(vision=False, video=False, audio=False),
        endpoint_slots=True,
        endpoint_props=False,
        endpoint_metrics=True,
        ui=True,
        is_sleeping=service.model.state == "asleep",
        engine=_engine_props(service),
    )


def _engine_props(service: Service) -> EngineProps:
    ops, settings = service.engine.model.ops, service.settings
    return EngineProps(
        compute=ops.name,
        threads=ops.n_threads,
        weights=ops.format,
        quantize=settings.quantize,
        kv_cache=ops.kv_format,
        speculation=settings.speculate,
        prefix_cache_mb=settings.prefix_cache_mb,
        prefix_cache_on_disk=settings.prefix_cache_dir is not None,
        max_queue=settings.max_queue,
        tool_calls=_tool_calls(service),
    )


def _tool_calls(service: Service) -> str:
    tools = service.engine.reply_format.tools
    if tools.is_unreadable:
        return "unreadable"
    return "template" if tools.in_template else "described"
