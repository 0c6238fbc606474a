"""A snapshot as bytes, for a file or another process.

Owns the format, and the strict reading of what somebody may have damaged or written by hand: a
magic line with the version, then JSON in zlib, which leaves defaults out. Knows no model: whether a
snapshot fits one is for the generator to say.
"""

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from ..errors import InvalidInputError
from .options import Live
from .snapshot import MAX_ATTEMPT, Snapshot

_MAGIC = b"soliton stream 1\n"
_MOST_BYTES = 64 << 20  # of JSON, so that a small file cannot fill the memory
_LEVEL = 6
# Finding them out takes longer than reading a snapshot.
_hints: Callable[[Any], dict[str, Any]] = cache(get_type_hints)


def snapshot_to_bytes(snapshot: Snapshot) -> bytes:
    """Some 2 to 3 bytes per token of prompt and completion, and what settings and options take;
    with mirostat, or a limit of the mean logprob, 9 bytes more per token.

    Whoever has the tokenizer can read the text from them.
    """
    text = json.dumps(_written(snapshot), ensure_ascii=False, separators=(",", ":"))
    return _MAGIC + zlib.compress(text.encode(), _LEVEL)


def snapshot_from_bytes(data: bytes) -> Snapshot:
    """Raises InvalidInputError, param "snapshot", that says what is wrong and where."""
    try:
        snapshot: Snapshot = _read(_unpacked(data), Snapshot, "")
    except InvalidInputError as error:
        if error.param == "snapshot":
            raise
        raise _wrong(str(error)) from error
    _check_places(snapshot)
    return snapshot


def _written(value: Any) -> Any:
    """`value` as JSON: a dataclass as an object without its defaults, a mapping of token ids as
    pairs.
    """
    if is_dataclass(value) and not isinstance(value, type):
        pairs = ((each, getattr(value, each.name)) for each in _stored_fields(type(value)))
        return {each.name: _written(mine) for each, mine in pairs if mine != _default(each)}
    if isinstance(value, Mapping):
        is_object = all(isinstance(key, str) for key in value)
        return dict(value) if is_object else [[key, each] for key, each in value.items()]
    if isinstance(value, tuple | list) and value and not isinstance(value[0], int | float | str):
        return [_written(each) for each in value]
    return value


def _read(value: Any, hint: Any, where: str) -> Any:
    """`value`, which came from JSON, as the type `hint`; `where`: its path in the snapshot."""
    origin, arms = get_origin(hint), get_args(hint)
    if hint is Any or (origin is Literal and value in arms):
        return value
    if origin is UnionType:
        return _read_arm(value, arms, where)
    if isinstance(hint, type) and is_dataclass(hint):
        return _read_dataclass(value, hint, where)
    if isinstance(hint, type) and issubclass(hint, tuple) and isinstance(value, list):
        hints = _hints(hint)
        if len(value) == len(hints):
            each = zip(value, hints.items(), strict=True)
            return hint(*[_read(item, kind, f"{where}.{name}") for item, (name, kind) in each])
    elif origin in (tuple, Sequence) and isinstance(value, list):
        if arms[0] is int and set(map(type, value)) <= {int}:  # most of a snapshot
            return tuple(value)
        return tuple([_read(item, arms[0], f"{where}[{i}]") for i, item in enumerate(value)])
    elif origin is Mapping and arms[0] is str and isinstance(value, dict):
        return value
    elif origin is Mapping and isinstance(value, list):
        return dict(_read_pair(item, arms, f"{where}[{i}]") for i, item in enumerate(value))
    elif hint is float and type(value) in (int, float):
        return float(value)
    elif hint in (int, bool, str) and type(value) is hint:
        return value
    elif value is None and hint is type(None):
        return None
    raise _wrong(f"{where or 'it'} must be {_named(hint)}, not {_shortened(value)}")


def _read_arm(value: Any, arms: Sequence[Any], where: str) -> Any:
    """As the first of several types that the value fits."""
    error: InvalidInputError | None = None
    for arm in arms:
        try:
            return _read(value, arm, where)
        except InvalidInputError as wrong:
            # Of a value and None, what is wrong with the value says more.
            error = error or wrong
    assert error is not None
    raise error


