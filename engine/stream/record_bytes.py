"""Token records as bytes, some ten times smaller than as objects, for streams that are kept.

Owns the format: a magic line with the version, then one column per field, in numbers of which those
that follow nearly from another one are stored as the difference of their bits, all in zlib. Every
number comes back to the last bit. Knows no stream.
"""

import json
import math
import zlib
from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import InvalidInputError
from ..sampling.request import TraceStep
from ..text.vocabulary import Vocabulary
from .result import TokenRecord, TopToken

_MAGIC = b"soliton records 1\n"
_LEVEL = 6
_NONE = -1  # for a token that was not proposed

_Floats = npt.NDArray[np.float64]


def records_to_bytes(records: Sequence[TokenRecord]) -> bytes:
    """Some 110 bytes per record with five alternatives, or 35 without."""
    tops = [top for record in records for top in record.top]
    whole = [
        [record.token_id for record in records],
        [record.text_start for record in records],
        [record.text_end - record.text_start for record in records],
        [len(record.token_bytes) for record in records],
        [record.rank for record in records],
        [_NONE if record.proposed is None else record.proposed for record in records],
        [len(record.top) for record in records],
        [len(record.watched) for record in records],
    ]
    logprobs = _floats([record.logprob for record in records])
    p_raw = _floats([record.p_raw for record in records])
    p_sampled = _floats([record.p_sampled for record in records])
    kept_mass = _floats([record.kept_mass for record in records])
    top_logprobs = _floats([top.logprob for top in tops])
    top_p_sampled = _floats([top.p_sampled for top in tops])
    columns = [
        *[_shuffled(np.array(column, np.int32)) for column in whole],
        _shuffled(logprobs),
        _shuffled(_xor(p_raw, _exp(logprobs))),
        _shuffled(_xor(p_sampled, p_raw)),
        _shuffled(_floats([record.entropy for record in records])),
        _shuffled(_floats([record.margin for record in records])),
        _shuffled(_xor(kept_mass, np.ones(len(records)))),
        _shuffled(np.array([top.token_id for top in tops], np.int32)),
        _shuffled(top_logprobs),
        _shuffled(_xor(top_p_sampled, _exp(top_logprobs))),
        _shuffled(_floats([p for record in records for p in record.watched])),
        b"".join(record.token_bytes for record in records),
    ]
    origins = [record.origin for record in records]
    traces = {i: record.trace for i, record in enumerate(records) if record.trace}
    rest = json.dumps([origins, list(traces.items())]).encode()
    sizes = np.array([len(records), len(tops), len(rest)], np.int64).tobytes()
    return _MAGIC + zlib.compress(b"".join((sizes, rest, *columns)), _LEVEL)


def records_from_bytes(data: bytes, vocabulary: Vocabulary) -> list[TokenRecord]:
    """What `records_to_bytes` took, for the same vocabulary.

    Raises InvalidInputError for bytes of another version and for those that were damaged.
    """
    if not data.startswith(_MAGIC):
        raise _wrong(f"they must begin with {_MAGIC!r}, not with {data[: len(_MAGIC)]!r}")
    try:
        reader = _Reader(zlib.decompress(data[len(_MAGIC) :]))
    except zlib.error as error:
        raise _wrong(str(error)) from error
    n, n_tops, n_rest = reader.plain(3)
    origins, traces = json.loads(reader.take(n_rest))
    whole = (reader.whole(n) for _ in range(8))
    ids, starts, lengths, n_bytes, ranks, proposed, n_top, n_watched = whole
    logprobs = reader.floats(n)
    p_raw = _xor(reader.floats(n), _exp(logprobs))
    p_sampled = _xor(reader.floats(n), p_raw)
    entropy, margin = reader.floats(n).tolist(), reader.floats(n).tolist()
    kept_mass = _xor(reader.floats(n), np.ones(n)).tolist()
    tops = _tops(reader, n_tops, vocabulary)
    watched = iter(reader.floats(sum(n_watched)).tolist())
    steps = {i: tuple(TraceStep(*step) for step in trace) for i, trace in traces}
    records, first = [], 0
    for i in range(n):
        records.append(
            TokenRecord(
                ids[i],
                reader.take(n_bytes[i]),
                starts[i],
                starts[i] + lengths[i],
                float(logprobs[i]),
                float(p_raw[i]),
                float(p_sampled[i]),
                tuple(tops[first : first + n_top[i]]),
                vocabulary.is_special(ids[i]),
                ranks[i],
                entropy[i],
                margin[i],
                kept_mass[i],
                origins[i],
                None if proposed[i] == _NONE else proposed[i],
                steps.get(i, ()),
                tuple(islice(watched, n_watched[i])),
            )
        )
        first += n_top[i]
    return records


class _Reader:
    """Takes one column after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, n: int) -> bytes:
        self._at += n
        return self._data[self._at - n : self._at]

    def plain(self, n: int) -> list[int]:
        return list(map(int, np.frombuffer(self.take(8 * n), np.int64)))

    def whole(self, n: int) -> list[int]:
        return list(map(int, _unshuffled(self.take(4 * n), np.int32)))

    def floats(self, n: int) -> _Floats:
        floats: _Floats = _unshuffled(self.take(8 * n), np.float64)
        return floats


def _tops(reader: _Reader, n: int, vocabulary: Vocabulary) -> list[TopToken]:
    ids, logprobs = reader.whole(n), reader.floats(n)
    p_raw = _exp(logprobs)
    p_sampled = _xor(reader.floats(n), p_raw)
    rows = zip(ids, logprobs.tolist(), p_raw.tolist(), p_sampled.tolist(), strict=True)
    return [TopToken(id_, vocabulary.token_bytes(id_), *numbers) for id_, *numbers in rows]


def _wrong(reason: str) -> InvalidInputError:
    return InvalidInputError(f"these are no records: {reason}", param="records")


def _floats(values: Sequence[float]) -> _Floats:
    return np.array(values, np.float64)


def _exp(logprobs: _Floats) -> _Floats:
    """As `result.py` computes them."""
    return _floats([math.exp(logprob) for logprob in logprobs.tolist()])


def _xor(one: _Floats, other: _Floats) -> _Floats:
    """The bits in which they differ; 0.0 where they are equal."""
    bits: npt.NDArray[np.uint64] = one.view(np.uint64) ^ other.view(np.uint64)
    return bits.view(np.float64)


def _shuffled(column: npt.NDArray[Any]) -> bytes:
    """The first bytes of all its numbers, then the second ones: like bytes stand together."""
    return column.view(np.uint8).reshape(-1, column.itemsize).T.tobytes()


def _unshuffled(data: bytes, kind: type[Any]) -> npt.NDArray[Any]:
    size = np.dtype(kind).itemsize
    rows = np.frombuffer(data, np.uint8).reshape(size, -1)
    column: npt.NDArray[Any] = np.ascontiguousarray(rows.T).view(kind).reshape(-1)
    return column
