"""Twelve hex digits that change when the same request may get another answer.

Owns what they depend on: a sample of the weights, the whole of the small files next to them or of
the header that says the same, the device and its number formats, and what keys are stored without.
Keys and values on disk are stored under these digits.
"""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from .chat.template.sources import TEMPLATE_FILE, TOOL_TEMPLATE_FILE
from .checkpoint.generation_config import GENERATION_FILE
from .checkpoint.sample import sample_checkpoint
from .device.arguments import Array
from .device.ops import Ops
from .files import is_there, open_regular, size_of
from .native import cpu as native
from .stored_tensor import StoredTensor
from .text.tokenizer_json import CONFIG_FILE, TOKENIZER_FILE

_WHOLE = (
    "config.json", TOKENIZER_FILE, CONFIG_FILE, GENERATION_FILE, TEMPLATE_FILE, TOOL_TEMPLATE_FILE,
)  # fmt: skip


def fingerprint(
    path: Path,
    tensors: Mapping[str, StoredTensor],
    ops: Ops,
    *,
    stretched: int = 0,
    chat_template: Path | None = None,
) -> str:
    """The fingerprint of the model in `path`, computed by `ops`. Raises ModelLoadError.

    `stretched`: the context length that its keys depend on (RopeConfig.stretched_to).
    `chat_template`: the file of the template that is used instead of the model's own.
    """
    computed = f"{_build()} {ops.format} {ops.kv_format} {ops.name} {stretched}"
    digest = hashlib.sha256(computed.encode())
    sample_checkpoint(tensors, digest)
    files = {name: path / name for name in _WHOLE}
    if chat_template is not None:
        files["chat_template"] = chat_template
    for name, file in files.items():
        if is_there(file):
            with open_regular(file) as stream:
                digest.update(name.encode() + hashlib.sha256(stream.read()).digest())
    if not path.is_dir():
        digest.update(_header(path, tensors))
    return _name(digest.hexdigest())


def with_common_keys(of_files: str, common_keys: Iterable[Array | None]) -> str:
    """The fingerprint of a model that stores keys without `common_keys`, which were found when it
    was loaded: of each layer, None where it has none (LayerWeights.common_keys). `of_files`: its
    `fingerprint`, which is returned if no layer has any.
    """
    found = [np.asarray(each).tobytes() for each in common_keys if each is not None]
    if not found:
        return of_files
    return _name(hashlib.sha256(b"".join([of_files.encode(), *found])).hexdigest())


def _name(digits: str) -> str:
    return f"fp_{digits[:12]}"


def _header(file: Path, tensors: Mapping[str, StoredTensor]) -> bytes:
    """A digest of what a GGUF file says before its data, such as the tokenizer."""
    with open_regular(file) as stream:
        begins = [tensor.begin for tensor in tensors.values() if tensor.file == file]
        header = stream.read(min(begins, default=size_of(stream)))
    return hashlib.sha256(header).digest()


def _build() -> str:
    """A hash of the native modules: they contain the release, which a checkout keeps for long. The
    release alone if there are none.
    """
    if not native.MISSING:
        return native.build()
    from importlib.metadata import PackageNotFoundError, version  # imports much

    try:
        return version("soliton")
    except PackageNotFoundError:
        return "a checkout"
