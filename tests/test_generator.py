"""The generator: what a stream says, how it ends, and that nothing is lost between the two.

A scripted model makes the texts that are wanted (multi-byte characters, stop strings at every cut);
a tiny random model of the real kind makes the equivalences.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import (
    AbortFlag,
    ContextLengthError,
    Engine,
    InvalidInputError,
    NumericsError,
    SamplingSettings,
    StreamingGenerator,
    StreamResult,
    TokenRecord,
)
from engine.cache import KVCache
from engine.config import LayerConfig, ModelConfig, RopeConfig
from engine.model import Model
from engine.ops import open_ops
from engine.sample import Logits

END = 256  # the scripted vocabulary: all bytes, an end token, a hidden special token
HIDDEN = 257
GREEDY = SamplingSettings(temperature=0.0)


class ByteVocabulary:
    """Every byte is a token; 256 ends, 257 is special and not shown."""

    def token_bytes(self, token_id: int) -> bytes:
        return bytes([token_id]) if token_id < 256 else b"<end>"

    def is_special(self, token_id: int) -> bool:
        return token_id >= 256


class PieceVocabulary(ByteVocabulary):
    """Tokens are the given pieces."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.pieces = pieces

    def token_bytes(self, token_id: int) -> bytes:
        return self.pieces[token_id] if token_id < 256 else b"<end>"


class ScriptedModel:
    """A model whose most likely next token is scripted; `fault` may spoil the logits of a step."""

    def __init__(self, script: Sequence[int], *, max_seq_len: int = 400) -> None:
        self.config = ModelConfig(
            architecture="Scripted", n_layers=1, dim=1, hidden_dim=1, n_heads=1, n_kv_heads=1,
            head_dim=1, vocab_size=258, norm_eps=1e-5, rope=RopeConfig(10000.0, 1),
            layers=(LayerConfig(),), tie_embeddings=True, max_seq_len=max_seq_len,
            eos_token_ids=(END,), bos_token_id=None,
        )  # fmt: skip
        self.max_seq_len = max_seq_len
        self.script = script
        self.n_prompt = 1
        self.n_prefilled = 0
        self.fault: Callable[[int], float] = lambda position: 0.0

    def prefill(
        self,
        token_ids: Sequence[int],
        cache: KVCache,
        *,
        abort: AbortFlag | None = None,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> bool:
        self.n_prefilled = len(token_ids)
        cache.append(token_ids)
        return True

    def decode(self, token_ids: Sequence[int], cache: KVCache) -> Logits:
        cache.append(token_ids)
        logits = np.linspace(0.0, 1.0, 258, dtype=np.float32)[None]
        position = cache.length - self.n_prompt
        logits[0, self.script[position] if position < len(self.script) else END] = 20.0
        logits[0, 0] += self.fault(position)
        return logits

    def generator(self, vocabulary: ByteVocabulary | None = None) -> StreamingGenerator:
        cache = KVCache(self.config, open_ops(device="cpu"), max_seq_len=self.max_seq_len)
        return StreamingGenerator(
            cast(Model, self), cache, vocabulary or ByteVocabulary(), eos_token_ids=(END,)
        )


def run(generator: StreamingGenerator) -> list[StreamResult]:
    results = []
    while True:
        results.append(generator.stream_ex())
        if results[-1].eos:
            return results


def text_of(results: Sequence[StreamResult]) -> str:
    return "".join(result.chunk for result in results)


def records_of(results: Sequence[StreamResult]) -> list[TokenRecord]:
    return [token for result in results for token in result.tokens]


def assert_nothing_lost(results: Sequence[StreamResult]) -> None:
    """The bytes of all records, less the dropped tail, are the text."""
    last = results[-1]
    records = [*records_of(results), *last.dropped]
    data = b"".join(record.token_bytes for record in records)
    assert data.decode(errors="replace") == text_of(results) + last.dropped_text
    released = 0
    for result in results:
        released += len(result.chunk)
        spans = [(token.text_start, token.text_end) for token in result.tokens]
        assert all(start <= released for start, _ in spans), "a record came before its text"
        if not result.eos:
            assert all(end <= released for _, end in spans), "a record came before its text"


def test_the_documented_loop_runs_as_written() -> None:
    generator = ScriptedModel([*b"Hello", END]).generator()
    generator.begin_stream_ex(np.array([[1]]), GREEDY, return_probabilities=True)
    text = ""
    while True:
        result = generator.stream_ex()
        text += result["chunk"]
        if result["eos"]:
            break
    assert text == "Hello"
    assert result["eos_reason"] == "stop_token"
    assert (result.stop_token_id, [t.token_id for t in result.dropped]) == (END, [END])
    assert generator.n_completion_tokens == 6, "the stop token counts"
    assert dict(result).keys() == set(result)


@given(st.text(min_size=1, max_size=20))
@settings(max_examples=40, deadline=None)
def test_text_is_never_garbled_byte_by_byte(text: str) -> None:
    generator = ScriptedModel([*text.encode(), END]).generator()
    generator.begin_stream_ex([1], GREEDY)
    results = run(generator)
    assert text_of(results) == text
    assert_nothing_lost(results)


@pytest.mark.parametrize("stop", ["STOP", "S", "one S", "OP t", "é", "two é!"])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 40])
def test_stop_strings_are_cut_at_every_boundary(stop: str, size: int) -> None:
    text = "one STOP two é!"
    data = text.encode()
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    generator = ScriptedModel([*range(len(pieces)), END]).generator(PieceVocabulary(pieces))
    generator.begin_stream_ex([1], GREEDY, stop=[stop])
    results = run(generator)
    assert text_of(results) == text.partition(stop)[0]
    assert (results[-1].eos_reason, results[-1].stop_string) == ("stop_string", stop)
    assert results[-1].dropped_text.startswith(stop)
    assert_nothing_lost(results)


