"""Replies from a model in this process.

Knows the engine's public surface; knows no terminal and no HTTP.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from engine import (
    AbortFlag,
    Engine,
    ReplyReader,
    SamplingSettings,
    Snapshot,
    Stream,
    StreamOptions,
    StreamResult,
    TokenRecord,
)

from ..local import engine_errors
from ..terminal import CommandError, on_interrupt, progress_bar
from .answer import (
    N_ALTERNATIVES,
    Alternative,
    Answer,
    ChatSettings,
    Message,
    Piece,
    Statistics,
    Token,
)


class _Place(NamedTuple):
    """What a branch needs of an answer."""

    snapshot: Snapshot
    text: str
    """Of the whole completion."""
    records: tuple[TokenRecord, ...]
    in_reasoning: bool
    """Whether the prompt has opened the reasoning."""


class InProcess:
    """A source of replies; see `answer.Source`."""

    why_no_branch = "this answer was loaded from a file; /regen generates it again"

    def __init__(self, engine: Engine) -> None:
        if engine.template is None:
            raise CommandError(
                f"{engine.model_id}: the model has no chat template; "
                "use `soliton complete` to continue a text"
            )
        self._engine = engine
        self.model = engine.model_id

    def ask(self, messages: Sequence[Message], settings: ChatSettings) -> "LocalReply":
        engine, abort = self._engine, AbortFlag()
        with engine_errors(), on_interrupt(abort.set), progress_bar("reading", unit="tok") as bar:
            input_ids = engine.encode_chat(messages)
            stream = engine.generator.begin(
                input_ids,
                self._settings(settings.sampling),
                StreamOptions(
                    max_new_tokens=settings.max_tokens,
                    return_top_tokens=N_ALTERNATIVES + 1,
                    abort=abort,
                    on_progress=bar,
                    turn_starts=engine.turn_starts(input_ids),
                ),
            )
        in_reasoning = engine.reply_format.opens_in_reasoning(input_ids)
        place = _Place(stream.snapshot(), "", (), in_reasoning)
        return LocalReply(engine, stream, abort, place)

    def branch(
        self, answer: Answer, at: int, token_id: int | None, settings: ChatSettings
    ) -> "LocalReply":
        old = answer.place
        assert isinstance(old, _Place)
        past = old.snapshot.at(at)
        most = settings.max_tokens
        abort = AbortFlag()
        with engine_errors(), on_interrupt(abort.set):
            sampling = dataclasses.replace(self._settings(settings.sampling), seed=None)
            place = past.changed(
                settings=sampling,
                options=dataclasses.replace(
                    past.options, max_new_tokens=None if most is None else at + most
                ),
                attempt=past.attempt + (token_id is None),
            )
            if token_id is not None:
                place = place.forced(token_id)
            stream = self._engine.generator.restore(place, abort=abort)
        inherited = _Place(
            place,
            old.text[: stream.n_inherited_characters],
            old.records[: stream.n_inherited_tokens],
            old.in_reasoning,
        )
        return LocalReply(self._engine, stream, abort, inherited)

    def check(self, sampling: Mapping[str, Any]) -> None:
        with engine_errors():
            self._settings(sampling)

    def defaults(self) -> Mapping[str, Any]:
        return dataclasses.asdict(self._engine.default_settings)

    def close(self) -> None:
        self._engine.generator.close()

    def _settings(self, sampling: Mapping[str, Any]) -> SamplingSettings:
        return dataclasses.replace(self._engine.default_settings, **sampling)


class LocalReply:
    """A reply of the engine; see `answer.Reply`."""

    def __init__(self, engine: Engine, stream: Stream, abort: AbortFlag, place: _Place) -> None:
        """`place`: what the stream has inherited, and where it begins."""
        self._engine = engine
        self._stream = stream
        self._abort = abort
        self._inherited = place
        self._texts = [place.text]
        self._records = [*place.records]
        prefill = stream.prefill
        self.statistics = Statistics(
            n_prompt=prefill.n_prompt,
            n_cached=prefill.n_cached,
            n_tokens=len(place.records),
            n_inherited=len(place.records),
            seed=prefill.seed,
            context=engine.max_seq_len,
        )

    @property
    def place(self) -> object:
        return _Place(
            self._stream.snapshot(),
            "".join(self._texts),
            tuple(self._records),
            self._inherited.in_reasoning,
        )

    def __iter__(self) -> Iterator[Piece]:
        form = self._engine.reply_format
        reader = None
        if form.needs_reader(reads_tools=False):
            reader = ReplyReader(form, in_reasoning=self._inherited.in_reasoning)
        past = {"chunk": self._inherited.text, "tokens": self._inherited.records}
        if self._inherited.records:
            yield from _pieces(StreamResult(past), reader)
        with engine_errors(), on_interrupt(self._abort.set):
            result = StreamResult({"eos": False})
            while not result.eos:
                if self._stream.prefill.aborted:
                    raise KeyboardInterrupt
                result = self._stream.step()
                self._texts.append(result.chunk)
                self._records += result.tokens
                self._count(result)
                yield from _pieces(result, reader)
        if result.eos_reason == "aborted":
            raise KeyboardInterrupt

    def close(self) -> None:
        self._stream.end()

    def _count(self, result: StreamResult) -> None:
        numbers = self.statistics
        numbers.n_tokens = len(self._records)
        numbers.end = result.eos_reason
        numbers.n_drafted = (numbers.n_drafted or 0) + result.n_drafted
        numbers.n_accepted = (numbers.n_accepted or 0) + result.n_accepted


def _pieces(result: StreamResult, reader: ReplyReader | None) -> Iterator[Piece]:
    if reader is None:
        if result.chunk or result.tokens:
            yield Piece(result.chunk, tuple(map(_token, result.tokens)))
        return
    for part in reader.read(result):
        yield Piece(part.text, tuple(map(_token, part.tokens)), part.kind == "reasoning")


def _token(record: TokenRecord) -> Token:
    others = (other for other in record.top if other.token_id != record.token_id)
    return Token(
        record.token_bytes,
        record.p_raw,
        tuple(Alternative(each.token_id, each.token_bytes, each.p_raw) for each in others)[
            :N_ALTERNATIVES
        ],
    )
