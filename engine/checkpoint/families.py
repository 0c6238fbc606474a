"""Hugging Face config.json -> ModelConfig: the quirks of each family, as data.

Owns the long names and what a family means by leaving one out: the same as in transformers. Knows
nothing of tensors; the rope keys live in `rope_keys.py`. A value that
would make the decoder wrong in silence (another activation, quantized weights) is refused here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..errors import ModelLoadError
from ..files import JsonObject, shown_name
from .config import LayerConfig, ModelConfig
from .rope_keys import MAX_CONTEXT, longest_context, rope_config

_MAX_LAYERS = 1024
_MAX_HEADS = 4096
_MAX_WIDTH = 2**20
_MAX_VOCAB = 2**24
_DEFAULT_NORM_EPS = 1e-6  # of every family
_DEFAULT_WINDOW = 4096


def model_config(path: Path) -> ModelConfig:
    """Reads `path`/config.json. Raises ModelLoadError: file, key, value and what is allowed."""
    file = JsonObject.read(path / "config.json")
    architecture = _architecture(file)
    family = _FAMILIES[architecture]
    _refuse_unsupported(file)
    dim = file.integer("hidden_size", low=1, high=_MAX_WIDTH)
    n_layers = file.integer("num_hidden_layers", low=1, high=_MAX_LAYERS)
    n_heads = file.integer("num_attention_heads", low=1, high=_MAX_HEADS)
    n_kv_heads = _n_kv_heads(file, family, n_heads)
    head_dim = _head_dim(file, family, dim, n_heads)
    max_positions = file.integer(
        "max_position_embeddings", low=1, high=MAX_CONTEXT, default=family.max_positions
    )
    rope = rope_config(file, head_dim, max_positions)
    vocab_size = file.integer("vocab_size", low=1, high=_MAX_VOCAB)
    bos_token_ids = file.token_ids("bos_token_id", vocab_size)
    return ModelConfig(
        architecture=architecture,
        n_layers=n_layers,
        dim=dim,
        hidden_dim=file.integer("intermediate_size", low=1, high=_MAX_WIDTH),
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        head_dim=head_dim,
        vocab_size=vocab_size,
        norm_eps=file.number("rms_norm_eps", low=0.0, high=1.0, default=_DEFAULT_NORM_EPS),
        rope=rope,
        layers=family.layers(file, n_layers),
        tie_embeddings=file.boolean("tie_word_embeddings", default=False),
        max_seq_len=longest_context(rope, max_positions),
        eos_token_ids=file.token_ids("eos_token_id", vocab_size),
        bos_token_id=bos_token_ids[0] if bos_token_ids else None,
    )


def _architecture(file: JsonObject) -> str:
    names = file.strings("architectures")
    allowed = ", ".join(_FAMILIES)
    if len(names) != 1:
        file.fail("architectures", names, f"a list of one of {allowed}")
    if names[0] not in _FAMILIES:
        raise ModelLoadError(
            f"{file.where}: architectures: {shown_name(names[0])} is not supported; "
            f"allowed are {allowed}"
        )
    return names[0]


def _refuse_unsupported(file: JsonObject) -> None:
    if file.has("quantization_config"):
        raise ModelLoadError(
            f"{file.where}: quantization_config: quantized weights are not supported; "
            f"allowed are F32, F16 and BF16"
        )
    activation = file.string("hidden_act", default="silu")
    if activation != "silu":
        file.fail("hidden_act", activation, "'silu'")


def _n_kv_heads(file: JsonObject, family: "_Family", n_heads: int) -> int:
    # null means as many as there are heads; a missing key has a meaning of its own.
    default = n_heads
    if "num_key_value_heads" not in file.values and family.n_kv_heads is not None:
        default = family.n_kv_heads
        if n_heads % default:
            raise ModelLoadError(
                f"{file.where}: num_key_value_heads: missing, and the {default} that this "
                f"architecture has without it do not divide the {n_heads} attention heads"
            )
    n_kv_heads = file.integer("num_key_value_heads", low=1, high=n_heads, default=default)
    if n_heads % n_kv_heads:
        file.fail("num_key_value_heads", n_kv_heads, f"a divisor of the {n_heads} attention heads")
    return n_kv_heads


def _head_dim(file: JsonObject, family: "_Family", dim: int, n_heads: int) -> int:
    default = family.head_dim or dim // n_heads
    if not file.has("head_dim") and family.head_dim is None and dim % n_heads:
        file.fail("num_attention_heads", n_heads, f"a divisor of hidden_size {dim}")
    head_dim = file.integer("head_dim", low=2, high=_MAX_WIDTH, default=default)
    if head_dim % 2:
        file.fail("head_dim", head_dim, "an even number")
    return head_dim


def _llama_layers(file: JsonObject, n_layers: int) -> tuple[LayerConfig, ...]:
    bias = file.boolean("attention_bias", default=False)
    mlp_bias = file.boolean("mlp_bias", default=False)
    return (LayerConfig(qkv_bias=bias, o_bias=bias, mlp_bias=mlp_bias),) * n_layers


def _mistral_layers(file: JsonObject, n_layers: int) -> tuple[LayerConfig, ...]:
    window = 0
    if _has_window(file):
        window = file.integer("sliding_window", low=1, high=MAX_CONTEXT, default=_DEFAULT_WINDOW)
    return (LayerConfig(window=window),) * n_layers


def _has_window(file: JsonObject) -> bool:
    """null means full attention; a missing key means 4096."""
    return "sliding_window" not in file.values or file.has("sliding_window")


def _qwen2_layers(file: JsonObject, n_layers: int) -> tuple[LayerConfig, ...]:
    return tuple(
        LayerConfig(qkv_bias=True, window=window) for window in _qwen_windows(file, n_layers)
    )


def _qwen3_layers(file: JsonObject, n_layers: int) -> tuple[LayerConfig, ...]:
    bias = file.boolean("attention_bias", default=False)
    return tuple(
        LayerConfig(qkv_bias=bias, o_bias=bias, qk_norm=True, window=window)
        for window in _qwen_windows(file, n_layers)
    )


def _qwen_windows(file: JsonObject, n_layers: int) -> list[int]:
    """Per layer: `layer_types` where given, else the layers from `max_window_layers` on slide."""
    if not (file.boolean("use_sliding_window", default=False) and _has_window(file)):
        return [0] * n_layers
    window = file.integer("sliding_window", low=1, high=MAX_CONTEXT, default=_DEFAULT_WINDOW)
    if not file.has("layer_types"):
        first = file.integer("max_window_layers", low=0, high=_MAX_LAYERS, default=28)
        return [window if index >= first else 0 for index in range(n_layers)]
    kinds = file.strings("layer_types")
    allowed = {"full_attention": 0, "sliding_attention": window}
    if len(kinds) != n_layers or not allowed.keys() >= set(kinds):
        file.fail("layer_types", kinds, f"{n_layers} times one of {', '.join(allowed)}")
    return [allowed[kind] for kind in kinds]


@dataclass(frozen=True, slots=True)
class _Family:
    """One architecture; the other fields are what a missing key of config.json means.

    `n_kv_heads` None: as many as heads. `head_dim` None: what hidden_size leaves to each head.
    """

    layers: Callable[[JsonObject, int], tuple[LayerConfig, ...]]
    max_positions: int
    n_kv_heads: int | None = None
    head_dim: int | None = None


_FAMILIES = {
    "LlamaForCausalLM": _Family(_llama_layers, max_positions=2048),
    "MistralForCausalLM": _Family(_mistral_layers, max_positions=131_072, n_kv_heads=8),
    "Qwen2ForCausalLM": _Family(_qwen2_layers, max_positions=32_768, n_kv_heads=32),
    "Qwen3ForCausalLM": _Family(_qwen3_layers, max_positions=32_768, n_kv_heads=32, head_dim=128),
}
