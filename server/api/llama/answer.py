"""The answer of /completion, whole or in events: llama-server's keys, of this server's streams.

Owns these keys. A key of llama-server's that has no meaning here is there with its only value; what
`include` adds is as on the other routes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from json.encoder import encode_basestring_ascii
from typing import Any

from typing_extensions import override

from engine import StreamResult, Tokenizer, TokenRecord

from ...answer.choices import by_choice, sampled
from ...answer.finish_reason import stop_reason
from ...answer.logprobs import TokenNames, chat_entries
from ...answer.metadata import (
    Include,
    closing_fields,
    control_fields,
    ending_fields,
    event_fields,
    opening_fields,
    progress_fields,
    with_metadata,
)
from ...answer.shape import GeneratedAnswer
from ...answer.sse import encode_event, encode_json
from ...answer.usage import timings
from ...stream.jobs import Begun, Clocks, Controlled, Event, Progress, Step, TokenCounts
from ...stream.stream import CompletionStream
from ..completions.prompts import Prompt
from .errors import error_event
from .settings import generation_settings

# One sequence at a time: there is one slot.
_SLOT = {"id_slot": 0}
_NONE = object()  # no such key


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaShape:
    """Which parts of an answer a request wants to see."""

    tokenizer: Tokenizer
    eos_token_ids: Sequence[int]
    names: TokenNames
    n_top: int | None
    """Alternatives per token; None: no probabilities."""
    after_sampling: bool
    """Whether probabilities are those of the distribution drawn from."""
    token_ids: bool
    """Whether a whole answer lists the ids of its tokens; events always do."""
    is_stream: bool
    timings_per_token: bool
    """Whether each event of a text has timings."""
    max_seq_len: int
    fields: Sequence[str]
    """Only these keys of a whole answer, or of the last event; none: all."""
    include: Include

    def chosen(self, said: dict[str, Any]) -> dict[str, Any]:
        """The keys that the request wants of an answer."""
        if not self.fields:
            return said
        found = {name: _nested(said, name.split("/")) for name in self.fields}
        return {name: value for name, value in found.items() if value is not _NONE}

    @property
    def is_text_alone(self) -> bool:
        """Whether a piece in the middle of a text is its text, its tokens and their counts."""
        return self.n_top is None and not self.timings_per_token and not self.include.wants_events

    def says_something(self, result: StreamResult) -> bool:
        """Whether a piece has an event now; if not, its tokens come with the text to come."""
        if "suppressed" in self.include and result.taken_back:
            return True
        return bool(result.chunk)

    def piece(self, pieces: Sequence[Step]) -> dict[str, Any]:
        """What the steps add to a text."""
        results = [step.result for step in pieces]
        said: dict[str, Any] = {
            "content": "".join([result.chunk for result in results]),
            "tokens": [token.token_id for result in results for token in result.tokens],
        }
        if self.n_top is not None and said["tokens"]:
            said["completion_probabilities"] = [
                entry for step in pieces for entry in self._entries(step.result.tokens, step.clock)
            ]
        return said | event_fields(results, self.tokenizer, self.include)

    def _entries(self, tokens: Sequence[TokenRecord], clock: float) -> Iterator[dict[str, Any]]:
        entries = chat_entries(tokens, self.names)
        for entry, token in zip(
            with_metadata(entries, tokens, clock, self.include), tokens, strict=True
        ):
            tops = [
                {"id": top.token_id, **said}
                for top, said in zip(token.top, entry.pop("top_logprobs"), strict=True)
            ]
            said = {"id": token.token_id, **entry}
            if not self.after_sampling:
                yield {**said, "top_logprobs": tops}
                continue
            after = [
                _after_sampling(each, top.p_sampled)
                for each, top in zip(tops, token.top, strict=True)
                if top.p_sampled > 0
            ]
            after.sort(key=lambda each: -each["prob"])
            yield {**_after_sampling(said, token.p_sampled), "top_probs": after}


@dataclass(slots=True)
class _Text:
    """One choice, as far as it is."""

    begun: Begun
    n_tokens: int = 0
    has_new_line: bool = False
    held: list[Step] = field(default_factory=list)
    """Steps that no event has told yet."""
    is_told: bool = False
    """Whether it has an event."""
    before: bytes = b""
    """Of an event: all before the text."""

    def add(self, step: Step) -> None:
        self.n_tokens += len(sampled(step.result))
        self.has_new_line = self.has_new_line or "\n" in step.result.chunk
        self.held.append(step)

    def counts(self) -> dict[str, int]:
        return {"tokens_predicted": self.n_tokens, "tokens_evaluated": self.begun.prefill.n_prompt}

    def timings(self, clock: float) -> dict[str, Any]:
        """Up to a moment of the text."""
        prefill, began = self.begun.prefill, self.begun.began
        return timings(
            TokenCounts(prefill.n_prompt, prefill.n_cached, self.n_tokens),
            Clocks(began, self.begun.clock - began, clock - self.begun.clock),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaAnswer(GeneratedAnswer):
    """The answer to one request."""

    prompts: Sequence[Prompt]
    """One per job."""
    is_list: bool
    """Whether the whole answer is a list of its choices."""
    shape: LlamaShape

    @override
    def whole(self, stream: CompletionStream, events: Sequence[Event]) -> bytes:
        shape, choices = self.shape, []
        for index, choice in sorted(by_choice(events).items()):
            text = _Text(choice.begun)
            for step in choice.pieces:
                text.add(step)
            said = {**shape.piece(choice.pieces), **self.opening(text)}
            if not shape.token_ids:
                said["tokens"] = []
            choices.append({**self.head_of(index), **said, **self.ending(text, choice.pieces[-1])})
        closing = self.closing(stream)
        choices = [shape.chosen({**choice, **closing}) for choice in choices]
        choices[0] |= self.once
        if self.is_list:
            return b"[" + b",".join(map(encode_json, choices)) + b"]"
        return encode_json(choices[0])

    @override
    def encoder(self) -> "LlamaEvents":
        return LlamaEvents(self)

    def head_of(self, index: int) -> dict[str, Any]:
        """The keys that every event of a choice begins with."""
        return {"id": self.id, "index": index, **_SLOT}

    def opening(self, text: _Text) -> dict[str, Any]:
        """Keys of the first event of a choice."""
        job = self.jobs[text.begun.choice]
        return opening_fields(text.begun, job, self.shape.tokenizer, self.shape.include)

    def ending(self, text: _Text, last: Step) -> dict[str, Any]:
        """Keys of a choice that has ended with the step `last`, behind `content` and `tokens`."""
        job, result, shape = self.jobs[text.begun.choice], last.result, self.shape
        prefill = text.begun.prefill
        stopped_at = stop_reason(result, self.shape.eos_token_ids)
        stop_type = _stop_type(result, is_asked_for=stopped_at is not None)
        is_full = prefill.n_prompt + text.n_tokens >= shape.max_seq_len
        return {
            "stop": True,
            "model": self.head["model"],
            "system_fingerprint": self.head["system_fingerprint"],
            **text.counts(),
            "generation_settings": generation_settings(
                job.settings,
                job.options,
                seed=prefill.seed,
                n_top=shape.n_top or 0,
                stream=shape.is_stream,
                after_sampling=shape.after_sampling,
                timings_per_token=shape.timings_per_token,
            ),
            "prompt": self.prompts[text.begun.choice].text,
            "has_new_line": text.has_new_line,
            "truncated": stop_type == "limit" and is_full,
            "stop_type": stop_type,
            "stopping_word": result.stop_string or "",
            "tokens_cached": prefill.n_prompt + max(0, text.n_tokens - 1),
            **ending_fields(last, self.shape.include),
        }

    def closing(self, stream: CompletionStream) -> dict[str, Any]:
        """Keys of the last event, and of each choice of a whole answer."""
        closing = closing_fields(stream, self.shape.include)
        return {"timings": timings(stream.counts, stream.clocks), **closing}


class LlamaEvents:
    """The events of one stream, as they come. The last one waits for the end of the stream."""

    def __init__(self, answer: LlamaAnswer) -> None:
        self._answer = answer
        self._once = answer.once
        self._text: _Text | None = None
        self._last: dict[str, Any] = {}  # of the choice that has ended, until the next one begins

    def frames(self, events: Sequence[Event]) -> bytes:
        """The events of one batch after the other."""
        frames: list[bytes] = []
        for event in events:
            if self._is_short(event):
                assert isinstance(event, Step)
                frames.append(self._short(event))
            else:
                frames.extend(self._frames(event))
        return b"".join(frames)

    def closing(self, stream: CompletionStream) -> bytes:
        """The last event. As in llama-server, there is no [DONE] behind it."""
        answer = self._answer
        return self._event(answer.shape.chosen({**self._last, **answer.closing(stream)}))

    def _is_short(self, event: Event) -> bool:
        """Whether it adds text and tokens to a text that has begun, and nothing else."""
        if not isinstance(event, Step) or not self._answer.shape.is_text_alone:
            return False
        text = self._running
        return text.is_told and not text.held and not event.result.eos and bool(event.result.chunk)

    def _short(self, step: Step) -> bytes:
        """As `_add` has it, without looking at what is the same in every event."""
        text, chunk = self._running, step.result.chunk
        text.n_tokens += len(sampled(step.result))
        text.has_new_line = text.has_new_line or "\n" in chunk
        if not text.before:
            head = self._answer.head_of(step.choice)
            text.before = b"data: " + encode_json({**head, "content": ""}).removesuffix(b'""}')
        ids = ",".join([str(token.token_id) for token in step.result.tokens])
        counts = (text.n_tokens, text.begun.prefill.n_prompt)
        return (
            b'%b%b,"tokens":[%b],"stop":false,"tokens_predicted":%d,"tokens_evaluated":%d}\n\n'
            % (text.before, encode_basestring_ascii(chunk).encode(), ids.encode(), *counts)
        )

    def failed(self, error: Exception) -> bytes:
        """The last event of a stream that fails."""
        return error_event(error)

    def _frames(self, event: Event) -> Iterator[bytes]:
        if isinstance(event, Begun):
            if self._last:
                yield self._event(self._answer.shape.chosen(self._last))
            self._text, self._last = _Text(event), {}
        elif isinstance(event, Step):
            yield from self._add(event)
        elif isinstance(event, Progress):
            n_prompt = len(self._answer.jobs[event.choice].input_ids)
            yield self._aside(event.choice, progress_fields(event, n_prompt), n_prompt=n_prompt)
        elif isinstance(event, Controlled):
            yield from self._controlled(event)

    def _add(self, step: Step) -> Iterator[bytes]:
        text, answer = self._running, self._answer
        text.add(step)
        result = step.result
        if not answer.shape.says_something(result) and not (result.eos and self._is_untold(text)):
            if result.eos:
                self._last = self._ended(text, step)
            return
        opening = {} if text.is_told else answer.opening(text)
        said = {**answer.head_of(step.choice), **answer.shape.piece(text.held), "stop": False}
        text.held, text.is_told = [], True
        clocked = {"timings": text.timings(step.clock)} if answer.shape.timings_per_token else {}
        yield self._event({**said, **text.counts(), **clocked, **opening})
        if result.eos:
            self._last = self._ended(text, step)

    def _is_untold(self, text: _Text) -> bool:
        """Whether the text ends with tokens that have no event yet, or without any event."""
        return not text.is_told or any(step.result.tokens for step in text.held)

    def _ended(self, text: _Text, last: Step) -> dict[str, Any]:
        answer = self._answer
        said = {**answer.head_of(last.choice), "content": "", "tokens": []}
        return {**said, **answer.ending(text, last)}

    def _controlled(self, controlled: Controlled) -> Iterator[bytes]:
        text = self._running
        if controlled.pieces is not None:
            text.n_tokens, text.held = controlled.n_tokens, []
            text.has_new_line = any("\n" in step.result.chunk for step in controlled.pieces)
        n_prompt = text.begun.prefill.n_prompt
        yield self._aside(controlled.choice, control_fields(controlled), n_prompt=n_prompt)

    def _aside(self, index: int, fields: dict[str, Any], *, n_prompt: int) -> bytes:
        """An event that adds no text."""
        n_tokens = self._text.n_tokens if self._text else 0
        counts = {"tokens_predicted": n_tokens, "tokens_evaluated": n_prompt}
        nothing = {"content": "", "tokens": [], "stop": False}
        return self._event({**self._answer.head_of(index), **nothing, **counts, **fields})

    def _event(self, said: dict[str, Any]) -> bytes:
        once, self._once = self._once, {}
        return encode_event({**said, **once})

    @property
    def _running(self) -> _Text:
        assert self._text is not None, "a job begins before its first step"
        return self._text


def _nested(said: Any, path: Sequence[str]) -> Any:
    for name in path:
        if not isinstance(said, dict) or name not in said:
            return _NONE
        said = said[name]
    return said


def _stop_type(result: StreamResult, *, is_asked_for: bool) -> str:
    if is_asked_for:
        return "word"
    return "eos" if result.eos_reason in ("stop_token", "constraint") else "limit"


def _after_sampling(entry: dict[str, Any], p_sampled: float) -> dict[str, Any]:
    """The entry with the probability that the token was drawn with."""
    return {**{key: value for key, value in entry.items() if key != "logprob"}, "prob": p_sampled}
