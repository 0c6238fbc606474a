"""A stream once more, from what was recorded of it: does it come out the same?

Owns how the pieces between two changes are generated again and compared. Runs on the engine thread.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

from engine import Snapshot, Stream, TokenRecord

from ..errors import UnavailableError
from ..stream.jobs import Step

# Numbers of a token that must be the same to the last bit. `origin` is not one of them: whether a
# token was guessed depends on what was generated before.
_COMPARED = ("token_id", "logprob", "p_raw", "p_sampled", "rank", "entropy", "margin", "kept_mass")


class Difference(NamedTuple):
    """The first one."""

    at: int
    what: str
    recorded: Any
    replayed: Any


def replayed(
    place: Snapshot, steps: Sequence[Step], restore: Callable[[Snapshot], Stream]
) -> tuple[int, Difference | None]:
    """How many tokens were compared, and where the first difference is.

    `place`: where the stream ended, `steps`: all of them. Raises what the engine raises.
    """
    recorded = [record for step in steps for record in (*step.result.tokens, *step.result.dropped)]
    found: dict[int, TokenRecord] = {}
    # The token that ended the text is recorded, and no part of its place.
    bounds = [bound for bound in _bounds(place) if bound < len(recorded)] or [0]
    for start, stop in pairwise([*bounds, len(recorded)]):
        ids = _generate(_beginning(place, start, stop), stop, restore, found)
        if ids[:stop] != tuple(record.token_id for record in recorded[:stop])[: len(ids)]:
            break  # what follows would begin elsewhere
    return len(recorded), _first_difference(recorded, found)


def _bounds(place: Snapshot) -> list[int]:
    """Where pieces begin. Also where a banned string was taken back: it may end behind the next
    change, so that a piece up to there would not find it.
    """
    changes = {*(each.start for each in place.segments), *(each.start for each in place.given)}
    return sorted({0, *changes, *(each.n_tokens for each in place.rewinds)})


def _beginning(place: Snapshot, start: int, stop: int) -> Snapshot:
    """The stream at `start`, token by token from there to `stop`, with what was given to it."""
    past = place.at(start)
    # A piece may begin within a run: tokens that were given one after the other are one.
    for run in place.given:
        if not run.start <= start < run.stop:
            continue
        token_ids = place.token_ids[start : run.stop]
        if run.origin != "forced":
            past = past.injected(token_ids)
        else:
            for token_id in token_ids:
                past = past.forced(token_id)
    last = past.segments[-1]
    options = replace(
        last.options,
        max_tokens_per_call=1,
        max_new_tokens=stop,
        min_new_tokens=min(last.options.min_new_tokens, stop),
    )
    return replace(past, segments=(*past.segments[:-1], replace(last, options=options)))


def _generate(
    start: Snapshot,
    stop: int,
    restore: Callable[[Snapshot], Stream],
    found: dict[int, TokenRecord],
) -> tuple[int, ...]:
    """Adds the tokens to `found`, by their index. Returns all ids so far."""
    stream = restore(start)
    index = stream.n_inherited_tokens
    while not stream.ended:
        result = stream.step()
        if result.eos_reason == "aborted":
            raise UnavailableError("the server is shutting down")
        for record in (*result.tokens, *result.dropped):
            found[index] = record
            index += 1
    return tuple(found[i].token_id for i in range(min(stop, index)) if i in found)


def _first_difference(
    recorded: Sequence[TokenRecord], found: Mapping[int, TokenRecord]
) -> Difference | None:
    return next(_differences(recorded, found), None)


def _differences(
    recorded: Sequence[TokenRecord], found: Mapping[int, TokenRecord]
) -> Iterator[Difference]:
    for i, record in enumerate(recorded):
        again = found.get(i)
        if again is None:
            yield Difference(i, "length", len(recorded), i)
            return
        for name in _COMPARED:
            if getattr(record, name) != getattr(again, name):
                yield Difference(i, name, getattr(record, name), getattr(again, name))
