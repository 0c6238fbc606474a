"""Peek and replay: what is computed of a stream without changing it.

Owns when the stream's own place in the engine is used, and how the results look.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from engine import AbortFlag, Glimpse, Snapshot, Stream

from ...answer.choices import sampled
from ...answer.logprobs import TokenNames, chat_entries
from ...answer.metadata import with_metadata
from ...errors import StreamStateError
from ...kept.kept import Kept
from ...kept.place import place_of
from ...kept.replay import replayed
from ...kept.streams import KeptStream
from ...lease.waiter import Waiter
from ...schema.control import PeekRequest
from ...service import Service
from ...stream.engine_call import engine_call
from ...stream.job_run import JobRun
from ...stream.jobs import isolation_key
from ...version import own_version
from .overrides import stored_fields
from .shown import ALL

_TOP, _TOKENS = 5, 12


async def peek(
    service: Service, kept: Kept, stream: KeptStream, body: PeekRequest, waiter: Waiter
) -> dict[str, Any]:
    """Where alternatives lead. A running stream waits meanwhile, if it is asked about its end; for
    an earlier place the peek waits for the engine. Raises InvalidInputError.
    """
    top, n_tokens = body.top or _TOP, body.tokens or _TOKENS

    def look(at: Stream) -> tuple[int, list[Glimpse]]:
        return at.mark(), at.peek(body.token_ids, top=top, n_tokens=n_tokens)

    def look_at_end(run: JobRun) -> tuple[int, list[Glimpse]]:
        seen = look(run.stream)
        if run.stream.is_aborted:  # by its own client, who has nothing to do with this one
            raise StreamStateError("the stream has ended")
        return seen

    seen: tuple[int, list[Glimpse]] | None = None
    if body.at is None and kept.state(stream) == "running":
        with suppress(StreamStateError):  # it ends, or is put down, at this moment
            seen = await kept.between_tokens(stream, look_at_end, waiter.receive)
    if seen is None:
        place, _ = await place_of(kept, stream, waiter.receive, wants_steps=False)
        place = place.at(place.n_tokens if body.at is None else body.at)
        restore = _restoring(service, kept)
        seen = await engine_call(
            service.lease,
            service.model,
            lambda abort: look(restore(place, abort)),
            key=waiter.key,
            receive=waiter.receive,
            limits=service.limits,
        )
    n, found = seen
    names = TokenNames(service.engine.tokenizer)
    return {
        "id": stream.id,
        "object": "stream.peek",
        "at": n,
        "alternatives": [_alternative(one, names) for one in found],
    }


async def replay(
    service: Service, kept: Kept, stream: KeptStream, waiter: Waiter
) -> dict[str, Any]:
    """Generate it again, and compare. Raises StreamStateError for one that has not ended well."""
    place, steps = kept.ended_at(stream), stream.steps()
    if place is None:
        state = kept.state(stream)
        raise StreamStateError(
            "the stream ended before its first token: there is nothing to replay"
            if state == "ended"
            else f"the stream is {state}: only one that has ended can be replayed"
        )
    restore = _restoring(service, kept)

    def work(abort: AbortFlag) -> dict[str, Any]:
        n, difference = replayed(place, steps, lambda snapshot: restore(snapshot, abort))
        return {
            "id": stream.id,
            "object": "stream.replay",
            "identical": difference is None,
            "tokens": n,
            "first_difference": None if difference is None else difference._asdict(),
            "proof": _proof(service, place, [r.token_id for s in steps for r in sampled(s.result)]),
        }

    return await engine_call(
        service.lease,
        service.model,
        work,
        key=waiter.key,
        receive=waiter.receive,
        limits=service.limits,
    )


def _restoring(service: Service, kept: Kept) -> Callable[[Snapshot, AbortFlag], Stream]:
    """Restores places of a stream, with the cached prompts that it may use."""
    key, salt = kept.request.key, str(stored_fields(kept).get("cache_salt") or "")
    own_key = isolation_key(key, salt)
    generator = service.engine.generator
    return lambda place, abort: generator.restore(place, isolation_key=own_key, abort=abort)


def _alternative(glimpse: Glimpse, names: TokenNames) -> dict[str, Any]:
    entries = with_metadata(chat_entries(glimpse.tokens, names), glimpse.tokens, None, ALL)
    return {
        "token_id": glimpse.token_id,
        "text": glimpse.text,
        "stop": glimpse.eos_reason,
        "tokens": entries,
    }


def _proof(service: Service, place: Snapshot, token_ids: Sequence[int]) -> dict[str, Any]:
    engine = service.engine
    ops, settings = engine.model.ops, asdict(place.settings)
    return {
        "fingerprint": engine.fingerprint,
        "version": own_version(),
        "device": ops.name,
        "weights": ops.format,
        "kv_cache": ops.kv_format,
        "threads": ops.n_threads,
        "seed": settings.pop("seed"),
        "settings": settings,
        "prompt_sha256": _digest(place.prompt_ids),
        "completion_sha256": _digest(token_ids),
    }


def _digest(token_ids: Sequence[int]) -> str:
    return hashlib.sha256(json.dumps(list(token_ids)).encode()).hexdigest()
