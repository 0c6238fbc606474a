"""The streaming generator: prefill once, then the tokens of one pass per call.

Owns the beginning of a stream: what is checked, reused and prefilled, and that no state of one
stream reaches the next. Knows token ids and text; knows no HTTP, no thread and no socket.

One stream at a time: beginning a stream ends the previous one, whose keys and values stay in the
cache for the next prompt that begins alike.
"""

from collections.abc import Callable, Mapping, Sequence
from operator import index
from typing import Any

import numpy as np

from ..cache.kv import KVCache
from ..cache.prefix import PrefixCache, Reuse
from ..draft.speculator import DraftCount, Speculator
from ..errors import ContextLengthError, InvalidInputError, NumericsError
from ..grammar.compiler import ConstraintCompiler
from ..grammar.constraint import Constraint
from ..grammar.spec import ConstraintSpec
from ..model.model import Model
from ..sampling.guidance import check_scale
from ..sampling.sampler import Sampler
from ..sampling.settings import SamplingSettings
from ..sampling.token_masks import SamplerVocabulary
from ..text.prefix_index import PrefixIndex
from ..text.token_ids import check_token_ids
from ..text.vocabulary import Vocabulary
from .completion import Completion
from .continuations import ContinuationScorer
from .decoding import Decoding, Guide
from .healing import Healing
from .options import IdArray, StreamOptions
from .prompt_scorer import PromptScorer
from .result import Prefill, StreamResult
from .sequence import CachedSequence
from .stop_when import StopConditions
from .stream import Stream

PROMPT_WANTED = "the prompt's probabilities are wanted"


