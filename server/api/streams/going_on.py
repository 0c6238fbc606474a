"""Takes up a stream that an earlier process put down.

Owns that its jobs and the shape of its answer come from its request again, and its state from what
was stored: it goes on as if nothing had been.
"""

from dataclasses import replace

from ...kept.kept import Kept
from ...kept.streams import KeptStream
from ...lease.waiter import Waiter
from ...service import Service
from ...stream.jobs import CompletionJob
from ..generation import Wire
from .branch import branch_fields
from .overrides import stored_fields, validated


async def go_on(service: Service, wire: Wire, kept: Kept, waiter: Waiter) -> None:
    """Nothing for one that runs, or was taken up already. Raises what its request raised, if the
    options of the server have changed, and StreamStateError if what is stored is damaged.
    """
    async with kept.going_on:
        if not kept.is_put_down:
            return
        own = Waiter(waiter.key, waiter.receive, waiter.n_body)
        jobs, answer, service = await wire.generation(
            service, validated(wire.body, stored_fields(kept)), own
        )
        if not kept.is_put_down:  # deleted meanwhile
            return
        pause = kept.pause()
        jobs = [_job(*pair) for pair in zip(jobs, kept.streams, strict=True)]
        request, origin = kept.request, kept.streams[0].origin
        head = {"id": kept.id, "created": request.created, "model": request.model}
        once = answer.once if origin is None else {**answer.once, **branch_fields(origin)}
        answer = replace(answer, head={**answer.head, **head}, once=once, jobs=jobs)
        stream = service.start(jobs, own, is_steered=True, pause=pause)
        kept.go_on(stream, pause, answer, max_bytes=service.settings.max_unread_bytes)
        service.kept.changed(kept)


def _job(job: CompletionJob, stream: KeptStream) -> CompletionJob:
    place = stream.place
    job = replace(job, input_ids=stream.prompt_ids)
    # A branch that has not begun begins at its place, with the steps of its parent.
    return job if place is None else replace(job, snapshot=place, inherited=stream.steps())
