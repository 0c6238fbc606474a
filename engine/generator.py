"""The streaming generator: prefill once, then one token per call.

Owns the running stream: its sampler, its text, what is held and why it ends. Knows token ids and
text; knows no HTTP, no thread and no socket. One stream at a time: beginning a stream ends the one
before, whose keys and values stay in the cache for the next prompt that begins alike.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from .abort import AbortFlag
from .cache import KVCache
from .errors import ContextLengthError, InvalidInputError, NumericsError
from .model import Model
from .result import Prefill, StreamResult, TokenRecord, TopToken
from .sample import SampleResult
from .sampling import Sampler, SamplingSettings
from .text import TextStream


@runtime_checkable
class IdArray(Protocol):
    """An array of token ids: numpy's, or a tensor of torch."""

    @property
    def shape(self) -> Sequence[int]: ...

    def tolist(self) -> Any: ...


class Vocabulary(Protocol):
    """What the generator asks of a tokenizer."""

    def token_bytes(self, token_id: int) -> bytes: ...

    def is_special(self, token_id: int) -> bool: ...


@dataclass(slots=True)
class _Held:
    """A sampled token that waits for its text to become safe."""

    record: TokenRecord
    logits: npt.NDArray[np.float32] | None


class _Stream:
    """The state of one completion."""

    def __init__(
        self,
        sampler: Sampler,
        text: TextStream,
        *,
        last_token_id: int,
        budget: int,
        stop_token_ids: frozenset[int],
        abort: AbortFlag | None,
        return_probabilities: bool,
        return_logits: bool,
        decode_special_tokens: bool,
    ) -> None:
        self.sampler = sampler
        self.text = text
        self.last_token_id = last_token_id
        self.budget = budget
        self.stop_token_ids = stop_token_ids
        self.abort = abort
        self.return_probabilities = return_probabilities
        self.return_logits = return_logits
        self.decode_special_tokens = decode_special_tokens
        self.held: deque[_Held] = deque()
        self.n_tokens = 0
        self.ended = False

    @property
    def aborted(self) -> bool:
        return self.abort is not None and self.abort.is_set()


