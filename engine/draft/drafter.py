"""The protocol of drafters, which guess the next tokens of a sequence.

Owns the interface between `speculator.py` and the drafters. A wrong guess only costs time, so no
drafter can change what is generated.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

from ..abort import AbortFlag
from .length import Acceptance

Origin = Literal["constraint", "prediction", "ngram", "pool", "mtp", "eagle", "draft_model"]
"""`ngram`: the running sequence; `pool`: recent outputs."""


class Prospect(NamedTuple):
    """What a draft would be like: how likely, how long at most, and at what cost."""

    acceptance: Acceptance  # of drafts of this kind
    n_max: int
    first: float = 0.0  # drafting n tokens takes first + n * each seconds
    each: float = 0.0


class Drafter(Protocol):
    """Follows one sequence at a time, token by token."""

    @property
    def origin(self) -> Origin:
        """Of the last draft."""
        ...

    def begin(self, prompt_ids: Sequence[int], abort: AbortFlag | None, isolation_key: str) -> None:
        """A new sequence begins with `prompt_ids`; the state of the previous one is dropped.

        Nothing that a sequence with another isolation key left may change a draft or its time.
        """

    def accept(self, token_id: int) -> None:
        """The sequence continues with `token_id`."""

    def rollback(self, mark: int) -> None:
        """Forgets the tokens from position `mark` on; tokens after the prompt are output."""

    def prospect(self, n_max: int) -> Prospect | None:
        """The prospect of a draft of at most `n_max` tokens (1 to 63); None if there is none."""
        ...

    def draft(self, n: int) -> tuple[int, ...]:
        """At most `n` tokens; `n` is at most the `n_max` of the last prospect."""
        ...

    def end(self) -> None:
        """The sequence is complete; later ones with its isolation key may learn from its output."""
