"""The routes over the models of a server, with the layers that every request passes.

Owns what is put together, and in which order; it adds no rules.
"""

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from engine import Engine

from .answer.sse import prepare_streams
from .api.anthropic import errors as anthropic
from .api.anthropic.route import MESSAGES, anthropic_routes
from .api.chat.route import CHAT, chat_routes
from .api.completions.route import COMPLETIONS, completion_routes
from .api.contract import ContractApp
from .api.docs import add_documents
from .api.error_shape import ErrorShape
from .api.estimate import estimate_routes
from .api.health import system_routes
from .api.home import add_home
from .api.inspector import add_inspector
from .api.llama import errors as llama
from .api.llama.adapters import adapter_routes
from .api.llama.route import INFILL, LLAMA, llama_routes
from .api.llama.slots import slot_routes
from .api.metrics import metric_routes
from .api.model_loads import load_routes
from .api.models import model_routes
from .api.not_found import not_found_handler
from .api.not_served import not_served_routes
from .api.ollama import errors as ollama
from .api.ollama.models import ollama_model_routes
from .api.ollama.route import ollama_routes
from .api.props import prop_routes
from .api.responses.route import RESPONSES, responses_routes
from .api.responses.stored import stored_response_routes
from .api.score.route import score_routes
from .api.stored_chat.route import stored_chat_routes
from .api.streams.acting import acting_routes
from .api.streams.route import stream_routes
from .api.tabby import errors as tabby
from .api.tabby.route import tabby_routes
from .api.tokens import token_routes
from .errors import ERROR_TABLE, handle_error, handle_http_error, handle_validation_error
from .http.auth import KeyGate, owners
from .http.boundary import Boundary
from .http.cors import Cors, RefusedOrigins
from .http.hosts import HostGate
from .http.large_bodies import LargeBodies
from .http.path_aliases import Aliases
from .http.slow_readers import SlowReaders
from .kept.files import KeptFiles
from .kept.registry import KeptStreams
from .lease.deadlines import TimeLimits
from .lease.lease import EngineLease
from .lease.served_model import ServedModel
from .lease.shelf import Shelf
from .lease.trials import Trials
from .lease.watchdog import Watchdog
from .service import Service
from .settings import Settings
from .stream.access_log import AccessLog
from .stream.metrics import Metrics
from .stream.pace import Pace
from .stream.stream import CompletionStream

if TYPE_CHECKING:
    from .stream.spans import Spans

# The version of the wire, not of the program: it changes when a client would notice.
API_VERSION = "1.0.0"

_DESCRIPTION = (
    "Streams one language model, one sequence at a time. The wire is OpenAI's; what it does not "
    "have is marked as an extension. Errors are always `{error: {message, type, param, code}}`, "
    "also as the last event of a stream that fails, which then has no `[DONE]`."
)

# What a script of another origin may read in addition to the body.
_EXPOSED_HEADERS = (
    "openai-processing-ms", "retry-after", "retry-after-ms", "x-request-id", "x-should-retry",
)  # fmt: skip


def create_app(
    settings: Settings,
    engine: Engine,
    *,
    load_seconds: float = 0.0,
    on_queued: Callable[[CompletionStream], None] | None = None,
    replica: str = "",
) -> FastAPI:
    """The server of one model: see `app_over`. `load_seconds`: what loading `engine` took."""
    names = settings.served_model_name or (engine.model_id,)
    model = ServedModel(names, engine, load_seconds=load_seconds)
    return app_over([model], settings, on_queued=on_queued, replica=replica)


