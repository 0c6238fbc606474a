"""Untrusted files: those of a model directory and of a cache.

Owns that only regular files are opened, that nothing hangs on a pipe or device, and what counts as
missing; and JSON, with messages that name file and key. Links are followed, because Hugging Face
caches consist of them. Knows no key by name.
"""

import json
import os
import re
import stat
from collections import ChainMap
from collections.abc import Mapping
from io import BufferedReader
from pathlib import Path
from typing import Any, NoReturn, TypeGuard, cast

from .errors import ModelLoadError

MAX_JSON_BYTES = 4 * 1024 * 1024
"""The header of a model with the largest supported number of layers takes half of this."""
_MAX_JSON_VALUES = 200_000
_MAX_SHOWN = 80  # characters
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def parse_json_object(data: bytes, where: str) -> dict[str, Any]:
    """One JSON object in UTF-8, read strictly: duplicate keys, NaN, lone surrogates and absurd
    nesting raise ModelLoadError. So does JSON that would take much more memory than its file.
    """
    if len(data) > MAX_JSON_BYTES:
        raise ModelLoadError(f"{where}: {len(data)} bytes; at most {MAX_JSON_BYTES} are read")
    if data.count(b",") + data.count(b"[") + data.count(b"{") > _MAX_JSON_VALUES:
        raise ModelLoadError(f"{where}: more than {_MAX_JSON_VALUES} values")
    try:
        value = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_unique_keys,
            parse_constant=_no_constant,
            parse_int=_integer,
        )
        if _SURROGATE.search(data):
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        raise ModelLoadError(f"{where}: not UTF-8 at byte {error.start}") from error
    except UnicodeEncodeError as error:
        raise ModelLoadError(f"{where}: not valid JSON (a lone surrogate)") from error
    except RecursionError as error:
        raise ModelLoadError(f"{where}: nested too deeply") from error
    except ValueError as error:
        raise ModelLoadError(f"{where}: not valid JSON ({error})") from error
    if not isinstance(value, dict):
        raise ModelLoadError(f"{where}: must be a JSON object, not {_kind(value)}")
    return value


def read_file(path: Path, max_bytes: int) -> bytes:
    """The bytes of a regular file of at most `max_bytes`; anything else raises ModelLoadError."""
    with open_regular(path) as stream:
        size = size_of(stream)
        if size > max_bytes:
            raise ModelLoadError(f"{path}: {size} bytes; at most {max_bytes} are read")
        try:
            return stream.read(max_bytes)
        except OSError as error:
            raise ModelLoadError(f"{path}: {error.strerror or error}") from error


class Values:
    """Values of a file by key; the error of every getter names file and key.

    A getter with a default returns it for a missing key and for None.
    """

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self.values = values
        self.where = where

    def has(self, key: str) -> bool:
        return self.values.get(key) is not None

    def integer(self, key: str, *, low: int, high: int, default: int | None = None) -> int:
        value = self._get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            self.fail(key, value, f"an integer between {low} and {high}")
        return value

    def number(self, key: str, *, low: float, high: float, default: float | None = None) -> float:
        value = self._get(key, default)
        if not _is_number(value) or not low <= value <= high:
            self.fail(key, value, f"a number between {low:g} and {high:g}")
        return float(value)

    def boolean(self, key: str, *, default: bool | None = None) -> bool:
        value = self._get(key, default)
        if not isinstance(value, bool):
            self.fail(key, value, "true or false")
        return value

    def string(self, key: str, *, default: str | None = None) -> str:
        value = self._get(key, default)
        if not isinstance(value, str):
            self.fail(key, value, "a string")
        return value

    def _get(self, key: str, default: object = None) -> Any:
        """Of any type."""
        value = self.values.get(key)
        if value is not None:
            return value
        if default is None:
            raise ModelLoadError(f"{self.where}: {shown_name(key)}: missing")
        return default

    def fail(self, key: str, value: object, allowed: str) -> NoReturn:
        raise ModelLoadError(
            f"{self.where}: {shown_name(key)}: must be {allowed}, not {self.shown(value)}"
        )

    def shown(self, value: object) -> str:
        """For a message."""
        return shown(value)


