"""The door and its replicas as an application of Ray Serve.

Owns what Ray is told of them. `soliton cluster serve` runs a door of its own in front of
`replica_application`; `serve deploy` names `build`, which puts one behind Serve's proxies.
"""

import secrets
from collections.abc import AsyncGenerator, Mapping, Sequence
from functools import partial
from typing import Any

from pydantic import ValidationError
from ray import serve
from ray.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    RayActorError,
    RayError,
    RayTaskError,
)
from ray.serve import Application
from ray.serve.config import RequestRouterConfig
from ray.serve.exceptions import ReplicaUnavailableError
from ray.serve.handle import DeploymentHandle
from ray.serve.request_router import RequestRouter
from starlette.types import ASGIApp

from ..commands.option_errors import validation_message
from ..commands.serve import load_app
from ..errors import EngineFailedError
from ..process.last_resort import end_process_in, guard_interpreter
from ..process.logs import configure_logging
from ..settings import Settings
from ..suggest import did_you_mean
from .door import Door
from .failures import ReplicaLostError
from .replica import LoadApp, Replica
from .routed import HeaderList, Part, Routed
from .router import KeptPrefixRouter

_APPLICATION = "soliton"
_SECRET_BYTES = 32
# Requests wait in the replica that they are for, where keys take turns and limits hold. This many
# may be in one, streams that somebody watches included.
_MOST_ONGOING = 4096
_STATS_S = 0.5
_HEALTH_PERIOD_S = 1.0
_HEALTH_TIMEOUT_S = 30.0
# Time for callers to get the error when the engine is lost.
_FAREWELL_S = 2
# Beyond `drain_seconds`: for caches to be written.
_WRITING_S = 15.0


class ReplicasStartError(Exception):
    """Ray could not start the replicas; in words for the operator."""


def replica_application(
    settings: Settings,
    *,
    replicas: int,
    cpus: float,
    gpus: float,
    load: LoadApp = load_app,
    router: type[RequestRouter] = KeptPrefixRouter,
) -> Application:
    """The replicas alone. `cpus`, `gpus`: what Ray sets aside for each. `load`, `router`: for
    others than the real ones, in benchmarks. Raises ReplicasStartError for several models.
    """
    if settings.models:
        raise ReplicasStartError("a cluster serves one MODEL, without --model: start one for each")
    deployment = serve.deployment(
        Actor,
        name="Replica",
        num_replicas=replicas,
        max_ongoing_requests=_MOST_ONGOING,
        ray_actor_options={"num_cpus": cpus, "num_gpus": gpus},
        health_check_period_s=_HEALTH_PERIOD_S,
        health_check_timeout_s=_HEALTH_TIMEOUT_S,
        graceful_shutdown_wait_loop_s=_STATS_S,
        graceful_shutdown_timeout_s=settings.drain_seconds + _WRITING_S,
        request_router_config=RequestRouterConfig(
            request_router_class=router,
            request_routing_stats_period_s=_STATS_S,
        ),
    )
    return deployment.bind(settings, load, secrets.token_hex())


def opened(settings: Settings, *, replicas: int, cpus: float, gpus: float) -> tuple[Door, str]:
    """A door to new replicas, and the name of their model. Raises ReplicasStartError."""
    app = replica_application(settings, replicas=replicas, cpus=cpus, gpus=gpus)
    try:
        handle = serve.run(app, name=_APPLICATION, route_prefix=None)
        model_id: str = handle.served_model.remote().result()
    except (RayError, RuntimeError) as error:
        raise ReplicasStartError(f"the replicas do not start: {error}") from error
    return door_over(handle, settings, secret=new_secret()), model_id


def door_over(handle: "DeploymentHandle[Actor]", settings: Settings, *, secret: bytes) -> Door:
    """`secret`: the same for all doors of a cluster."""
    return Door(RayReplicas(handle), settings, secret=secret)


def new_secret() -> bytes:
    return secrets.token_bytes(_SECRET_BYTES)


class Actor(Replica):
    """A replica in a process of its own."""

    def __init__(self, settings: Settings, load_app: LoadApp, cluster: str) -> None:
        configure_logging(settings.log_level, alone=True)
        super().__init__(settings, load_app, cluster)
        self.app.state.lease.on_failed = partial(end_process_in, _FAREWELL_S)
        self.app.state.watchdog.on_tick = guard_interpreter(settings.hang_seconds)

    async def __del__(self) -> None:
        # Serve calls it after the last request, and awaits it.
        await self.end()


class RayReplicas:
    """See `Replicas`."""

    def __init__(self, handle: "DeploymentHandle[Actor]") -> None:
        self._handle = handle.options(stream=True)

    async def call(self, routed: Routed) -> AsyncGenerator[Part]:
        answer = self._handle.remote(routed)
        is_done = False
        try:
            async for part in answer:
                yield part
            is_done = True
        except (ActorDiedError, ActorUnavailableError, RayActorError, ReplicaUnavailableError):
            is_done = True
            raise ReplicaLostError("the replica of this request has ended") from None
        except RayTaskError as error:
            is_done = True
            raise EngineFailedError("the replica failed in this request") from error
        finally:
            if not is_done:
                answer.cancel()

    async def metrics(self, headers: HeaderList, seconds: float) -> Sequence[Any]:
        told = self._handle.broadcast("metrics", headers)
        answers: list[Any] = await told.results_async(timeout_s=seconds, return_exceptions=True)
        return answers


class Ingress:
    """A door behind Serve's proxies."""

    def __init__(self, handle: "DeploymentHandle[Actor]", settings: Settings, secret: bytes):
        self._door = door_over(handle, settings, secret=secret)

    def __serve_build_asgi_app__(self) -> ASGIApp:
        return self._door


def build(args: Mapping[str, Any]) -> Application:
    """For `import_path` in the file of `serve deploy`. `args`: the options of `soliton serve`, with
    their names in TOML, and `replicas`, `doors`, `cpus` and `gpus`. Raises ValueError.
    """
    options = dict(args)
    replicas, doors = int(options.pop("replicas", 1)), int(options.pop("doors", 1))
    cpus, gpus = float(options.pop("cpus", 1)), float(options.pop("gpus", 0))
    for option in options:
        if option not in Settings.model_fields:
            near = did_you_mean(option, Settings.model_fields)
            raise ValueError(f"args: {option!r} is not an option of soliton serve{near}")
    try:
        settings = Settings(**options)
    except ValidationError as error:
        raise ValueError(validation_message(error, flags={})) from error
    behind = replica_application(settings, replicas=replicas, cpus=cpus, gpus=gpus)
    door = serve.deployment(
        serve.ingress()(Ingress),
        name="Door",
        num_replicas=doors,
        max_ongoing_requests=_MOST_ONGOING,
        ray_actor_options={"num_cpus": 0},
        graceful_shutdown_timeout_s=settings.drain_seconds + _WRITING_S,
    )
    return door.bind(behind, settings, new_secret())