def app_over(
    models: Sequence[ServedModel],
    settings: Settings,
    *,
    on_queued: Callable[[CompletionStream], None] | None = None,
    replica: str = "",
) -> FastAPI:
    """The server as an ASGI app. Its lifespan owns the engine thread. Raises KeptDirectoryError.

    `models`: the first one answers requests that name none. `on_queued` is called on the event loop
    with every stream that has been queued. `replica`: see Service.
    """
    shelf = Shelf(
        models,
        max_bytes=None if settings.models_mb is None else settings.models_mb << 20,
        turn_seconds=settings.model_turn,
        idle_seconds=settings.idle_unload,
    )
    lease = EngineLease(max_queue=settings.max_queue, shelf=shelf)
    trials = Trials(max_queue=settings.max_queue)
    metrics = Metrics(lease, shelf)
    slow_readers = SlowReaders(
        send_timeout=settings.send_timeout, max_bytes=4 * settings.max_unread_bytes
    )
    watchdog = Watchdog(lease, hang_seconds=settings.hang_seconds)
    large_bodies = LargeBodies()
    limits = TimeLimits(
        settings.queue_timeout, settings.first_token_timeout, settings.request_timeout
    )
    directory = settings.keep_streams_dir
    files = None
    if directory is not None and settings.keep_streams != "none":
        files = KeptFiles(
            directory,
            owners=owners(settings.all_keys),
            fingerprints=[model.engine.fingerprint for model in models],
            max_bytes=settings.keep_streams_mb << 20,
            seconds=settings.keep_streams_seconds,
        )
    kept = KeptStreams(
        keeps=settings.keep_streams,
        max_bytes=settings.keep_streams_mb << 20,
        seconds=settings.keep_streams_seconds,
        clock=time.monotonic,
        files=files,
    )
    spans = None
    if settings.otlp_endpoint is not None:
        from .stream.spans import Spans  # needs the extra `otel`

        spans = Spans(settings.otlp_endpoint)
    service = Service(
        settings,
        models[0],
        shelf,
        lease,
        limits,
        trials,
        metrics,
        slow_readers,
        watchdog,
        large_bodies,
        {model.name: Pace() for model in models},
        kept,
        on_queued or (lambda _: None),
        replica,
    )

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[dict[str, SlowReaders]]:
        lease.start()
        trials.start()
        prepare_streams()
        await kept.load()
        with watchdog.watching():
            yield {"slow_readers": slow_readers}  # where connections find it
            await kept.close()
            await trials.close()
            if await lease.close():
                for model in models:
                    await run_in_threadpool(model.engine.generator.close)
        if spans is not None:
            await run_in_threadpool(spans.close)

    app = ContractApp(
        title="Soliton",
        version=API_VERSION,
        description=_DESCRIPTION,
        lifespan=lifespan,
        openapi_url=None,
        redirect_slashes=False,
    )
    app.state.service = service
    app.state.lease = lease
    app.state.kept = kept
    app.state.trials = trials
    app.state.slow_readers = slow_readers
    app.state.watchdog = watchdog
    app.state.large_bodies = large_bodies
    wires = {wire.name: wire for wire in (COMPLETIONS, CHAT, RESPONSES, LLAMA, INFILL, MESSAGES)}
    # Stored chats come behind: one of their paths would match `control` and `input_tokens`.
    routers = [
        router_of(service)
        for router_of in (
            completion_routes, chat_routes, responses_routes, llama_routes, anthropic_routes,
            ollama_routes, ollama_model_routes, score_routes, estimate_routes,
            partial(acting_routes, wires=wires), token_routes, stored_chat_routes,
            stored_response_routes, stream_routes,
            load_routes, model_routes, tabby_routes, prop_routes, slot_routes, system_routes,
        )
    ]  # fmt: skip
    routers += [adapter_routes(), metric_routes(metrics), not_served_routes()]
    routes = [route for router in routers for route in router.routes]
    # `include_router` would build each of them again, at the first request.
    app.router.routes += routes
    add_documents(app)
    add_home(app, service)
    add_inspector(app)
    _add_error_handlers(app)
    app.add_exception_handler(404, not_found_handler(app.routes))
    _add_layers(app, settings, metrics, spans)
    return app


def _add_layers(app: FastAPI, settings: Settings, metrics: Metrics, spans: "Spans | None") -> None:
    """What every request passes before its route."""
    # The last one added is the outermost.
    app.add_middleware(KeyGate, api_keys=settings.all_keys, admin_keys=settings.admin_keys)
    if settings.allow_origins:
        app.add_middleware(
            Cors,
            allow_origins=settings.allow_origins,
            allow_methods=["DELETE", "GET", "POST"],
            allow_headers=["*"],
            expose_headers=_EXPOSED_HEADERS,
            # An origin that is listed is served wherever its pages are loaded from.
            allow_private_network=True,
        )
    app.add_middleware(
        HostGate,
        host=settings.host,
        allow_hosts=settings.allow_hosts,
        allow_origins=settings.allow_origins,
        has_keys=bool(settings.api_keys),
    )
    app.add_middleware(RefusedOrigins, allow_origins=settings.allow_origins)
    app.add_middleware(
        Boundary, max_body_bytes=settings.max_body_bytes, on_answered=metrics.answered
    )
    app.add_middleware(
        ErrorShape,
        is_of_wire=anthropic.is_of_this_wire,
        shape=anthropic.answered_error,
        id_header="request-id",
    )
    app.add_middleware(ErrorShape, is_of_wire=ollama.is_of_this_wire, shape=ollama.answered_error)
    app.add_middleware(ErrorShape, is_of_wire=llama.is_of_this_wire, shape=llama.answered_error)
    app.add_middleware(ErrorShape, is_of_wire=tabby.is_of_this_wire, shape=tabby.answered_error)
    app.add_middleware(Aliases)
    if spans is not None:
        app.add_middleware(spans.traced)
    if settings.access_log:
        app.add_middleware(AccessLog)


def _add_error_handlers(app: FastAPI) -> None:
    app.add_exception_handler(HTTPException, handle_http_error)
    app.add_exception_handler(RequestValidationError, handle_validation_error)
    for class_ in ERROR_TABLE:
        if class_ is not Exception:  # that one belongs to the boundary
            app.add_exception_handler(class_, handle_error)
