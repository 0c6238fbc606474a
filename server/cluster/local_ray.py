"""A cluster of Ray that this process starts, or joins, for as long as it needs it.

Owns how Ray is started: small, quiet, without its dashboard, and without telling anybody.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import ray
from ray import serve

# What passes through the object store is smaller than this: answers travel in messages.
_OBJECT_STORE_BYTES = 96 << 20
# In the processes of replicas. Ray's own log repeats what theirs says.
_ENVIRONMENT = {"RAY_SERVE_LOG_TO_STDERR": "0"}


@contextmanager
def ray_started(address: str | None, *, cpus: float, gpus: float) -> Iterator[None]:
    """Ray with Serve in it, while the block runs. `address`: of a cluster to join; None starts one
    on this machine with so many CPUs and GPUs, by Ray's count. Raises ConnectionError.
    """
    quiet = {"log_to_driver": True, "logging_level": logging.WARNING, "configure_logging": False}
    runtime = {"env_vars": _ENVIRONMENT}
    if address is None:
        ray.init(
            num_cpus=cpus,
            num_gpus=gpus or None,
            object_store_memory=_OBJECT_STORE_BYTES,
            include_dashboard=False,
            runtime_env=runtime,
            **quiet,
        )
    else:
        ray.init(address=address, runtime_env=runtime, **quiet)
    try:
        serve.start(proxy_location="Disabled")
        yield
    finally:
        if address is None:
            serve.shutdown()
        ray.shutdown()
