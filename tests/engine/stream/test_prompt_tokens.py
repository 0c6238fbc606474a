"""What is said of a prompt's tokens: the numbers equal those of transformers and of generated
tokens, and asking for them changes nothing that follows.
"""

import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM

from engine import (
    DEFAULT_MODEL,
    AbortFlag,
    ConstraintSpec,
    ContextLengthError,
    Engine,
    InvalidInputError,
    NumericsError,
    PromptToken,
    SamplingSettings,
    StreamingGenerator,
    Tokenizer,
    TokenRecord,
)
from engine.cache.kv import KVCache
from engine.cache.prefix import PrefixCache
from engine.device.open import open_ops
from engine.device.ops import Ops
from engine.device.torch_ops import TorchOps
from engine.model.model import MAX_DECODE_ROWS, Model
from engine.native.cpu import kernels
from engine.sampling.logits import Logits
from engine.sampling.op import score
from engine.sampling.request import SampleRequest
from engine.stream.prompt_scorer import PromptScorer
from tests.engine.model.test_model_parity import loaded, oracle_logits, prompt
from tests.support.scripted_model import (
    END,
    GREEDY,
    HIDDEN,
    ByteVocabulary,
    PieceVocabulary,
    ScriptedModel,
    records_of,
    run,
    text_of,
)
from tests.support.tiny_models import FAMILIES, save_model

OPS: dict[str, Callable[[], Ops]] = {
    "native": lambda: open_ops(device="cpu", dtype="float32", require_native=True),
    "torch": lambda: TorchOps("cpu", "float32"),
}
STORY = (
    "Once upon a time, there was a little girl named Lily. She loved to play outside in the park. "
    "One day she saw a big, red ball \u2014 and a caf\u00e9 \u2014 near the tree.\n\n"
)


def generator_of(model: Model, tokenizer: Any) -> StreamingGenerator:
    cache = KVCache(model.config, model.ops, max_seq_len=model.max_seq_len)
    return StreamingGenerator(model, PrefixCache(cache), tokenizer, eos_token_ids=(4,))


def prompt_tokens(
    generator: StreamingGenerator, token_ids: list[int], n_top: int = 0, **options: Any
) -> tuple[PromptToken, ...]:
    prefill = generator.begin_stream_ex(
        token_ids, GREEDY, max_new_tokens=0, return_prompt_tokens=n_top, **options
    )
    return prefill.prompt_tokens


def log_softmax(logits: Logits) -> Logits:
    logprobs: Logits = torch.log_softmax(torch.from_numpy(logits).double(), dim=-1).numpy()
    return logprobs


def assert_agrees(
    tokens: tuple[PromptToken, ...], token_ids: list[int], expected: Logits, *, tolerance: float
) -> None:
    """`expected`: log probabilities (n, V) after each token."""
    assert [token.token_id for token in tokens] == token_ids
    first = tokens[0]
    assert (first.logprob, first.p_raw, first.rank, first.entropy, first.margin, first.top) == (
        *(None,) * 5,
        (),
    )
    for token, row in zip(tokens[1:], expected, strict=False):
        assert token.logprob is not None
        assert token.logprob == pytest.approx(float(row[token.token_id]), abs=tolerance)
        assert token.p_raw == math.exp(token.logprob)
        assert token.entropy == pytest.approx(float(-(np.exp(row) * row).sum()), abs=tolerance)
        n_likelier = int((row > row[token.token_id] + 2 * tolerance).sum())
        n_as_likely = int((row >= row[token.token_id] - 2 * tolerance).sum())
        assert token.rank is not None
        assert n_likelier <= token.rank < n_as_likely
        best = np.sort(row)[::-1]
        assert token.margin == pytest.approx(math.exp(best[0]) - math.exp(best[1]), abs=tolerance)
        assert [top.logprob for top in token.top] == pytest.approx(
            best[: len(token.top)].tolist(), abs=tolerance
        )
        for top in token.top:
            assert top.logprob == pytest.approx(float(row[top.token_id]), abs=tolerance)
            assert top.p_sampled == top.p_raw == math.exp(top.logprob)


