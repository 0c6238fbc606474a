"""A replica: the unchanged app over an engine of its own, called by the door.

Owns the app's life, the replica's name, and what it publishes. Ray Serve calls the methods by their
names; see `deploy.py` for what else it needs in a process of its own.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing
from functools import partial
from typing import Any

from starlette.applications import Starlette

from ..errors import StreamNotFoundError, UnavailableError, error_response
from ..service import Service
from ..settings import Settings
from .asgi_call import answered
from .choice import Standing
from .directories import Place, taken_place
from .ids import new_name
from .kept_prompts import KeptPrompts
from .routed import Accepted, Head, Part, Prompt, Routed

_logger = logging.getLogger(__name__)

LoadApp = Callable[..., tuple[Starlette, str]]
"""Makes the app of `settings`, with ids of `replica`, and its model's name."""


class Replica:
    """One server of a cluster. Made on the event loop on which all its methods run."""

    def __init__(self, settings: Settings, load_app: LoadApp, cluster: str) -> None:
        """`cluster`: identifies this start of the cluster. Raises CommandError,
        DirectoryInUseError and OSError.
        """
        # The directory of computed prompts is shared: equal files have equal names.
        self._place: Place | None = None
        if settings.keep_streams_dir is not None and settings.keep_streams != "none":
            self._place = taken_place(settings.keep_streams_dir, cluster=cluster)
            settings = settings.model_copy(update={"keep_streams_dir": self._place.path})
        self.name = self._place.name if self._place else new_name()
        self.app, self.model_id = load_app(settings, replica=self.name)
        self._service: Service = self.app.state.service
        self._kept = KeptPrompts(self._service.expected_reuse)
        self._life = AsyncExitStack()
        self._begun = asyncio.Lock()
        self._has_begun = False

    async def __call__(self, routed: Routed) -> AsyncIterator[Part]:
        """The answer to one request."""
        yield Accepted(self.name)
        await self.begin()
        if routed.replica not in ("", self.name):
            parts = self._instead_of_another(routed)
        else:
            parts = self._answered(routed)
        async with aclosing(parts):
            async for part in parts:
                yield part

    async def begin(self) -> None:
        """Start the app, unless it runs."""
        async with self._begun:
            if not self._has_begun:
                await self._life.enter_async_context(self.app.router.lifespan_context(self.app))
                self._has_begun = True
                _logger.info("this is replica %s of %s", self.name, self.model_id)

    async def served_model(self) -> str:
        """The first name of the model."""
        return self.model_id

    async def check_health(self) -> None:
        """Ray replaces a replica at which this raises."""
        await self.begin()
        if not self._service.lease.ready:
            raise UnavailableError("the engine takes no work")

    async def record_replica_metadata(self) -> dict[str, Any]:
        return {"name": self.name}

    async def record_routing_stats(self) -> dict[str, Any]:
        """See Standing."""
        lease, pace = self._service.lease, self._service.pace
        kept = await asyncio.to_thread(self._kept.steps)
        token_s, per_token = pace.computed_token_s(), self._kept.bytes_per_token
        byte_s = token_s / per_token if token_s is not None and per_token else None
        return Standing(lease.n_waiting + lease.busy, byte_s, pace.request_s(), kept).to_stats()

    async def metrics(self, headers: list[tuple[bytes, bytes]]) -> tuple[str, int, bytes]:
        """The replica's name, and status and body of its answer to GET /metrics."""
        routed = Routed("GET", "/metrics", b"/metrics", b"", headers, b"", None)
        status, body = 0, b""
        async with aclosing(self._answered(routed)) as parts:
            async for part in parts:
                if isinstance(part, Head):
                    status, part = part.status, part.body
                body += part
        return self.name, status, body

    async def end(self) -> None:
        """Stop the app: what runs is put down or cut off, and caches are written."""
        await self._life.aclose()
        if self._place is not None:
            self._place.close()
            self._place = None

    def _answered(self, routed: Routed) -> AsyncGenerator[Head | bytes]:
        return answered(self.app, routed, on_begun=partial(self._begun_with, routed.prompt))

    def _begun_with(self, prompt: Prompt | None, state: dict[str, Any]) -> None:
        if prompt is not None and (stream := state.get("stream")) is not None:
            self._kept.add(prompt, stream.jobs[0], state["caller"])

    async def _instead_of_another(self, routed: Routed) -> AsyncGenerator[Head | bytes]:
        """The app's answer; if that is that nothing is found, the reason."""
        async with aclosing(self._answered(routed)) as parts:
            async for part in parts:
                if isinstance(part, Head) and part.status == 404:
                    yield self._no_such_replica(part, routed.replica)
                    return
                yield part

    def _no_such_replica(self, head: Head, name: str) -> Head:
        error = StreamNotFoundError(
            f"no replica of this cluster is called {name}, as the id says: it has ended, "
            "and what it kept is gone"
        )
        answer = error_response(error)
        headers = [pair for pair in head.headers if pair[0].startswith(b"x-")]
        return Head(404, [*headers, *answer.raw_headers], bytes(answer.body))
