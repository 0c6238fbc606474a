"""A router that knows nothing, to compare with."""

import random
from typing import Any

from ray.serve.request_router import RequestRouter


class RandomRouter(RequestRouter):  # type: ignore[misc]  # Ray has no types that mypy reads
    async def choose_replicas(
        self, candidate_replicas: list[Any], pending_request: Any = None
    ) -> list[list[Any]]:
        order = random.sample(candidate_replicas, len(candidate_replicas))
        return [[replica] for replica in order]
