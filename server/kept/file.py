"""A kept answer as the bytes of a file, and back.

Owns the format, and the strict reading of what somebody may have damaged: a magic line with the
version, a digest of the rest, the length of the head, the head as JSON in zlib, then what the head
says the sizes of. Taking a record is done on the event loop, writing it on any thread.
"""

import hashlib
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from ..stream.pause import Pause
from .kept import Kept
from .log import EventLog
from .pauses import pause_to_bytes
from .streams import KeptStream, Origin, Packed, Request
from .unpacking import unpacked

_KIND = b"soliton kept stream "
_MAGIC = _KIND + b"1\n"
_LENGTH = struct.Struct("<I")
_DIGEST_BYTES = 32
_N_OWN = 3  # parts before those of the streams: body, whole, pause


class KeptFileError(ValueError):
    """The bytes are not a record of a kept answer that this server reads."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _StreamHead(_Strict):
    id: str
    prompt: int
    """Which of `prompts`."""
    parent: str | None
    at: int
    children: list[str]
    finish: str | None
    n_tokens: int


class _Head(_Strict):
    id: str
    owner: str
    fingerprint: str
    wire: str
    model: str
    created: int
    begun_ns: int
    is_background: bool
    is_stored: bool
    is_ended: bool
    metadata: dict[str, str]
    reason: str | None
    prompts: list[list[int]]
    streams: list[_StreamHead]
    sizes: list[int]


@dataclass(frozen=True, slots=True)
class Record:
    """What is written of an answer: as it was on the event loop."""

    head: _Head
    pause: Pause | None
    body: bytes
    whole: bytes
    paused: bytes
    """`pause`, if it is in bytes already."""
    streams: list[Callable[[], Packed]]
    blocks: list[bytes]

    def to_bytes(self) -> bytes:
        """The file. On any thread."""
        paused = self.paused if self.pause is None else pause_to_bytes(self.pause)
        parts = [self.body, self.whole, paused]
        for packed in self.streams:
            parts += packed()
        parts += self.blocks
        head = self.head.model_copy(update={"sizes": [*map(len, parts)]})
        packed_head = zlib.compress(head.model_dump_json().encode())
        rest = b"".join([_LENGTH.pack(len(packed_head)), packed_head, *parts])
        return _MAGIC + hashlib.sha256(rest).digest() + rest


class Stored(NamedTuple):
    """A file that was read."""

    owner: str
    fingerprint: str
    kept: Callable[[str], Kept]
    """Makes the answer, for the caller that the owner is. Raises KeptFileError."""


def recorded(kept: Kept, *, owner: str) -> Record:
    """What is to be written of it, which has ended or has been put down."""
    pause = kept.paused()
    request, prompts = kept.request, _prompts(kept)
    return Record(
        _Head(
            id=kept.id,
            owner=owner,
            fingerprint=request.fingerprint,
            wire=request.wire,
            model=request.model,
            created=request.created,
            begun_ns=kept.begun_ns,
            is_background=request.is_background,
            is_stored=request.is_stored,
            is_ended=kept.ended,
            metadata=dict(kept.metadata),
            reason=kept.reason,
            prompts=[list(ids) for ids in prompts.values()],
            streams=[_stream_head(each, [*prompts]) for each in kept.streams],
            sizes=[],
        ),
        pause,
        request.body,
        kept.whole,
        kept.packed_pause,
        [kept.packed(each, pause) for each in kept.streams],
        kept.log.packed(),
    )


def read_record(data: bytes) -> Stored:
    """Raises KeptFileError."""
    if not data.startswith(_MAGIC):
        is_other = data.startswith(_KIND)
        raise KeptFileError("is of another version" if is_other else "is not a kept stream")
    start = len(_MAGIC) + _DIGEST_BYTES
    digest, rest = data[len(_MAGIC) : start], memoryview(data)[start:]
    if hashlib.sha256(rest).digest() != digest:
        raise KeptFileError("is damaged")
    try:
        (length,) = _LENGTH.unpack(rest[: _LENGTH.size])
        end = _LENGTH.size + length
        head = _Head.model_validate_json(unpacked(bytes(rest[_LENGTH.size : end])))
        sizes = head.sizes
        if len(sizes) < _N_OWN + 2 * len(head.streams) or min(sizes) < 0 or not head.streams:
            raise KeptFileError("is damaged")
        if sum(sizes) != len(rest) - end:
            raise KeptFileError("is damaged")
        bounds = pairwise(accumulate(sizes, initial=end))
        parts = [bytes(rest[begin:stop]) for begin, stop in bounds]
    except (ValidationError, struct.error, zlib.error) as error:
        raise KeptFileError("is damaged") from error
    return Stored(head.owner, head.fingerprint, lambda caller: _kept(head, parts, caller))


def _kept(head: _Head, parts: list[bytes], caller: str) -> Kept:
    body, whole, paused = parts[:_N_OWN]
    n_streams = len(head.streams)
    try:
        streams = [
            _stream(each, index, head.prompts[each.prompt])
            for index, each in enumerate(head.streams)
        ]
        log = EventLog.of(parts[_N_OWN + 2 * n_streams :], ended=head.is_ended)
    except (IndexError, zlib.error) as error:
        raise KeptFileError("is damaged") from error
    if bool(paused) == head.is_ended:
        raise KeptFileError("is damaged")
    for index, stream in enumerate(streams):
        at = _N_OWN + 2 * index
        stream.load(Packed(*parts[at : at + 2]))
    request = Request(
        key=caller,
        wire=head.wire,
        body=body,
        model=head.model,
        fingerprint=head.fingerprint,
        created=head.created,
        is_background=head.is_background,
        is_stored=head.is_stored,
    )
    kept = Kept(head.id, request, streams, log=log, paused=paused)
    kept.begun_ns, kept.metadata, kept.reason = head.begun_ns, head.metadata, head.reason
    kept.whole = whole
    return kept


def _stream(head: _StreamHead, index: int, prompt_ids: list[int]) -> KeptStream:
    return KeptStream(
        head.id,
        index,
        prompt_ids,
        None if head.parent is None else Origin(head.parent, head.at),
        head.children,
        finish=head.finish,
        n_tokens=head.n_tokens,
    )


def _stream_head(stream: KeptStream, prompts: list[int]) -> _StreamHead:
    origin = stream.origin
    return _StreamHead(
        id=stream.id,
        prompt=prompts.index(id(stream.prompt_ids)),
        parent=None if origin is None else origin.parent,
        at=0 if origin is None else origin.at,
        children=list(stream.children),
        finish=stream.finish,
        n_tokens=stream.n_tokens,
    )


def _prompts(kept: Kept) -> Mapping[int, list[int]]:
    """The different ones, by identity: choices of one prompt share it."""
    return {id(each.prompt_ids): list(each.prompt_ids) for each in kept.streams}
