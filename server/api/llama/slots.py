"""POST /slots/0: save, restore or erase what the engine holds of the last text.

Owns the actions and their answers. The engine owns the form of a file; it does the work between two
requests, like any request in the queue.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Body, Query
from starlette.requests import Request

from engine import AbortFlag, SlotSize

from ...answer.usage import milliseconds
from ...errors import NotServedError, RequestError
from ...http.json_body import JsonRoute
from ...lease.waiter import Waiter
from ...request.unknown_fields import refuse_unknown_fields
from ...schema.errors import LLAMA_ERRORS, llama_errors
from ...schema.llama_slots import SlotErased, SlotFile, SlotRestored, SlotSaved
from ...service import Service
from ...stream.engine_call import engine_call
from ..model_name import ModelName
from .slot_names import is_plain_name

Timed = tuple[SlotSize, float]
_NO_FILE = SlotFile()
_ACTIONS = ("save", "restore", "erase")


def slot_routes(service: Service) -> APIRouter:
    """The route."""
    router = APIRouter(tags=["system"], route_class=JsonRoute)

    @router.post(
        "/slots/{id_slot}",
        response_model=SlotSaved | SlotRestored | SlotErased,
        responses={**LLAMA_ERRORS, **llama_errors(501)},
    )
    async def act_on_slot(
        id_slot: str,
        request: Request,
        action: Annotated[str, Query(description="save, restore or erase.")] = "",
        model: ModelName = None,
        body: Annotated[SlotFile, Body()] = _NO_FILE,
    ) -> dict[str, Any]:
        """Save what the one slot holds to a file, bring it back, or forget it. The next text that
        begins as it did is not computed again so far.
        """
        directory = service.settings.slot_save_path
        if directory is None:
            raise NotServedError(
                "this server does not act on slots: start it with --slot-save-path DIRECTORY"
            )
        if id_slot != "0":
            raise RequestError("there is one slot, 0", param="id_slot")
        if action not in _ACTIONS:
            raise RequestError("action must be save, restore or erase", param="action")
        refuse_unknown_fields(body)
        waiter, chosen = Waiter.of(request), service.serving(model or None)
        if action == "erase":
            return {"id_slot": 0, "n_erased": await _erased(chosen, waiter)}
        name = _name(body)
        act = _save if action == "save" else _restore
        return {"id_slot": 0, "filename": name, **await act(chosen, directory / name, waiter)}

    return router


async def _save(service: Service, file: Path, waiter: Waiter) -> dict[str, Any]:
    generator = service.engine.generator
    size, seconds = await _timed(service, lambda abort: generator.slot().save(file, abort), waiter)
    timings = {"save_ms": milliseconds(seconds)}
    return {"n_saved": size.n_tokens, "n_written": size.n_bytes, "timings": timings}


async def _restore(service: Service, file: Path, waiter: Waiter) -> dict[str, Any]:
    generator = service.engine.generator
    size, seconds = await _timed(
        service, lambda abort: generator.slot().restore(file, abort), waiter
    )
    timings = {"restore_ms": milliseconds(seconds)}
    return {"n_restored": size.n_tokens, "n_read": size.n_bytes, "timings": timings}


async def _erased(service: Service, waiter: Waiter) -> int:
    return await engine_call(
        service.lease,
        service.model,
        lambda _: service.engine.generator.slot().erase(),
        key=waiter.key,
        receive=waiter.receive,
        limits=service.limits,
    )


async def _timed(service: Service, work: Callable[[AbortFlag], SlotSize], waiter: Waiter) -> Timed:
    """Its result, and the seconds that it took."""

    def timed(abort: AbortFlag) -> Timed:
        since = time.perf_counter()
        size = work(abort)
        return size, time.perf_counter() - since

    return await engine_call(
        service.lease,
        service.model,
        timed,
        key=waiter.key,
        receive=waiter.receive,
        limits=service.limits,
    )


def _name(body: SlotFile) -> str:
    if body.filename is None:
        raise RequestError("filename is missing", param="filename")
    if not is_plain_name(body.filename):
        raise RequestError(
            "filename must be the plain name of a file: no directory, no control character, none "
            'of : * ? " < > |, no .., no space or full stop at its end',
            param="filename",
        )
    return body.filename
