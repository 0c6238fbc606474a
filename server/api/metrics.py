"""GET /metrics. Owns the route; what is counted is the server/stream wing's."""

import time

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response

from ..schema.errors import error_responses
from ..stream.metrics import Metrics


def metric_routes(metrics: Metrics) -> APIRouter:
    """The route over one app's metrics. It needs the API key, as it shows what other clients do."""
    router = APIRouter(tags=["system"])
    # As llama-server says it, so that a scrape tells a restart from counters that were reset.
    started = {"process-start-time-unix": str(int(time.time()))}

    @router.get(
        "/metrics",
        response_class=Response,
        responses={
            200: {"content": {"text/plain": {"schema": {"type": "string"}}}},
            **error_responses(401, 421),
        },
    )
    async def read_metrics() -> Response:
        """Counters and histograms in the text format of Prometheus."""
        return Response(metrics.text(), media_type=CONTENT_TYPE_LATEST, headers=started)

    return router
