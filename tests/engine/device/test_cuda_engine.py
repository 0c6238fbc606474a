"""Models on CUDA, from their files to texts: on the emulator, and the same on a GPU if there is
one.

The oracle is the decoder in torch at float32, with the weights that the device has;
tests/engine/model/test_model_parity.py says how good the oracle is.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import engine.engine
from engine import AbortFlag, Engine, SamplingSettings
from engine.cache.kv import KVCache
from engine.cache.prefix import PrefixCache
from engine.checkpoint.config_json import model_config
from engine.checkpoint.safetensors import read_checkpoint
from engine.checkpoint.stored import plain_values
from engine.checkpoint.tensors import check_tensors, expected_shapes
from engine.device import torch_ops
from engine.device.cuda import load as cuda_load
from engine.device.cuda import weights as cuda_weights
from engine.device.cuda.lane import Lane
from engine.device.cuda.ops import CudaOps
from engine.device.cuda.program import CudaProgram
from engine.device.open import open_ops
from engine.device.ops import Ops
from engine.device.torch_ops import TorchOps
from engine.draft.drafter import Prospect
from engine.draft.length import Acceptance
from engine.draft.ngram import NgramDrafter
from engine.draft.row_costs import RowCosts
from engine.draft.speculator import Speculator
from engine.errors import ModelLoadError, NumericsError
from engine.model.loading import load_weights
from engine.model.model import Model
from engine.native import cuda as cuda_native
from engine.sampling.guidance import log_softmax
from engine.sampling.logits import Logits
from engine.sampling.request import SampleRequest
from engine.sampling.sampler import Sampler
from engine.sampling.token_masks import SamplerVocabulary
from engine.stream.generator import StreamingGenerator
from engine.stream.result import TokenRecord
from engine.text.tokenizer import Tokenizer
from tests.support.cuda_module import cuda, device_of, set_knobs
from tests.support.tiny_models import VOCAB_SIZE, byte_level_tokenizer, save_tokenizer

__all__ = ["cuda", "set_knobs"]

pytestmark = pytest.mark.timeout(600)

MAX_SEQ_LEN = 64
# Of a row of logits: keys, values and the activations of a prefill are bfloat16.
TOLERANCE = 0.06
GREEDY = SamplingSettings(temperature=0.0)
WARM = SamplingSettings(temperature=0.9, top_p=0.95, top_k=40, seed=5)

Open = Callable[..., CudaOps]


SIZES = {
    "vocab_size": VOCAB_SIZE, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256,
    "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
}  # fmt: skip
FAMILIES: dict[str, dict[str, Any]] = {
    "Llama": {"attention_bias": True, "mlp_bias": True},
    "Mistral": {"sliding_window": 12},
    "Qwen3": {"head_dim": 24, "tie_word_embeddings": True},
}


class SetCosts(RowCosts):
    """The time of a pass is given, so no clock decides a test."""

    def observe(self, n_rows: int, seconds: float) -> None:
        pass


@dataclass
class Tiny:
    """A model directory."""

    path: Path

    @cached_property
    def oracle(self) -> Model:
        return self.model(TorchOps("cpu", "float32"))

    def logits(self, token_ids: Sequence[int]) -> Logits:
        """The oracle's logits after each of the tokens."""
        cache = cache_of(self.oracle)
        return np.concatenate([self.oracle.decode([id_], cache).copy() for id_ in token_ids])

    def greedy(self, prompt: Sequence[int], n: int) -> list[int]:
        token_ids = list(prompt)
        for _ in range(n):
            token_ids.append(int(self.logits(token_ids)[-1].argmax()))
        return token_ids[len(prompt) :]

    def model(self, ops: Ops, *, chunk_size: int | None = None) -> Model:
        config = model_config(self.path)
        tensors = check_tensors(read_checkpoint(self.path), config)
        weights = load_weights(tensors, config, ops)
        return Model(weights, config, ops, max_seq_len=MAX_SEQ_LEN, chunk_size=chunk_size)

    def generator(self, model: Model, **parts: Any) -> StreamingGenerator:
        return StreamingGenerator(
            model,
            parts.pop("prefix", None) or PrefixCache(cache_of(model)),
            Tokenizer.load(self.path, VOCAB_SIZE),
            eos_token_ids=(4,),
            **parts,
        )


