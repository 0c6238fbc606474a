"""Soliton's figures on one card: the time per token as a caller sees it, and where it goes.

Owns what exactly is timed of one model, in one format. Weights are random and made on the device,
so nothing is read but in the figure of loading.
"""

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch

from engine import SamplingSettings, StreamingGenerator
from engine.benchmark import profile_step
from engine.benchmark.speed import prefill_rate, prompt_ids
from engine.cache.kv import KVCache
from engine.cache.prefix import PrefixCache
from engine.checkpoint.config import AttentionConfig, ModelConfig
from engine.checkpoint.safetensors import read_checkpoint
from engine.checkpoint.tensors import check_tensors, expected_shapes
from engine.device.formats import kv_bytes_per_token
from engine.device.ops import Ops
from engine.model.loading import load_weights
from engine.model.model import Model
from engine.model.weights import LayerWeights, Weights

from .goals import ROWS
from .limits import Limits
from .timing import ROUNDS, seconds_each, synchronize

_SHORT = 16  # tokens of the prompt of a stream
_CALLS = 24  # passes timed together
GREEDY = SamplingSettings(temperature=0.0)
SAMPLERS = {
    "sampled": SamplingSettings(temperature=0.8, top_p=0.95, top_k=40, min_p=0.02, seed=1),
    "penalties": SamplingSettings(temperature=0.8, repetition_penalty=1.1, seed=1),
}


@dataclass(frozen=True, slots=True)
class Amount:
    """How much is measured."""

    tokens: int = 160  # of a stream
    prompts: Sequence[int] = (512, 2048)
    depth: int = 32_768
    rounds: int = ROUNDS
    calls: int = _CALLS


class Letters:
    """A vocabulary in which every token is one letter."""

    def token_bytes(self, token_id: int) -> bytes:
        return bytes([97 + token_id % 26])

    def is_special(self, token_id: int) -> bool:
        return False

    def is_control(self, token_id: int) -> bool:
        return False


def random_weights(config: ModelConfig, ops: Ops, device: str) -> Weights:
    """Different weights for every layer, as `load_weights` would make them."""
    _, attention, hidden_dim = _sizes(config)

    def matrix(*rows: int, n_in: int, format_: str = ops.format, gated: bool = False) -> Any:
        parts = [
            torch.empty(n, n_in, device=device, dtype=torch.bfloat16).normal_(std=n_in**-0.5)
            for n in rows
        ]
        return ops.matrix(parts, format_, gated=gated)

    def norm() -> Any:
        return ops.vector([torch.ones(config.dim, device=device, dtype=torch.bfloat16)])

    def layer() -> LayerWeights:
        return LayerWeights(
            attention_norm=norm(),
            wqkv=matrix(attention.qkv_dim, n_in=config.dim),
            bqkv=None,
            q_norm=None,
            k_norm=None,
            wo=matrix(config.dim, n_in=attention.q_dim),
            bo=None,
            mlp_norm=norm(),
            w_gate_up=matrix(hidden_dim, hidden_dim, n_in=config.dim, gated=True),
            b_gate_up=None,
            w_down=matrix(config.dim, n_in=hidden_dim),
            b_down=None,
        )

    def table() -> Any:
        return matrix(config.vocab_size, n_in=config.dim, format_=ops.formats(config, {}).head)

    embedding = table()
    return Weights(
        embedding=embedding,
        layers=tuple(layer() for _ in range(config.n_layers)),
        norm=norm(),
        head=embedding if config.tie_embeddings else table(),
        formats=ops.formats(config, {}),
    )


def step_bytes(config: ModelConfig, ops: Ops) -> int:
    """Bytes of weights that a decode step reads: all matrices but an untied embedding,
    which gives a row.
    """
    dim, attention, hidden_dim = _sizes(config)
    layer = sum(
        ops.matrix_bytes(ops.format, n_out, n_in)
        for n_out, n_in in (
            (attention.qkv_dim, dim),
            (dim, attention.q_dim),
            (2 * hidden_dim, dim),
            (dim, hidden_dim),
        )
    )
    head = ops.matrix_bytes(ops.formats(config, {}).head, config.vocab_size, dim)
    return config.n_layers * layer + head


def prompt_flops(config: ModelConfig, n_tokens: int) -> float:
    """Multiplications and additions for a prompt of `n_tokens`: the matrices of all layers, without
    what the last one needs for its last token alone, and attention to the tokens before.
    """
    dim, attention, hidden_dim = _sizes(config)
    qkv = dim * attention.qkv_dim
    rest = dim * attention.q_dim + 3 * dim * hidden_dim
    products = attention.q_dim * n_tokens  # q k and p v, over half of the positions on average
    n_whole = config.n_layers - 1
    return 2.0 * n_tokens * (config.n_layers * qkv + n_whole * (rest + products))


def _sizes(config: ModelConfig) -> tuple[int, AttentionConfig, int]:
    """dim, attention and hidden_dim, equal in every layer."""
    layer = config.layers[0]
    return config.dim, layer.attention, layer.mlp.hidden_dim


