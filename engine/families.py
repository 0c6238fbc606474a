"""Hugging Face config.json -> ModelConfig: the quirks of each family, as data.

Owns the long names and the defaults of the Llama family. Knows nothing of tensors. A value that
would make the decoder wrong in silence (another activation, another rope rule, quantized weights)
is refused here.
"""

from collections.abc import Callable
from pathlib import Path

from .config import LayerConfig, LinearScaling, Llama3Scaling, ModelConfig, RopeConfig
from .errors import ModelLoadError
from .json_file import JsonObject, shown_name

_MAX_LAYERS = 1024
_MAX_HEADS = 4096
_MAX_WIDTH = 2**20
_MAX_VOCAB = 2**24
_MAX_CONTEXT = 2**27
_DEFAULT_ROPE_THETA = 10000.0


def model_config(path: Path) -> ModelConfig:
    """Reads `path`/config.json. Raises ModelLoadError: file, key, value and what is allowed."""
    file = JsonObject.read(path / "config.json")
    architecture = _architecture(file)
    _refuse_unsupported(file)
    dim = file.integer("hidden_size", low=1, high=_MAX_WIDTH)
    n_layers = file.integer("num_hidden_layers", low=1, high=_MAX_LAYERS)
    n_heads = file.integer("num_attention_heads", low=1, high=_MAX_HEADS)
    n_kv_heads = file.integer("num_key_value_heads", low=1, high=n_heads, default=n_heads)
    if n_heads % n_kv_heads:
        file.fail("num_key_value_heads", n_kv_heads, f"a divisor of the {n_heads} attention heads")
    head_dim = _head_dim(file, dim, n_heads)
    max_seq_len = file.integer("max_position_embeddings", low=1, high=_MAX_CONTEXT)
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
        norm_eps=file.number("rms_norm_eps", low=0.0, high=1.0),
        rope=_rope(file, head_dim),
        layers=_FAMILIES[architecture](file, n_layers),
        tie_embeddings=file.boolean("tie_word_embeddings", default=False),
        max_seq_len=max_seq_len,
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


def _head_dim(file: JsonObject, dim: int, n_heads: int) -> int:
    if not file.has("head_dim") and dim % n_heads:
        file.fail("num_attention_heads", n_heads, f"a divisor of hidden_size {dim}")
    head_dim = file.integer("head_dim", low=2, high=_MAX_WIDTH, default=dim // n_heads)
    if head_dim % 2 or head_dim < 2:
        file.fail("head_dim", head_dim, "an even number")
    return head_dim


def _rope(file: JsonObject, head_dim: int) -> RopeConfig:
    """Both the old keys (rope_theta, rope_scaling) and the new one (rope_parameters)."""
    key = "rope_parameters" if file.has("rope_parameters") else "rope_scaling"
    rope = file.nested(key) if file.has(key) else JsonObject({}, f"{file.where}: {key}")
    holder = rope if rope.has("rope_theta") else file
    theta = holder.number("rope_theta", low=1.0, high=1e12, default=_DEFAULT_ROPE_THETA)
    for owner in (file, rope):
        partial = owner.number("partial_rotary_factor", low=0.0, high=1.0, default=1.0)
        if partial != 1.0:
            owner.fail("partial_rotary_factor", partial, "1")
    type_key = "rope_type" if rope.has("rope_type") else "type"
    rope_type = rope.string(type_key, default="default")
    return RopeConfig(theta, head_dim, _scaling(rope, type_key, rope_type))


def _scaling(
    rope: JsonObject, type_key: str, rope_type: str
) -> Llama3Scaling | LinearScaling | None:
    if rope_type == "default":
        return None
    if rope_type == "linear":
        return LinearScaling(rope.number("factor", low=1.0, high=1e6))
    if rope_type != "llama3":
        rope.fail(type_key, rope_type, "'default', 'linear' or 'llama3'")
    low = rope.number("low_freq_factor", low=1e-6, high=1e6)
    high = rope.number("high_freq_factor", low=1e-6, high=1e6)
    if high <= low:
        rope.fail("high_freq_factor", high, f"more than low_freq_factor {low:g}")
    return Llama3Scaling(
        factor=rope.number("factor", low=1.0, high=1e6),
        low_freq_factor=low,
        high_freq_factor=high,
        original_max_seq_len=rope.integer(
            "original_max_position_embeddings", low=1, high=_MAX_CONTEXT
        ),
    )


def _llama_layers(file: JsonObject, n_layers: int) -> tuple[LayerConfig, ...]:
    bias = file.boolean("attention_bias", default=False)
    mlp_bias = file.boolean("mlp_bias", default=False)
    return (LayerConfig(qkv_bias=bias, o_bias=bias, mlp_bias=mlp_bias),) * n_layers


def _mistral_layers(file: JsonObject, n_layers: int) -> tuple[LayerConfig, ...]:
    # null means full attention; a missing key means 4096, as in the first release.
    window = 0
    if "sliding_window" not in file.values or file.has("sliding_window"):
        window = file.integer("sliding_window", low=1, high=_MAX_CONTEXT, default=4096)
    return (LayerConfig(window=window),) * n_layers


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
    if not file.boolean("use_sliding_window", default=False):
        return [0] * n_layers
    window = file.integer("sliding_window", low=1, high=_MAX_CONTEXT, default=4096)
    if not file.has("layer_types"):
        first = file.integer("max_window_layers", low=0, high=_MAX_LAYERS, default=28)
        return [window if index >= first else 0 for index in range(n_layers)]
    kinds = file.strings("layer_types")
    allowed = {"full_attention": 0, "sliding_attention": window}
    if len(kinds) != n_layers or not allowed.keys() >= set(kinds):
        file.fail("layer_types", kinds, f"{n_layers} times one of {', '.join(allowed)}")
    return [allowed[kind] for kind in kinds]


_FAMILIES: dict[str, Callable[[JsonObject, int], tuple[LayerConfig, ...]]] = {
    "LlamaForCausalLM": _llama_layers,
    "MistralForCausalLM": _mistral_layers,
    "Qwen2ForCausalLM": _qwen2_layers,
    "Qwen3ForCausalLM": _qwen3_layers,
}