def test_text_held_for_a_stop_string_is_released_at_every_end() -> None:
    for options, reason in [({"max_new_tokens": 3}, "length"), ({}, "stop_token")]:
        generator = ScriptedModel([*b"aST", END]).generator()
        generator.begin_stream_ex([1], GREEDY, stop=["STOP"], **options)  # type: ignore[arg-type]
        results = run(generator)
        assert [result.chunk for result in results][:2] == ["a", ""]
        assert text_of(results) == "aST"
        assert results[-1].eos_reason == reason
        assert_nothing_lost(results)


def test_an_incomplete_character_is_shown_as_such_at_the_end() -> None:
    generator = ScriptedModel([*"aé".encode()]).generator()
    generator.begin_stream_ex([1], GREEDY, max_new_tokens=2)
    results = run(generator)
    assert text_of(results) == "a\ufffd"
    assert_nothing_lost(results)


def test_special_tokens_are_hidden_unless_asked_for() -> None:
    for decode_special_tokens, expected in [(False, "ab"), (True, "a<end>b")]:
        generator = ScriptedModel([*b"a", HIDDEN, *b"b", END]).generator()
        generator.begin_stream_ex([1], GREEDY, decode_special_tokens=decode_special_tokens)
        results = run(generator)
        assert text_of(results) == expected
        assert [record.is_special for record in records_of(results)] == [False, True, False]
        assert_nothing_lost(results)


def test_stop_tokens_of_the_request_and_ignored_eos() -> None:
    generator = ScriptedModel([*b"ab", END, *b"cd"]).generator()
    generator.begin_stream_ex([1], GREEDY, stop_token_ids=[ord("b")])
    assert text_of(run(generator)) == "a"
    generator.begin_stream_ex([1], GREEDY, ignore_eos=True, max_new_tokens=5)
    results = run(generator)
    assert (text_of(results), results[-1].eos_reason) == ("abcd", "length")


def test_max_new_tokens_and_the_context_end_are_exact() -> None:
    for max_seq_len, n_prompt, wanted, expected in [
        (400, 3, 7, 7),
        (10, 6, None, 4),
        (10, 9, 5, 1),
    ]:
        model = ScriptedModel([ord("x")] * 50, max_seq_len=max_seq_len)
        model.n_prompt = n_prompt
        generator = model.generator()
        generator.begin_stream_ex([1] * n_prompt, GREEDY, max_new_tokens=wanted)
        results = run(generator)
        assert (len(text_of(results)), results[-1].eos_reason) == (expected, "length")
        assert generator.n_completion_tokens == expected
    generator.begin_stream_ex([1] * 9, GREEDY, max_new_tokens=0)
    assert [(r.chunk, r.eos_reason) for r in run(generator)] == [("", "length")]


def test_both_probabilities_and_alternatives() -> None:
    generator = ScriptedModel([*b"a", END]).generator()
    flat = SamplingSettings(temperature=0.5, top_k=2, seed=1, repetition_penalty=1.2)
    generator.begin_stream_ex(
        [1], flat, return_probabilities=True, return_top_tokens=3, return_logits=True
    )
    result = generator.stream_ex()
    (token,) = result.tokens
    assert result.logits is not None
    assert result.logits.dtype == np.float32
    masses = np.exp(result.logits[0].astype(np.float64))
    raw = masses / masses.sum()
    assert [top.token_id for top in token.top] == np.argsort(-raw)[:3].tolist()
    for top in token.top:
        assert top.p_raw == pytest.approx(float(raw[top.token_id]), rel=1e-5)
    assert token.p_raw == pytest.approx(float(raw[token.token_id]), rel=1e-5)
    assert token.top[2].p_sampled == 0.0
    assert result["probs"] == (token.p_sampled,)
    assert result["top_tokens"] == (tuple(top.token_id for top in token.top),)
    assert result["top_probs"] == (tuple(top.p_sampled for top in token.top),)


def test_abort_ends_the_stream_and_keeps_what_was_held() -> None:
    generator = ScriptedModel([*b"aSTxyz", END]).generator()
    abort = AbortFlag()
    generator.begin_stream_ex([1], GREEDY, stop=["STOP"], abort=abort)
    results = [generator.stream_ex() for _ in range(3)]
    abort.set()
    results += run(generator)
    assert (text_of(results), results[-1].eos_reason) == ("aST", "aborted")
    assert_nothing_lost(results)
    with pytest.raises(InvalidInputError, match="no stream is running"):
        generator.stream_ex()


