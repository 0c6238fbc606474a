"""The keys and values of the one active sequence, and the states of its recurrent layers.

Owns the memory and the list of token ids whose K/V are valid. Does not know how they are computed:
`model.py` announces a pass, which writes K/V at positions `length` and up, then appends the ids.
"""

from collections.abc import Callable, Sequence

from ..checkpoint.config import ModelConfig
from ..device.arguments import HeadRows, States
from ..device.ops import Bytes, Ops
from ..device.windows import kv_shapes, round_length
from .round import Round
from .states import RecurrentStates

# K and V of a layer, or the states of a recurrent one; None where there is neither.
LayerMemory = tuple[HeadRows, HeadRows] | States | None


class KVCache:
    """K and V of one sequence, and its states.

    Where layers have a window, their K/V may be held for the last positions only, and states are
    held for few. `is_whole` says whether the next token finds all that it needs.
    """

    def __init__(
        self, config: ModelConfig, ops: Ops, *, max_seq_len: int, pass_rows: int | None = None
    ) -> None:
        """`pass_rows`: most rows of a pass, for which there is room besides a window; None: as many
        as the device has in a pass by default.
        """
        self.pass_rows = ops.prefill_rows if pass_rows is None else pass_rows
        goes_round = self.pass_rows if ops.goes_round else None
        self.shapes = kv_shapes(config, max_seq_len, goes_round)
        """(n_kv_heads, positions, head_dim) of all keys, and of all values."""
        keys, values, self.positions = ops.kv_memory(self.shapes)
        shapes = config.state_shapes
        self.states = RecurrentStates(shapes, ops) if shapes else None
        of_recurrent = iter(self.states.layers if self.states else ())
        self.layers: tuple[LayerMemory, ...] = tuple(
            (keys[place], values[place])
            if place is not None
            else (None if layer.recurrent is None else next(of_recurrent))
            for layer, place in zip(config.layers, config.kv_places, strict=True)
        )
        """Per layer; layers may share keys and values."""
        length = 0 if goes_round is None else round_length(config, max_seq_len, goes_round)
        if not length:
            self.pass_rows = max_seq_len
        self._round = Round(length, max(config.kv_windows, default=0), self.positions.unit)
        self.max_seq_len = max_seq_len
        self.token_ids: list[int] = []
        self.ahead: int | None = None
        """A token whose K/V already lie behind the end, until anything changes here."""
        self.before_loss: Callable[[int], None] | None = None
        """Is told before layers with a window lose positions: the first that they keep."""

    @property
    def length(self) -> int:
        """Positions with valid K/V."""
        return len(self.token_ids)

    @property
    def goes_round(self) -> bool:
        """Whether layers with a window hold the last positions only."""
        return self._round.loses

    @property
    def first_kept(self) -> int:
        """The first position that layers with a window still hold; 0: nothing is lost."""
        return self._round.first

    @property
    def is_whole(self) -> bool:
        """Whether a pass may follow: the cache holds all that it begins with."""
        return self.reaches(self.length)

    def reaches(self, length: int) -> bool:
        """Whether the cache is whole after a rollback to `length`."""
        return self.reachable(length) == length

    def reachable(self, length: int) -> int:
        """The most positions, at most `length`, after which the cache is whole if all others are
        forgotten. It may be fewer where layers have a window or states.
        """
        if self.states is not None:
            length = self.states.reachable(length)
        return length if self._round.reaches(length) else 0

    def seen_from(self, length: int) -> int:
        """The first position that a token after `length` others sees in layers with a window."""
        return self._round.seen_from(length)

    def begin_pass(self, n_rows: int) -> None:
        """A pass goes over `n_rows` tokens, for which there is room. Raises ValueError if it needs
        what is no longer there.
        """
        if not self.goes_round and self.states is None:
            return
        if not self.is_whole:
            raise ValueError(f"the cache has lost what token {self.length} needs")
        end = self.length + n_rows
        first = self._round.first_after(end)
        if first > self._round.first and self.before_loss is not None:
            self.before_loss(first)
        self._round.written(end)
        if self.states is not None:
            self.states.begin(self.length, n_rows)

    def append(self, token_ids: Sequence[int]) -> None:
        """Declares the K/V after the current length valid, as those of `token_ids`."""
        self.check_room(len(token_ids))
        self.ahead = None
        self.token_ids.extend(token_ids)
        if self.states is not None:
            self.states.commit()

    def append_copied(
        self, token_ids: Sequence[int], copied: Bytes, *, n_copied: int, first_kept: int = 0
    ) -> None:
        """Appends `token_ids`, with the first K/V of a copy that has `n_copied` positions.

        `first_kept`: of the cache when the copy was made. The current length must be a multiple of
        `positions.unit`. States are not in the copy: `return_to` puts them in place.
        """
        self.check_room(len(token_ids))
        start = self.length
        # The ids come last, so that a failure leaves nothing wrong in the cache.
        stop = start + len(token_ids)
        self.positions.copy_in(start, stop, copied, n_copied=n_copied)
        self._round.copied(start, stop, first_kept)
        if self.states is not None:
            self.states.skip(start, stop)
        self.append(token_ids)

    def mark(self) -> int:
        """The length, for `rollback` to this point."""
        return self.length

    def rollback(self, length: int) -> None:
        """Forgets all positions from `length` on. The cache may not be whole then: `reaches`."""
        if not 0 <= length <= self.length:
            raise ValueError(f"rollback to {length}: the cache holds positions 0 to {self.length}")
        if length < self.length:
            self.ahead = None
        del self.token_ids[length:]
        if length == 0:
            self._round.first = 0
            if self.states is not None:
                self.states.clear()

    def return_to(self, length: int, states: Bytes) -> None:
        """Forgets all positions from `length` on, where the states were those of a snapshot."""
        assert self.states is not None, "only recurrent layers have states"
        self.states.restore(length, states)
        del self.token_ids[length:]

    def forget_from(self, length: int) -> None:
        """Rolls back to `length`, or further, until the cache is whole: `reachable`."""
        self.rollback(self.reachable(length))

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
        self.rollback(0)

    def check_room(self, n_tokens: int) -> None:
        """Raises ValueError if `n_tokens` more do not fit."""
        if self.length + n_tokens > self.max_seq_len:
            raise ValueError(
                f"{n_tokens} tokens do not fit: the cache holds {self.length} of {self.max_seq_len}"
            )
