"""A cluster of Ray that this process starts, or joins, for as long as it needs it.

Owns how Ray is started: small, quiet, without its dashboard, and without telling anybody.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import ray
from ray import serve

_logger = logging.getLogger(__name__)

# What passes through the object store is smaller than this: answers travel in messages.
_OBJECT_STORE_BYTES = 96 << 20
# In the processes of replicas. Ray's own log repeats what theirs says.
_ENVIRONMENT = {"RAY_SERVE_LOG_TO_STDERR": "0"}


class RayStartError(Exception):
    """Ray does not run; in words for the operator."""


@contextmanager
def ray_started(address: str | None, *, cpus: float, gpus: float) -> Iterator[None]:
    """Ray with Serve in it, while the block runs. `address`: of a cluster to join; None starts one
    on this machine with so many CPUs and GPUs, by Ray's count. Raises RayStartError.
    """
    try:
        _start(address, cpus=cpus, gpus=gpus)
    except Exception as error:  # Ray has no class of its own for that
        ray.shutdown()
        if address is not None:
            raise RayStartError(f"cannot join Ray at {address}: {error}") from error
        # It gives its processes half a minute, which a busy machine may exceed.
        _logger.warning("Ray does not start, once more: %s", error)
        try:
            _start(address, cpus=cpus, gpus=gpus)
        except Exception as again:
            ray.shutdown()
            raise RayStartError(f"Ray does not start: {again}") from again
    serve.start(proxy_location="Disabled")
    try:
        yield
    finally:
        if address is None:
            serve.shutdown()
        ray.shutdown()


def _start(address: str | None, *, cpus: float, gpus: float) -> None:
    quiet = {"log_to_driver": True, "logging_level": logging.WARNING, "configure_logging": False}
    runtime = {"env_vars": _ENVIRONMENT}
    if address is not None:
        ray.init(address=address, runtime_env=runtime, **quiet)
        return
    ray.init(
        num_cpus=cpus,
        num_gpus=gpus or None,
        object_store_memory=_OBJECT_STORE_BYTES,
        include_dashboard=False,
        runtime_env=runtime,
        **quiet,
    )
