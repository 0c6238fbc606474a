"""The streaming generator: prefill once, then the tokens of one pass per call.

Owns the beginning of a stream: what is checked, reused and prefilled, and that no state of one
stream reaches the next. Knows token ids and text; knows no HTTP, no thread and no socket.

One stream at a time: beginning a stream ends the previous one, whose keys and values stay in the
cache for the next prompt that begins alike.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..abort import AbortFlag
from ..cache.kv import KVCache
from ..cache.prefix import PrefixCache
from ..cache.reuse import Reuse
from ..cache.slot import Slot
from ..draft.speculator import DraftCount, Speculator
from ..errors import InvalidInputError, NumericsError
from ..grammar.compiler import ConstraintCompiler
from ..model.model import Model
from ..sampling.request import SampleResult
from ..sampling.settings import SamplingSettings
from ..text.vocabulary import Vocabulary
from .beginning import check_snapshot, guiding_ids, negative_prompt_of, prompt_of
from .branching import Branching, BranchSequence, SharedRows
from .completion import Completion
from .continuations import ContinuationScorer
from .decoding import Decoding, Guide
from .options import IdArray, Live, StreamOptions
from .parts import Parts
from .place import Place, place_of
from .prompt_scorer import PromptScorer
from .result import Prefill, StreamResult
from .sequence import CachedSequence
from .snapshot import Snapshot
from .stream import Stream

PROMPT_WANTED = "the prompt's probabilities are wanted"
NO_REUSE_WANTED = "the request wants the prompt computed anew"


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
        fingerprint: str = "",
    ) -> None:
        """`prefix` holds the cache of the one active sequence. `speculator`: used by every stream
        with the option `speculate`. `constraints`: None refuses every constraint. `fingerprint`:
        differs if the same tokens have other logits; snapshots of another one are refused.
        """
        self._model = model
        self._prefix = prefix
        self._vocabulary = vocabulary
        self._speculator = speculator
        self._fingerprint = fingerprint
        self._parts = Parts(model, vocabulary, eos_token_ids=eos_token_ids, constraints=constraints)
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
    def n_held(self) -> int:
        """Tokens whose keys and values the active sequence holds. From any thread."""
        return self._prefix.cache.length

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
        self.end_stream()
        settings, options = settings or SamplingSettings(), options or StreamOptions()
        options.check(self._model.config.vocab_size)
        prompt = prompt_of(input_ids, self._model)
        if options.negative_ids is not None:
            negative_prompt_of(options.negative_ids, self._model)
        snapshot = Snapshot.new(prompt, settings, options, self._fingerprint)
        return self._begun(
            snapshot, options.live, options.return_prompt_tokens, reuses=options.reuse_prefix
        )

    def restore(
        self,
        snapshot: Snapshot,
        *,
        isolation_key: str = "",
        on_token: Callable[[SampleResult], int | None] | None = None,
        abort: AbortFlag | None = None,
        on_progress: Callable[[int, int], None] | None = None,
        turn_starts: Sequence[int] = (),
    ) -> Stream:
        """End the previous stream, and go on from a snapshot of it or of an earlier one.

        Keys and values come from the cache as far as it has them. The keywords are the options that
        a snapshot does not hold. The prompt is not reported again. Raises InvalidInputError before
        any work if the snapshot is of another engine or does not fit this one, and if the
        constraint forbids its tokens.
        """
        self.end_stream()
        check_snapshot(snapshot, self._model, self._fingerprint)
        return self._begun(snapshot, Live(isolation_key, on_token, abort, on_progress, turn_starts))

    def begin_scoring(
        self, input_ids: Sequence[int] | IdArray, options: StreamOptions | None = None
    ) -> ContinuationScorer:
        """End the previous stream, and prefill a prompt whose continuations can then be scored.

        Of the options only `return_top_tokens`, `isolation_key`, `abort` and `on_progress` count.
        `input_ids` and errors as in `begin`.
        """
        self.end_stream()
        options = options or StreamOptions()
        options.check(self._model.config.vocab_size)
        prompt = prompt_of(input_ids, self._model)
        reuse = self._prefill(
            self._prefix, prompt[:-1], options.live, options.on_progress, next_id=prompt[-1]
        )
        self.n_prompt_tokens, self.n_cached_tokens = len(prompt), reuse.n_reused
        self._scorer = ContinuationScorer(
            self._model,
            self._prefix.cache,
            self._vocabulary,
            prompt,
            reuse,
            n_top=options.return_top_tokens,
            abort=options.abort,
            restore=lambda: self._prefill(self._prefix, prompt, options.live, None),
            on_failure=self._forget_all,
        )
        return self._scorer

    def expected_reuse(self, input_ids: Sequence[int], options: StreamOptions) -> Reuse:
        """How much of a prompt would be cached now. Changes nothing. From any thread."""
        if options.return_prompt_tokens is not None:
            return Reuse(0, len(input_ids) - 1, "none", None, PROMPT_WANTED)
        if not options.reuse_prefix:
            return Reuse(0, len(input_ids) - 1, "none", None, NO_REUSE_WANTED)
        healing = self._parts.healing(input_ids, options)
        wanted = input_ids[: -2 if healing else -1]
        return self._prefix.expected(wanted, isolation_key=options.isolation_key)

    def token_ids_of(self, text: str) -> tuple[int, ...]:
        """All tokens of exactly this text; no control tokens. From any thread."""
        return self._parts.token_ids_of(text)

    def slot(self) -> Slot:
        """What the cache holds of the last stream, which ends if it runs."""
        self.end_stream()
        return Slot(self._prefix)

    def end_stream(self) -> None:
        """Forget the running stream or scorer, if there is one. Its prompt stays in the cache."""
        if self._scorer is not None:
            self._scorer.end()
            self._scorer = None
        if self._stream is not None:
            self._stream.end()
            self._stream = None

    def close(self) -> None:
        """End the running stream, and write its keys and values to disk for the next process."""
        self.end_stream()
        self._prefix.flush()

    def _begun(
        self,
        snapshot: Snapshot,
        live: Live,
        n_prompt_top: int | None = None,
        *,
        reuses: bool = True,
    ) -> Stream:
        """`n_prompt_top`: alternatives to report with each token of the prompt; None: no report."""
        completion, prefill = self._completion(snapshot, live, n_prompt_top, reuses=reuses)
        self.n_prompt_tokens, self.n_cached_tokens = prefill.n_prompt, prefill.n_cached
        self._stream = Stream(
            completion,
            prefill,
            vocab_size=self._model.config.vocab_size,
            speculator=self._speculator if snapshot.options.speculate else None,
            on_failure=self._forget_all,
            rebuild=self._rebuilt,
            fork=self._forked,
            regain=self._regain,
            live=live,
        )
        return self._stream

    def _completion(
        self,
        snapshot: Snapshot,
        live: Live,
        n_prompt_top: int | None = None,
        *,
        reuses: bool = True,
    ) -> tuple[Completion, Prefill]:
        """What goes on from a snapshot, and what that took."""
        options, place = snapshot.options, self._place(snapshot)
        prompt, token_ids = snapshot.prompt_ids, place.token_ids
        scorer = None
        if n_prompt_top is not None:
            scorer = PromptScorer(prompt, self._vocabulary, n_top=n_prompt_top)
        speculator = self._speculator if options.speculate else None
        decoding = Decoding(
            CachedSequence(self._model, self._prefix.cache, token_ids),
            guide=self._guide(place, options.cfg_scale) if place.negative_ids else None,
            speculator=speculator,
            is_async=self._model.ops.is_async,
            keeps_rows=options.reads_rows or live.on_token is not None,
            is_greedy=snapshot.segments[-1].settings.is_greedy,
        )
        completion = place.completion(decoding, self._parts, live)
        if speculator is not None:
            speculator.begin(
                place.prompt_ids,
                prediction=options.prediction,
                abort=live.abort,
                isolation_key=live.isolation_key,
            )
            for token_id in place.past:
                speculator.accept(token_id)
        wanted = (prompt if scorer else token_ids)[:-1]
        reuse = self._prefill(
            self._prefix,
            wanted,
            live,
            live.on_progress,
            scorer,
            reuses=reuses,
            # The pass over a negative prompt would overwrite what goes along.
            next_id=None if place.negative_ids else token_ids[-1],
        )
        if place.healing and scorer:
            self._forget_from(len(place.prompt_ids) - 1)
        if place.negative_ids:
            self._prefill(self._negative_prefix, place.negative_ids[:-1], live, None)
        prefill = Prefill(
            len(prompt),
            reuse.n_reused,
            completion.aborted,
            snapshot.settings.seed or 0,
            reuse,
            scorer.tokens if scorer else (),
        )
        if not completion.aborted:
            self._replay(completion)
        return completion, prefill

    def _guide(self, place: Place, scale: float) -> Guide:
        cache = self._negative_prefix.cache
        return Guide(CachedSequence(self._model, cache, place.negative_ids), scale)

    def _place(self, snapshot: Snapshot) -> Place:
        options = snapshot.options
        negative = guiding_ids(options.negative_ids, options.cfg_scale, self._model)
        return place_of(snapshot, negative, self._parts, most=self._model.max_seq_len)

    def _rebuilt(self, snapshot: Snapshot, live: Live) -> Completion:
        """The completion of the running stream at another place of it."""
        self._leave_behind(snapshot)
        return self._completion(snapshot, live)[0]

    def _forked(self, snapshot: Snapshot, live: Live, n_tokens: int) -> Branching:
        """Branches of the running stream at a place of it, of `n_tokens` tokens more each."""
        self._leave_behind(snapshot)
        place = self._place(snapshot)
        n_positions = snapshot.n_tokens - len(place.past) + n_tokens
        passes = [self._shared(self._prefix, place.token_ids, live, n_positions)]
        if negative := place.negative_ids:
            passes.append(self._shared(self._negative_prefix, negative, live, n_positions))

        def make(at: Snapshot, live: Live, sequences: Sequence[BranchSequence]) -> Completion:
            own, *guides = sequences
            guide = Guide(guides[0], at.options.cfg_scale) if guides else None
            decoding = Decoding(own, guide=guide, speculator=None)
            completion = replace(place, snapshot=at).completion(decoding, self._parts, live)
            if not completion.aborted:
                self._replay(completion)
            return completion

        return Branching(passes, make)

    def _shared(
        self, prefix: PrefixCache, token_ids: Sequence[int], live: Live, n_positions: int
    ) -> SharedRows:
        """Passes of branches after `token_ids`, whose last row is computed once for all."""
        self._prefill(prefix, token_ids[:-1], live, None, next_id=token_ids[-1])
        cache = prefix.cache
        is_whole = cache.length == len(token_ids) - 1  # it was not aborted
        first = np.array(self._model.decode(token_ids[-1:], cache)) if is_whole else None
        return SharedRows(self._model.branches(cache, n_positions=n_positions), token_ids, first)

    def _regain(self, completion: Completion, live: Live) -> None:
        """Bring the caches back to the running stream, after branches of it."""
        own, *negative = completion.cached_ids
        self._forget_from(len(own) - 1)
        self._prefill(self._prefix, own[:-1], live, None)
        for token_ids in negative:
            self._prefill(self._negative_prefix, token_ids[:-1], live, None)

    def _leave_behind(self, snapshot: Snapshot) -> None:
        """So that nothing after that place of the running stream is copied to the store."""
        self._forget_from(len(snapshot.prompt_ids) + snapshot.n_tokens - 1)

    def _replay(self, completion: Completion) -> None:
        try:
            completion.replay()
        except BaseException as error:
            self._forget_all(error)
            raise

    def _prefill(
        self,
        prefix: PrefixCache,
        wanted: Sequence[int],
        live: Live,
        on_progress: Callable[[int, int], None] | None,
        scorer: PromptScorer | None = None,
        *,
        reuses: bool = True,
        next_id: int | None = None,
    ) -> Reuse:
        """Bring a cache to the wanted ids; the scorer gets the logits after each of them. After
        them comes `next_id`.
        """
        try:
            if scorer is None and reuses:
                reuse = prefix.prepare(wanted, isolation_key=live.isolation_key)
            else:
                # Cached keys and values do not give the logits of their positions.
                reason = PROMPT_WANTED if scorer else NO_REUSE_WANTED
                prefix.prepare((), isolation_key=live.isolation_key)
                reuse = Reuse(0, len(wanted), "none", None, reason)
            self._model.prefill(
                wanted[reuse.n_reused :],
                prefix.cache,
                abort=live.abort,
                on_progress=on_progress,
                on_logits=scorer.take if scorer else None,
                ends=prefix.pass_ends(live.turn_starts),
                after_pass=prefix.keep_state,
                next_id=next_id,
            )
        except BaseException as error:
            self._forget_all(error)
            raise
        return reuse

    def _forget_from(self, length: int) -> None:
        cache = self._prefix.cache
        cache.rollback(min(length, cache.length))

    @property
    def _negative_prefix(self) -> PrefixCache:
        if self._negative is None:
            model = self._model
            self._negative = PrefixCache(
                KVCache(model.config, model.ops, max_seq_len=model.max_seq_len)
            )
        return self._negative

    def _forget_all(self, error: BaseException) -> None:
        """After a failed step the contents of the caches are unknown and must not be reused."""
        for prefix in (self._prefix, self._negative):
            if prefix is None:
                continue
            if isinstance(error, NumericsError):
                prefix.discard()
            else:
                prefix.cache.clear()