class StreamingGenerator:
    """Generates one completion at a time, token by token; not thread-safe by design.

    Between calls the cache holds every token of the sequence but the last, which the next call
    forwards. Rows of equal tokens are reused by the next stream.
    """

    def __init__(
        self, model: Model, cache: KVCache, vocabulary: Vocabulary, *, eos_token_ids: Sequence[int]
    ) -> None:
        self._model = model
        self._cache = cache
        self._vocabulary = vocabulary
        self._eos_token_ids = frozenset(eos_token_ids)
        self._sampler_work = np.empty(model.config.vocab_size, dtype=np.float32)
        self._stream: _Stream | None = None
        self.n_prompt_tokens = 0
        self.n_cached_tokens = 0

    @property
    def n_completion_tokens(self) -> int:
        """Tokens sampled so far in this stream, a stop token included."""
        return self._stream.n_tokens if self._stream else 0

    def begin_stream_ex(
        self,
        input_ids: Sequence[int] | IdArray,
        settings: SamplingSettings | None = None,
        *,
        max_new_tokens: int | None = None,
        stop: Sequence[str] = (),
        stop_token_ids: Sequence[int] | None = None,
        ignore_eos: bool = False,
        return_probabilities: bool = False,
        return_top_tokens: int = 0,
        return_logits: bool = False,
        decode_special_tokens: bool = False,
        abort: AbortFlag | None = None,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> Prefill:
        """Prefill all of the prompt but its last token and make ready to stream.

        `input_ids`: n ids, or an array (n,) or (1, n), 1 <= n < max_seq_len. `max_new_tokens` None:
        up to the end of the context. `stop` strings end the text before them. `stop_token_ids`
        None: the model's own; `ignore_eos` removes the model's own. `abort` is looked at in prefill
        and before every token. `on_progress(done, total)` is called per prefilled chunk; `total`
        counts the prompt tokens that were not cached.

        Raises InvalidInputError (and its subclass ContextLengthError) before any work.
        """
        self._stream = None
        token_ids = self._checked_prompt(input_ids)
        self._check_options(max_new_tokens, stop, stop_token_ids, return_top_tokens)
        sampler = Sampler(
            settings or SamplingSettings(),
            prompt_ids=token_ids,
            work=self._sampler_work,
            n_top=return_top_tokens,
        )
        room = self._model.max_seq_len - len(token_ids)
        stream = _Stream(
            sampler,
            TextStream(stop),
            last_token_id=token_ids[-1],
            budget=room if max_new_tokens is None else min(max_new_tokens, room),
            stop_token_ids=self._stop_set(stop_token_ids, ignore_eos),
            abort=abort,
            return_probabilities=return_probabilities,
            return_logits=return_logits,
            decode_special_tokens=decode_special_tokens,
        )
        self.n_prompt_tokens = len(token_ids)
        self.n_cached_tokens = self._prefill(token_ids, abort, on_progress)
        self._stream = stream
        return Prefill(self.n_prompt_tokens, self.n_cached_tokens, stream.aborted, sampler.seed)

    def stream_ex(self) -> StreamResult:
        """Generate one token and return what has become safe to show.

        Raises NumericsError when the model's logits are not numbers; the stream has then ended.
        """
        stream = self._stream
        if stream is None or stream.ended:
            raise InvalidInputError("no stream is running: call begin_stream_ex first")
        if stream.aborted:
            return self._finish(stream, "aborted")
        if stream.n_tokens >= stream.budget:
            return self._finish(stream, "length")
        try:
            held = self._next_token(stream)
        except BaseException:
            # What the failed step left in the cache is not known; nothing may be reused from it.
            stream.ended = True
            self._cache.clear()
            raise
        token_id = held.record.token_id
        if token_id in stream.stop_token_ids:
            return self._finish(stream, "stop_token", stop_token=held)
        stream.held.append(held)
        if stream.text.stop_match is not None:
            return self._finish(stream, "stop_string")
        if stream.n_tokens >= stream.budget:
            return self._finish(stream, "length")
        chunk = stream.text.release()
        return _result(stream, chunk, _take_released(stream))

    def _checked_prompt(self, input_ids: Sequence[int] | IdArray) -> list[int]:
        if isinstance(input_ids, IdArray):
            shape = tuple(input_ids.shape)
            if len(shape) != 1 and (len(shape) != 2 or shape[0] != 1):
                raise InvalidInputError(
                    f"the prompt must have shape (n,) or (1, n), not {shape}", param="prompt"
                )
            values = input_ids.tolist()
            token_ids: list[int] = values[0] if len(shape) == 2 else values
        else:
            token_ids = list(input_ids)
        if not token_ids:
            raise InvalidInputError(
                "the prompt is empty: it needs at least one token", param="prompt"
            )
        vocab_size = self._model.config.vocab_size
        if min(token_ids) < 0 or max(token_ids) >= vocab_size:
            wrong = next(id_ for id_ in token_ids if not 0 <= id_ < vocab_size)
            raise InvalidInputError(
                f"the prompt holds token {wrong}; the vocabulary has ids 0 to {vocab_size - 1}",
                param="prompt",
            )
        if len(token_ids) >= self._model.max_seq_len:
            raise ContextLengthError(len(token_ids), self._model.max_seq_len)
        return token_ids

    def _check_options(
        self,
        max_new_tokens: int | None,
        stop: Sequence[str],
        stop_token_ids: Sequence[int] | None,
        return_top_tokens: int,
    ) -> None:
        vocab_size = self._model.config.vocab_size
        if max_new_tokens is not None and max_new_tokens < 0:
            raise InvalidInputError(
                f"max_new_tokens must be 0 or more, not {max_new_tokens}", param="max_tokens"
            )
        if isinstance(stop, str) or "" in stop:
            raise InvalidInputError(
                f"stop must be a sequence of non-empty strings, not {stop!r}", param="stop"
            )
        for token_id in stop_token_ids or ():
            if not 0 <= token_id < vocab_size:
                raise InvalidInputError(
                    f"stop_token_ids names token {token_id}; "
                    f"the vocabulary has ids 0 to {vocab_size - 1}",
                    param="stop_token_ids",
                )
        if not 0 <= return_top_tokens <= vocab_size:
            raise InvalidInputError(
                f"return_top_tokens must be between 0 and {vocab_size}, not {return_top_tokens}",
                param="top_logprobs",
            )

    def _stop_set(self, stop_token_ids: Sequence[int] | None, ignore_eos: bool) -> frozenset[int]:
        if ignore_eos:
            return frozenset(stop_token_ids or ()) - self._eos_token_ids
        return self._eos_token_ids if stop_token_ids is None else frozenset(stop_token_ids)

    def _prefill(
        self,
        token_ids: list[int],
        abort: AbortFlag | None,
        on_progress: Callable[[int, int], None] | None,
    ) -> int:
        """Bring the cache to all ids but the last; how many of them it had already."""
        n_cached = min(self._cache.common_prefix(token_ids), len(token_ids) - 1)
        self._cache.rewind(n_cached)
        try:
            self._model.prefill(
                token_ids[n_cached:-1], self._cache, abort=abort, on_progress=on_progress
            )
        except BaseException:
            self._cache.clear()
            raise
        return n_cached

    def _next_token(self, stream: _Stream) -> _Held:
        """Forward the last token, sample the next and append its bytes to the text."""
        logits = self._model.decode([stream.last_token_id], self._cache)[0]  # (vocab_size,)
        position = self._cache.length
        try:
            sampled = stream.sampler.sample(logits, position)
        except NumericsError as error:
            raise NumericsError(f"position {position}: {error}") from error
        stream.sampler.accept(sampled.token_id)
        stream.last_token_id = sampled.token_id
        stream.n_tokens += 1
        shown = b"" if sampled.token_id in stream.stop_token_ids else self._shown(stream, sampled)
        span = stream.text.push(shown)
        record = self._record(sampled, shown, span)
        return _Held(record, logits.copy() if stream.return_logits else None)

    def _shown(self, stream: _Stream, sampled: SampleResult) -> bytes:
        if self._vocabulary.is_special(sampled.token_id) and not stream.decode_special_tokens:
            return b""
        return self._vocabulary.token_bytes(sampled.token_id)

    def _record(self, sampled: SampleResult, shown: bytes, span: tuple[int, int]) -> TokenRecord:
        tops = zip(sampled.top_ids, sampled.top_logprobs_raw, sampled.top_p_sampled, strict=True)
        return TokenRecord(
            token_id=sampled.token_id,
            token_bytes=shown,
            text_start=span[0],
            text_end=span[1],
            logprob=sampled.logprob_raw,
            p_raw=sampled.p_raw,
            p_sampled=sampled.p_sampled,
            top=tuple(
                TopToken(id_, self._vocabulary.token_bytes(id_), logprob, math.exp(logprob), p)
                for id_, logprob, p in tops
            ),
            is_special=self._vocabulary.is_special(sampled.token_id),
        )

    def _finish(
        self, stream: _Stream, reason: str, *, stop_token: _Held | None = None
    ) -> StreamResult:
        """Release what is held, or drop it behind a stop; the stream has ended."""
        stream.ended = True
        chunk, dropped_text = stream.text.finish()
        # A stop string may complete only now: an incomplete character becomes U+FFFD at the end.
        match = stream.text.stop_match
        released = _take_released(stream, cut=match.start if match else None)
        dropped = [*stream.held, stop_token] if stop_token else list(stream.held)
        stream.held.clear()
        return _result(
            stream,
            chunk,
            released,
            reason="stop_string" if match else reason,
            dropped=dropped,
            dropped_text=dropped_text,
            stop_string=match.string if match else None,
            stop_token_id=stop_token.record.token_id if stop_token else None,
        )


def _take_released(stream: _Stream, *, cut: int | None = None) -> list[_Held]:
    """Remove from the held tokens, in order, those whose text has been released whole.

    With `cut`, the character where a stop string begins, the token that it divides comes too.
    """
    released = []
    while stream.held:
        record = stream.held[0].record
        divided = cut is not None and record.text_start < cut
        if record.text_end > stream.text.n_released and not divided:
            break
        released.append(stream.held.popleft())
    return released


def _result(
    stream: _Stream,
    chunk: str,
    released: Sequence[_Held],
    *,
    reason: str | None = None,
    dropped: Sequence[_Held] = (),
    dropped_text: str = "",
    stop_string: str | None = None,
    stop_token_id: int | None = None,
) -> StreamResult:
    tokens = tuple(held.record for held in released)
    rows = [held.logits for held in (*released, *dropped) if held.logits is not None]
    return StreamResult(
        chunk=chunk,
        eos=reason is not None,
        eos_reason=reason,
        stop_string=stop_string,
        stop_token_id=stop_token_id,
        tokens=tokens,
        dropped=tuple(held.record for held in dropped),
        dropped_text=dropped_text,
        probs=tuple(token.p_sampled for token in tokens) if stream.return_probabilities else None,
        logits=np.stack(rows) if rows else None,
    )