def test_logits_that_are_no_numbers_end_the_stream_and_empty_the_cache() -> None:
    model = ScriptedModel([*b"abcdef", END])
    generator = model.generator()
    model.fault = lambda position: float("nan") if position == 2 else 0.0
    generator.begin_stream_ex([1], GREEDY)
    assert generator.stream_ex().chunk + generator.stream_ex().chunk == "ab"
    with pytest.raises(NumericsError, match="position 3"):
        generator.stream_ex()
    model.fault = lambda position: 0.0
    assert generator.begin_stream_ex([1], GREEDY).n_cached == 0
    assert text_of(run(generator)) == "abcdef", "the next stream is whole"


@pytest.mark.parametrize(
    ("prompt", "options", "param"),
    [
        ([], {}, "prompt"),
        ([258], {}, "prompt"),
        ([-1], {}, "prompt"),
        ([1] * 400, {}, "prompt"),
        (torch.zeros(2, 3, dtype=torch.int64), {}, "prompt"),
        (np.zeros((1, 2, 3), dtype=np.int64), {}, "prompt"),
        ([1], {"max_new_tokens": -1}, "max_tokens"),
        ([1], {"stop": [""]}, "stop"),
        ([1], {"stop": "abc"}, "stop"),
        ([1], {"stop_token_ids": [258]}, "stop_token_ids"),
        ([1], {"return_top_tokens": 259}, "top_logprobs"),
        ([1], {"settings": SamplingSettings(logit_bias={258: 1.0})}, "logit_bias"),
    ],
)
def test_bad_input_is_named_before_any_work(
    prompt: list[int], options: dict[str, object], param: str
) -> None:
    model = ScriptedModel([END])
    generator = model.generator()
    with pytest.raises(InvalidInputError) as caught:
        generator.begin_stream_ex(prompt, **options)  # type: ignore[arg-type]
    assert caught.value.param == param
    assert model.n_prefilled == 0
    if len(prompt) == 400:
        assert isinstance(caught.value, ContextLengthError)


def test_a_common_beginning_is_not_prefilled_again() -> None:
    model = ScriptedModel([*b"abc", END])
    generator = model.generator()
    generator.begin_stream_ex([5, 6, 7, 8], GREEDY, max_new_tokens=2)
    run(generator)
    prefill = generator.begin_stream_ex([5, 6, 7, 9, 9], GREEDY)
    assert (prefill.n_cached, model.n_prefilled) == (3, 1)
    prefill = generator.begin_stream_ex([5, 6, 7, 9, 9], GREEDY)
    assert (prefill.n_cached, model.n_prefilled) == (4, 0), "the last token is always forwarded"
    assert (generator.n_prompt_tokens, generator.n_cached_tokens) == (5, 4)


# The equivalences below run on a tiny random model of the real kind.

SAMPLED = SamplingSettings(temperature=0.9, top_p=0.95, repetition_penalty=1.1, seed=11)


def completion(
    generator: StreamingGenerator, prompt: list[int], with_settings: SamplingSettings
) -> list[int]:
    generator.begin_stream_ex(prompt, with_settings, max_new_tokens=24, ignore_eos=True)
    return [record.token_id for record in records_of(run(generator))]


def test_the_same_text_with_and_without_a_cached_prefix(tiny_engine: Engine) -> None:
    prompt = list(range(5, 45))
    fresh = completion(tiny_engine.generator, prompt, SAMPLED)
    assert completion(tiny_engine.generator, prompt, SAMPLED) == fresh, "whole prompt cached"
    completion(tiny_engine.generator, [*prompt[:17], 3, 3, 3], SAMPLED)
    assert completion(tiny_engine.generator, prompt, SAMPLED) == fresh, "part of the prompt cached"
    completion(tiny_engine.generator, [2], SAMPLED)
    assert completion(tiny_engine.generator, prompt, SAMPLED) == fresh, "nothing cached"
    assert completion(tiny_engine.generator, prompt, replace(SAMPLED, seed=12)) != fresh


def test_a_conversation_reuses_its_own_completion(tiny_engine: Engine) -> None:
    prompt = [7, 8, 9]
    answer = completion(tiny_engine.generator, prompt, GREEDY)
    prefill = tiny_engine.generator.begin_stream_ex([*prompt, *answer, 4], GREEDY)
    # The last sampled token was never forwarded, so its keys and values are not there yet.
    assert prefill.n_cached == len(prompt) + len(answer) - 1


def test_abort_in_prefill_leaves_a_usable_cache(tiny_engine: Engine) -> None:
    prompt = list(range(5, 45))
    fresh = completion(tiny_engine.generator, prompt, SAMPLED)
    completion(tiny_engine.generator, [2], SAMPLED)
    abort = AbortFlag()
    abort.set()
    prefill = tiny_engine.generator.begin_stream_ex(prompt, SAMPLED, abort=abort)
    assert prefill.aborted
    assert [r.eos_reason for r in run(tiny_engine.generator)] == ["aborted"]
    assert completion(tiny_engine.generator, prompt, SAMPLED) == fresh
