"""A model in this process, for `chat` and `complete`: loading it, its settings, its replies.

Knows the engine's public surface; knows no HTTP.
"""

import argparse
import dataclasses
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from engine import AbortFlag, Engine, EngineError, LoadOptions, SamplingSettings

from ..settings import panel_cache_directory, user_cache
from .arguments import given_sampling
from .terminal import CommandError, on_interrupt, progress_bar


@contextmanager
def engine_errors() -> Iterator[None]:
    """Turns errors of the engine, and MemoryError, into a one-line CommandError."""
    try:
        yield
    except EngineError as error:
        raise CommandError(str(error)) from error
    except MemoryError as error:
        raise CommandError(f"not enough memory: {error}") from error


def load_options(args: argparse.Namespace) -> LoadOptions:
    """What the command line says, of the options that `add_model_arguments` added."""
    wanted = args.panel_cache
    return LoadOptions(
        device=args.device,
        dtype=args.dtype,
        max_seq_len=args.max_seq_len,
        quantize=args.quantize,
        kv_cache=args.kv_cache,
        n_threads=args.threads,
        panel_cache=user_cache() if wanted is None else panel_cache_directory(wanted),
        speculate=args.speculate,
        draft_model=_path(args.draft_model),
        chat_template=_path(args.chat_template),
    )


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text).expanduser()


def load_engine(path: Path, options: LoadOptions) -> Engine:
    """The engine of a model directory. Raises CommandError."""
    with engine_errors(), progress_bar("loading", unit="B") as bar:
        return Engine.load_with(path, dataclasses.replace(options, on_progress=bar))


def sampling_settings(args: argparse.Namespace, engine: Engine) -> SamplingSettings:
    """The model's default settings, overridden by the command line. Raises CommandError."""
    with engine_errors():
        return dataclasses.replace(engine.default_settings, **given_sampling(args))


class LocalChat:
    """Replies from a model in this process."""

    def __init__(
        self, engine: Engine, settings: SamplingSettings, *, max_tokens: int | None
    ) -> None:
        if engine.template is None:
            raise CommandError(
                f"{engine.model_id}: the model has no chat template; "
                "use `soliton complete` to continue a text"
            )
        self._engine = engine
        self._settings = settings
        self._max_tokens = max_tokens
        self.model = engine.model_id

    def reply(self, messages: list[dict[str, Any]]) -> Generator[str, None, None]:
        """Pieces of the assistant's text. Raises KeyboardInterrupt when Ctrl-C stopped it."""
        generator, abort = self._engine.generator, AbortFlag()
        with engine_errors(), on_interrupt(abort.set):
            with progress_bar("reading", unit="tok") as bar:
                prefill = generator.begin_stream_ex(
                    self._engine.encode_chat(messages),
                    self._settings,
                    max_new_tokens=self._max_tokens,
                    abort=abort,
                    on_progress=bar,
                )
            if prefill.aborted:
                raise KeyboardInterrupt
            while True:
                result = generator.stream_ex()
                yield result.chunk
                if result.eos_reason == "aborted":
                    raise KeyboardInterrupt
                if result.eos:
                    return