def _read_dataclass(value: Any, kind: type[Any], where: str) -> Any:
    if not isinstance(value, dict):
        raise _wrong(f"{where or 'it'} must be an object, not {_shortened(value)}")
    known = {each.name: each for each in _stored_fields(kind)}
    unknown = [name for name in value if name not in known]
    missing = [
        name for name, each in known.items() if _default(each) is MISSING and name not in value
    ]
    if unknown or missing:
        which = f"has no {missing[0]}" if missing else f"has an unknown member {unknown[0]!r}"
        raise _wrong(f"{where or 'it'} {which}")
    hints = _hints(kind)
    prefix = f"{where}." if where else ""
    return kind(**{name: _read(each, hints[name], prefix + name) for name, each in value.items()})


def _read_pair(value: Any, arms: Sequence[Any], where: str) -> tuple[Any, Any]:
    if not isinstance(value, list) or len(value) != 2:
        raise _wrong(f"{where} must be a pair, not {_shortened(value)}")
    return _read(value[0], arms[0], where), _read(value[1], arms[1], where)


def _stored_fields(kind: type[Any]) -> tuple["Field[Any]", ...]:
    """Without those of the options that belong to the caller of the moment."""
    return tuple(each for each in fields(kind) if each.name not in Live._fields)


def _default(field: "Field[Any]") -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _unpacked(data: bytes) -> Any:
    if not data.startswith(_MAGIC):
        raise _wrong(f"it must begin with {_MAGIC!r}, not with {data[: len(_MAGIC)]!r}")
    unpacker = zlib.decompressobj()
    try:
        text = unpacker.decompress(data[len(_MAGIC) :], _MOST_BYTES)
        if not unpacker.eof or unpacker.unused_data:
            raise _wrong(f"it is cut off, has bytes after its end, or holds over {_MOST_BYTES}")
        return json.loads(text)
    except (zlib.error, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise _wrong(f"it cannot be unpacked: {error}") from error


def _check_places(snapshot: Snapshot) -> None:
    """The numbers of tokens in it must lie in its completion, and in order."""
    n = snapshot.n_tokens
    starts = [each.start for each in snapshot.segments]
    if not starts or starts[0] != 0 or starts != sorted(set(starts)) or starts[-1] > n:
        raise _wrong(f"segments must start at 0 and then in order up to {n}, not at {starts[:9]}")
    ends = [end for run in snapshot.given for end in (run.start, run.stop)]
    if ends != sorted(ends) or any(not 0 <= run.start < run.stop <= n for run in snapshot.given):
        raise _wrong(f"given must hold runs in order from 0 to {n}, not {ends[:9]}")
    places = [each.n_tokens for each in snapshot.rewinds]
    places += [each.n_tokens for each in snapshot.call_bans]
    if any(not 0 <= place <= n for place in places):
        raise _wrong(f"rewinds and call_bans must lie between 0 and {n}, not at {places[:9]}")
    if snapshot.mus and len(snapshot.mus) != n + 1:
        raise _wrong(f"mus must hold {n + 1} numbers or none, not {len(snapshot.mus)}")
    if len(snapshot.logprob_sums) > n + 1:
        raise _wrong(
            f"logprob_sums must hold {n + 1} numbers at most, not {len(snapshot.logprob_sums)}"
        )
    for i, each in enumerate(snapshot.segments):
        if each.settings.seed is None:
            raise _wrong(f"segments[{i}].settings has no seed")
        if not 0 <= each.attempt <= MAX_ATTEMPT:
            raise _wrong(f"segments[{i}].attempt must be 0 to {MAX_ATTEMPT}, not {each.attempt}")


def _named(hint: Any) -> str:
    origin, arms = get_origin(hint), get_args(hint)
    if origin is Literal:
        return f"one of {', '.join(arms)}"
    if origin in (tuple, Sequence):
        return f"a list of {_named(arms[0])}"
    if origin is Mapping:
        return "an object" if arms[0] is str else "a list of pairs"
    if isinstance(hint, type) and issubclass(hint, tuple):
        return f"a list of {', '.join(_hints(hint))}"
    return hint.__name__ if isinstance(hint, type) else str(hint)


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _wrong(reason: str) -> InvalidInputError:
    return InvalidInputError(f"this is not a snapshot: {reason}", param="snapshot")
