"""A GGUF model: one file, or the parts of a split one.

Owns how the parts find each other. `header.py` reads each of them. Knows no model.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import ModelLoadError
from ..files import is_there, shown_name
from ..stored_tensor import StoredTensor
from .cursor import Allowance
from .header import Header, read_header
from .metadata import Metadata

_PART = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
_NUMBER, _COUNT, _TENSORS = "split.no", "split.count", "split.tensors.count"
_MAX_PARTS = 65_535


@dataclass(frozen=True, slots=True)
class GgufFile:
    """What the headers say."""

    file: Path
    """The one that was given; the first of several parts."""
    parts: tuple[Path, ...]
    """All files, in order."""
    metadata: Metadata
    tensors: Mapping[str, StoredTensor]


def read_gguf(path: str | Path) -> GgufFile:
    """Reads the header of a GGUF file, and those of all parts if it is the first one.

    Raises ModelLoadError, one line that names file, byte or key, and the reason.
    """
    file = Path(path)
    allowance = Allowance()
    first = read_header(file, allowance)
    count = first.metadata.integer(_COUNT, low=0, high=_MAX_PARTS, default=1)
    if count <= 1:
        return GgufFile(file, (file,), first.metadata, first.tensors)
    parts = _part_names(file, first.metadata, count)
    headers = [first]
    for index, part in enumerate(parts[1:], 1):
        headers.append(_read_part(part, index, first, allowance))
    tensors = _by_name([header.tensors for header in headers])
    wanted = first.metadata.integer(_TENSORS, low=0, high=2**31)
    if len(tensors) != wanted:
        first.metadata.fail(_TENSORS, wanted, f"{len(tensors)}, as many as the parts hold")
    return GgufFile(file, parts, first.metadata, tensors)


def _part_names(file: Path, metadata: Metadata, count: int) -> tuple[Path, ...]:
    """All parts of the model whose first one is `file`."""
    named = _PART.fullmatch(file.name)
    number = metadata.integer(_NUMBER, low=0, high=count - 1)
    if named is None or int(named["number"]) != number + 1 or int(named["count"]) != count:
        example = f"NAME-{number + 1:05}-of-{count:05}.gguf"
        raise ModelLoadError(
            f"{file}: is part {number + 1} of {count} ({_NUMBER}, {_COUNT}), "
            f"which must be named {example}"
        )
    parts = tuple(
        file.with_name(f"{named['stem']}-{i:05}-of-{count:05}.gguf") for i in range(1, count + 1)
    )
    if number:
        raise ModelLoadError(f"{file}: is part {number + 1} of {count}; give {parts[0].name}")
    missing = [part.name for part in parts if not is_there(part)]
    if missing:
        raise ModelLoadError(
            f"{file}: has {count} parts; {len(missing)} missing beside it: {', '.join(missing[:3])}"
            + (", ..." if len(missing) > 3 else "")
        )
    return parts


def _read_part(part: Path, index: int, first: Header, allowance: Allowance) -> Header:
    """A part after the first one, which must say that it is that."""
    header = read_header(part, allowance)
    for key, wanted in (
        (_NUMBER, index),
        (_COUNT, first.metadata.integer(_COUNT, low=2, high=_MAX_PARTS)),
        (_TENSORS, first.metadata.integer(_TENSORS, low=0, high=2**31)),
    ):
        found = header.metadata.integer(key, low=0, high=2**31)
        if found != wanted:
            header.metadata.fail(key, found, f"{wanted} in this part")
    return header


def _by_name(tables: Sequence[Mapping[str, StoredTensor]]) -> dict[str, StoredTensor]:
    """The tensors of all files together. Raises ModelLoadError for a name in two of them."""
    tensors: dict[str, StoredTensor] = {}
    for table in tables:
        for name, tensor in table.items():
            if name in tensors:
                other = tensors[name].file.name
                raise ModelLoadError(f"{tensor.file}: {shown_name(name)}: is also in {other}")
            tensors[name] = tensor
    return tensors