@pytest.mark.parametrize("ops", OPS)
@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_logprobs_equal_those_of_transformers(tmp_path: Path, name: str, ops: str) -> None:
    oracle = save_model(tmp_path, name)
    token_ids = prompt(100)
    expected = log_softmax(oracle_logits(oracle, token_ids))
    tokenizer = Tokenizer.load(tmp_path, 320)
    for chunk_size in (512, 33):
        generator = generator_of(loaded(tmp_path, ops=OPS[ops](), chunk_size=chunk_size), tokenizer)
        tokens = prompt_tokens(generator, token_ids, 3)
        assert_agrees(tokens, token_ids, expected, tolerance=1e-4)
        assert {len(token.top) for token in tokens[1:]} == {3}


@pytest.mark.parametrize(
    ("dtype", "exact_angles", "tolerance"),
    [("bfloat16", False, 1e-3), ("float32", False, 1e-3), ("float32", True, 1e-4)],
)
def test_the_bundled_model_agrees_with_transformers_over_its_whole_context(
    dtype: str, exact_angles: bool, tolerance: float
) -> None:
    """The angles of positions in float32, as in transformers, make most of the difference."""
    engine = Engine.load(DEFAULT_MODEL, device="cpu", dtype=dtype)
    token_ids = (engine.tokenizer.encode(STORY) * 40)[: engine.max_seq_len - 1]
    oracle: Any = AutoModelForCausalLM.from_pretrained(DEFAULT_MODEL, dtype=torch.float32)
    if exact_angles:
        angles = torch.outer(
            torch.arange(len(token_ids), dtype=torch.float64),
            10000.0 ** -(torch.arange(0, 64, 2, dtype=torch.float64) / 64),
        )
        both = torch.cat((angles, angles), dim=-1)[None]
        oracle.model.rotary_emb.forward = lambda x, position_ids: (
            both.cos().float(),
            both.sin().float(),
        )
    expected = log_softmax(oracle_logits(oracle, token_ids))
    tokens = prompt_tokens(engine.generator, token_ids, 5)
    assert len(tokens) == len(token_ids) > 1000
    assert_agrees(tokens, token_ids, expected, tolerance=tolerance)