def saved(path: Path, family: str, *, change: Callable[[torch.Tensor], torch.Tensor]) -> Tiny:
    """A random model whose matrices are what `change` makes of them."""
    path.mkdir(exist_ok=True)
    save_tokenizer(path, byte_level_tokenizer())
    named = {"architectures": [f"{family}ForCausalLM"], "model_type": family.lower()}
    (path / "config.json").write_text(json.dumps({**named, **SIZES, **FAMILIES[family]}), "utf-8")
    generator = torch.Generator().manual_seed(0)
    tensors = {}
    for name, shape in expected_shapes(model_config(path)).items():
        values = torch.randn(shape, generator=generator) * 0.12
        tensors[name] = change(values).contiguous() if len(shape) == 2 else values + 1.0
    save_file(tensors, path / "model.safetensors")
    return Tiny(path)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """A model with weights that bfloat16 holds."""
    path = tmp_path_factory.mktemp("cuda") / "tiny"
    return saved(path, "Llama", change=lambda weights: weights.bfloat16().float())


@pytest.fixture(scope="module")
def open_cuda(cuda: ModuleType) -> Open:
    """Ops with a format of weights, and one of keys and values."""
    device = device_of(cuda)
    return lambda format_="bfloat16", kv="auto": CudaOps(device, cuda, format_, kv_cache=kv)


@pytest.fixture(scope="module")
def model(tiny: Tiny, open_cuda: Open) -> Model:
    """A model whose programs stay recorded; each test makes its caches."""
    return tiny.model(open_cuda())


def cache_of(model: Model) -> KVCache:
    return KVCache(model.config, model.ops, max_seq_len=MAX_SEQ_LEN)


def ids(n: int, seed: int = 1) -> list[int]:
    token_ids: list[int] = np.random.default_rng(seed).integers(5, VOCAB_SIZE, n).tolist()
    return token_ids


def assert_greedy(tiny: Tiny, prompt: Sequence[int], found: list[int], expected: list[int]) -> None:
    """With the margin of the first token that differs: a small one is rounding."""
    for n, (own, best) in enumerate(zip(found, expected, strict=True)):
        if own != best:
            row = tiny.logits([*prompt, *expected[:n]])[-1]
            raise AssertionError(
                f"token {n} is {own}, not {best}; its logit is {row[best] - row[own]:.4f} lower, "
                f"and {TOLERANCE} may be rounding"
            )


def text_of(
    generator: StreamingGenerator,
    prompt: list[int],
    n: int,
    settings: SamplingSettings = GREEDY,
    **options: Any,
) -> list[int]:
    """The ids of `n` tokens."""
    generator.begin_stream_ex(prompt, settings, max_new_tokens=n, ignore_eos=True, **options)
    token_ids: list[int] = []
    while True:
        result = generator.stream_ex()
        token_ids += [token.token_id for token in result.tokens]
        if result.eos:
            return token_ids


# ---- Logits. ----


@pytest.mark.parametrize(
    ("family", "format_", "kv"),
    [
        ("Qwen3", "bfloat16", "8bit"),
        ("Llama", "8bit", "auto"),
        ("Mistral", "4bit", "8bit"),
    ],
)
def test_logits_are_those_of_the_dequantised_weights(
    tmp_path: Path, open_cuda: Open, family: str, format_: str, kv: str
) -> None:
    ops = open_cuda(format_, kv)

    def change(weights: torch.Tensor) -> torch.Tensor:
        own = "8bit" if format_ == "4bit" and len(weights) == VOCAB_SIZE else format_
        matrix = ops.matrix([weights.detach().numpy()], own)
        result = torch.empty(weights.shape, device=ops.device)
        cuda_weights.gather(matrix, torch.arange(len(weights), device=ops.device), result)
        return result.cpu()

    other = saved(tmp_path, family, change=change)
    model = other.model(ops)
    token_ids, cache = ids(26), cache_of(model)
    # Of these, 20 are a chunk of a prefill, 3 a short one of own kernels.
    assert model.prefill(token_ids[:20], cache)
    assert model.prefill(token_ids[20:23], cache)
    first = model.decode(token_ids[23:24], cache).copy()
    rows = np.concatenate([first, model.decode(token_ids[24:], cache).copy()])
    np.testing.assert_allclose(rows, other.logits(token_ids)[23:], atol=TOLERANCE, rtol=0)


