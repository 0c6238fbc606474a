"""The scores of a request, whole or one event each."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...answer.logprobs import TokenNames, chat_entries, least_finite
from ...answer.metadata import Include, closing_fields, progress_fields, with_metadata
from ...answer.sse import DONE, encode_event, encode_json, error_event
from ...answer.usage import usage
from ...stream.jobs import Event, Progress, Scored
from ...stream.stream import CompletionStream


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreAnswer:
    """The answer to one request."""

    head: dict[str, Any]
    once: dict[str, Any]
    """In the whole answer, or in the first event."""
    n_prompt: int
    """Tokens of the prompt."""
    texts: Sequence[str]
    names: TokenNames
    include: Include
    include_usage: bool

    def whole(self, stream: CompletionStream, events: Sequence[Event]) -> bytes:
        answer = {**self.head, "scores": self.scores(events), "usage": usage(stream.counts)}
        return encode_json({**answer, **closing_fields(stream, self.include), **self.once})

    @property
    def id(self) -> str:
        return str(self.head["id"])

    def encoder(self) -> "ScoreEvents":
        return ScoreEvents(self)

    def scores(self, events: Sequence[Event]) -> list[dict[str, Any]]:
        return [self.score(event) for event in events if isinstance(event, Scored)]

    def score(self, scored: Scored) -> dict[str, Any]:
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


class ScoreEvents:
    """An event for each score, as they come, and before them for each piece of the prompt."""

    def __init__(self, answer: ScoreAnswer) -> None:
        self._answer = answer
        self._tail: dict[str, Any] = {"usage": None} if answer.include_usage else {}
        self._once = answer.once

    def frames(self, events: Sequence[Event]) -> bytes:
        """The frames of the next batch."""
        frames = []
        for event in events:
            if isinstance(event, Progress):
                fields = progress_fields(event, self._answer.n_prompt)
                frames.append(encode_event({**self._answer.head, "scores": [], **fields}))
            elif isinstance(event, Scored):
                frames.append(self._frame(self._answer.score(event)))
        return b"".join(frames)

    def closing(self, stream: CompletionStream) -> bytes:
        """The frames after those of the last batch."""
        last = closing_fields(stream, self._answer.include)
        if self._answer.include_usage:
            last = {"usage": usage(stream.counts), **last}
        return encode_event({**self._answer.head, "scores": [], **last}) + DONE if last else DONE

    def failed(self, error: Exception) -> bytes:
        """The last event of a stream that fails."""
        return error_event(error)

    def _frame(self, score: dict[str, Any]) -> bytes:
        once, self._once = self._once, {}
        return encode_event({**self._answer.head, "scores": [score], **self._tail, **once})