@pytest.mark.parametrize(
    "options",
    [
        {"dtype": "float32"},
        {"dtype": "bfloat16"},
        {"quantize": "8bit"},
        {"quantize": "6bit"},
        {"quantize": "4bit"},
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["qwen3", "mistral-window"])
def test_native_numbers_are_those_of_decoding_bit_for_bit(
    tmp_path: Path, name: str, options: dict[str, Any]
) -> None:
    """For any chunks and threads."""
    save_model(tmp_path, name)
    tokenizer = Tokenizer.load(tmp_path, 320)
    token_ids = prompt(75)
    model = loaded(tmp_path, ops=open_ops(device="cpu", **options))
    cache = KVCache(model.config, model.ops, max_seq_len=model.max_seq_len)
    request = SampleRequest(u=0.0, greedy=True, n_top=4)
    decoded = []
    for here, behind in pairwise(token_ids):
        decoded.append(score(np.asarray(model.decode([here], cache)[0]), behind, request))
    threads = kernels.threads()
    for chunk_size, n_threads in ((512, 1), (512, 2), (16, 2), (17, 2), (1, 1)):
        model = loaded(tmp_path, chunk_size=chunk_size, ops=open_ops(device="cpu", **options))
        kernels.set_threads(n_threads)
        tokens = prompt_tokens(generator_of(model, tokenizer), token_ids, 4)
        for token, expected in zip(tokens[1:], decoded, strict=True):
            assert token.logprob == expected.logprob_raw
            assert (token.rank, token.entropy, token.margin) == expected[7:10]
            assert tuple(top.token_id for top in token.top) == expected.top_ids
            assert tuple(top.logprob for top in token.top) == expected.top_logprobs_raw
    kernels.set_threads(threads)


def raw_of(token: PromptToken | TokenRecord) -> tuple[Any, ...]:
    """What is said of the model's own distribution."""
    tops = [(top.token_id, top.token_bytes, top.logprob, top.p_raw) for top in token.top]
    numbers = (token.logprob, token.p_raw, token.rank, token.entropy, token.margin)
    return (token.token_id, token.token_bytes, token.is_special, tops, *numbers)


@pytest.mark.parametrize("n_top", [0, 1, 5])
def test_a_completion_scored_as_a_prompt_says_the_same(bundled_engine: Engine, n_top: int) -> None:
    generator = bundled_engine.generator
    token_ids = bundled_engine.tokenizer.encode(STORY)
    generator.begin_stream_ex(token_ids, GREEDY, max_new_tokens=40, return_top_tokens=n_top)
    drawn = records_of(run(generator))
    assert len(drawn) == 40
    whole = [*token_ids, *(record.token_id for record in drawn)]
    tokens = prompt_tokens(generator, whole, n_top)
    assert [raw_of(token) for token in tokens[-40:]] == [raw_of(record) for record in drawn]


def test_what_comes_behind_is_the_same_as_without_asking(bundled_engine: Engine) -> None:
    generator = bundled_engine.generator
    token_ids = bundled_engine.tokenizer.encode(STORY * 3)
    plain_settings = SamplingSettings(temperature=0.9, seed=5, repetition_penalty=1.1)
    said = []
    for k in (None, 2, None):
        prefill = generator.begin_stream_ex(
            token_ids, plain_settings, max_new_tokens=30, return_prompt_tokens=k
        )
        n = 0 if k is None else len(token_ids)
        assert len(prefill.prompt_tokens) == n
        said.append(records_of(run(generator)))
        if k is not None:
            assert prefill.n_cached == 0
            assert prefill.reuse.reason == "the prompt's probabilities are wanted"
    assert said[0] == said[1] == said[2]
    assert prefill.n_cached == len(token_ids) - 1, "what was scored is of use to the next one"


def test_healing_guidance_and_constraints_leave_the_prompt_as_it_is(
    bundled_engine: Engine,
) -> None:
    generator = bundled_engine.generator
    token_ids = bundled_engine.tokenizer.encode("She loved to play outs")
    plain = prompt_tokens(generator, token_ids, 2)
    options: dict[str, dict[str, Any]] = {
        "healing": {"token_healing": True},
        "guidance": {"negative_ids": [5, 6, 7], "cfg_scale": 1.5},
        "constraint": {"constraint": ConstraintSpec("regex", "[a-z ]+")},
        "all": {
            "token_healing": True,
            "negative_ids": [5, 6, 7],
            "cfg_scale": 1.5,
            "constraint": ConstraintSpec("regex", "[a-z ]+"),
        },
    }
    for name, own in options.items():
        texts = []
        for k in (None, 2):
            prefill = generator.begin_stream_ex(
                token_ids, GREEDY, max_new_tokens=6, return_prompt_tokens=k, **own
            )
            texts.append(text_of(run(generator)))
        assert prefill.prompt_tokens == plain, name
        assert texts[0] == texts[1], name
    assert prompt_tokens(generator, token_ids[:2], token_healing=True)[1].logprob is not None


def test_one_token_has_nothing_before_it(tiny_engine: Engine) -> None:
    (token,) = prompt_tokens(tiny_engine.generator, [7], 5)
    assert (token.token_id, token.logprob, token.top) == (7, None, ())
    prefill = tiny_engine.generator.begin_stream_ex([7, 8])
    assert prefill.prompt_tokens == (), "unless asked for"


def test_logits_come_in_bounded_pieces(tiny_engine: Engine) -> None:
    model = tiny_engine.model
    cache = KVCache(model.config, model.ops, max_seq_len=model.max_seq_len)
    shapes: list[tuple[int, ...]] = []
    model.prefill(prompt(100), cache, on_logits=lambda rows: shapes.append(rows.shape))
    assert shapes == [(MAX_DECODE_ROWS, 320)] * 6 + [(4, 320)]


@pytest.mark.parametrize("ops", OPS)
def test_an_abort_between_chunks_leaves_what_was_done(tmp_path: Path, ops: str) -> None:
    save_model(tmp_path)
    model = loaded(tmp_path, ops=OPS[ops](), chunk_size=20)
    generator = generator_of(model, Tokenizer.load(tmp_path, 320))
    token_ids = prompt(100)
    whole = prompt_tokens(generator, token_ids)
    abort, progress = AbortFlag(), []

    def stop_after_two(done: int, total: int) -> None:
        progress.append((done, total))
        if done == 40:
            abort.set()

    prefill = generator.begin_stream_ex(
        token_ids,
        return_prompt_tokens=0,
        abort=abort,
        on_progress=stop_after_two,
        token_healing=True,
    )
    assert progress == [(20, 99), (40, 99)]
    assert prefill.aborted
    assert prefill.prompt_tokens == whole[:41]
    assert [result.eos_reason for result in run(generator)] == ["aborted"]
    assert prompt_tokens(generator, token_ids) == whole


def test_an_abort_between_the_logits_of_one_chunk_ends_it(tiny_engine: Engine) -> None:
    model = tiny_engine.model
    cache = KVCache(model.config, model.ops, max_seq_len=model.max_seq_len)
    abort, n_rows = AbortFlag(), 0

    def stop(rows: Logits) -> None:
        nonlocal n_rows
        n_rows += len(rows)
        abort.set()

    assert not model.prefill(prompt(100), cache, abort=abort, on_logits=stop)
    assert (n_rows, cache.length) == (MAX_DECODE_ROWS, 0)


def test_logits_that_are_no_numbers_end_the_prompt() -> None:
    model = ScriptedModel([*b"ab", END])
    model.n_prompt = 3
    generator = model.generator()
    model.fault = lambda position: math.nan
    with pytest.raises(NumericsError, match="position 1: "):
        prompt_tokens(generator, [1, 2, 3])
    model.fault = lambda position: 0.0
    assert len(prompt_tokens(generator, [1, 2, 3])) == 3
    generator.begin_stream_ex([1, 2, 3], GREEDY)
    assert text_of(run(generator)) == "ab"


@pytest.mark.parametrize("n_top", [-1, 259])
def test_how_many_alternatives_there_may_be(n_top: int) -> None:
    generator = ScriptedModel([END]).generator()
    with pytest.raises(InvalidInputError, match="return_prompt_tokens must be") as error:
        prompt_tokens(generator, [1, 2], n_top)
    assert error.value.param == "return_prompt_tokens"
    assert len(prompt_tokens(generator, [1, 2], 258)[1].top) == 258
    with pytest.raises(ContextLengthError):
        prompt_tokens(generator, [1] * 400)


def scored(vocabulary: ByteVocabulary, token_ids: list[int]) -> tuple[PromptToken, ...]:
    scorer = PromptScorer(token_ids, vocabulary, n_top=0)
    scorer.take(np.zeros((len(token_ids) - 1, 258), dtype=np.float32))
    return scorer.tokens


def decoded(tokens: tuple[PromptToken, ...]) -> str:
    return b"".join(token.token_bytes for token in tokens).decode(errors="replace")


@given(text=st.text(min_size=1, max_size=12), cuts=st.sets(st.integers(1, 48)))
@settings(max_examples=60, deadline=None)
def test_characters_are_counted_wherever_tokens_cut_them(text: str, cuts: set[int]) -> None:
    data = text.encode()
    places = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    pieces = [data[a:b] for a, b in pairwise(places)]
    tokens = scored(PieceVocabulary(pieces), list(range(len(pieces))))
    assert decoded(tokens) == text
    for token, (a, b) in zip(tokens, pairwise(places), strict=True):
        whole_before = data[:a].decode(errors="ignore")
        assert token.text_start == len(whole_before), "a character that is cut belongs to both"
        assert token.text_end == len(data[:b].decode(errors="replace"))


def test_special_tokens_are_named_in_the_text() -> None:
    tokens = scored(ByteVocabulary(), [HIDDEN, *"h\u00e9".encode(), END])
    assert decoded(tokens) == "<end>h\u00e9<end>"
    spans = [(token.text_start, token.text_end) for token in tokens]
    assert spans == [(0, 5), (5, 6), (6, 7), (6, 7), (7, 12)]
    assert [token.is_special for token in tokens] == [True, False, False, False, True]


def test_bytes_that_are_no_text_have_places_too() -> None:
    tokens = scored(ByteVocabulary(), [0xE4, 0xBD, ord("a"), 0xFF, 0xC3])
    assert decoded(tokens) == "\ufffda\ufffd\ufffd"
    assert [tokens[0].text_start, tokens[-1].text_start, tokens[-1].text_end] == [0, 3, 4]


@given(text=st.text(max_size=40))
@settings(max_examples=40, deadline=None)
def test_the_bytes_are_those_of_the_decoded_prompt(text: str) -> None:
    tokenizer = Tokenizer.load(DEFAULT_MODEL, 4096)
    token_ids = [0, *tokenizer.encode(text), 4]
    scorer = PromptScorer(token_ids, tokenizer, n_top=0)
    scorer.take(np.zeros((len(token_ids) - 1, 4096), dtype=np.float32))
    whole = tokenizer.decode(token_ids)
    assert decoded(scorer.tokens) == whole
    assert scorer.tokens[-1].text_end == len(whole)