def test_bits_depend_neither_on_the_rows_of_a_pass_nor_on_its_being_replayed(model: Model) -> None:
    token_ids, cache = ids(20), cache_of(model)
    model.prefill(token_ids[:4], cache)
    alone = [model.decode([id_], cache).copy()[0] for id_ in token_ids[4:]]
    for n_rows in (3, 16):
        for _ in range(2):  # op by op, then as a graph
            cache.rollback(4)
            rows = model.decode(token_ids[4 : 4 + n_rows], cache).copy()
            assert np.array_equal(rows, alone[:n_rows]), n_rows


def test_no_knob_changes_a_bit(model: Model, set_knobs: Callable[..., None]) -> None:
    token_ids, cache = ids(9), cache_of(model)
    model.prefill(token_ids[:4], cache)
    expected: list[Logits] = []
    for values in (
        {"overlap": False},
        {"overlap": True},
        {"attention_prefetch_bytes": 0},
        {"attention_prefetch_bytes": 1 << 20},
    ):
        set_knobs(**values)
        for n_rows, all_rows in ((1, slice(0, 2)), (5, slice(2, 4))):
            rows = []
            for _ in range(2):  # op by op, then as a graph
                cache.rollback(4)
                rows.append(model.decode(token_ids[4 : 4 + n_rows], cache).copy())
            if values == {"overlap": False}:
                expected += rows
            assert all(map(np.array_equal, rows, expected[all_rows])), values


def test_a_warm_up_leaves_an_empty_cache(tiny: Tiny, open_cuda: Open) -> None:
    model = tiny.model(open_cuda())
    cache = cache_of(model)
    model.warm_up(cache)
    assert cache.length == 0
    expected = tiny.logits(ids(3))[-1]
    model.decode(ids(3)[:2], cache)
    row = np.asarray(model.decode(ids(3)[2:], cache))[0]
    np.testing.assert_allclose(row, expected, atol=TOLERANCE, rtol=0)


def test_the_profile_names_the_ops_that_ran(model: Model) -> None:
    cache = cache_of(model)
    times = model.profile(ids(2), cache)
    assert [time.name.split()[0] for time in times] == [
        "embed", *2 * ["norm_linear", "attention", "linear", "norm_linear", "linear"], "norm_linear"
    ]  # fmt: skip
    assert cache.length == 2


def test_ops_share_scratch_only_under_one_name(cuda: ModuleType) -> None:
    lane = Lane(device_of(cuda), cuda)
    first = lane.scratch("attention", 64)
    assert lane.scratch("attention", 64) is first
    assert lane.scratch("tile", 64).data_ptr() != first.data_ptr()


# ---- What runs ahead. ----


def drawn_ahead(model: Model, cache: KVCache, token_id: int) -> tuple[int, Any]:
    """Decodes a token and draws the next, whose pass then runs; that one, and the row it is of."""
    row = model.decode([token_id], cache)[0]
    model.expect_next(cache)
    request = SampleRequest(u=0.0, greedy=True)
    drawn = model.ops.sample(row, request, work=np.empty(VOCAB_SIZE, np.float32))
    return drawn.token_id, row


def passes(model: Model) -> int:
    """How many passes have been launched so far."""
    ops = model.ops
    assert isinstance(ops, CudaOps)
    return ops.n_passes


def test_what_runs_ahead_is_the_next_pass_if_it_is_asked_for(model: Model) -> None:
    token_ids, cache = ids(4), cache_of(model)
    model.prefill(token_ids[:3], cache)
    best = int(np.argmax(model.decode(token_ids[3:], cache)[0]))
    of_best = model.decode([best], cache).copy()
    cache.rollback(4)
    of_other = model.decode([best - 1], cache).copy()

    for token_id, expected, n_launched in ((best, of_best, 0), (best - 1, of_other, 1)):
        cache.rollback(3)
        assert drawn_ahead(model, cache, token_ids[3])[0] == best
        n_before = passes(model)
        assert np.array_equal(np.asarray(model.decode([token_id], cache)), expected)
        assert passes(model) - n_before == n_launched


