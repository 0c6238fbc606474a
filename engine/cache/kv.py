"""The keys and values of the one active sequence, and the states of its recurrent layers.

Owns the memory and the list of token ids whose K/V are valid. Does not know how they are computed:
`model.py` announces a pass, which writes K/V at positions `length` and up, then appends the ids.
"""

from collections.abc import Sequence

from ..checkpoint.config import ModelConfig
from ..device.arguments import HeadRows, States
from ..device.ops import Bytes, Ops
from .states import RecurrentStates

# K and V of a layer, or the states of a recurrent one.
LayerMemory = tuple[HeadRows, HeadRows] | States


class KVCache:
    """K and V of one sequence."""

    def __init__(self, config: ModelConfig, ops: Ops, *, max_seq_len: int) -> None:
        self.shapes = [(heads, max_seq_len, head_dim) for heads, head_dim in config.kv_shapes]
        """(n_kv_heads, max_seq_len, head_dim) of all keys, and of all values."""
        keys, values, self.positions = ops.kv_memory(self.shapes)
        shapes = config.state_shapes
        self.states = RecurrentStates(shapes, ops) if shapes else None
        of_recurrent = iter(self.states.layers if self.states else ())
        self.layers: tuple[LayerMemory, ...] = tuple(
            next(of_recurrent) if place is None else (keys[place], values[place])
            for place in config.kv_places
        )
        """Per layer; layers may share keys and values."""
        self.max_seq_len = max_seq_len
        self.token_ids: list[int] = []

    @property
    def length(self) -> int:
        """Positions with valid K/V."""
        return len(self.token_ids)

    def begin(self, n_rows: int) -> None:
        """A pass over the next `n_rows` tokens is about to run."""
        if self.states is not None:
            self.states.begin(self.length, n_rows)

    def append(self, token_ids: Sequence[int]) -> None:
        """Declares the K/V after the current length valid, as those of `token_ids`."""
        self.check_room(len(token_ids))
        self.token_ids.extend(token_ids)
        if self.states is not None:
            self.states.commit()

    def append_copied(self, token_ids: Sequence[int], copied: Bytes, *, n_copied: int) -> None:
        """Appends `token_ids`, with the first K/V of a copy that has `n_copied` positions.

        The current length must be a multiple of `positions.unit`.
        """
        self.check_room(len(token_ids))
        start = self.length
        # The ids come last, so that a failure leaves nothing wrong in the cache.
        self.positions.copy_in(start, start + len(token_ids), copied, n_copied=n_copied)
        self.append(token_ids)

    def mark(self) -> int:
        """The length, for `rollback` to this point."""
        return self.length

    def reachable(self, length: int) -> int:
        """How many positions are left if all from `length` on are forgotten: fewer than `length`
        where states of recurrent layers are no longer held.
        """
        return length if self.states is None else self.states.reachable(length)

    def rollback(self, length: int) -> None:
        """Forgets all positions from `length` on; with recurrent layers perhaps more, as
        `reachable` says, and the caller computes the rest again.
        """
        if not 0 <= length <= self.length:
            raise ValueError(f"rollback to {length}: the cache holds positions 0 to {self.length}")
        del self.token_ids[self.reachable(length) :]

    def return_to(self, length: int, states: Bytes) -> None:
        """Forgets all positions from `length` on, where the states were those of a snapshot."""
        assert self.states is not None, "only recurrent layers have states"
        self.states.restore(length, states)
        del self.token_ids[length:]

    def common_prefix(self, token_ids: Sequence[int]) -> int:
        """Length of the longest common prefix of the cached ids and `token_ids`."""
        n = 0
        for cached, wanted in zip(self.token_ids, token_ids, strict=False):
            if cached != wanted:
                break
            n += 1
        return n

    def clear(self) -> None:
        """Forgets everything; the memory stays."""
        self.token_ids.clear()
        if self.states is not None:
            self.states.clear()

    def check_room(self, n_tokens: int) -> None:
        """Raises ValueError if `n_tokens` more do not fit."""
        if self.length + n_tokens > self.max_seq_len:
            raise ValueError(
                f"{n_tokens} tokens do not fit: the cache holds {self.length} of {self.max_seq_len}"
            )
