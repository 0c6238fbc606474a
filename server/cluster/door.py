"""The door: an ASGI app that sends each request to a replica and passes the answer through.

Owns what it reads of a request: whose stream it names, and the hashes of its prompt. The answer is
the replica's, but for the few that only the door can give: metrics of all replicas, and errors.
"""

import asyncio
import json
import logging
from contextlib import suppress
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..errors import (
    NotServedError,
    ServerError,
    UnavailableError,
    error_response,
    http_error_response,
)
from ..http.auth import HEALTH_PATHS, KeyGate
from ..http.boundary import Boundary
from ..http.path_aliases import canonical
from ..http.slow_readers import SlowReaders
from ..lease.waiter import attended
from ..settings import Settings
from .failures import shaped
from .ids import named_replica
from .merged_metrics import merged
from .passage import CUT_OFF, Passage, Replicas
from .prompt_steps import prompt_of
from .routed import HeaderList, Prompt, Routed

_logger = logging.getLogger(__name__)

# A check must not wait for a replica to start.
_HEALTH_S = 2.0
_METRICS_S = 5.0
_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Bodies that are parsed beside the event loop.
_LARGE_BODY = 1 << 16
# Lists of what is kept: each replica has its own.
_LISTS = frozenset({"/v1/streams", "/v1/chat/completions"})


class Door:
    """The app. Used on one event loop."""

    def __init__(self, replicas: Replicas, settings: Settings, *, secret: bytes) -> None:
        """`secret`: of the cluster, for the hashes of prompts."""
        self._replicas = replicas
        self._settings = settings
        self._secret = secret
        self._gate = KeyGate(
            self._answer, api_keys=settings.all_keys, admin_keys=settings.admin_keys
        )
        self._app = Boundary(
            self._answer, max_body_bytes=settings.max_body_bytes, on_answered=lambda *_: None
        )
        self.slow_readers = SlowReaders(
            send_timeout=settings.send_timeout, max_bytes=4 * settings.max_unread_bytes
        )
        self._calls = set[asyncio.Task[None]]()
        self._is_closed = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(scope, receive, send, {"slow_readers": self.slow_readers})
        else:
            await self._app(scope, receive, send)

    # Below: what a DrainingServer asks of its work.
    @property
    def busy(self) -> bool:
        return bool(self._calls)

    def stop_admitting(self) -> None:
        self._is_closed = True

    async def put_down(self, *, until: float) -> None:
        """The replicas do it when they end."""

    async def cut_off(self, *, seconds: float) -> None:
        for call in self._calls:
            call.cancel(CUT_OFF)
        if self._calls:
            await asyncio.wait(self._calls, timeout=seconds)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        path = canonical(scope["path"])
        try:
            if self._is_closed:
                raise UnavailableError("the server is shutting down")
            body = await _body(receive)
            if scope["method"] == "GET" and path in _LISTS:
                raise NotServedError(
                    f"a cluster has no list at {path}: each replica keeps its own; ask for one by "
                    "its id"
                )
            if scope["method"] == "GET" and path == "/metrics":
                answer = await self._metrics(_headers(scope))
                await answer(scope, receive, send)
                return
        except ServerError as error:
            await shaped(path, error_response(error))(scope, receive, send)
        except HTTPException as error:
            await shaped(path, http_error_response(error))(scope, receive, send)
        except ClientDisconnect:
            pass  # nobody to tell
        else:
            await self._pass_through(scope, path, body, receive, send)

    async def _pass_through(
        self, scope: Scope, path: str, body: bytes, receive: Receive, send: Send
    ) -> None:
        routed = await self._routed(scope, path, body)
        passage = Passage(self._replicas, routed, send, queue_s=self._queue_s(path))
        call = asyncio.create_task(passage.run())
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        with suppress(ClientDisconnect):
            await attended(call, receive)

    def _queue_s(self, path: str) -> float | None:
        """How long a request may wait for a replica."""
        return _HEALTH_S if path in HEALTH_PATHS else self._settings.queue_timeout

    async def _routed(self, scope: Scope, path: str, body: bytes) -> Routed:
        if len(body) > _LARGE_BODY:
            replica, prompt = await asyncio.to_thread(self._read_body, scope, path, body)
        else:
            replica, prompt = self._read_body(scope, path, body)
        client = scope.get("client")
        return Routed(
            scope["method"],
            scope["path"],
            scope.get("raw_path") or scope["path"].encode(),
            scope["query_string"],
            _headers(scope),
            body,
            tuple(client) if client else None,
            scope["scheme"],
            replica,
            prompt,
        )

    def _read_body(self, scope: Scope, path: str, body: bytes) -> tuple[str, Prompt | None]:
        """Which replica the request names, and its prompt. What cannot be read may go anywhere:
        the replica says what is wrong.
        """
        caller = self._gate.caller(scope)
        try:
            said = json.loads(body) if body and caller is not None else None
        except (ValueError, RecursionError):
            said = None
        replica = named_replica(path, said)
        is_work = scope["method"] == "POST" and said is not None
        prompt = prompt_of(said, secret=self._secret, caller=caller or "") if is_work else None
        return replica, prompt

    async def _metrics(self, headers: HeaderList) -> Response:
        """Raises UnavailableError if no replica answers."""
        try:
            answers = await self._replicas.metrics(headers, _METRICS_S)
        except TimeoutError:
            answers = []
        pages = []
        for answer in answers:
            match answer:
                case (str(name), 200, bytes(text)):
                    pages.append((name, text.decode()))
                case (str(), int(status), bytes(text)):  # no key, another host
                    return Response(text, status, media_type="application/json")
                case _:
                    _logger.warning("a replica told no metrics: %s", type(answer).__name__)
        if not pages:
            raise UnavailableError("no replica tells its metrics")
        return Response(merged(pages), media_type=_METRICS_TYPE)


def _headers(scope: Scope) -> HeaderList:
    """Those of the request. Its id is in them, so that the door and a replica give it the same."""
    sent = [(bytes(name), bytes(value)) for name, value in scope["headers"]]
    others = [pair for pair in sent if pair[0] != b"x-request-id"]
    return [*others, (b"x-request-id", scope["state"]["request_id"].encode())]


async def _body(receive: Receive) -> bytes:
    """Raises ClientDisconnect, and HTTPException if it is refused."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body += message.get("body", b"")
        if not message.get("more_body"):
            return bytes(body)


async def _live(scope: Scope, receive: Receive, send: Send, state: dict[str, Any]) -> None:
    """The lifespan of an app that has nothing to start."""
    await receive()
    scope.setdefault("state", {}).update(state)
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await send({"type": "lifespan.shutdown.complete"})
