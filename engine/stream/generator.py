"""The streaming generator: prefill once, then the tokens of one pass per call.

Owns the beginning of a stream: what is checked, what is reused and what is prefilled, and that
nothing of one stream reaches the next. Knows token ids and text; knows no HTTP, no thread and no
socket. One stream at a time: beginning a stream ends the one before, whose keys and values stay in
the cache for the next prompt that begins alike.
"""

from collections.abc import Callable, Mapping, Sequence
from operator import index
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ..abort import AbortFlag
from ..cache.kv import KVCache
from ..cache.prefix import PrefixCache, Reuse
from ..draft.speculator import DraftCount, Speculator
from ..errors import ContextLengthError, InvalidInputError, NumericsError
from ..grammar.compiler import ConstraintCompiler
from ..grammar.constraint import Constraint
from ..grammar.spec import ConstraintSpec
from ..model.model import Model
from ..sampling.guidance import check_scale
from ..sampling.request import SampleResult
from ..sampling.sampler import Sampler
from ..sampling.settings import SamplingSettings
from ..sampling.token_masks import SamplerVocabulary
from ..text.prefix_index import PrefixIndex
from ..text.token_ids import check_token_ids
from ..text.vocabulary import Vocabulary
from .completion import Completion
from .decoding import Decoding, Guide
from .healing import Healing
from .options import StreamOptions, strings_of
from .prompt_scorer import PromptScorer
from .result import Prefill, StreamResult
from .sequence import CachedSequence


@runtime_checkable
class IdArray(Protocol):
    """An array of token ids: numpy's, or a tensor of torch."""

    @property
    def shape(self) -> Sequence[int]: ...

    def tolist(self) -> Any: ...


