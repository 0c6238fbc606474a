"""What the generation routes share: the engine behind its lease, and from wire to engine words.

Every rule here is checked before the request is queued. Knows both kinds of requests through the
fields that they have in common; knows no shape of an answer.
"""

import dataclasses
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.concurrency import run_in_threadpool

from engine import ContextLengthError, Engine, InvalidInputError, SamplingSettings

from .errors import ModelNotFoundError, RequestError
from .lease import EngineLease
from .schema.common import GenerationRequest
from .settings import Settings
from .stream import CompletionJob, CompletionStream

# From here on, text is encoded beside the event loop: about a millisecond's work.
_LONG_TEXT = 8192

_SAMPLING_FIELDS = (
    "temperature",
    "top_p",
    "min_p",
    "repetition_penalty",
    "frequency_penalty",
    "presence_penalty",
    "seed",
)

FINISH_REASONS = {"stop_token": "stop", "stop_string": "stop", "length": "length"}

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Service:
    """One engine, ready to be asked."""

    settings: Settings
    engine: Engine
    lease: EngineLease

    @property
    def model_id(self) -> str:
        return self.settings.served_name or self.engine.model_id

    def check_request(self, body: GenerationRequest) -> None:
        """Raise for what cannot be served whatever the prompt is."""
        if body.model != self.model_id:
            raise ModelNotFoundError(
                f"the model does not exist; this server has {self.model_id!r}", param="model"
            )
        if body.n not in (None, 1):
            raise RequestError(f"n must be 1, not {body.n}: one sequence at a time", param="n")
        if body.stream_options is not None and not body.stream:
            raise RequestError("stream_options needs stream: true", param="stream_options")
        for string in body.stop_strings:
            check_text(string, param="stop")
        self._check_token_ids(body.stop_token_ids or (), param="stop_token_ids")

    def job(
        self,
        body: GenerationRequest,
        input_ids: Sequence[int],
        *,
        prompt_param: str,
        max_tokens: int | None,
        default_max_tokens: int | None,
        n_top: int,
    ) -> CompletionJob:
        """The engine's view of the request.

        `max_tokens` is what the request asks for and must fit the context; the default may be cut
        short by it (None: up to its end). Raises InvalidInputError and ContextLengthError.
        """
        if not input_ids:
            raise InvalidInputError("the prompt is empty: it needs a token", param=prompt_param)
        self._check_token_ids(input_ids, param=prompt_param)
        return CompletionJob(
            input_ids=input_ids,
            settings=self._sampling_settings(body),
            max_new_tokens=self._budget(
                len(input_ids), max_tokens, default_max_tokens, param=prompt_param
            ),
            stop=body.stop_strings,
            stop_token_ids=(*self.engine.eos_token_ids, *(body.stop_token_ids or ())),
            ignore_eos=bool(body.ignore_eos),
            n_top=n_top,
        )

    def start(self, job: CompletionJob) -> CompletionStream:
        """Queue the job. Raises QueueFullError and UnavailableError."""
        return CompletionStream(job, self.engine.generator, self.lease)

    def head(self, id_prefix: str, object_: str) -> dict[str, Any]:
        """The fields that begin every answer and every chunk of a stream."""
        return {
            "id": f"{id_prefix}-{uuid.uuid4().hex}",
            "object": object_,
            "created": int(time.time()),
            "model": self.model_id,
            "system_fingerprint": self.engine.fingerprint,
        }

    def _budget(
        self, n_prompt: int, requested: int | None, default: int | None, *, param: str
    ) -> int:
        room = self.engine.max_seq_len - n_prompt
        if room <= 0:
            raise ContextLengthError(n_prompt, self.engine.max_seq_len, param=param)
        if requested is None:
            return room if default is None else min(default, room)
        if requested > room:
            raise RequestError(
                f"this model's context holds {self.engine.max_seq_len} tokens; the request asks "
                f"for {n_prompt + requested}: {n_prompt} in the prompt, {requested} to generate",
                param=param,
                code="context_length_exceeded",
            )
        return requested

    def _sampling_settings(self, body: GenerationRequest) -> SamplingSettings:
        given: dict[str, Any] = {
            name: value for name in _SAMPLING_FIELDS if (value := getattr(body, name)) is not None
        }
        if body.top_k is not None:
            given["top_k"] = 0 if body.top_k == -1 else body.top_k
        if body.logit_bias is not None:
            given["logit_bias"] = self._logit_bias(body.logit_bias)
        return dataclasses.replace(self.engine.default_settings, **given)

    def _logit_bias(self, wire: dict[str, float]) -> dict[int, float]:
        if not all(key.isascii() and key.isdecimal() and len(key) <= 10 for key in wire):
            raise RequestError("logit_bias must have token ids as its keys", param="logit_bias")
        logit_bias = {int(key): bias for key, bias in wire.items()}
        self._check_token_ids(tuple(logit_bias), param="logit_bias")
        return logit_bias

    def _check_token_ids(self, token_ids: Sequence[int], *, param: str) -> None:
        vocab_size = self.engine.config.vocab_size
        if token_ids and not (min(token_ids) >= 0 and max(token_ids) < vocab_size):
            raise InvalidInputError(
                f"{param} holds a token id outside the vocabulary, 0 to {vocab_size - 1}",
                param=param,
            )


def check_text(text: str, *, param: str) -> None:
    """Raise for half of a surrogate pair, which JSON's escapes can spell and no encoding can."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise RequestError(f"{param} holds a lone surrogate", param=param) from None


async def encoded(encode: Callable[[], T], n_characters: int) -> T:
    """The result of `encode`, which must not hold up the event loop when the text is long."""
    return await run_in_threadpool(encode) if n_characters >= _LONG_TEXT else encode()


def usage(stream: CompletionStream) -> dict[str, Any]:
    """The `usage` of a stream that has ended."""
    counts = stream.counts
    return {
        "prompt_tokens": counts.n_prompt,
        "completion_tokens": counts.n_completion,
        "total_tokens": counts.n_prompt + counts.n_completion,
        "prompt_tokens_details": {"cached_tokens": counts.n_cached},
    }
