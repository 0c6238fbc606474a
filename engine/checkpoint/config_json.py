"""Hugging Face config.json -> ModelConfig.

Owns the keys that all families share; `families/` has each family's own and `rope_keys.py` those of
the position embedding. Knows nothing of tensors. A value that would make the output silently wrong
(another activation, quantized weights) is refused here.
"""

from pathlib import Path
from typing import NoReturn

from ..errors import ModelLoadError
from ..files import JsonObject, shown, shown_name
from .activation import Activation
from .config import ModelConfig
from .families.family import Family, Sizes
from .families.known import FAMILIES
from .families.refusals import refused_keys
from .limits import MAX_CONTEXT, MAX_HEADS, MAX_LAYERS, MAX_VOCAB, MAX_WIDTH
from .nearest import Trial, nearest
from .rope_keys import longest_context
from .text_part import text_config
from .unknown_keys import unknown_keys

_ACTIVATIONS: dict[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu2": "relu2",
    "xielu": "xielu",
}
_LIST = "docs/models.md"
_QUANTIZATION = "quantization_config"
# What there are kernels for.
_ALONE = frozenset({"silu", "xielu"})  # a family with it has no other
_GATED, _PLAIN = frozenset({"silu", "gelu", "gelu_tanh"}), frozenset({"gelu", "gelu_tanh", "relu2"})


def model_config(path: Path) -> ModelConfig:
    """Reads `path`/config.json. Raises ModelLoadError: file, key, value and what is allowed."""
    return model_config_of(JsonObject.read(path / "config.json"))


def model_config_of(whole: JsonObject) -> ModelConfig:
    """What a config.json says. Raises ModelLoadError as `model_config` does."""
    in_blocks = _is_mxfp4(whole)
    file = text_config(whole)
    family = _family(file)
    in_blocks = in_blocks or _is_mxfp4(file)
    if in_blocks and not family.has_mxfp4:
        _refuse_quantized(whole if whole.has(_QUANTIZATION) else file)
    for key, value, allowed in refused_keys(file, family.reads):
        file.fail(key, value, allowed)
    return _read(file, family, in_blocks=in_blocks)


def _read(file: JsonObject, family: Family, *, in_blocks: bool = False) -> ModelConfig:
    sizes = _sizes(file, family)
    max_positions = file.integer(
        family.key("max_position_embeddings"),
        low=1,
        high=MAX_CONTEXT,
        default=family.max_positions,
    )
    ropes = family.ropes(file, sizes.head_dim, max_positions, family.rope)
    vocab_size = _size(file, family, "vocab_size", high=MAX_VOCAB)
    bos_token_ids = file.token_ids("bos_token_id", vocab_size)
    return ModelConfig(
        architecture=family.architecture,
        dim=sizes.dim,
        vocab_size=vocab_size,
        norm_eps=file.number(family.eps_key, low=0.0, high=1.0, default=family.norm_eps),
        ropes=ropes,
        layers=family.layers(file, sizes),
        tie_embeddings=file.boolean("tie_word_embeddings", default=family.tied),
        max_seq_len=max([max_positions, *(longest_context(rope, max_positions) for rope in ropes)]),
        eos_token_ids=file.token_ids("eos_token_id", vocab_size),
        bos_token_id=bos_token_ids[0] if bos_token_ids else None,
        centered_norms=family.centered_norms,
        norm_bias=family.norm_bias,
        experts_in_blocks=in_blocks,
        ends=family.ends(file, sizes.dim),
    )


def _family(file: JsonObject) -> Family:
    names = file.strings("architectures")
    if len(names) != 1:
        file.fail("architectures", names, f"a list of one of those that {_LIST} lists")
    if names[0] not in FAMILIES:
        found = nearest(names[0], FAMILIES, lambda name: _tried(file, name))
        raise ModelLoadError(
            f"{file.where}: architectures: {shown_name(names[0])} is not supported; {found}; "
            f"choose a model of a family that {_LIST} lists"
        )
    return FAMILIES[names[0]]


