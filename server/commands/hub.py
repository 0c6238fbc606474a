"""Models of the Hugging Face Hub: their names, and their files in the cache that other tools share.

Owns which files a model needs, and the errors that say how to get it elsewhere. Whether the engine
can load a model is up to the caller's `check`. huggingface_hub is imported when a name needs it.
"""

import errno
import json
import logging
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from .terminal import CommandError

_CONFIG = "config.json"
_TOKENIZER = "tokenizer.json"
_WEIGHTS = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_OPTIONAL = (
    "generation_config.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "additional_chat_templates/tool_use.jinja",
)
# What the Hub allows: letters, digits, - _ . in both parts, at most 96 characters each.
_PART = r"[A-Za-z0-9](?:[\w.-]{0,94}[A-Za-z0-9_])?"
_NAME = re.compile(rf"({_PART}/{_PART})(?:@([\w./-]+))?", re.ASCII)
_SHOWN = 300  # characters of a message of the Hub or the system


class HubName(NamedTuple):
    """A model on the Hub."""

    repo: str  # ORG/NAME
    revision: str | None  # a branch, tag or commit; None means main

    def __str__(self) -> str:
        return self.repo if self.revision is None else f"{self.repo}@{self.revision}"

    @classmethod
    def read(cls, text: str) -> "HubName | None":
        """ORG/NAME or ORG/NAME@REVISION; None for anything else, such as a path."""
        match = _NAME.fullmatch(text)
        if match is None or "--" in match[1] or ".." in text or match[1].endswith(".git"):
            return None
        return cls(match[1], match[2])


class _Bar(tqdm):  # type: ignore[misc]  # tqdm has no types
    """A bar for a file that takes longer than half a second, hidden without a terminal."""

    def __init__(self, **options: Any) -> None:
        file = str(options.pop("desc", "")).rpartition("/")[2]  # without revision and "…"
        super().__init__(**options | {"desc": file, "disable": None, "leave": False, "delay": 0.5})


def cached_model(name: HubName) -> Path | None:
    """The directory of a model whose files are all in the cache. Needs no network."""
    from huggingface_hub import try_to_load_from_cache

    with _errors_of(name):
        config = try_to_load_from_cache(name.repo, _CONFIG, revision=name.revision)
    if not isinstance(config, str):
        return None
    directory = Path(config).parent
    needed = (_CONFIG, _TOKENIZER, *_weight_files(directory))
    return directory if all((directory / file).is_file() for file in needed) else None


def download(name: HubName, check: Callable[[Path], object]) -> Path:
    """Fetches the files that are missing in the cache and returns the model's directory.

    `check` gets the directory as soon as it has config.json, and raises for a model that cannot be
    used: nothing larger is fetched then. Raises CommandError.
    """
    from huggingface_hub import HfApi, hf_hub_download

    for client in ("httpx", "httpx2"):  # which one depends on the version of huggingface_hub
        logging.getLogger(client).setLevel(logging.WARNING)  # at INFO, one line per request
    with _errors_of(name):
        info = HfApi().model_info(name.repo, revision=name.revision, files_metadata=True)
        sizes = {file.rfilename: file.size or 0 for file in info.siblings or ()}
        _check_files(name, sizes)
        config = Path(hf_hub_download(name.repo, _CONFIG, revision=name.revision, tqdm_class=_Bar))
    directory = config.parent
    commit = directory.name
    check(directory)

    def fetch(file: str) -> None:
        with _errors_of(name):
            hf_hub_download(name.repo, file, revision=commit, tqdm_class=_Bar)

    # Weights last: a directory that has them has everything.
    for file in (_TOKENIZER, *_OPTIONAL):
        if file in sizes:
            fetch(file)
    if _WEIGHTS not in sizes:
        fetch(_INDEX)
    weights = [file for file in _weight_files(directory) if file in sizes]
    missing = [file for file in weights if not (directory / file).is_file()]
    _announce(name, sum(sizes[file] for file in missing), len(missing), directory)
    for file in missing:
        fetch(file)
    return directory


def _weight_files(directory: Path) -> list[str]:
    """The weights of a model in the cache; its index, if it has one, must be there."""
    index = directory / _INDEX
    if (directory / _WEIGHTS).is_file() or not index.is_file():
        return [_WEIGHTS]
    try:
        shards = json.loads(index.read_bytes())["weight_map"].values()
        return [_INDEX, *sorted({str(Path(shard).name) for shard in shards})]
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise CommandError(f"{index}: not an index of safetensors files ({error})") from error


