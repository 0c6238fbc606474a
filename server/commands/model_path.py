"""What a MODEL argument means: a directory, or a model on the Hub, fetched if it is not cached.

Knows the engine's public surface; knows no HTTP. The engine is imported when it is needed: a name
that cannot be fetched is refused without it.
"""

from pathlib import Path

from .hub import HubName, cached_model, download


def model_path(model: str | None) -> Path:
    """The directory of a model (None: the built-in one). Raises CommandError if it cannot be
    fetched; the engine checks the directory itself.

    A directory wins over a model on the Hub of the same name, and a model in the cache is not
    looked for on the Hub again: that is what `soliton pull` is for.
    """
    if model is None:
        from engine import DEFAULT_MODEL

        return DEFAULT_MODEL
    path = Path(model).expanduser()
    name = None if path.exists() else HubName.read(model)
    if name is None:
        return path
    return cached_model(name) or pulled(name)


def pulled(name: HubName) -> Path:
    """The directory of a model's newest version, fetched from the Hub. Raises CommandError."""
    return download(name, check=_check)


def _check(directory: Path) -> None:
    from engine import model_config

    from .local import engine_errors

    with engine_errors():
        model_config(directory)
