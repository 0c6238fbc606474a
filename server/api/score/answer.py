"""The scores of a request, whole or one event each."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...answer.logprobs import TokenNames, chat_entries, least_finite
from ...answer.metadata import Include, closing_fields, with_metadata
from ...answer.sse import DONE, encode_event, encode_json
from ...answer.usage import usage
from ...stream.jobs import Event, Scored
from ...stream.stream import CompletionStream


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreAnswer:
    """The answer to one request."""

    head: dict[str, Any]
    once: dict[str, Any]
    """In the whole answer, or in the first event."""
    texts: Sequence[str]
    names: TokenNames
    include: Include
    include_usage: bool

    def whole(self, stream: CompletionStream, events: Sequence[Event]) -> bytes:
        answer = {**self.head, "scores": self._scores(events), "usage": usage(stream.counts)}
        return encode_json({**answer, **closing_fields(stream, self.include), **self.once})

    def encoder(self) -> Callable[[Sequence[Event]], bytes]:
        once = [self.once]
        tail: dict[str, Any] = {"usage": None} if self.include_usage else {}

        def frames(events: Sequence[Event]) -> bytes:
            return b"".join(
                encode_event(
                    {**self.head, "scores": [score], **tail, **(once.pop() if once else {})}
                )
                for score in self._scores(events)
            )

        return frames

    def closing(self, stream: CompletionStream) -> bytes:
        last = closing_fields(stream, self.include)
        if self.include_usage:
            last = {"usage": usage(stream.counts), **last}
        return encode_event({**self.head, "scores": [], **last}) + DONE if last else DONE

    def _scores(self, events: Sequence[Event]) -> list[dict[str, Any]]:
        return [self._score(event) for event in events if isinstance(event, Scored)]

    def _score(self, scored: Scored) -> dict[str, Any]:
        tokens = scored.tokens
        logprob = math.fsum(least_finite(token.logprob) for token in tokens)
        return {
            "index": scored.choice,
            "text": self.texts[scored.choice],
            "logprob": logprob,
            "mean_logprob": logprob / len(tokens),
            "is_greedy": all(token.rank == 0 for token in tokens),
            "tokens": with_metadata(
                chat_entries(tokens, self.names), tokens, scored.clock, self.include
            ),
        }
