"""GET /props and GET /slots: what runs here and how, in llama-server's shape where that fits."""

import dataclasses

from fastapi import APIRouter

from ..schema.errors import error_responses
from ..schema.props import DefaultGeneration, EngineProps, Modalities, Props, Slot
from ..service import Service
from ..version import own_version


def prop_routes(service: Service) -> APIRouter:
    """The routes, over one engine. No answer holds a path of this machine."""
    router = APIRouter(tags=["system"])

    @router.get("/props", responses=error_responses(401, 421))
    async def read_props() -> Props:
        """Model, defaults, chat template, and how the engine computes."""
        return _props(service)

    @router.get("/slots", responses=error_responses(401, 421))
    async def read_slots() -> list[Slot]:
        """The one slot. It tells nothing of the request that runs, which is its client's own."""
        return [
            Slot(
                id=0,
                n_ctx=service.engine.max_seq_len,
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
        build_info=f"soliton {own_version()}",
        system_fingerprint=engine.fingerprint,
        total_slots=1,
        default_generation_settings=DefaultGeneration(
            n_ctx=engine.max_seq_len, params=dataclasses.asdict(engine.default_settings)
        ),
        # Where there is none, llama-server says so by an empty text.
        chat_template=engine.template.source if engine.template else "",
        bos_token=special.get("bos_token", ""),
        eos_token=special.get("eos_token", ""),
        modalities=Modalities(vision=False, audio=False),
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