class JsonObject(Values):
    """A JSON object of a file."""

    def changed(self, values: Mapping[str, Any]) -> "JsonObject":
        """The same with these values. The others are read when they are asked for."""
        return JsonObject(ChainMap(dict(values), cast(dict[str, Any], self.values)), self.where)

    @classmethod
    def read(cls, path: Path) -> "JsonObject":
        return cls(parse_json_object(read_file(path, MAX_JSON_BYTES), str(path)), str(path))

    def strings(self, key: str) -> list[str]:
        value = self._get(key)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self.fail(key, value, "a list of strings")
        return value

    def numbers(self, key: str, *, count: int, low: float, high: float) -> tuple[float, ...]:
        value = self._get(key)
        known = isinstance(value, list) and len(value) == count
        if not (known and all(_is_number(item) and low <= item <= high for item in value)):
            self.fail(key, value, f"a list of {count} numbers between {low:g} and {high:g}")
        return tuple(map(float, value))

    def nested(self, key: str) -> "JsonObject":
        value = self._get(key)
        if not isinstance(value, dict):
            self.fail(key, value, "an object")
        return JsonObject(value, f"{self.where}: {key}")

    def token_ids(self, key: str, vocab_size: int) -> tuple[int, ...]:
        """One id, a list of ids, or null (none)."""
        value = self.values.get(key)
        if value is None:
            return ()
        token_ids = value if isinstance(value, list) else [value]
        for token_id in token_ids:
            if not isinstance(token_id, int) or isinstance(token_id, bool):
                self.fail(key, value, "a token id or a list of them")
            if not 0 <= token_id < vocab_size:
                self.fail(key, value, f"token ids between 0 and {vocab_size - 1}")
        return tuple(dict.fromkeys(token_ids))


def shown_name(name: str) -> str:
    """A name from a file, bounded and printable, for a message."""
    return name if name.isprintable() and 0 < len(name) <= _MAX_SHOWN else shown(name)


def _integer(digits: str) -> int | float:
    """-0 is a float, as in parsers that separate natural numbers from others."""
    return -0.0 if digits == "-0" else int(digits)


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"the key {shown(key)} occurs twice")
            seen.add(key)
    return values


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _is_number(value: object) -> TypeGuard[float]:
    """NaN is not a number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


def _kind(value: object) -> str:
    return "an array" if isinstance(value, list) else f"a {type(value).__name__}"


def shown(value: object) -> str:
    """A value from a file, bounded and printable, for a message."""
    # Only the beginning of a long value is written out.
    text = repr(value[:_MAX_SHOWN] if isinstance(value, str | list) else value)
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 3]}..."


def is_there(path: Path) -> bool:
    """Whether a path exists, whatever it is. Raises ModelLoadError for a link that leads nowhere or
    in a circle: somebody meant the file to exist.
    """
    try:
        path.stat()
    except FileNotFoundError as error:
        for link in (path, path.parent):
            if link.is_symlink() and not link.exists():
                raise ModelLoadError(
                    f"{link}: is a link to {os.readlink(link)}, which does not exist"
                ) from error
        return False
    except NotADirectoryError:
        return False
    except (OSError, ValueError) as error:  # too many links, a NUL in the path
        raise ModelLoadError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    return True


def open_regular(path: Path) -> BufferedReader:
    """Opens a regular file for reading; anything else raises ModelLoadError."""
    try:
        stream = open_if_regular(path) if is_there(path) else None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise ModelLoadError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    if stream is None:
        reason = "is not a regular file" if is_there(path) else "does not exist"
        raise ModelLoadError(f"{path}: {reason}")
    return stream


def open_if_regular(path: Path) -> BufferedReader | None:
    """Opens a regular file for reading; None for anything else that exists. Raises OSError."""
    if not stat.S_ISREG(path.stat().st_mode):
        return None
    # O_NONBLOCK: if the path has become a pipe meanwhile, opening it would wait for a writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    return os.fdopen(descriptor, "rb")


def size_of(stream: BufferedReader) -> int:
    return os.fstat(stream.fileno()).st_size
