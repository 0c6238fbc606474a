"""Where a kept stream is, whatever it does: running, paused, put down or ended."""

from collections.abc import Sequence

from starlette.types import Receive

from engine import Snapshot

from ..errors import StreamStateError
from ..stream.inherited import with_held
from ..stream.jobs import Step
from .kept import UNBEGUN, Kept
from .streams import KeptStream


async def place_of(
    kept: Kept, stream: KeptStream, receive: Receive, *, wants_steps: bool = True
) -> tuple[Snapshot, Sequence[Step]]:
    """Its place, and its steps so far, if they are wanted. Raises StreamStateError for one that
    never began.
    """
    running = kept.running
    if running is not None and running.paused_at is not None and kept.state(stream) == "paused":
        return running.paused_at
    if running is not None and kept.state(stream) != "ended":
        kept.check_turn(stream)
        try:
            found: tuple[Snapshot, Sequence[Step]] = await kept.between_tokens(
                stream, lambda run: run.snapshot(), receive
            )
            return found
        except StreamStateError:
            if kept.state(stream) != "ended":
                raise
    place = stream.place if kept.is_put_down else kept.ended_at(stream)
    if place is None:
        raise StreamStateError(
            UNBEGUN if kept.is_put_down else "the stream ended before its first token"
        )
    if not wants_steps:
        return place, ()
    held = kept.pause().run.held if kept.is_put_down and stream is kept.current else ""
    return place, with_held(stream.steps(), stream.index, held)
