"""The server under test, in a process of its own: `python -m tests.soak.server JSON`.

Everything is as in `soliton serve`, from its flags to its signals and its exit code; only the
engine may be the fake one, and the app has the debug routes.
"""

import json
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

from fastapi import FastAPI

import server.stream.stream
from engine import DEFAULT_MODEL, Engine
from server.app import create_app
from server.commands import serve
from server.commands.serve_options import settings_from
from server.process.drain import leave
from server.settings import Settings

from .audit import Audit, AuditedFeed
from .controls import Controls
from .debug import debug_routes
from .model import SoakEngine, SoakModel


@dataclass(frozen=True, slots=True)
class Options:
    """What is served, and how."""

    engine: str = "fake"
    """fake, bundled, or the directory of a model."""
    max_seq_len: int = 8192
    token_s: float = 0.0
    chunk: int = 64
    chunk_s: float = 0.0
    busy: bool = False
    """Whether the fake prefill computes, instead of sleeping."""
    ring: int = 4096
    """How many streams the audit keeps."""
    flags: dict[str, str] = field(default_factory=dict)
    """Options of `soliton serve`, without their dashes."""

    @property
    def as_json(self) -> str:
        return json.dumps(asdict(self))


def main(argv: list[str]) -> int:
    options = Options(**json.loads(argv[0]))
    server.stream.stream.Feed = AuditedFeed  # type: ignore[attr-defined, assignment]

    def load(settings: Settings, *, replica: str = "") -> tuple[FastAPI, str]:
        return _load(settings, options)

    serve.load_app = load
    flags = {"port": "0", "log-level": "error", **options.flags}
    argv = [text for name, value in flags.items() for text in (f"--{name}", value)]
    return serve.main(settings_from(argv))


def _load(settings: Settings, options: Options) -> tuple[FastAPI, str]:
    audit, model = Audit(ring=options.ring), None
    if options.engine == "fake":
        model = SoakModel(
            max_seq_len=options.max_seq_len,
            token_s=options.token_s,
            chunk=options.chunk,
            chunk_s=options.chunk_s,
            busy=options.busy,
        )
        engine = SoakEngine(model).as_engine
    else:
        path = DEFAULT_MODEL if options.engine == "bundled" else Path(options.engine)
        engine = Engine.load(path, device="cpu", max_seq_len=settings.max_seq_len)
    app = create_app(settings, engine, on_queued=audit.add)
    controls = Controls(app.state.lease, model, app.state.trials)
    app.include_router(debug_routes(app.state.lease, audit, controls, model))
    app.add_middleware(controls.layer)
    return app, engine.model_id


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
