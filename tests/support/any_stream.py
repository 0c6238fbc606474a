"""Requests with any options together, generators to run them, and what must hold of every stream.

Owns a random tiny model over a vocabulary of few characters, in which strings are found often and
characters are often cut: one generator that has nothing but it, and one with everything (drafts,
copies of past keys and values, small chunks), which must give the same.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pytest

from engine import (
    ConstraintSpec,
    InvalidInputError,
    Repeat,
    SamplingSettings,
    StopCondition,
    StopWhen,
    StreamingGenerator,
    StreamResult,
    TokenRecord,
)
from engine.cache.kv import KVCache
from engine.cache.prefix import PrefixCache
from engine.checkpoint.config_json import model_config
from engine.checkpoint.safetensors import read_checkpoint
from engine.checkpoint.tensors import check_tensors
from engine.device.open import open_ops
from engine.draft.model import ModelDrafter
from engine.draft.ngram import NgramDrafter
from engine.draft.row_costs import RowCosts
from engine.draft.speculator import Speculator
from engine.grammar.compiler import ConstraintCompiler
from engine.model.loading import load_weights
from engine.model.model import Model
from engine.sampling.request import SampleResult
from tests.support.scripted_model import (
    assert_nothing_lost,
    records_of,
    text_of,
)
from tests.support.tiny_models import VOCAB_SIZE, Family, save_model

MAX_SEQ_LEN = 72
CHUNK = 16
N_SPECIAL = 5
END = 4
FRAGMENTS = (
    *(b"a", b"b", b"A", b"ab", b"ba", b"bab", b" ", b"a b", b"!", b""),
    *(b"\xc3\xa9", b"\xc3", b"\xa9", b"a\xc3", b"\xa9b", b"\xe6\x97\xa5", b"\xe6\x97", b"\xa5"),
)


class Pieces:
    """Few characters in many tokens; the first five are special."""

    def token_bytes(self, token_id: int) -> bytes:
        if token_id < N_SPECIAL:
            return b"<%d>" % token_id
        return FRAGMENTS[token_id * 7 % len(FRAGMENTS)]

    def is_special(self, token_id: int) -> bool:
        return token_id < N_SPECIAL

    def is_control(self, token_id: int) -> bool:
        return token_id < N_SPECIAL

    def encode_continuation(self, text: str) -> list[int]:
        return []  # the caller divides the text itself


class SetCosts(RowCosts):
    """The time of a pass is given, so no clock decides a test."""

    def observe(self, n_rows: int, seconds: float) -> None:
        pass


class Parts(NamedTuple):
    """What generators are made of."""

    model: Model
    slow: Model  # the same, in small chunks
    draft: Model  # of the same vocabulary; it often agrees
    constraints: ConstraintCompiler

    def plain(self) -> StreamingGenerator:
        """Only the model."""
        return self._generator(PrefixCache(cache_of(self.model)), self.model)

    def busy(self) -> StreamingGenerator:
        """Everything that a generator may have."""
        cache = cache_of(self.slow)
        budget = 5 * cache.positions.n_bytes(CHUNK)
        if cache.states is not None:
            budget += 3 * cache.states.n_bytes
        draft = ModelDrafter(
            self.draft,
            cache_of(self.draft),
            SetCosts((1e-3,) * 5),
            vocab_size=VOCAB_SIZE,
            min_confidence=0.0,
        )
        return self._generator(
            PrefixCache(cache, block=CHUNK, byte_budget=budget),
            self.slow,
            Speculator([NgramDrafter(pool_bytes=4096), draft], SetCosts((1.0,) * 5)),
        )

    def _generator(
        self, prefix: PrefixCache, model: Model, speculator: Speculator | None = None
    ) -> StreamingGenerator:
        return StreamingGenerator(
            model,
            prefix,
            Pieces(),
            eos_token_ids=(END,),
            speculator=speculator,
            constraints=self.constraints,
        )


def cache_of(model: Model) -> KVCache:
    return KVCache(model.config, model.ops, max_seq_len=MAX_SEQ_LEN)


def loaded(path: Path, *, chunk_size: int) -> Model:
    config = model_config(path)
    ops = open_ops(device="cpu", dtype="float32")
    weights = load_weights(check_tensors(read_checkpoint(path), config), config, ops)
    return Model(weights, config, ops, max_seq_len=MAX_SEQ_LEN, chunk_size=chunk_size)


def stream_parts(path: Path, family: Family | str = "llama") -> Parts:
    """A model of its own, saved in the directory `path`."""
    save_model(path, family)
    return Parts(
        loaded(path, chunk_size=512),
        loaded(path, chunk_size=7),
        loaded(path, chunk_size=512),
        ConstraintCompiler(Pieces(), VOCAB_SIZE, (END,)),
    )


class Request(NamedTuple):
    prompt: list[int]
    sampling: SamplingSettings
    options: dict[str, Any]
    banned: tuple[int, ...] = ()  # in every call
    one_by_one: bool = False
    wrong_every: int = 0  # every so many predicted tokens, one is wrong
    isolation_key: str = ""
    speculate: bool = True


class Outcome(NamedTuple):
    """Everything that must depend only on the request."""

    records: list[TokenRecord]
    text: str
    reason: str | None
    dropped_text: str
    condition: StopCondition | None
    suppressed: str
    n_completion: int
    logits: bytes


def streamed(
    generator: StreamingGenerator, request: Request, **options: Any
) -> list[StreamResult] | str:
    """The results, or the words of the error that ended them."""
    try:
        generator.begin_stream_ex(
            request.prompt,
            request.sampling,
            return_top_tokens=2,
            return_logits=True,
            return_trace=True,
            return_probabilities=True,
            **request.options,
            **options,
        )
        results: list[StreamResult] = []
        while not results or not results[-1].eos:
            results.append(generator.stream_ex(request.banned))
    except InvalidInputError as error:
        return str(error)
    return results


def all_records(results: Sequence[StreamResult]) -> list[TokenRecord]:
    return [*records_of(results), *results[-1].dropped]


def all_logits(results: Sequence[StreamResult]) -> Any:
    rows = [result.logits for result in results if result.logits is not None]
    return np.concatenate(rows) if rows else np.empty((0, VOCAB_SIZE), np.float32)


def outcome(generator: StreamingGenerator, results: list[StreamResult] | str) -> Outcome | str:
    if isinstance(results, str):
        return results
    return Outcome(
        [record._replace(origin="", proposed=None) for record in all_records(results)],
        text_of(results),
        results[-1].eos_reason,
        results[-1].dropped_text,
        results[-1].stop_condition,
        "".join(result.suppressed for result in results),
        generator.n_completion_tokens,
        all_logits(results).tobytes(),
    )


def busy_outcome(generator: StreamingGenerator, request: Request, ids: list[int]) -> Outcome | str:
    """The same request with everything that must not matter; `ids`: what the answer will be."""
    predicted = ids
    if request.wrong_every:
        predicted = [
            id_ if i % request.wrong_every else (id_ + 1) % VOCAB_SIZE for i, id_ in enumerate(ids)
        ]
    results = streamed(
        generator,
        request,
        prediction=predicted,
        max_tokens_per_call=1 if request.one_by_one else None,
        isolation_key=request.isolation_key,
        speculate=request.speculate,
    )
    if not isinstance(results, str):
        assert_holds(generator, request, results)
        assert not request.one_by_one or all(len(r.tokens) <= 40 for r in results)
    return outcome(generator, results)


def assert_holds(
    generator: StreamingGenerator, request: Request, results: list[StreamResult]
) -> None:
    """What is true of every stream."""
    options, last = request.options, results[-1]
    records, text = all_records(results), text_of(results)
    assert_nothing_lost(results)
    assert_spans(records)
    assert generator.n_completion_tokens == len(records)
    assert generator.n_prompt_tokens == len(request.prompt)
    assert_rows_belong_to_records(records, all_logits(results))
    assert [r.probs for r in results] == [tuple(t.p_sampled for t in r.tokens) for r in results]

    for string in options.get("banned_strings", ()):
        # Half a character that is left at the end becomes U+FFFD, which nothing could take back.
        assert "\ufffd" in string or string.lower() not in text.lower()
    for string in options.get("stop", ()):
        assert string not in text
    if last.stop_string is not None:
        assert last.eos_reason == "stop_string"
        assert last.stop_string in options["stop"]
        assert last.dropped_text.startswith(last.stop_string)
    elif last.eos_reason != "stop_string":
        assert last.dropped_text == ""

    is_guided = options.get("cfg_scale", 1.0) != 1.0
    n_negative = len(options["negative_ids"]) if is_guided else 0
    room = MAX_SEQ_LEN - max(len(request.prompt), n_negative)
    budget = min(options.get("max_new_tokens", room), room)
    assert len(records) <= budget
    if last.eos_reason == "length":
        assert len(records) == budget
    stops = set(options.get("stop_token_ids", [END]))
    if options["ignore_eos"]:
        stops.discard(END)
    if "constraint" in options:
        stops.add(END)
    drawn = [r.token_id for r in records if r.origin != "hook"]
    hooked = options.get("on_token") is not None
    if not hooked:
        assert not stops & set(drawn[: options.get("min_new_tokens", 0)])
        assert not set(request.banned) & set(drawn)
    if last.eos_reason == "stop_token":
        assert last.stop_token_id == records[-1].token_id == last.dropped[-1].token_id
        assert last.stop_token_id in stops
    elif last.eos_reason != "stop_string":
        assert last.stop_token_id is None
    assert (last.stop_condition is not None) == (last.eos_reason == "stop_when")
    for record, row in zip(records, all_logits(results).astype(np.float64), strict=True):
        masses = [np.exp(row[sorted({*ids})] - row.max()).sum() for ids in options.get("watch", ())]
        assert record.watched == pytest.approx(masses / np.exp(row - row.max()).sum(), rel=1e-4)
    healed = [result.healed for result in results if result.healed is not None]
    if options.get("token_healing") and len(request.prompt) > 1 and records:
        assert healed in ([request.prompt[-1]], [])
    else:
        assert not healed
    assert sum(r.n_accepted for r in results) <= sum(r.n_drafted for r in results)


def assert_spans(records: Sequence[TokenRecord]) -> None:
    """The characters of each record are those that its bytes are part of."""
    data = b"".join(record.token_bytes for record in records)
    is_valid = "\ufffd" not in data.decode(errors="replace")
    offset = previous = 0
    for record in records:
        start, end = offset, offset + len(record.token_bytes)
        offset = end
        assert previous <= record.text_start <= record.text_end
        previous = record.text_start
        if start == end:
            assert record.text_start == record.text_end
        if is_valid:
            n_whole = len(data[:start].decode(errors="ignore"))
            n_begun = sum(byte & 0xC0 != 0x80 for byte in data[:end])
            assert (record.text_start, record.text_end) == (
                (n_whole, n_begun) if start < end else (n_whole, n_whole)
            )


def assert_rows_belong_to_records(records: Sequence[TokenRecord], logits: Any) -> None:
    assert logits.shape == (len(records), VOCAB_SIZE)
    for record, row in zip(records, logits.astype(np.float64), strict=True):
        p = np.exp(row - row.max())
        p /= p.sum()
        assert record.p_raw == pytest.approx(p[record.token_id], rel=1e-4)
        assert math.log(record.p_raw) == pytest.approx(record.logprob, abs=1e-6)
        assert record.rank == int((row > row[record.token_id]).sum())
        assert [top.token_id for top in record.top] == np.argsort(-row, kind="stable")[:2].tolist()


def one_further(sampled: SampleResult) -> int | None:
    return (sampled.token_id + 7) % VOCAB_SIZE if sampled.token_id % 6 == 0 else None


SAMPLING: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "plain": {"temperature": 1.0},
    "hot": {"temperature": 1.7, "min_p": 0.02, "temperature_last": True},
    "penalised": {"repetition_penalty": 1.3, "frequency_penalty": 0.4, "repetition_range": 9},
    "greedy penalised": {"temperature": 0.0, "presence_penalty": 1.5, "dry_multiplier": 1.0},
    "mirostat": {"mirostat": True},
    "xtc": {"xtc_probability": 0.6, "xtc_threshold": 0.04, "top_k": 50},
    "biased": {"logit_bias": {50: 4.0, 61: 3.0, END: 5.0}, "banned_tokens": (7, 9)},
}
CONSTRAINTS = (
    ConstraintSpec("regex", "(ab|ba|é| ){2,9}!"),
    ConstraintSpec("regex", "[ab ]*日?"),
    ConstraintSpec("choices", ("a b", "ab", "abé", "bab!")),
)
# The logits of a random model are nearly flat: its entropy is 4.9 to 5.4, its mean logprob near -5.
STOP_WHEN = (
    StopWhen(entropy_gt=5.38),
    StopWhen(mean_logprob_lt=-5.1),
    StopWhen(mean_logprob_lt=-5.4, p_eos_gt=0.02),
    StopWhen(repeat=Repeat(3, 2), p_eos_gt=0.1),
)
CONVERSATIONS = tuple(
    np.random.default_rng(seed).integers(N_SPECIAL, VOCAB_SIZE, 48).tolist() for seed in range(2)
)


def some_ids(rng: Random, n_least: int, n_most: int) -> list[int]:
    return [rng.randrange(VOCAB_SIZE) for _ in range(rng.randint(n_least, n_most))]


def some_prompt(rng: Random) -> list[int]:
    """The beginning of one of two conversations and what follows; sometimes something short."""
    return [*rng.choice(CONVERSATIONS)[: rng.randint(1, 48)], *some_ids(rng, 0, 4)]


def some_request(rng: Random) -> Request:
    """Any options but strings, which are taken from the text that the request would have."""
    options: dict[str, Any] = {}
    if rng.random() < 0.8:
        options["max_new_tokens"] = rng.randint(0, 24)
    if rng.random() < 0.3:
        options["min_new_tokens"] = rng.randint(0, options.get("max_new_tokens", 9))
    if rng.random() < 0.3:
        options["token_healing"] = True
    if rng.random() < 0.25:
        options["constraint"] = rng.choice(CONSTRAINTS)
    if rng.random() < 0.25:
        options["negative_ids"] = some_ids(rng, 1, 20)
        options["cfg_scale"] = rng.choice([0.0, 1.0, 1.5, 3.0])
    if rng.random() < 0.15:
        options["on_token"] = one_further
    if rng.random() < 0.3:
        options["watch"] = [some_ids(rng, 1, 9) for _ in range(rng.randint(1, 3))]
    if rng.random() < 0.3:
        options["stop_when"] = rng.choice(STOP_WHEN)
    if rng.random() < 0.3:
        options["stop_token_ids"] = some_ids(rng, 0, 20)
    options["ignore_eos"] = rng.random() < 0.5
    return Request(
        some_prompt(rng),
        SamplingSettings(**rng.choice(list(SAMPLING.values())), seed=rng.randrange(100)),
        options,
        banned=tuple(some_ids(rng, 0, 3)),
        one_by_one=rng.random() < 0.5,
        wrong_every=rng.choice([0, 1, 2, 5]),
        isolation_key=rng.choice(["", "", "", "someone"]),
        speculate=rng.random() < 0.85,
    )


def some_strings(rng: Random, text: str) -> list[str]:
    """Pieces of the text, so that they are found in it."""
    starts = [rng.randrange(len(text)) for _ in range(rng.randint(0, 2))] if text else []
    return [text[start : start + rng.randint(1, 4)] for start in starts]


def turned(string: str) -> str:
    """In other letters, where that is the same string to a ban."""
    return string.upper() if len(string.upper().lower()) == len(string) else string