def test_a_row_can_be_read_when_the_next_pass_has_overwritten_it(model: Model) -> None:
    token_ids, cache = ids(4), cache_of(model)
    model.prefill(token_ids[:3], cache)
    expected = model.decode(token_ids[3:], cache).copy()[0]
    cache.rollback(3)
    best, row = drawn_ahead(model, cache, token_ids[3])
    assert np.array_equal(np.asarray(row), expected)
    # What ran ahead is dropped by that, and comes again.
    of_best = model.decode([best], cache).copy()
    cache.rollback(4)
    assert np.array_equal(np.asarray(model.decode([best], cache)), of_best)


def test_what_runs_ahead_counts_for_nothing_behind_other_keys_and_values(model: Model) -> None:
    """The same token at the same position, where a copy has replaced what stood before it."""
    cache, other = cache_of(model), cache_of(model)
    token_ids, other_ids = ids(4), ids(4, seed=2)
    model.prefill(other_ids, other)
    copied = np.empty(other.positions.n_bytes(4), np.uint8)
    other.positions.copy_out(0, 4, copied)
    model.prefill(token_ids[:3], cache)
    best, _ = drawn_ahead(model, cache, token_ids[3])
    cache.clear()
    cache.append_copied(other_ids, copied, n_copied=4)
    assert np.array_equal(
        np.asarray(model.decode([best], cache)).copy(), model.decode([best], other).copy()
    )


# ---- Texts. ----


def test_the_greedy_text_is_the_oracles_drafts_or_not(tiny: Tiny, model: Model) -> None:
    prompt = ids(20, seed=3)
    expected = tiny.greedy(prompt, 8)
    assert_greedy(tiny, prompt, text_of(tiny.generator(model), prompt, 8), expected)
    # A hook keeps the next pass from running ahead, and a prediction is right, then wrong.
    assert text_of(tiny.generator(model), prompt, 8, on_token=lambda sampled: None) == expected
    guessing = tiny.generator(model, speculator=Speculator([NgramDrafter()], SetCosts((1.0,) * 5)))
    prediction = [*expected[:4], expected[4] - 1, *expected[5:]]
    assert text_of(guessing, prompt, 8, prediction=prediction) == expected
    counts = guessing.draft_counts["prediction"]
    assert 4 <= counts.accepted < counts.drafted


class Scripted(NgramDrafter):
    """Drafts one token, which is wrong, for some of the passes; they are numbered from 1."""

    def __init__(self, drafted: set[int]) -> None:
        super().__init__()
        self._drafted, self._n_passes = drafted, 0

    def prospect(self, n_max: int) -> Prospect | None:
        self._n_passes += 1
        return Prospect(Acceptance(1.0), 1) if self._n_passes in self._drafted else None

    def draft(self, n: int) -> tuple[int, ...]:
        return (0,)


