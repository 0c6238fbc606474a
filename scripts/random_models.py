"""Compares random tiny models of every family with transformers: how far log-probabilities differ.

    python scripts/random_models.py [COUNT] [SEED]

Sizes, heads, biases, windows and rope scalings are random. Each model runs on the native CPU engine
and on the torch reference, in chunks, then token by token, past its original context.

Most of the remaining difference comes from transformers: its float32 angles and sums alone differ
by 2e-4 from its own float64 results (model 70 of seed 0), the engines by 3e-5.
"""

import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

from engine.cache.kv import KVCache  # noqa: E402
from engine.checkpoint.config_json import model_config  # noqa: E402
from engine.checkpoint.safetensors import read_checkpoint  # noqa: E402
from engine.checkpoint.tensors import check_tensors  # noqa: E402
from engine.device.open import open_ops  # noqa: E402
from engine.device.ops import Ops  # noqa: E402
from engine.device.torch_ops import TorchOps  # noqa: E402
from engine.model.loading import load_weights  # noqa: E402
from engine.model.model import Model  # noqa: E402

N_TOKENS = 150
VOCAB_SIZE = 320
ORIGINAL = 48  # the original context in tokens, less than N_TOKENS
LIMIT = 3e-4


def main(count: int, seed: int) -> int:
    choose = random.Random(seed)
    worst = 0.0
    for index in range(count):
        family, options = drawn(choose)
        with tempfile.TemporaryDirectory() as name:
            oracle = saved(Path(name), family, options, seed + index)
            token_ids = [choose.randrange(VOCAB_SIZE) for _ in range(N_TOKENS)]
            with torch.no_grad():
                expected = oracle(torch.tensor([token_ids])).logits[0].log_softmax(-1).numpy()
            chunk_size = choose.choice([5, 32, 512])
            found = dict(deviations(Path(name), token_ids, expected, chunk_size))
        worst = max(worst, *found.values())
        rope = options["rope_parameters"]["rope_type"]
        figures = ", ".join(f"{name} {value:.1e}" for name, value in found.items())
        shown = {key: value for key, value in options.items() if key != "rope_parameters"}
        print(f"{index:3} {family:7} {rope:8} {figures}  {shown}", flush=True)
    print(f"{count} models from seed {seed}, largest difference of a log-probability: {worst:.2e}")
    return int(worst > LIMIT)


def drawn(choose: random.Random) -> tuple[str, dict[str, Any]]:
    """A random family and configuration."""
    family = choose.choice(["Llama", "Mistral", "Qwen2", "Qwen3"])
    n_kv_heads = choose.choice([1, 2, 3])
    n_heads = n_kv_heads * choose.choice([1, 2, 3, 4])
    head_dim = choose.choice([6, 8, 10, 16, 22, 24, 30, 32, 46, 64])
    options: dict[str, Any] = {
        "hidden_size": n_heads * head_dim,
        "intermediate_size": choose.choice([40, 72, 97, 128]),
        "num_hidden_layers": choose.choice([1, 2, 4]),
        "num_attention_heads": n_heads,
        "num_key_value_heads": n_kv_heads,
        "tie_word_embeddings": choose.random() < 0.5,
        "rms_norm_eps": choose.choice([1e-6, 1e-5, 1e-3]),
    }
    if family != "Qwen2":
        options["head_dim"] = head_dim
        if choose.random() < 0.5:  # the widths of the heads do not add up to the model's
            options["hidden_size"] = n_heads * choose.choice([6, 8, 14, 20])
    if family in ("Llama", "Qwen3"):
        options["attention_bias"] = choose.random() < 0.5
    if family == "Llama":
        options["mlp_bias"] = choose.random() < 0.5
    if family == "Mistral":
        options["sliding_window"] = choose.choice([None, 9, 70])
    if family.startswith("Qwen") and choose.random() < 0.5:
        options |= {"use_sliding_window": True, "sliding_window": 31, "max_window_layers": 1}
    rope = drawn_rope(choose, head_dim)
    is_dynamic = rope["rope_type"] == "dynamic"
    options |= {"rope_parameters": rope, "max_position_embeddings": ORIGINAL if is_dynamic else 256}
    return family, options


def drawn_rope(choose: random.Random, head_dim: int) -> dict[str, Any]:
    kind = choose.choice(["default", "linear", "llama3", "dynamic", "yarn", "yarn", "longrope"])
    rope: dict[str, Any] = {
        "rope_type": kind,
        "rope_theta": choose.choice([50.0, 10_000.0, 1e6]),
        "factor": choose.choice([1.0, 2.5, 4.0, 8.0]),
        "original_max_position_embeddings": ORIGINAL,
    }
    if kind in ("default", "linear", "dynamic"):
        del rope["original_max_position_embeddings"]
    if kind == "default":
        del rope["factor"]
    if kind == "llama3":
        rope |= {"low_freq_factor": 1.0, "high_freq_factor": choose.choice([2.0, 4.0])}
    if kind == "longrope":
        factors = [1 + choose.random() * 9 for _ in range(head_dim // 2)]
        rope |= {"long_factor": factors, "short_factor": [1.0] * (head_dim // 2)}
    if kind == "yarn":
        rope |= choose.choice(
            [
                {},
                {"truncate": False, "beta_fast": 8.0, "beta_slow": 0.5},
                {"mscale": 0.7, "mscale_all_dim": 1.3},
                {"attention_factor": 0.8},
            ]
        )
    return rope


def saved(path: Path, family: str, options: dict[str, Any], seed: int) -> Any:
    """A random float32 model of transformers, also saved to `path`."""
    import transformers

    config: Any = getattr(transformers, f"{family}Config")(vocab_size=VOCAB_SIZE, **options)
    config._attn_implementation = "eager"
    torch.manual_seed(seed)
    model: Any = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.12)
            if parameter.ndim == 1:
                parameter.add_(1.0)
    model.save_pretrained(path)
    return model


def deviations(
    path: Path, token_ids: list[int], expected: Any, chunk_size: int
) -> Iterator[tuple[str, float]]:
    """The largest difference on each engine, over the tokens decoded after a prompt."""
    engines: dict[str, Ops] = {
        "native": open_ops(device="cpu", dtype="float32", require_native=True),
        "torch": TorchOps("cpu", "float32"),
    }
    config = model_config(path)
    n_prompt = N_TOKENS - 60
    for name, ops in engines.items():
        weights = load_weights(check_tensors(read_checkpoint(path), config), config, ops)
        model = Model(weights, config, ops, max_seq_len=N_TOKENS, chunk_size=chunk_size)
        cache = KVCache(config, ops, max_seq_len=N_TOKENS)
        model.prefill(token_ids[:n_prompt], cache)
        rows = [
            np.asarray(model.decode([token_id], cache)[0], np.float64)
            for token_id in token_ids[n_prompt:]
        ]
        logprobs = torch.tensor(np.stack(rows)).log_softmax(-1).numpy()
        yield name, float(np.abs(logprobs - expected[n_prompt:]).max())


if __name__ == "__main__":
    arguments = [int(argument) for argument in sys.argv[1:3]]
    sys.exit(main(*(arguments + [100, 0][len(arguments) :])))