def measure(
    config: ModelConfig,
    ops: Ops,
    limits: Limits,
    *,
    weights: Weights,
    amount: Amount,
    put: Callable[[dict[str, Any]], None],
) -> None:
    """Gives `put` the figures of a short context, as they come."""
    length = max(*amount.prompts, _SHORT + amount.tokens) + max(ROWS)
    model = Model(weights, config, ops, max_seq_len=length)
    cache = KVCache(config, ops, max_seq_len=length)
    generator = StreamingGenerator(model, PrefixCache(cache), Letters(), eos_token_ids=())
    n_bytes, prompt = step_bytes(config, ops), prompt_ids(config.vocab_size, _SHORT)
    stream = median(
        stream_seconds(generator, prompt, GREEDY, n_tokens=amount.tokens)
        for _ in range(amount.rounds)
    )
    put(
        {
            "gb": n_bytes / 1e9,
            "stream_ms": 1e3 * stream,
            "stream_share": n_bytes / stream / limits.read_bytes,
        }
    )
    # The same positions on average as in the stream.
    middle = _SHORT + amount.tokens // 2
    cache.clear()
    model.prefill(prompt_ids(config.vocab_size, middle), cache)
    rows = {n: pass_seconds(model, cache, n, amount) for n in (1, *ROWS)}
    put(
        {
            "graph_ms": 1e3 * rows[1],
            "graph_share": n_bytes / rows[1] / limits.read_bytes,
            "host_us": 1e6 * (stream - rows[1]),
            "rows_ms": {str(n): 1e3 * seconds for n, seconds in rows.items()},
        }
    )
    for name, settings in SAMPLERS.items():
        seconds = median(
            stream_seconds(generator, prompt, settings, n_tokens=amount.tokens, n_top=5)
            for _ in range(amount.rounds)
        )
        put({f"{name}_added_us": 1e6 * (seconds - stream)})
    for n_tokens in amount.prompts:
        rate = median(
            prefill_rate(model, cache, n_tokens=n_tokens) for _ in range(amount.rounds + 1)
        )
        share = prompt_flops(config, n_tokens) * rate / n_tokens / limits.product_flops
        put({f"prefill_{n_tokens}_tps": rate, f"prefill_{n_tokens}_share": share})
    cache.clear()
    model.prefill(prompt_ids(config.vocab_size, middle), cache)
    profile = [
        {"name": op.name, "count": op.count, "us": op.us, "gbs": op.n_bytes / op.us / 1e3}
        for op in profile_step(model, steps=min(10, amount.tokens))
    ]
    put({"profile": profile})


def measure_deep(
    config: ModelConfig,
    ops: Ops,
    limits: Limits,
    *,
    weights: Weights,
    amount: Amount,
    put: Callable[[dict[str, Any]], None],
) -> None:
    """The same weights, far into a sequence: `ops` holds keys and values in eight bits."""
    length = amount.depth + max(ROWS)
    model = Model(weights, config, ops, max_seq_len=length)
    cache = KVCache(config, ops, max_seq_len=length)
    start = time.perf_counter()
    model.prefill(prompt_ids(config.vocab_size, amount.depth - 1), cache)
    ops.wait()
    filled = time.perf_counter() - start
    seconds = pass_seconds(model, cache, 1, amount)
    kv_bytes = kv_bytes_per_token(config, ops.kv_format) * amount.depth
    moved = step_bytes(config, ops) + kv_bytes
    put(
        {
            "deep_ms": 1e3 * seconds,
            "deep_kv_gb": kv_bytes / 1e9,
            "deep_share": moved / seconds / limits.read_bytes,
            "deep_prefill_tps": amount.depth / filled,
        }
    )


def stream_seconds(
    generator: StreamingGenerator,
    prompt: Sequence[int],
    settings: SamplingSettings,
    *,
    n_tokens: int,
    n_top: int = 0,
) -> float:
    """Seconds per token as the caller of a stream sees it: pass, sampler, text, record. The first
    tokens, in which graphs are recorded, do not count.
    """
    n_first = n_tokens // 4
    generator.begin_stream_ex(
        prompt,
        settings,
        max_new_tokens=n_tokens,
        ignore_eos=True,
        return_probabilities=n_top > 0,
        return_top_tokens=n_top,
    )
    for _ in range(n_first):
        generator.stream_ex()
    start = time.perf_counter()
    for _ in range(n_tokens - n_first):
        generator.stream_ex()
    return (time.perf_counter() - start) / (n_tokens - n_first)


def pass_seconds(model: Model, cache: KVCache, n_rows: int, amount: Amount) -> float:
    """A pass of `n_rows` at the end of `cache`, launched repeatedly without reading results."""
    length, token_ids = cache.length, prompt_ids(model.config.vocab_size, n_rows, seed=1)

    def run() -> None:
        model.decode(token_ids, cache)
        cache.rollback(length)

    return seconds_each(run, calls=amount.calls, rounds=amount.rounds)


def measure_loading(config: ModelConfig, ops: Ops, directory: Path) -> dict[str, float]:
    """Bytes per second from a freshly written safetensors file into memory of `ops`."""
    from safetensors.torch import save_file

    directory.mkdir(parents=True, exist_ok=True)
    tensors = {
        name: torch.randn(shape, dtype=torch.bfloat16, device=_device()).cpu()
        for name, shape in expected_shapes(config).items()
    }
    n_bytes = sum(tensor.nbytes for tensor in tensors.values())
    save_file(tensors, directory / "model.safetensors")
    del tensors
    stored = check_tensors(read_checkpoint(directory), config)
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        weights = load_weights(stored, config, ops)
        ops.wait()
        synchronize()
        seconds.append(time.perf_counter() - start)
        del weights
        release()
    return {"gb": n_bytes / 1e9, "first_gbs": n_bytes / seconds[0] / 1e9,
            "gbs": n_bytes / median(seconds) / 1e9}  # fmt: skip


def release() -> None:
    """Returns unused memory to the card."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"
