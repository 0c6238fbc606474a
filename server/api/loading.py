"""Bringing a model into memory, and giving its memory back, because somebody asks for it.

Owns who may, and what waits in the queue for that; the engine thread does it, like everything with
weights.
"""

from starlette.requests import Request

from engine import AbortFlag

from ..errors import NotAdminError, NotServedError
from ..lease.waiter import Waiter
from ..service import Service
from ..stream.engine_call import engine_call


def check_admin(service: Service, request: Request) -> None:
    """Raise NotServedError if nobody may load and unload models by hand, and NotAdminError if the
    request has no key that may.
    """
    if not service.settings.admin_keys:
        raise NotServedError(
            "this server loads a model when a request names it; to load and unload models by hand "
            "start it with --admin-keys"
        )
    if not request.state.is_admin:
        raise NotAdminError(
            "an admin key is needed: authorization: Bearer KEY, or x-admin-key: KEY"
        )


async def bring(service: Service, waiter: Waiter) -> None:
    """Load the service's model, unless it is in memory. Raises LoadFailedError and what the queue
    raises.
    """
    if service.model.is_loaded:
        return

    def loaded(_: AbortFlag) -> None:
        """Its weights are there when the turn comes."""

    await engine_call(
        service.lease,
        service.model,
        loaded,
        key=waiter.key,
        receive=waiter.receive,
        limits=service.limits,
    )


async def put_away(service: Service, waiter: Waiter) -> None:
    """Give the memory of the model's weights back, when the engine is free. Raises what the queue
    raises.
    """
    await engine_call(
        service.lease,
        None,
        lambda _: service.model.put_away(),
        key=waiter.key,
        receive=waiter.receive,
        limits=service.limits,
    )