class StreamingGenerator:
    """Generates one completion at a time; not thread-safe by design.

    Between calls the cache holds every token of the sequence but the last, and what a draft may
    still confirm. Rows of equal tokens are reused by the next stream.
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
        that does not decline. `constraints` None: a stream cannot be constrained.
        """
        self._model = model
        self._prefix = prefix
        self._vocabulary = vocabulary
        self._eos_token_ids = frozenset(eos_token_ids)
        self._speculator = speculator
        self._drafting: Speculator | None = None  # the speculator, when the stream uses it
        self._constraints = constraints
        vocab_size = model.config.vocab_size
        self._sampler_vocabulary = SamplerVocabulary(vocabulary, vocab_size)
        self._prefix_index = PrefixIndex(vocabulary, vocab_size)
        self._sampler_work = np.empty(vocab_size, dtype=np.float32)
        self._negative: PrefixCache | None = None  # of negative prompts, made for the first one
        self._completion: Completion | None = None
        self.n_prompt_tokens = 0
        self.n_cached_tokens = 0

    @property
    def n_completion_tokens(self) -> int:
        """Tokens sampled so far in this stream, a stop token included."""
        return self._completion.n_tokens if self._completion else 0

    @property
    def draft_counts(self) -> Mapping[str, DraftCount]:
        """What came of this stream's drafts, by who made them; empty when it drafts nothing."""
        return dict(self._drafting.stats.by_origin.items()) if self._drafting else {}

    def begin_stream_ex(
        self,
        input_ids: Sequence[int] | IdArray,
        settings: SamplingSettings | None = None,
        *,
        max_new_tokens: int | None = None,
        min_new_tokens: int = 0,
        stop: Sequence[str] = (),
        stop_token_ids: Sequence[int] | None = None,
        ignore_eos: bool = False,
        banned_strings: Sequence[str] = (),
        token_healing: bool = False,
        constraint: ConstraintSpec | None = None,
        negative_ids: Sequence[int] | IdArray | None = None,
        cfg_scale: float = 1.0,
        speculate: bool = True,
        prediction: Sequence[int] = (),
        isolation_key: str = "",
        max_tokens_per_call: int | None = None,
        return_probabilities: bool = False,
        return_top_tokens: int = 0,
        return_prompt_tokens: int | None = None,
        return_logits: bool = False,
        return_trace: bool = False,
        decode_special_tokens: bool = False,
        on_token: Callable[[SampleResult], int | None] | None = None,
        abort: AbortFlag | None = None,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> Prefill:
        """Prefill all of the prompt but its last token and make ready to stream.

        `input_ids`: n ids, or an array (n,) or (1, n), 1 <= n < max_seq_len.
        `max_new_tokens` None: up to the end of the context. Before `min_new_tokens` no stop token
        is drawn. `stop` strings end the text before them; `stop_token_ids` None: the model's own;
        `ignore_eos` removes the model's own. `banned_strings`, in any case of letters, never show:
        the text is taken back to before them and goes on in another way. `token_healing`: the last
        token of the prompt may become a longer one that begins with its bytes. `constraint`: what
        the text must be. `negative_ids` and `cfg_scale`: guidance away from another prompt; the raw
        probabilities are then those of the mix. `speculate`: whether drafts may be tried;
        `prediction`: ids of the text that is likely to come. `isolation_key`: kept keys and values
        are shared among equal keys alone, and drafts are made of texts without a key.
        `max_tokens_per_call` None: all that a pass yields. With `return_prompt_tokens` the tokens
        of the prompt come in `Prefill.prompt_tokens`, each with so many alternatives: the model's
        own numbers for the prompt as it was given, whatever guidance, constraint and healing do
        behind it; what was cached is then computed again. `on_token` sees each token drawn and may
        return another id. `abort` is looked at in prefill and before every token.
        `on_progress(done, total)` is called per prefilled chunk; `total` counts the prompt tokens
        that were not cached.

        Raises InvalidInputError (and its subclass ContextLengthError) before any work.
        """
        self._end_stream()
        options = StreamOptions(
            max_new_tokens=max_new_tokens,
            min_new_tokens=min_new_tokens,
            stop=strings_of("stop", stop),
            stop_token_ids=None if stop_token_ids is None else tuple(stop_token_ids),
            ignore_eos=ignore_eos,
            banned_strings=strings_of("banned_strings", banned_strings),
            max_tokens_per_call=max_tokens_per_call,
            return_probabilities=return_probabilities,
            return_top_tokens=return_top_tokens,
            return_prompt_tokens=return_prompt_tokens,
            return_logits=return_logits,
            return_trace=return_trace,
            decode_special_tokens=decode_special_tokens,
            on_token=on_token,
            abort=abort,
        )
        vocab_size = self._model.config.vocab_size
        options.check(vocab_size)
        check_token_ids("prediction", prediction, vocab_size)
        prompt = self._checked_prompt(input_ids, "prompt")
        negative = self._checked_negative(negative_ids, cfg_scale)
        room = self._model.max_seq_len - max(len(prompt), len(negative))
        running_constraint = self._compiled(constraint)
        healing = self._healing(prompt) if token_healing else None
        token_ids = prompt[:-1] if healing else prompt
        sampler = Sampler(
            settings or SamplingSettings(),
            prompt_ids=token_ids,
            vocabulary=self._sampler_vocabulary,
            work=self._sampler_work,
            n_top=return_top_tokens,
            trace=return_trace,
            draw=self._model.ops.sample,
        )
        speculator = self._drafting = self._speculator if speculate else None
        if speculator is not None:
            speculator.begin(token_ids, prediction=prediction, abort=abort)
        scorer = None
        if return_prompt_tokens is not None:
            scorer = PromptScorer(prompt, self._vocabulary, n_top=return_prompt_tokens)
        wanted = (prompt if scorer else token_ids)[:-1]
        reuse = self._prefill(self._prefix, wanted, isolation_key, abort, on_progress, scorer)
        if healing and scorer:
            self._forget_from(len(token_ids) - 1)
        guide = None
        if negative:
            guide = self._guide(negative, cfg_scale, isolation_key, abort)
        self._completion = Completion(
            Decoding(
                CachedSequence(self._model, self._prefix.cache, token_ids),
                guide=guide,
                speculator=speculator,
                is_shared=not isolation_key,
                is_async=self._model.ops.is_async,
                keeps_rows=return_logits or on_token is not None,
            ),
            sampler,
            self._vocabulary,
            options,
            budget=room if max_new_tokens is None else min(max_new_tokens, room),
            stop_token_ids=self._stop_set(options, constrained=constraint is not None),
            constraint=running_constraint,
            healing=healing,
        )
        self.n_prompt_tokens = len(prompt)
        self.n_cached_tokens = reuse.n_reused
        return Prefill(
            self.n_prompt_tokens,
            reuse.n_reused,
            self._completion.aborted,
            sampler.seed,
            reuse,
            scorer.tokens if scorer else (),
        )

    def stream_ex(self, ban_tokens: Sequence[int] = ()) -> StreamResult:
        """Generate the tokens of one pass and return what has become safe to show.

        `ban_tokens` are not drawn in this call. Raises NumericsError when the model's logits are
        not numbers, and what a hook raises; the stream has then ended.
        """
        completion = self._completion
        if completion is None or completion.ended:
            raise InvalidInputError("no stream is running: call begin_stream_ex first")
        if ban_tokens:
            check_token_ids("ban_tokens", ban_tokens, self._model.config.vocab_size)
        try:
            return completion.advance(ban_tokens)
        except InvalidInputError:  # of the settings, before anything was done to the caches
            completion.abandon()
            raise
        except BaseException as error:
            completion.ended = True
            self._forget_all(error)
            raise

    def close(self) -> None:
        """End the running stream, and write what was computed to where the next process looks."""
        self._end_stream()
        self._prefix.flush()

    def _checked_prompt(self, input_ids: Sequence[int] | IdArray, param: str) -> list[int]:
        if isinstance(input_ids, IdArray):
            shape = tuple(input_ids.shape)
            if len(shape) != 1 and (len(shape) != 2 or shape[0] != 1):
                raise InvalidInputError(
                    f"the {param} must have shape (n,) or (1, n), not {shape}", param=param
                )
            values = input_ids.tolist()
            values = values[0] if len(shape) == 2 else values
        else:
            values = input_ids
        try:
            token_ids = [index(token_id) for token_id in values]
        except TypeError as error:
            raise InvalidInputError(
                f"the {param} must hold token ids: {error}", param=param
            ) from None
        if not token_ids:
            raise InvalidInputError(
                f"the {param} is empty: it needs at least one token", param=param
            )
        check_token_ids(param, token_ids, self._model.config.vocab_size)
        if len(token_ids) >= self._model.max_seq_len:
            raise ContextLengthError(len(token_ids), self._model.max_seq_len, param=param)
        return token_ids

    def _checked_negative(
        self, negative_ids: Sequence[int] | IdArray | None, cfg_scale: float
    ) -> list[int]:
        """The negative prompt; empty when there is no guidance."""
        check_scale(cfg_scale)
        if negative_ids is None:
            if cfg_scale != 1.0:
                raise InvalidInputError(
                    f"cfg_scale {cfg_scale} needs a negative prompt", param="cfg_scale"
                )
            return []
        token_ids = self._checked_prompt(negative_ids, "negative_prompt")
        return [] if cfg_scale == 1.0 else token_ids

    def _compiled(self, spec: ConstraintSpec | None) -> Constraint | None:
        if spec is None:
            return None
        if self._constraints is None:
            raise InvalidInputError("this generator cannot constrain", param="constraint")
        return self._constraints.compile(spec)

    def _stop_set(self, options: StreamOptions, *, constrained: bool) -> frozenset[int]:
        given = options.stop_token_ids
        stops = self._eos_token_ids if given is None else frozenset(given)
        if constrained:
            return stops | self._eos_token_ids  # the only way to say that the text is complete
        return stops - self._eos_token_ids if options.ignore_eos else stops

    def _healing(self, prompt: Sequence[int]) -> Healing | None:
        """How to heal the last token of the prompt; None when it cannot be a part of another."""
        if len(prompt) < 2 or self._vocabulary.is_control(prompt[-1]):
            return None
        prefix = self._vocabulary.token_bytes(prompt[-1])
        return Healing(prompt[-1], self._prefix_index, prefix) if prefix else None

    def _prefill(
        self,
        prefix: PrefixCache,
        wanted: Sequence[int],
        isolation_key: str,
        abort: AbortFlag | None,
        on_progress: Callable[[int, int], None] | None,
        scorer: PromptScorer | None = None,
    ) -> Reuse:
        """Bring a cache to the wanted ids; the scorer gets the logits after each of them."""
        try:
            if scorer is None:
                reuse = prefix.prepare(wanted, isolation_key=isolation_key)
            else:
                # Keys and values that are known do not tell the logits.
                prefix.prepare((), isolation_key=isolation_key)
                reuse = Reuse(0, len(wanted), "none", None, "the prompt's probabilities are wanted")
            self._model.prefill(
                wanted[reuse.n_reused :],
                prefix.cache,
                abort=abort,
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

    def _guide(
        self, token_ids: list[int], scale: float, isolation_key: str, abort: AbortFlag | None
    ) -> Guide:
        if self._negative is None:
            model = self._model
            self._negative = PrefixCache(
                KVCache(model.config, model.ops, max_seq_len=model.max_seq_len)
            )
        self._prefill(self._negative, token_ids[:-1], isolation_key, abort, None)
        return Guide(CachedSequence(self._model, self._negative.cache, token_ids), scale)

    def _end_stream(self) -> None:
        """Forget the running stream, if there is one."""
        if self._completion is not None:
            self._completion.abandon()
            self._completion = None

    def _forget_all(self, error: BaseException) -> None:
        """What the failed step left in the caches is not known; nothing may be reused from it."""
        for prefix in (self._prefix, self._negative):
            if prefix is None:
                continue
            if isinstance(error, NumericsError):
                prefix.discard()
            else:
                prefix.cache.clear()
