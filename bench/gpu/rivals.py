"""Decode of other programs on the same sizes: seconds per token of a greedy sequence.

Owns how each of them is set up at its best. A rival loads, compiles and warms up, which may take
minutes, and returns what measures it. Its package is imported then; what goes wrong is the caller's
to tell. Weights are random, drawn on the device.
"""

import json
import math
import sys
import time
from collections.abc import Callable
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import torch

from engine.checkpoint.config import ModelConfig

from .place import DEVICE
from .plain import PlainDecoder
from .timing import synchronize

Measure = Callable[[], float]
Rival = Callable[[ModelConfig, str, Path], Measure]

MAX_SEQ_LEN = 512
# Packages that the machine does not have.
_SITE = Path(__file__).parents[2] / "build" / "gpu-carry" / "site"
_PROMPT = 16
_TOKENS = 192
_BLOCK = 32  # tokens whose mean is one sample


def compiled(config: ModelConfig, format_: str, directory: Path) -> Measure:
    """The plain decoder under torch.compile with CUDA graphs."""
    import torch._inductor.config as inductor

    # A product with one row becomes a tuned reduction, which makes it fast.
    inductor.coordinate_descent_tuning = True
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(DEVICE), torch.inference_mode():
        decoder = PlainDecoder(config, format_, max_seq_len=MAX_SEQ_LEN)
        positions = torch.arange(MAX_SEQ_LEN)
        first = torch.tensor([1])
    step = torch.compile(decoder, mode="reduce-overhead", fullgraph=True, dynamic=False)

    @torch.inference_mode()
    def generate(n_tokens: int) -> list[float]:
        token_id, ends = first, [_now()]
        for place in range(n_tokens):
            # The graph owns its output and overwrites it in the next pass.
            token_id = step(token_id, positions[place : place + 1]).clone()
            if (place + 1) % _BLOCK == 0:
                ends.append(_now())
        return ends

    generate(_BLOCK)
    return lambda: _median_of_blocks(generate(_TOKENS))


def transformers(config: ModelConfig, format_: str, directory: Path) -> Measure:
    """`generate` of transformers, greedy: a static cache, compiled by itself."""
    library: Any = import_module("transformers")
    if format_ != "bfloat16":
        raise ValueError(f"transformers is measured in bfloat16, not in {format_}")

    class Clock:
        """A stopping criterion that is called after each token and never stops."""

        def __init__(self) -> None:
            self.ends: list[float] = []
            self.n_tokens = 0

        def __call__(self, input_ids: torch.Tensor, scores: object, **_: object) -> torch.Tensor:
            self.n_tokens += 1
            if self.n_tokens % _BLOCK == 0:
                self.ends.append(_now())
            return torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)

    torch.set_default_dtype(torch.bfloat16)
    with torch.device(DEVICE):
        model = library.LlamaForCausalLM(library.LlamaConfig(**_published(config)))
        prompt = torch.arange(1, 1 + _PROMPT)[None]
    model.eval()

    def generate() -> list[float]:
        clock = Clock()
        model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=_BLOCK + _TOKENS,
            do_sample=False,
            cache_implementation="static",
            eos_token_id=None,
            pad_token_id=0,
            stopping_criteria=library.StoppingCriteriaList([clock]),
        )
        return clock.ends

    generate()
    return lambda: _median_of_blocks(generate())


def exllamav2(config: ModelConfig, format_: str, directory: Path) -> Measure:
    """ExLlamaV2 on GPTQ weights of four bits in groups of 64, the head too, in `directory`."""
    sys.path.append(str(_SITE))
    library: Any = import_module("exllamav2")
    if format_ != "4bit":
        raise ValueError(f"exllamav2 is measured in 4bit, not in {format_}")
    _write_gptq(config, directory)
    options = library.ExLlamaV2Config(str(directory))
    options.max_seq_len = MAX_SEQ_LEN
    model = library.ExLlamaV2(options)
    cache = library.ExLlamaV2Cache(model, max_seq_len=MAX_SEQ_LEN, lazy=True)
    model.load_autosplit(cache)

    @torch.inference_mode()
    def generate(n_tokens: int) -> list[float]:
        cache.current_seq_len = 0
        token_id, ends = torch.ones((1, 1), dtype=torch.long), [_now()]
        for place in range(n_tokens):
            token_id = model.forward(token_id, cache)[:, -1].argmax(-1, keepdim=True).cpu()
            if (place + 1) % _BLOCK == 0:
                ends.append(_now())
        return ends

    generate(_BLOCK)
    return lambda: _median_of_blocks(generate(_TOKENS))


RIVALS: dict[str, Rival] = {
    "compiled": compiled,
    "transformers": transformers,
    "exllamav2": exllamav2,
}


def _now() -> float:
    synchronize()
    return time.perf_counter()


def _median_of_blocks(ends: list[float]) -> float:
    """Without the first block, in which a graph may have been recorded."""
    return median(after - before for before, after in pairwise(ends[1:])) / _BLOCK


def _published(config: ModelConfig) -> dict[str, object]:
    """The contents of config.json."""
    layer = config.layers[0]  # all layers are equal
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": config.dim,
        "intermediate_size": layer.mlp.hidden_dim,
        "num_hidden_layers": config.n_layers,
        "num_attention_heads": layer.attention.n_heads,
        "num_key_value_heads": layer.attention.n_kv_heads,
        "head_dim": layer.attention.head_dim,
        "vocab_size": config.vocab_size,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.ropes[0].theta,
        "tie_word_embeddings": config.tie_embeddings,
        "max_position_embeddings": config.max_seq_len,
        "hidden_act": "silu",
        "bos_token_id": 1,
        "eos_token_id": 2,
    }


def _write_gptq(config: ModelConfig, directory: Path) -> None:
    """config.json and random weights as GPTQ stores them, the head too."""
    from safetensors.torch import save_file

    from engine.checkpoint.tensors import expected_shapes

    directory.mkdir(parents=True, exist_ok=True)
    published = {**_published(config), "tie_word_embeddings": False, "torch_dtype": "float16"}
    published["quantization_config"] = {"quant_method": "gptq", "bits": 4, "group_size": 64}
    (directory / "config.json").write_text(json.dumps(published))
    tensors: dict[str, torch.Tensor] = {}
    with torch.device(DEVICE):
        for name, shape in expected_shapes(config).items():
            if len(shape) == 1:
                tensors[name] = torch.ones(shape, dtype=torch.float16)
            elif name.startswith("model.embed_tokens."):
                tensors[name] = torch.randn(shape, dtype=torch.float16)
            else:
                tensors |= _gptq_matrix(name.removesuffix(".weight"), *shape)
        if config.tie_embeddings:
            tensors |= _gptq_matrix("lm_head", config.vocab_size, config.dim)
    save_file({name: each.cpu() for name, each in tensors.items()}, directory / "model.safetensors")


def _gptq_matrix(name: str, n_out: int, n_in: int) -> dict[str, torch.Tensor]:
    """Without reordered columns, which would be slower."""

    def words(*shape: int) -> torch.Tensor:
        return torch.randint(-(2**31), 2**31, shape, dtype=torch.int32)

    n_groups = math.ceil(n_in / 64)
    return {
        f"{name}.qweight": words(n_in // 8, n_out),
        f"{name}.qzeros": words(n_groups, n_out // 8),
        f"{name}.scales": torch.full((n_groups, n_out), n_in**-0.5 / 4.6, dtype=torch.float16),
    }