def test_passes_run_ahead_beside_a_drafter_while_it_is_quiet(
    tiny: Tiny, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_ahead = 0

    def counted(program: CudaProgram) -> None:
        nonlocal n_ahead
        n_ahead += 1
        run_ahead(program)

    run_ahead = CudaProgram.run_ahead
    prompt = ids(6, seed=11)
    expected = text_of(tiny.generator(model), prompt, 14)
    monkeypatch.setattr(CudaProgram, "run_ahead", counted)
    for drafted, n_expected in (
        (set(), 13),  # all but the last one
        # The pass that ran ahead of 3 is dropped; behind 3 to 10 nothing runs ahead.
        ({3}, 13 - 8),
        (set(range(1, 15)), 0),
    ):
        n_ahead = 0
        drafter = Speculator([Scripted(drafted)], SetCosts((1.0,) * 5))
        assert text_of(tiny.generator(model, speculator=drafter), prompt, 14) == expected
        assert n_ahead == n_expected, drafted
    # A hook reads the row of a token that was drawn, so nothing runs ahead.
    n_ahead = 0
    quiet = tiny.generator(model, speculator=Speculator([Scripted(set())], SetCosts((1.0,) * 5)))
    assert text_of(quiet, prompt, 3, on_token=lambda sampled: None) == expected[:3]
    assert n_ahead == 0


def test_a_text_goes_on_from_what_is_cached(tiny: Tiny, model: Model) -> None:
    prompt = ids(9, seed=4)
    budget = PrefixCache(cache_of(model), block=4, byte_budget=2**20)
    generator = tiny.generator(model, prefix=budget)
    expected = text_of(generator, prompt, 5)
    assert text_of(generator, ids(6, seed=5), 2)
    prefill = generator.begin_stream_ex(prompt, GREEDY, max_new_tokens=5, ignore_eos=True)
    assert (prefill.reuse.source, prefill.n_cached) == ("memory", 8)
    assert text_of(generator, prompt, 5) == expected


@pytest.mark.parametrize(
    "settings",
    [
        WARM,
        SamplingSettings(temperature=0.8, seed=6, repetition_penalty=1.2, logit_bias={7: 2.0}),
        SamplingSettings(temperature=0.8, seed=6, dry_multiplier=0.8, xtc_probability=0.5),
    ],
    ids=["filters", "adjustments", "host"],
)
def test_draws_are_those_of_the_cpus_sampler(
    tiny: Tiny, model: Model, settings: SamplingSettings
) -> None:
    """The numbers of each row, as it comes with the tokens."""
    generator, prompt = tiny.generator(model), ids(5, seed=6)
    expected = text_of(generator, prompt, 5, settings)
    generator.begin_stream_ex(
        prompt, settings, max_new_tokens=5, ignore_eos=True, return_logits=True, return_top_tokens=3
    )
    vocabulary = SamplerVocabulary(Tokenizer.load(tiny.path, VOCAB_SIZE), VOCAB_SIZE)
    work = np.empty(VOCAB_SIZE, np.float32)
    sampler = Sampler(settings, prompt_ids=prompt, vocabulary=vocabulary, work=work, n_top=3)
    tokens: list[TokenRecord] = []
    rows: list[Logits] = []
    while len(tokens) < len(expected):
        result = generator.stream_ex()
        tokens += result.tokens
        rows += [] if result.logits is None else list(result.logits)
    assert [token.token_id for token in tokens] == expected
    for n, (token, row) in enumerate(zip(tokens, rows, strict=True)):
        drawn = sampler.sample(row, len(prompt) + n)
        assert token.token_id == drawn.token_id
        assert [top.token_id for top in token.top] == list(drawn.top_ids)
        assert token.logprob == pytest.approx(drawn.logprob_raw, abs=1e-5)
        assert token.p_sampled == pytest.approx(drawn.p_sampled, abs=1e-5)
        sampler.accept(token.token_id, drawn.p_sampled)


def test_a_banned_string_takes_back_what_ran_ahead(tiny: Tiny, model: Model) -> None:
    prompt = ids(6, seed=7)
    generator = tiny.generator(model)
    free = text_of(generator, prompt, 6)
    tokenizer = Tokenizer.load(tiny.path, VOCAB_SIZE)
    banned = [tokenizer.token_bytes(free[2]).decode("utf-8", "replace")]
    texts = [
        text_of(tiny.generator(model), prompt, 6, banned_strings=banned, on_token=hook)
        for hook in (None, lambda sampled: None)
    ]
    assert texts[0] == texts[1] != free


def test_guidance_and_the_prompts_own_probabilities(tiny: Tiny, model: Model) -> None:
    prompt, negative = ids(20, seed=8), ids(4, seed=9)
    generator = tiny.generator(model)
    prefill = generator.begin_stream_ex(
        prompt, GREEDY, max_new_tokens=1, return_prompt_tokens=1, negative_ids=negative, cfg_scale=2
    )
    logits = tiny.logits(prompt)
    expected = log_softmax(logits)[range(19), prompt[1:]]
    told = [token.logprob or 0.0 for token in prefill.prompt_tokens[1:]]
    assert told == pytest.approx(expected.tolist(), abs=2 * TOLERANCE)
    mixed = 2 * log_softmax(logits[-1:]) - log_softmax(tiny.logits(negative)[-1:])
    assert generator.stream_ex().tokens[0].token_id == mixed.argmax()


def test_an_engine_is_loaded_and_streams(
    tiny: Tiny, open_cuda: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}

    def opened(**options: Any) -> CudaOps:
        asked.update(options)
        return open_cuda(options["quantize"], options["kv_cache"])

    monkeypatch.setattr(engine.engine, "open_ops", opened)
    loaded = Engine.load(
        tiny.path, "cuda", quantize="8bit", kv_cache="8bit", prefix_bytes=2**20, max_seq_len=32
    )
    assert (asked["device"], loaded.max_seq_len) == ("cuda", 32)
    assert len(text_of(loaded.generator, ids(4), 3)) == 3
    monkeypatch.setattr(CudaOps, "working_bytes", lambda self, config: 10**15)
    with pytest.raises(
        ModelLoadError, match=r"GB and 1000000\.00 GB to work in, [\d.]+ GB are free"
    ):
        Engine.load(tiny.path, "cuda", quantize="8bit", kv_cache="8bit")


# ---- Prefill, memory, loading. ----


def test_an_abort_ends_a_prefill_between_chunks(tiny: Tiny, open_cuda: Open) -> None:
    model, abort = tiny.model(open_cuda(), chunk_size=18), AbortFlag()
    cache = cache_of(model)

    def on_progress(done: int, total: int) -> None:
        abort.set()

    assert not model.prefill(ids(40), cache, abort=abort, on_progress=on_progress)
    assert cache.length == 18


def test_chunks_of_a_prompt_lead_to_the_same_text(tiny: Tiny, open_cuda: Open) -> None:
    prompt = ids(40, seed=10)
    small = tiny.model(open_cuda(), chunk_size=17)
    assert_greedy(tiny, prompt, text_of(tiny.generator(small), prompt, 2), tiny.greedy(prompt, 2))


def test_formats_that_there_are_not_are_refused(open_cuda: Open) -> None:
    with pytest.raises(ModelLoadError, match="kv_cache: on CUDA"):
        open_cuda("bfloat16", "float32")
    with pytest.raises(ModelLoadError, match="kv_cache: must be"):
        open_cuda("bfloat16", "2bit")
    for kv in ("k8v4", "4bit"):
        with pytest.raises(ModelLoadError, match=f"not {kv} \\(which needs device cpu"):
            open_cuda("bfloat16", kv)


def test_heads_that_are_too_wide_are_refused(open_cuda: Open) -> None:
    with pytest.raises(
        ModelLoadError, match="head_dim: the CUDA kernels take at most 256, not 258"
    ):
        open_cuda().kv_memory([(1, 8, 258)])


def test_without_the_module_torch_serves_or_nobody(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cuda_native, "MISSING", "no such module")
    monkeypatch.setattr(torch_ops, "check_cuda", lambda device: None)
    with pytest.raises(ModelLoadError, match=r"native CUDA module .* no such module"):
        open_ops(device="cuda", require_native=True)
    ops = open_ops(device="cuda")
    assert isinstance(ops, torch_ops.TorchOps)
    assert ops.format == "bfloat16"
    assert "using torch instead: no such module" in caplog.text
    with pytest.raises(ModelLoadError, match="quantize: 8bit needs native code"):
        open_ops(device="cuda", quantize="8bit")


def test_tensors_are_read_in_pieces(
    tiny: Tiny, open_cuda: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_load, "_PIECE_BYTES", 1000)  # more than there are pieces of memory
    tensors = read_checkpoint(tiny.path).tensors
    with cuda_load.PinnedReader(open_cuda().device) as read:
        for tensor in tensors.values():
            assert np.array_equal(read(tensor).cpu().numpy(), plain_values(tensor)), tensor.name
        changed = replace(tensors["model.embed_tokens.weight"], modified_ns=1)
        with pytest.raises(ModelLoadError, match="has changed since"):
            read(changed)


def test_a_weight_that_is_no_number_is_told_by_its_place(tmp_path: Path, open_cuda: Open) -> None:
    def change(weights: torch.Tensor) -> torch.Tensor:
        return torch.where(torch.arange(weights.numel()).view(weights.shape) == 70, np.nan, weights)

    broken = saved(tmp_path, "Llama", change=change)
    with pytest.raises(ModelLoadError, match=r"embed_tokens.weight: not finite at \[1, 6\]"):
        broken.model(open_cuda())


def test_logits_that_are_no_numbers_end_a_stream(tmp_path: Path, open_cuda: Open) -> None:
    huge = saved(tmp_path, "Llama", change=lambda weights: weights * 1e30)
    generator = huge.generator(huge.model(open_cuda()))
    generator.begin_stream_ex(ids(3), WARM)
    with pytest.raises(NumericsError, match="position 3"):
        generator.stream_ex()
