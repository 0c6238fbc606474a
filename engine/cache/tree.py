"""Which pieces of past sequences are known, found by their token ids.

Owns the tree: a node is a chunk of token ids behind those of its parent, so sequences that begin
alike share nodes. Only a whole chunk has children. Knows no keys and values, no memory and no file.
"""

import hashlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ..device.ops import Bytes

_KEY_BYTES = 16
_ID_BYTES = 4


class Chunk:
    """Some token ids after those of a parent, and where their keys and values are.

    `key` says everything that they depend on: it is a hash of the parent's key and `ids`, and that
    of a root is one of the model and of who may share.
    """

    __slots__ = ("ids", "key", "on_disk", "parent", "slab")

    def __init__(self, parent: bytes, ids: bytes) -> None:
        """`ids` as `packed` gives them."""
        self.parent = parent
        self.ids = ids
        self.key = _hash(b"chunk", parent + ids)
        self.slab: Bytes | None = None
        self.on_disk = False

    @property
    def n_tokens(self) -> int:
        return len(self.ids) // _ID_BYTES


class Match(NamedTuple):
    """The longest known beginning of some token ids."""

    path: list[Chunk]
    """From the root on; of the last one perhaps only the first tokens are equal."""
    n_tokens: int
    other: bytes
    """What is known to go on otherwise from there; empty when nothing is."""


class PrefixTree:
    """Chunks by their keys."""

    def __init__(self, chunk: int) -> None:
        """`chunk`: how many token ids a node has; one that ends a sequence may have fewer."""
        self._chunk_bytes = chunk * _ID_BYTES
        self._chunks: dict[bytes, Chunk] = {}
        self._children: dict[bytes, dict[bytes, Chunk]] = {}

    def __len__(self) -> int:
        return len(self._chunks)

    def pieces(self, ids: bytes) -> Iterator[bytes]:
        """One per chunk; the last may be shorter."""
        for start in range(0, len(ids), self._chunk_bytes):
            yield ids[start : start + self._chunk_bytes]

    def find(self, parent: bytes, ids: bytes) -> Chunk | None:
        """The chunk of exactly these ids behind `parent`."""
        chunk = self._chunks.get(_hash(b"chunk", parent + ids))
        # Equal hashes alone are no proof.
        return chunk if chunk and chunk.ids == ids and chunk.parent == parent else None

    def find_covering(self, parent: bytes, ids: bytes) -> Chunk | None:
        """A chunk behind `parent` that begins with these ids, best the one that has no more."""
        exact = self.find(parent, ids)
        if exact is not None or len(ids) == self._chunk_bytes:
            return exact
        children = self.children(parent)
        return next((child for child in children if child.ids.startswith(ids)), None)

    def match(self, root: bytes, ids: bytes) -> Match:
        path: list[Chunk] = []
        parent, n = root, 0
        for piece in self.pieces(ids):
            chunk = self.find(parent, piece)
            if chunk is None:
                break
            path.append(chunk)
            parent, n = chunk.key, n + chunk.n_tokens
        children, rest = self.children(parent), ids[n * _ID_BYTES :]
        if not rest:
            return Match(path, n, b"")
        if children:
            # Of those that are as good, one that is in memory.
            shared, _, best = max(
                ((_n_shared(child.ids, rest), child.slab is not None, child) for child in children),
                key=lambda each: each[:2],
            )
            if shared:
                path.append(best)
                whole = shared * _ID_BYTES == len(rest)
                other = b"" if whole else best.ids[shared * _ID_BYTES :]
                return Match(path, n + shared, other)
        return Match(path, n, children[0].ids if children else b"")

    def children(self, parent: bytes) -> list[Chunk]:
        return list(self._children.get(parent, {}).values())

    def parent_of(self, chunk: Chunk) -> Chunk | None:
        """None for what begins a sequence, or when it is not known any more."""
        return self._chunks.get(chunk.parent)

    def add(self, chunk: Chunk) -> None:
        self._chunks[chunk.key] = chunk
        self._children.setdefault(chunk.parent, {})[chunk.key] = chunk

    def remove(self, chunk: Chunk) -> None:
        """Its children stay; they are found again when it comes back."""
        if self._chunks.pop(chunk.key, None) is not None:
            siblings = self._children[chunk.parent]
            del siblings[chunk.key]
            if not siblings:
                del self._children[chunk.parent]


def root_key(model: bytes, isolation_key: str) -> bytes:
    """What sequences of a model begin with; nothing is shared between two isolation keys."""
    return _hash(b"root", model + isolation_key.encode("utf-8", "surrogatepass"))


def model_key(*facts: str | int) -> bytes:
    """A hash of all that keys and values depend on beside the token ids."""
    return _hash(b"model", repr(facts).encode("utf-8", "surrogatepass"))


def packed(token_ids: list[int]) -> bytes:
    """Four bytes per id."""
    return np.asarray(token_ids, np.dtype("<i4")).tobytes()


def unpacked(ids: bytes) -> tuple[int, ...]:
    """What `packed` packed."""
    return tuple(np.frombuffer(ids, np.dtype("<i4")).tolist())


def _hash(kind: bytes, data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_KEY_BYTES, person=kind).digest()


def _n_shared(first: bytes, second: bytes) -> int:
    """How many ids both begin with."""
    n = min(len(first), len(second)) // _ID_BYTES
    a, b = np.frombuffer(first, "<i4", n), np.frombuffer(second, "<i4", n)
    different = np.flatnonzero(a != b)
    return int(different[0]) if different.size else n
