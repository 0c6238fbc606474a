"""What a MODEL argument means: a directory, or a model on the Hub, fetched if it is not cached.

Knows the engine's public surface; knows no HTTP.
"""

from pathlib import Path

from engine import DEFAULT_MODEL, model_config

from .hub import HubName, cached_model, download
from .local import engine_errors


def model_path(model: str | None) -> Path:
    """The directory of a model (None: the built-in one). Raises CommandError if it cannot be
    fetched; the engine checks the directory itself.

    A directory wins over a model on the Hub of the same name, and a model in the cache is not
    looked for on the Hub again: that is what `soliton pull` is for.
    """
    if model is None:
        return DEFAULT_MODEL
    path = Path(model).expanduser()
    name = None if path.exists() else HubName.read(model)
    if name is None:
        return path
    return cached_model(name) or pulled(name)


def pulled(name: HubName) -> Path:
    """The directory of a model's newest version, fetched from the Hub. Raises CommandError."""
    with engine_errors():
        return download(name, check=model_config)
