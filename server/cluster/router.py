"""The choice as a request router of Ray Serve.

Owns what is known of each replica in this process: what it published, what was sent to it and has
not ended, and what it was sent since. Runs on the event loop of the handle that it belongs to.
"""

import logging
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica

from .choice import Candidate, Standing, ranked
from .routed import Delivery, Prompt, Routed

_logger = logging.getLogger(__name__)

# Until then a replica has published what became of a request that it was sent.
_PUBLISHED_AFTER_S = 3.0
# A publication arrives at most so long after the replica counted what it had.
_ON_ITS_WAY_S = 0.6
# A choice that came to nothing, because its caller left before it was sent, is forgotten then.
_SENT_AFTER_S = 5.0


class _Sent:
    """A request on its way or in a replica."""

    __slots__ = ("at", "delivery", "is_accepted", "prompt", "replica_id")

    def __init__(self, replica_id: ReplicaID, prompt: Prompt, delivery: Delivery) -> None:
        self.replica_id = replica_id
        self.prompt = prompt
        self.delivery = delivery
        self.at = time.monotonic()
        self.is_accepted = False


class KeptPrefixRouter(RequestRouter):  # type: ignore[misc]  # Ray has no types that mypy reads
    """Sends a request to the replica that it names, or to that of the least expected time to the
    first token.
    """

    def initialize_state(self, **_: Any) -> None:
        """Ray calls this instead of a constructor."""
        self._sent: dict[str, _Sent] = {}
        self._published: dict[ReplicaID, tuple[dict[str, Any], Standing]] = {}
        self._last: dict[ReplicaID, int] = {}
        self._heard_at: dict[ReplicaID, float] = {}  # of its last publication
        self._ended_at: dict[ReplicaID, deque[float]] = {}  # what that may not have counted
        self._n_chosen = 0

    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,
    ) -> list[list[RunningReplica]]:
        """The replicas in the order in which to try them, each a rank of its own."""
        routed = pending_request.args[0] if pending_request and pending_request.args else None
        if pending_request is None or not isinstance(routed, Routed):
            return [candidate_replicas]
        replicas = candidate_replicas
        if named := [r for r in replicas if routed.replica and name_of(r) == routed.replica]:
            replicas = named
        prompt = routed.prompt or Prompt()
        candidates = [self._candidate(replica) for replica in replicas]
        order = [replicas[i] for i in ranked(candidates, prompt)]
        if routed.prompt is not None:
            best = order[0].replica_id
            self._n_chosen += 1
            self._last[best] = self._n_chosen
            sent = _Sent(best, prompt, routed.delivery)
            self._sent[pending_request.metadata.internal_request_id] = sent
        return [[replica] for replica in order]

    def on_request_routed(
        self, pending_request: PendingRequest, replica_id: ReplicaID, result: Any
    ) -> None:
        """A replica has accepted it: the best one, or another one if that is gone."""
        sent = self._sent.get(pending_request.metadata.internal_request_id)
        if sent is not None:
            sent.replica_id, sent.is_accepted = replica_id, True

    def on_request_completed(self, replica_id: ReplicaID, internal_request_id: str) -> None:
        """It has ended, one way or another. What it computed is known until it is published."""
        sent = self._sent.pop(internal_request_id, None)
        if sent is not None and sent.prompt.n_bytes:
            self._ended_at.setdefault(replica_id, deque()).append(time.monotonic())
        if sent is not None and sent.prompt.steps:
            ended = _Sent(replica_id, Prompt(sent.prompt.steps), sent.delivery)
            self._sent[f"{internal_request_id} ended"] = ended

    def _candidate(self, replica: RunningReplica) -> Candidate:
        now, id_ = time.monotonic(), replica.replica_id
        steps, n_sent = set[bytes](), 0
        for sent in self._of(id_, now):
            steps.update(sent.prompt.steps)
            n_sent += sent.prompt.n_bytes > 0 and not sent.delivery.is_complete
        standing = self._standing(replica)  # before the count of what ended since
        return Candidate(
            standing,
            n_sent,
            frozenset(steps),
            n_ended=self._n_ended(id_),
            last=self._last.get(id_, 0),
        )

    def _n_ended(self, replica_id: ReplicaID) -> int:
        """Requests that may have ended after the replica counted for its last publication."""
        ended = self._ended_at.get(replica_id, deque())
        counted_at = self._heard_at.get(replica_id, 0.0) - _ON_ITS_WAY_S
        while ended and ended[0] < counted_at:
            ended.popleft()
        return len(ended)

    def _of(self, replica_id: ReplicaID, now: float) -> Iterator[_Sent]:
        for key, sent in list(self._sent.items()):
            has_ended = not sent.prompt.n_bytes
            limit_s = _PUBLISHED_AFTER_S if has_ended else _SENT_AFTER_S
            if not sent.is_accepted and now > sent.at + limit_s:
                del self._sent[key]
            elif sent.replica_id == replica_id:
                yield sent

    def _standing(self, replica: RunningReplica) -> Standing:
        """What it published last; nothing if that is nonsense."""
        stats = replica.routing_stats
        known = self._published.get(replica.replica_id)
        if known is not None and known[0] is stats:
            return known[1]
        try:
            standing = Standing.from_stats(stats) if stats else Standing()
        except ValueError as error:
            _logger.warning("replica %s published nonsense: %s", name_of(replica), error)
            standing = Standing()
        self._published[replica.replica_id] = stats, standing
        self._heard_at[replica.replica_id] = time.monotonic()
        return standing

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        """Those that are gone are forgotten."""
        super().update_replicas(replicas)
        there = {replica.replica_id for replica in replicas}
        for known in (self._published, self._last, self._heard_at, self._ended_at):
            for id_ in known.keys() - there:
                del known[id_]
        self._sent = {k: sent for k, sent in self._sent.items() if sent.replica_id in there}


def name_of(replica: RunningReplica) -> str:
    """The name in the ids of a replica."""
    return str(replica.replica_metadata.get("name", ""))
