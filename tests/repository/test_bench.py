"""`soliton bench` as its user meets it, the models of its shapes, and the reading of memory."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from engine import Engine, SamplingSettings, benchmark, describe
from engine.benchmark import SHAPES, Plan, Shape, open_reader, profile_step, write_model
from engine.benchmark.speed import prompt_ids
from engine.cache.kv import KVCache
from engine.device.step import StepState
from engine.device.torch_ops import open_torch
from engine.model.model import Model
from engine.model.weights import step_bytes
from engine.native import _cpu
from engine.native import cpu as native
from server.__main__ import main
from server.commands.bench_report import report

TINY = Shape("tiny", 64, 2, 4, 2, 96, tied=True)
MACHINE_KEYS = {"cpu", "cores", "isa", "python", "system", "date"}
RATES = (
    "read_bandwidth_gbs",
    "read_bandwidth_gbs_same_size",
    "decode_tps",
    "pass_tps",
    "bandwidth_fraction",
    "bandwidth_fraction_with_kv",
    "decode_tps_2048",
    "prefill_tps_512",
    "prefill_tps_2048",
    "ttft_cold_ms",
    "ttft_cached_ms",
    "startup_s",
    "rss_mb",
    "http_tps",
    "http_tokens_per_block",
    "http_logprobs_tps",
)
DIFFERENCES = (
    "added_ms_2048",
    "http_added_us",
    "http_added_low_us",
    "http_logprobs_added_us",
    "http_logprobs_added_low_us",
)
SPECULATION = ("copy_plain_tps", "copy_tps", "copy_speedup", "undraftable_speedup")
DRAFT_MODEL = ("draft_model_tokens_per_pass", "draft_model_speedup")
FACTS = ("shape", "quantize", "threads", "format", "ops", "n_params", "bytes_per_token")
QUICK = ("--rounds", "1", "--tokens", "400", "--buffer-mb", "8")  # fewer come in one block


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("shapes") / "tiny"
    write_model(TINY, path)
    return path


@pytest.fixture(scope="module")
def tiny_bench(tiny: Path) -> Engine:
    return Engine.load(tiny, device="cpu", n_threads=1)


def test_the_first_round_is_not_a_cold_one(
    tiny_bench: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[KVCache, int]] = []
    real = Model.prefill

    def prefill(self: Model, token_ids: list[int], cache: KVCache, **options: Any) -> bool:
        seen.append((cache, len(token_ids)))
        return real(self, token_ids, cache, **options)

    monkeypatch.setattr(Model, "prefill", prefill)
    plan = Plan(parts=frozenset(["prefill", "ttft"]), rounds=1, n_tokens=8)
    benchmark.measure(tiny_bench, None, plan)
    timed = [(cache, n_tokens) for cache, n_tokens in seen if n_tokens in (511, 1023)]
    assert len(timed) >= 2
    for cache, n_tokens in timed:
        first = next(n for other, n in seen if other is cache)
        assert first != n_tokens, "a prompt that is not timed comes first"


def greedy(engine: Engine, prompt: list[int], n: int) -> list[int]:
    engine.generator.begin_stream_ex(
        prompt, SamplingSettings(temperature=0.0), max_new_tokens=n, ignore_eos=True
    )
    token_ids: list[int] = []
    while True:
        result = engine.generator.stream_ex()
        token_ids += [token.token_id for token in (*result.tokens, *result.dropped)]
        if result.eos:
            return token_ids


def test_every_figure_of_every_format_is_in_the_file(tiny: Path, tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    argv = ["bench", str(tiny), "--quantize", "none,8bit", "--threads", "2", "--device", "cpu"]
    argv += ["--speculate"]
    assert main([*argv, *QUICK, "--json", str(file)]) == 0
    result: dict[str, Any] = json.loads(file.read_text())
    assert result.keys() == {"machine", "rows"}
    assert result["machine"].keys() == MACHINE_KEYS
    assert [row["quantize"] for row in result["rows"]] == ["none", "8bit"]
    for row in result["rows"]:
        figures = {*RATES, *DIFFERENCES, *SPECULATION, *DRAFT_MODEL}
        assert row.keys() == {*FACTS, "kv_bytes_2048", *figures}
        assert row["shape"] == "tiny"
        assert row["threads"] == 2
        assert all(row[key] > 0 for key in (*RATES, *SPECULATION)), row
        assert all(row[key] is None for key in DRAFT_MODEL), "it has no draft model"
        assert all(isinstance(row[key], float) for key in DIFFERENCES)
        moved = row["decode_tps"] * row["bytes_per_token"] / 1e9
        assert row["bandwidth_fraction"] == pytest.approx(
            moved / row["read_bandwidth_gbs"], rel=0.2
        )
        assert row["bandwidth_fraction_with_kv"] > row["bandwidth_fraction"]
    plain, quantized = result["rows"]
    assert plain["bytes_per_token"] > quantized["bytes_per_token"]
    assert plain["kv_bytes_2048"] == 2 * 2 * 2048 * 2 * 16 * 4, "K and V, layers, heads, float32"


def test_only_what_was_asked_for_is_measured_and_shown(
    tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", str(tiny), *QUICK, "--only", "decode", "--profile"]) == 0
    shown = capsys.readouterr().out
    assert "decode" in shown
    assert "memory reads" in shown
    assert "attention" in shown
    assert "HTTP" not in shown
    assert "depth" not in shown


def test_what_a_model_has_no_room_for_is_listed_with_the_reason(
    capfd: pytest.CaptureFixture[str],
) -> None:
    argv = ["bench", "--rounds", "1", "--tokens", "64", "--buffer-mb", "8", "--speculate"]
    assert main([*argv, "--only", "depth,ttft,http"]) == 0
    out, err = capfd.readouterr()
    first, *rows = out.splitlines()
    assert first.startswith("soliton-default, "), "the name that serve has"
    missing = [row for row in rows if "not measured" in row]
    assert len(missing) == 3, rows
    assert all(row.endswith("not measured: the context has 1,024 tokens") for row in missing)
    assert "INFO" not in err, "the log of the server is not part of the report"


def test_a_difference_within_the_noise_is_not_shown_as_a_figure() -> None:
    figures = dict.fromkeys((*RATES, *DIFFERENCES, *SPECULATION, *DRAFT_MODEL))
    facts = {"shape": "x", "quantize": "none", "format": "x", "ops": "x", "threads": 1}
    row = {**figures, **facts, "n_params": 1, "bytes_per_token": 1}
    row |= {"http_added_us": 12.0, "http_added_low_us": 9.0}
    row |= {"http_logprobs_added_us": -451.0, "http_logprobs_added_low_us": -900.0}
    row |= {"added_ms_2048": -0.25}
    shown = [line.split() for line in report(row, {})][1:]
    assert [words[-2:] for words in shown] == [
        ["within", "noise"],
        ["12", "us"],
        ["within", "noise"],
    ]


def test_a_context_too_short_for_a_figure_leaves_it_out(bundled_engine: Engine) -> None:
    plan = Plan(rounds=1, n_tokens=4)
    figures = benchmark.measure(bundled_engine, None, plan)
    assert figures.decode_tps is not None
    assert figures.prefill_tps_512 is not None
    assert figures.prefill_tps_2048 is None
    assert figures.decode_tps_2048 is None
    assert figures.ttft_cold_ms is None
    assert figures.read_bandwidth_gbs is None, "no reader"


def test_shapes_are_written_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["bench", "--shape", "15M", "--shapes-dir", str(tmp_path), "--only", "prefill", *QUICK]
    assert main(argv) == 0
    written = (tmp_path / "15M" / "model.safetensors").stat().st_mtime_ns
    assert main(argv) == 0
    assert (tmp_path / "15M" / "model.safetensors").stat().st_mtime_ns == written
    assert capsys.readouterr().out.count("15,191,712 parameters") == 2


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--shape", "7B"], "'7B'"),
        (["--shape", "15M", "/some/model"], "MODEL"),
        (["--quantize", "2bit"], "'2bit'"),
        (["--only", "decode,sleep"], "'sleep'"),
        (["--rounds", "0"], "--rounds"),
        (["--tokens", "1"], "--tokens"),
        (["--threads", "0"], "threads"),
        (["--json", "/no/such/directory/result.json"], "/no/such/directory"),
        (["/no/such/model"], "/no/such/model"),
    ],
)
def test_a_wrong_option_is_one_line(
    options: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *options]) == 2
    error = capsys.readouterr().err
    assert error.startswith("soliton: error: ")
    assert error.count("\n") == 1
    assert named in error


@pytest.mark.parametrize(
    ("name", "n_params"), [("15M", 15_191_712), ("125M", 100_092_672), ("1.1B", 1_100_048_384)]
)
def test_a_shape_has_its_parameters(name: str, n_params: int) -> None:
    config = transformers.LlamaConfig(**SHAPES[name].config())
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config)
    assert sum(parameter.numel() for parameter in model.parameters()) == n_params


def test_transformers_reads_a_shape_and_says_the_same(tmp_path: Path) -> None:
    write_model(SHAPES["15M"], tmp_path)
    assert describe(tmp_path).n_tokens == 32_000
    engine = Engine.load(tmp_path, device="cpu", n_threads=1)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    prompt = engine.tokenizer.encode("Once upon a time there was a caf\u00e9.")
    assert prompt == tokenizer("Once upon a time there was a caf\u00e9.").input_ids
    assert len(tokenizer) == 32_000
    assert engine.tokenizer.decode(prompt) == "Once upon a time there was a caf\u00e9."
    oracle: Any = transformers.LlamaForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    wanted = oracle.generate(
        torch.tensor([prompt]), max_new_tokens=8, do_sample=False, eos_token_id=None
    )
    assert greedy(engine, prompt, 8) == wanted[0, len(prompt) :].tolist()


def test_the_weights_of_a_shape_are_always_the_same(tiny: Path, tmp_path: Path) -> None:
    write_model(TINY, tmp_path)
    for file in ("model.safetensors", "tokenizer.json", "config.json"):
        assert (tmp_path / file).read_bytes() == (tiny / file).read_bytes()


def test_prompts_of_different_seeds_share_nothing_at_the_start() -> None:
    first = {prompt_ids(32_000, 8, seed=seed)[0] for seed in range(6)}
    assert len(first) == 6


@pytest.mark.parametrize("isa", _cpu.supported_isas())
@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("n_words", [0, 1, 31, 64, 1000, 4099])
def test_the_reader_reads_every_word(isa: str, n_threads: int, n_words: int) -> None:
    words = np.random.default_rng(0).integers(0, 2**64, n_words, dtype=np.uint64)
    sums = np.zeros(-(-n_words // 100), np.uint64)
    tape = _cpu.Tape()
    tape.read(
        words=native.address(words), n_words=n_words, piece_words=100, sums=native.address(sums)
    )
    before = _cpu.isa(), _cpu.threads()
    try:
        _cpu.select_isa(isa)
        _cpu.set_threads(n_threads)
        tape.run(native.address(StepState(1).words))
    finally:
        _cpu.select_isa(before[0])
        _cpu.set_threads(before[1])
    wanted = [words[begin : begin + 100].sum() for begin in range(0, n_words, 100)]
    assert sums.tolist() == wanted


def test_the_profile_holds_the_whole_step(tiny_bench: Engine) -> None:
    ops = profile_step(tiny_bench.model, steps=3)
    config = tiny_bench.config
    assert sum(op.count for op in ops) == 2 + 5 * config.n_layers, "embedding, head and layers"
    assert all(op.us > 0 for op in ops)
    norms = 4 * config.dim * (1 + 2 * config.n_layers)
    weights = step_bytes(config, tiny_bench.model.weights.formats) - norms
    assert sum(op.n_bytes for op in ops) == weights


def test_ops_without_native_code_have_no_reader_and_no_profile() -> None:
    ops = open_torch("cpu", "float32")
    assert open_reader(ops, 2**20) is None
    assert ops.program(1).profile(StepState(1)) == []
