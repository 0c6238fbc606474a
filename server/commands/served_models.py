"""The models that a server is started with, each loaded once.

Owns their names, their shares of what all have together, and how a mistake is told. The first one
stays in memory; the others give their memory back until they are asked.
"""

import logging
import time
from dataclasses import replace

from engine import Engine, LoadOptions

from ..lease.served_model import ServedModel
from ..settings import Settings
from .local import load_engine
from .model_path import model_path, spoken_name
from .terminal import CommandError

_logger = logging.getLogger(__name__)


def load_models(settings: Settings) -> list[ServedModel]:
    """In the order of the settings. Raises CommandError."""
    options = _options(settings)
    if not settings.models:
        return [_one(settings, options)]
    share = replace(options, prefix_bytes=options.prefix_bytes // len(settings.models))
    models = list[ServedModel]()
    # The first one comes last, and stays.
    for name, path in reversed(settings.named_models):
        for other in models:
            other.put_away()
        try:
            engine, seconds = _loaded(path, share)
        except CommandError as error:
            raise CommandError(f"--model {name}={path}: {error}") from error
        _logger.info(
            "%s: loaded in %.1f s, %d MiB of weights", name, seconds, _mib(engine.weight_bytes)
        )
        models.insert(0, ServedModel((name,), engine, load_seconds=seconds))
    if settings.models_mb is not None:
        _check_room(models, settings.models_mb << 20)
    return models


def _one(settings: Settings, options: LoadOptions) -> ServedModel:
    """A model that was named on the command line is served under that name, too."""
    engine, seconds = _loaded(settings.model, options)
    spoken = spoken_name(settings.model) or engine.model_id
    names = settings.served_model_name or tuple(dict.fromkeys((engine.model_id, spoken)))
    return ServedModel(names, engine, load_seconds=seconds)


def _loaded(path: str | None, options: LoadOptions) -> tuple[Engine, float]:
    """With the seconds that it took."""
    begin = time.monotonic()
    engine = load_engine(model_path(path), options)
    return engine, time.monotonic() - begin


def _check_room(models: list[ServedModel], max_bytes: int) -> None:
    """Raise CommandError if one of the models does not fit even alone."""
    n_kv = sum(model.engine.kv_bytes for model in models)
    for model in models:
        n_bytes = n_kv + model.engine.weight_bytes
        if n_bytes > max_bytes:
            raise CommandError(
                f"--models-mb must be {_mib(n_bytes)} or more, not {max_bytes >> 20}: so much do "
                f"the weights of {model.name} need, with {_mib(n_kv)} for keys and values of all "
                "models (--max-seq-len makes these smaller)"
            )


def _mib(n_bytes: int) -> int:
    return -(-n_bytes >> 20)


def _options(settings: Settings) -> LoadOptions:
    return LoadOptions(
        device=settings.device,
        dtype=settings.dtype,
        max_seq_len=settings.max_seq_len,
        quantize=settings.quantize,
        kv_cache=settings.kv_cache,
        chat_template=settings.chat_template,
        n_threads=settings.threads,
        require_native=settings.require_native,
        panel_cache=settings.panel_cache,
        speculate=settings.speculate,
        draft_model=settings.draft_model,
        warm_up=False,  # the engine thread does it, while the server takes its first requests
        prefix_bytes=settings.prefix_cache_mb * 2**20,
        prefix_directory=settings.prefix_cache_dir,
        prefix_disk_bytes=settings.prefix_cache_disk_mb * 2**20,
    )
