"""What a MODEL argument means: a path, a model with a name of its own, or one on the Hub. What is
not on this machine is fetched.

Knows the engine's public surface; knows no HTTP. The engine is imported when it is needed: a name
that cannot be fetched is refused without it.
"""

from pathlib import Path

from ..suggest import did_you_mean
from .hub import HubName, cached_model, download
from .packaged import PACKAGED, packaged_path
from .terminal import CommandError

# A word is a misspelt name only if it is as near to one as smolm2 is to smollm2.
_NEAR = 0.75


def model_path(model: str | None) -> Path:
    """The path of a model (None: the built-in one). Raises CommandError if it cannot be fetched;
    the engine checks the path itself.

    A path wins over a model of the same name, and a model in the cache is not looked for on the Hub
    again: that is what `soliton pull` is for.
    """
    if model is None:
        from engine import DEFAULT_MODEL

        return DEFAULT_MODEL
    path = Path(model).expanduser()
    if path.exists():
        return path
    if model in PACKAGED:
        return packaged_path(PACKAGED[model])
    if (name := HubName.read(model)) is not None:
        return cached_model(name) or pulled(name)
    if near := did_you_mean(model, PACKAGED, cutoff=_NEAR):
        raise CommandError(f"{model}: does not exist{near}")
    return path


def spoken_name(model: str | None) -> str | None:
    """The name that a MODEL argument is, if it is the name of a model and no path."""
    if model is None or Path(model).expanduser().exists():
        return None
    return model if model in PACKAGED or HubName.read(model) is not None else None


def pulled(name: HubName) -> Path:
    """The directory of a model's newest version, fetched from the Hub. Raises CommandError."""
    return download(name, check=_check)


def _check(directory: Path) -> None:
    from engine import model_config

    from .local import engine_errors

    with engine_errors():
        model_config(directory)