class StreamingGenerator:
    """Generates one completion at a time; not thread-safe by design.

    Between calls the cache holds every token of the sequence but the last, and drafted tokens that
    may still be accepted. The next stream reuses the rows of the tokens that it shares.
    """

    def __init__(
        self,
        model: Model,
        prefix: PrefixCache,
        vocabulary: Vocabulary,
        *,
        eos_token_ids: Sequence[int],
        speculator: Speculator | None = None,
        constraints: ConstraintCompiler | None = None,
    ) -> None:
        """`prefix` holds the cache of the one active sequence. `speculator`: used by every stream
        with the option `speculate`. `constraints`: None refuses every constraint.
        """
        self._model = model
        self._prefix = prefix
        self._vocabulary = vocabulary
        self._eos_token_ids = frozenset(eos_token_ids)
        self._speculator = speculator
        self._constraints = constraints
        vocab_size = model.config.vocab_size
        self._sampler_vocabulary = SamplerVocabulary(vocabulary, vocab_size)
        self._prefix_index = PrefixIndex(vocabulary, vocab_size)
        self._sampler_work = np.empty(vocab_size, dtype=np.float32)
        self._negative: PrefixCache | None = None  # of negative prompts, made for the first one
        self._stream: Stream | None = None
        self._scorer: ContinuationScorer | None = None
        self.n_prompt_tokens = 0
        self.n_cached_tokens = 0

    @property
    def n_completion_tokens(self) -> int:
        """Tokens sampled so far in this stream, a stop token included."""
        return self._stream.n_completion_tokens if self._stream else 0

    @property
    def draft_counts(self) -> Mapping[str, DraftCount]:
        """Draft statistics of this stream by drafter; empty without drafting."""
        return self._stream.draft_counts if self._stream else {}

    def begin_stream_ex(
        self,
        input_ids: Sequence[int] | IdArray,
        settings: SamplingSettings | None = None,
        **options: Any,
    ) -> Prefill:
        """`begin` with the fields of StreamOptions as keywords; `stream_ex` does the steps."""
        return self.begin(input_ids, settings, StreamOptions(**options)).prefill

    def stream_ex(self, ban_tokens: Sequence[int] = ()) -> StreamResult:
        """`Stream.step` of the stream that `begin_stream_ex` began."""
        if self._stream is None:
            raise InvalidInputError("no stream is running: call begin_stream_ex first")
        return self._stream.step(ban_tokens)

    def begin(
        self,
        input_ids: Sequence[int] | IdArray,
        settings: SamplingSettings | None = None,
        options: StreamOptions | None = None,
    ) -> Stream:
        """End the previous stream, and prefill all of the prompt but its last token.

        `input_ids`: n ids, or an array (n,) or (1, n), 1 <= n < max_seq_len. Raises
        InvalidInputError (and its subclass ContextLengthError) before any work.
        """
        self._end_stream()
        settings, options = settings or SamplingSettings(), options or StreamOptions()
        options.check(self._model.config.vocab_size)
        prompt = self._checked_prompt(input_ids, "prompt", param="input_ids")
        negative = self._checked_negative(options.negative_ids, options.cfg_scale)
        room = self._model.max_seq_len - max(len(prompt), len(negative))
        constraint = self._compiled(options.constraint)
        healing = self._healing(prompt) if options.token_healing else None
        token_ids = prompt[:-1] if healing else prompt
        sampler = self._sampler(settings, token_ids, options)
        speculator = self._speculator if options.speculate else None
        if speculator is not None:
            speculator.begin(token_ids, prediction=options.prediction, abort=options.abort)
        scorer = None
        if options.return_prompt_tokens is not None:
            scorer = PromptScorer(prompt, self._vocabulary, n_top=options.return_prompt_tokens)
        wanted = (prompt if scorer else token_ids)[:-1]
        reuse = self._prefill(self._prefix, wanted, options, options.on_progress, scorer)
        if healing and scorer:
            self._forget_from(len(token_ids) - 1)
        decoding = Decoding(
            CachedSequence(self._model, self._prefix.cache, token_ids),
            guide=self._guide(negative, options) if negative else None,
            speculator=speculator,
            is_shared=not options.isolation_key,
            is_async=self._model.ops.is_async,
            keeps_rows=options.reads_rows,
        )
        limit = options.max_new_tokens
        completion = Completion(
            decoding,
            sampler,
            self._vocabulary,
            options,
            budget=room if limit is None else min(limit, room),
            stop_token_ids=self._stop_set(options),
            constraint=constraint,
            healing=healing,
            conditions=self._conditions(options),
        )
        self.n_prompt_tokens, self.n_cached_tokens = len(prompt), reuse.n_reused
        prefill = Prefill(
            len(prompt),
            reuse.n_reused,
            completion.aborted,
            sampler.seed,
            reuse,
            scorer.tokens if scorer else (),
        )
        self._stream = Stream(
            completion,
            prefill,
            vocab_size=self._model.config.vocab_size,
            speculator=speculator,
            on_failure=self._forget_all,
        )
        return self._stream

    def begin_scoring(
        self, input_ids: Sequence[int] | IdArray, options: StreamOptions | None = None
    ) -> ContinuationScorer:
        """End the previous stream, and prefill a prompt whose continuations can then be scored.

        Of the options only `return_top_tokens`, `isolation_key`, `abort` and `on_progress` count.
        `input_ids` and errors as in `begin`.
        """
        self._end_stream()
        options = options or StreamOptions()
        options.check(self._model.config.vocab_size)
        prompt = self._checked_prompt(input_ids, "prompt", param="input_ids")
        reuse = self._prefill(self._prefix, prompt[:-1], options, options.on_progress)
        self.n_prompt_tokens, self.n_cached_tokens = len(prompt), reuse.n_reused
        self._scorer = ContinuationScorer(
            self._model,
            self._prefix.cache,
            self._vocabulary,
            prompt,
            reuse,
            n_top=options.return_top_tokens,
            abort=options.abort,
            on_failure=self._forget_all,
        )
        return self._scorer

    def expected_reuse(self, input_ids: Sequence[int], options: StreamOptions) -> Reuse:
        """How much of a prompt would be cached now. Changes nothing. From any thread."""
        if options.return_prompt_tokens is not None:
            return Reuse(0, len(input_ids) - 1, "none", None, PROMPT_WANTED)
        healing = self._healing(input_ids) if options.token_healing else None
        wanted = input_ids[: -2 if healing else -1]
        return self._prefix.expected(wanted, isolation_key=options.isolation_key)

    def token_ids_of(self, text: str) -> tuple[int, ...]:
        """All tokens of exactly this text; no control tokens. From any thread."""
        return tuple(self._prefix_index.ids_equal_to(text.encode()).tolist())

    def close(self) -> None:
        """End the running stream, and write its keys and values to disk for the next process."""
        self._end_stream()
        self._prefix.flush()

    def _checked_prompt(
        self, input_ids: Sequence[int] | IdArray, name: str, *, param: str
    ) -> list[int]:
        if isinstance(input_ids, IdArray):
            shape = tuple(input_ids.shape)
            if len(shape) != 1 and (len(shape) != 2 or shape[0] != 1):
                raise InvalidInputError(
                    f"the {name} must have shape (n,) or (1, n), not {shape}", param=param
                )
            values = input_ids.tolist()
            values = values[0] if len(shape) == 2 else values
        else:
            values = input_ids
        try:
            token_ids = [index(token_id) for token_id in values]
        except TypeError as error:
            raise InvalidInputError(
                f"the {name} must hold token ids: {error}", param=param
            ) from None
        if not token_ids:
            raise InvalidInputError(
                f"the {name} is empty: it needs at least one token", param=param
            )
        check_token_ids(param, token_ids, self._model.config.vocab_size)
        if len(token_ids) >= self._model.max_seq_len:
            raise ContextLengthError(len(token_ids), self._model.max_seq_len, param=param)
        return token_ids

    def _checked_negative(
        self, negative_ids: Sequence[int] | IdArray | None, cfg_scale: float
    ) -> list[int]:
        """The negative prompt; empty without guidance."""
        check_scale(cfg_scale)
        if negative_ids is None:
            if cfg_scale != 1.0:
                raise InvalidInputError(
                    f"cfg_scale {cfg_scale} needs a negative prompt", param="cfg_scale"
                )
            return []
        token_ids = self._checked_prompt(negative_ids, "negative prompt", param="negative_ids")
        return [] if cfg_scale == 1.0 else token_ids

    def _compiled(self, spec: ConstraintSpec | None) -> Constraint | None:
        if spec is None:
            return None
        if self._constraints is None:
            raise InvalidInputError("this generator has no constraints", param=spec.param)
        return self._constraints.compile(spec, param=spec.param)

    def _sampler(
        self, settings: SamplingSettings, token_ids: Sequence[int], options: StreamOptions
    ) -> Sampler:
        return Sampler(
            settings,
            prompt_ids=token_ids,
            vocabulary=self._sampler_vocabulary,
            work=self._sampler_work,
            n_top=options.return_top_tokens,
            trace=options.return_trace,
            draw=self._model.ops.sample,
        )

    def _stop_set(self, options: StreamOptions) -> frozenset[int]:
        given = options.stop_token_ids
        stops = self._eos_token_ids if given is None else frozenset(given)
        if options.constraint is not None:
            # Under a constraint they are the only way to say that the text is complete.
            return stops | self._eos_token_ids
        return stops - self._eos_token_ids if options.ignore_eos else stops

    def _conditions(self, options: StreamOptions) -> StopConditions | None:
        when = options.stop_when
        return None if when is None else StopConditions(when, sorted(self._eos_token_ids))

    def _healing(self, prompt: Sequence[int]) -> Healing | None:
        """How to heal the last token of the prompt; None if it cannot be part of another token."""
        if len(prompt) < 2 or self._vocabulary.is_control(prompt[-1]):
            return None
        prefix = self._vocabulary.token_bytes(prompt[-1])
        return Healing(prompt[-1], self._prefix_index, prefix) if prefix else None

    def _prefill(
        self,
        prefix: PrefixCache,
        wanted: Sequence[int],
        options: StreamOptions,
        on_progress: Callable[[int, int], None] | None,
        scorer: PromptScorer | None = None,
    ) -> Reuse:
        """Bring a cache to the wanted ids; the scorer gets the logits after each of them."""
        try:
            if scorer is None:
                reuse = prefix.prepare(wanted, isolation_key=options.isolation_key)
            else:
                # Cached keys and values do not give the logits of their positions.
                prefix.prepare((), isolation_key=options.isolation_key)
                reuse = Reuse(0, len(wanted), "none", None, PROMPT_WANTED)
            self._model.prefill(
                wanted[reuse.n_reused :],
                prefix.cache,
                abort=options.abort,
                on_progress=on_progress,
                on_logits=scorer.take if scorer else None,
            )
        except BaseException as error:
            self._forget_all(error)
            raise
        return reuse

    def _forget_from(self, length: int) -> None:
        cache = self._prefix.cache
        cache.rollback(min(length, cache.length))

    def _guide(self, token_ids: list[int], options: StreamOptions) -> Guide:
        if self._negative is None:
            model = self._model
            self._negative = PrefixCache(
                KVCache(model.config, model.ops, max_seq_len=model.max_seq_len)
            )
        self._prefill(self._negative, token_ids[:-1], options, None)
        return Guide(
            CachedSequence(self._model, self._negative.cache, token_ids), options.cfg_scale
        )

    def _end_stream(self) -> None:
        """Forget the running stream or scorer, if there is one."""
        if self._scorer is not None:
            self._scorer.end()
            self._scorer = None
        if self._stream is not None:
            self._stream.end()
            self._stream = None

    def _forget_all(self, error: BaseException) -> None:
        """After a failed step the contents of the caches are unknown and must not be reused."""
        for prefix in (self._prefix, self._negative):
            if prefix is None:
                continue
            if isinstance(error, NumericsError):
                prefix.discard()
            else:
                prefix.cache.clear()