def _tried(file: JsonObject, name: str) -> Trial:
    """What a family of this name would not know of it."""
    family = FAMILIES[name]
    refused = [key for key, _, _ in refused_keys(file, family.reads)]
    others = unknown_keys(file, lambda watched: _read(watched, family))
    return list(dict.fromkeys([*refused, *(others or ())])), others is not None


def _is_mxfp4(file: JsonObject) -> bool:
    """Whether there are blocks of MXFP4, which some families have. Raises ModelLoadError for other
    quantized weights.
    """
    if not file.has(_QUANTIZATION):
        return False
    if file.nested(_QUANTIZATION).values.get("quant_method") != "mxfp4":
        _refuse_quantized(file)
    return True


def _refuse_quantized(file: JsonObject) -> NoReturn:
    method = shown(file.nested(_QUANTIZATION).values.get("quant_method", "unknown"))
    raise ModelLoadError(
        f"{file.where}: {_QUANTIZATION}: quantized weights are not supported (quant_method "
        f"{method}); allowed are F32, F16 and BF16; load the original model and quantize it "
        f"here, to 8bit, 6bit, 5bit or 4bit"
    )


def _sizes(file: JsonObject, family: Family) -> Sizes:
    dim = _size(file, family, "hidden_size", high=MAX_WIDTH)
    n_heads = _size(file, family, "num_attention_heads", high=MAX_HEADS)
    return Sizes(
        dim=dim,
        n_layers=_size(file, family, "num_hidden_layers", high=MAX_LAYERS),
        n_heads=n_heads,
        n_kv_heads=_n_kv_heads(file, family, n_heads),
        head_dim=_head_dim(file, family, dim, n_heads),
        hidden_dim=_hidden_dim(file, family, dim),
        activation=_activation(file, family),
    )


def _size(file: JsonObject, family: Family, name: str, *, high: int) -> int:
    default = family.sizes.get(name)
    return file.integer(family.key(name), low=1, high=high, default=default)


def _hidden_dim(file: JsonObject, family: Family, dim: int) -> int:
    key = family.key("intermediate_size")
    default = family.sizes.get("intermediate_size")
    if family.hidden_per_dim:
        default = family.hidden_per_dim * dim
    return file.integer(key, low=1, high=MAX_WIDTH, default=default)


def _activation(file: JsonObject, family: Family) -> Activation:
    key = family.activation_key
    name = file.string(key, default=family.activation)
    kernels = _GATED if family.gated else _PLAIN
    allowed = [each for each, function in _ACTIVATIONS.items() if function in kernels]
    if family.activation in _ALONE:
        allowed = [family.activation]
    if name not in allowed:
        file.fail(key, name, " or ".join(f"'{each}'" for each in allowed))
    return _ACTIVATIONS[name]


def _n_kv_heads(file: JsonObject, family: Family, n_heads: int) -> int:
    # null means as many as heads; a missing key means the family's own default.
    default = n_heads
    if not family.has_groups:
        return n_heads
    if "num_key_value_heads" not in file.values and family.n_kv_heads is not None:
        default = family.n_kv_heads
        if n_heads % default:
            raise ModelLoadError(
                f"{file.where}: num_key_value_heads: missing, and the default of this "
                f"architecture, {default}, does not divide the {n_heads} attention heads"
            )
    n_kv_heads = file.integer("num_key_value_heads", low=1, high=n_heads, default=default)
    if n_heads % n_kv_heads:
        file.fail("num_key_value_heads", n_kv_heads, f"a divisor of the {n_heads} attention heads")
    return n_kv_heads


def _head_dim(file: JsonObject, family: Family, dim: int, n_heads: int) -> int:
    default = family.head_dim or dim // n_heads
    if not file.has("head_dim") and family.head_dim is None and dim % n_heads:
        file.fail(family.key("num_attention_heads"), n_heads, f"a divisor of hidden_size {dim}")
    head_dim = file.integer("head_dim", low=2, high=MAX_WIDTH, default=default)
    if head_dim % 2:
        file.fail("head_dim", head_dim, "an even number")
    return head_dim