def _check_files(name: HubName, sizes: Mapping[str, int]) -> None:
    """Raises CommandError if a file that every model needs does not exist on the Hub."""
    if _WEIGHTS not in sizes and _INDEX not in sizes:
        ggufs = [file for file in sizes if file.endswith(".gguf")]
        if ggufs:
            raise CommandError(
                f"{name}: holds {len(ggufs)} GGUF file(s) such as {ggufs[0]}, and no safetensors; "
                f"get one with: hf download {name} {ggufs[0]} --local-dir DIR, then give its path"
            )
        others = [file for file in sizes if file.endswith((".bin", ".pth", ".onnx"))]
        found = f" (it has {others[0]}, which is not supported)" if others else ""
        raise CommandError(
            f"{name}: has no safetensors weights{found}; look for the original repository of this "
            "model, with config.json and model.safetensors"
        )
    for file in (_CONFIG, _TOKENIZER):
        if file not in sizes:
            raise CommandError(
                f"{name}: has no {file}; a model needs {_CONFIG}, {_TOKENIZER} and safetensors"
            )


def _announce(name: HubName, n_bytes: int, n_files: int, directory: Path) -> None:
    """Prints how much is to be fetched. Raises CommandError if the disk has less space."""
    if not n_files:
        return
    free = shutil.disk_usage(directory).free
    if n_bytes > free:
        raise CommandError(
            f"{name}: {_size(n_bytes)} to download, but {directory} has only {_size(free)} free; "
            "set HF_HOME to a directory on a larger disk"
        )
    files = "1 file" if n_files == 1 else f"{n_files} files"
    print(f"downloading {name}: {_size(n_bytes)} in {files} to {directory}", file=sys.stderr)


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 1e9:.1f} GB" if n_bytes >= 1e8 else f"{n_bytes / 1e6:.1f} MB"


@contextmanager
def _errors_of(name: HubName) -> Iterator[None]:
    """Turns the errors of huggingface_hub into a one-line CommandError with a way on."""
    try:
        yield
    except CommandError:
        raise
    # Any error: the library passes on those of its HTTP client, which changes between versions.
    except Exception as error:
        raise CommandError(f"{name}: {_reason(name, error)}") from error


def _reason(name: HubName, error: Exception) -> str:
    from huggingface_hub import constants
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    if isinstance(error, LocalEntryNotFoundError) and isinstance(error.__cause__, Exception):
        error = error.__cause__
    elsewhere = (
        f"or run `hf download {name.repo} --local-dir DIR` on a machine with a network, copy DIR "
        "here and `soliton serve DIR`"
    )
    if isinstance(error, GatedRepoError):  # a RepositoryNotFoundError too
        return (
            "this model is gated: accept its license on its page of the Hub, then set HF_TOKEN or "
            f"run `hf auth login`; {elsewhere}"
        )
    status = error.response.status_code if isinstance(error, HfHubHTTPError) else None
    # The Hub does not say whether a model exists that this user may not see.
    if isinstance(error, RepositoryNotFoundError) or status == 401:
        return (
            "neither a directory here nor a model on the Hub that you may read; check the spelling "
            f"and, for a private model, HF_TOKEN or `hf auth login`; {elsewhere}"
        )
    if isinstance(error, RevisionNotFoundError):
        return f"the Hub has no revision {name.revision} of {name.repo}; leave @REVISION out"
    if isinstance(error, OfflineModeIsEnabled):
        return (
            "not in the cache, and HF_HUB_OFFLINE is set; unset it to download the model, "
            f"{elsewhere}"
        )
    if status is not None:
        return f"the Hub answers HTTP {status}; try again later, {elsewhere}"
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full; make room, or set HF_HOME to a directory on a larger disk"
    if isinstance(error, OSError) and error.filename is not None:
        return (
            f"the cache cannot be written ({error.strerror}: {error.filename}); set HF_HOME to a "
            "directory that can"
        )
    text = " ".join(f"{type(error).__name__}: {error}".split())[:_SHOWN]
    return (
        f"cannot download from {constants.ENDPOINT} ({text}); check the network and try again, "
        f"{elsewhere}"
    )
