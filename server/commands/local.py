"""A model in this process, for `chat` and `complete`: loading it, and its settings.

Knows the engine's public surface; knows no HTTP.
"""

import argparse
import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engine import Engine, EngineError, LoadOptions, SamplingSettings

from ..settings import panel_cache_directory, user_cache
from .arguments import given_sampling
from .terminal import CommandError, progress_bar


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
