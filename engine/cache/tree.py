"""Which pieces of past sequences are known, found by their token ids.

Owns the tree: a node is a block of token ids that follow those of its parent, so sequences that
begin alike share nodes. Only a full block has children. Knows no keys and values, no memory and no
file.
"""

import hashlib
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

_KEY_BYTES = 16
_ID_BYTES = 4


@dataclass(frozen=True, slots=True)
class Block:
    """Some token ids after those of a parent.

    `key` covers everything that their keys and values depend on: it is a hash of the parent's key
    and `ids`. A root's key is a hash of the model and the isolation key.
    """

    parent: bytes
    ids: bytes
    """As `packed` returns them."""
    is_state: bool = False
    """Whether what is meant are the states of recurrent layers after these ids, instead of their
    keys and values.
    """
    key: bytes = field(init=False)

    def __post_init__(self) -> None:
        make_key = _state_key if self.is_state else _block_key
        object.__setattr__(self, "key", make_key(self.parent, self.ids))

    @property
    def n_tokens(self) -> int:
        return len(self.ids) // _ID_BYTES


class Link(NamedTuple):
    """A piece of a sequence, of the length of a block or, at the end, shorter."""

    parent: bytes
    """The key of what is before it: a root, or full blocks."""
    ids: bytes


class Match(NamedTuple):
    """The longest known beginning of some token ids."""

    path: list[Block]
    """From the root on; the last one may match only with its first tokens."""
    n_tokens: int
    other: bytes
    """Known ids that differ from there on; empty if there are none."""


class PrefixTree:
    """Blocks by their keys."""

    def __init__(self, block: int) -> None:
        """`block`: the token ids of a node; one that ends a sequence may have fewer."""
        self._block_bytes = block * _ID_BYTES
        self._blocks: dict[bytes, Block] = {}
        self._children: dict[bytes, dict[bytes, Block]] = {}

    def __len__(self) -> int:
        return len(self._blocks)

    def __getitem__(self, key: bytes) -> Block:
        return self._blocks[key]

    def pieces(self, ids: bytes) -> Iterator[bytes]:
        """The ids of each block; the last may be shorter."""
        for start in range(0, len(ids), self._block_bytes):
            yield ids[start : start + self._block_bytes]

    def links(self, root: bytes, ids: bytes) -> list[Link]:
        """The same with the keys before them, whether such blocks are known or not."""
        links, parent = [], root
        for piece in self.pieces(ids):
            links.append(Link(parent, piece))
            parent = _block_key(parent, piece)
        return links

    def blocks(self) -> list[Block]:
        return list(self._blocks.values())

    def find(self, parent: bytes, ids: bytes) -> Block | None:
        """The block of exactly these ids after `parent`."""
        block = self._blocks.get(_block_key(parent, ids))
        # Equal hashes alone do not prove it.
        return block if block and block.ids == ids and block.parent == parent else None

    def find_covering(self, parent: bytes, ids: bytes) -> Block | None:
        """A block after `parent` that begins with these ids, preferably with nothing else."""
        exact = self.find(parent, ids)
        if exact is not None or len(ids) == self._block_bytes:
            return exact
        children = self.children(parent)
        return next((child for child in children if child.ids.startswith(ids)), None)

    def match(self, root: bytes, ids: bytes, *, preferred: Container[bytes] = ()) -> Match:
        """The longest known beginning; of equally long ones, one whose last key is `preferred`."""
        path: list[Block] = []
        parent, n = root, 0
        for piece in self.pieces(ids):
            block = self.find(parent, piece)
            if block is None:
                break
            path.append(block)
            parent, n = block.key, n + block.n_tokens
        children, rest = self.children(parent), ids[n * _ID_BYTES :]
        if not rest:
            return Match(path, n, b"")
        if children:
            shared, _, best = max(
                ((_n_shared(child.ids, rest), child.key in preferred, child) for child in children),
                key=lambda each: each[:2],
            )
            if shared:
                path.append(best)
                whole = shared * _ID_BYTES == len(rest)
                other = b"" if whole else best.ids[shared * _ID_BYTES :]
                return Match(path, n + shared, other)
        return Match(path, n, children[0].ids if children else b"")

    def children(self, parent: bytes) -> list[Block]:
        return list(self._children.get(parent, {}).values())

    def parent_of(self, block: Block) -> Block | None:
        """None for the first block of a sequence, and if the parent was removed."""
        return self._blocks.get(block.parent)

    def add(self, block: Block) -> None:
        self._blocks[block.key] = block
        self._children.setdefault(block.parent, {})[block.key] = block

    def remove(self, block: Block) -> None:
        """Its children stay, and are found again once it is back."""
        if self._blocks.pop(block.key, None) is not None:
            siblings = self._children[block.parent]
            del siblings[block.key]
            if not siblings:
                del self._children[block.parent]


def root_key(model: bytes, isolation_key: str) -> bytes:
    """The parent of a sequence's first block; two isolation keys never share one."""
    return _hash(b"root", model + isolation_key.encode("utf-8", "surrogatepass"))


def model_key(*facts: str | int) -> bytes:
    """A hash of everything that keys and values depend on except the token ids."""
    return _hash(b"model", repr(facts).encode("utf-8", "surrogatepass"))


def packed(token_ids: list[int]) -> bytes:
    """Four bytes per id."""
    return np.asarray(token_ids, np.dtype("<i4")).tobytes()


def unpacked(ids: bytes) -> tuple[int, ...]:
    """The ids that `packed` packed."""
    return tuple(np.frombuffer(ids, np.dtype("<i4")).tolist())


def _block_key(parent: bytes, ids: bytes) -> bytes:
    return _hash(b"chunk", parent + ids)  # the word is part of the file format


def _state_key(parent: bytes, ids: bytes) -> bytes:
    return _hash(b"state", parent + ids)


def _hash(kind: bytes, data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_KEY_BYTES, person=kind).digest()


def _n_shared(first: bytes, second: bytes) -> int:
    """The number of ids that both begin with."""
    n = min(len(first), len(second)) // _ID_BYTES
    a, b = np.frombuffer(first, "<i4", n), np.frombuffer(second, "<i4", n)
    different = np.flatnonzero(a != b)
    return int(different[0]) if different.size else n
