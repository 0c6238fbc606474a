"""Where a snapshot goes on: which of its tokens the caches hold, and which had been shown.

Owns that reading of a snapshot. Knows no cache and no model.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from .completion import Completion
from .decoding import Decoding
from .healing import Healing
from .options import Live
from .parts import Parts
from .replay import n_shown, shown_bytes
from .snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Place:
    """A snapshot, and what follows from it."""

    snapshot: Snapshot
    prompt_ids: Sequence[int]
    """Without a last token that is to be healed."""
    past: Sequence[int]
    """Tokens of the completion that had been shown in whole."""
    shown: Sequence[bytes]
    """What each of them added to the text."""
    healing: Healing | None
    token_ids: Sequence[int]
    """Prompt and past: all of them but the last belong into the cache."""
    negative_ids: Sequence[int]
    """The same for the negative prompt; empty without guidance."""
    room: int
    """The most tokens of the completion that fit."""

    def completion(self, decoding: Decoding, parts: Parts, live: Live) -> Completion:
        """A completion that goes on here. Raises InvalidInputError if the constraint forbids the
        tokens so far.
        """
        return Completion(
            self.snapshot,
            decoding,
            parts,
            live,
            prompt_ids=self.prompt_ids,
            shown=self.shown,
            room=self.room,
            healing=self.healing,
        )


def place_of(snapshot: Snapshot, negative: Sequence[int], parts: Parts, *, most: int) -> Place:
    """`negative`: the negative prompt, empty without guidance; `most`: tokens of a sequence.

    Raises InvalidInputError if the first token does not begin with the bytes to heal.
    """
    prompt, options = snapshot.prompt_ids, snapshot.options
    healing = parts.healing(prompt, options)
    prompt_ids = prompt[:-1] if healing else prompt
    shown = shown_bytes(snapshot.token_ids, options, parts, healing)
    shown = shown[: n_shown(snapshot, shown)]
    past = snapshot.token_ids[: len(shown)]
    return Place(
        snapshot,
        prompt_ids=prompt_ids,
        past=past,
        shown=shown,
        healing=healing,
        token_ids=[*prompt_ids, *past],
        negative_ids=[*negative, *past] if negative else (),
        room=most - max(len(prompt), len(negative)),
    )
