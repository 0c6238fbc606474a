"""Hugging Face config.json -> ModelConfig.

Owns the keys that all families share; `families/` has each family's own and `rope_keys.py` those of
the position embedding. Knows nothing of tensors. A value that would make the output silently wrong
(another activation, quantized weights) is refused here.
"""

from pathlib import Path

from ..errors import ModelLoadError
from ..files import JsonObject, shown, shown_name
from .config import ModelConfig
from .families.family import Family, Sizes
from .families.known import FAMILIES
from .limits import MAX_CONTEXT, MAX_HEADS, MAX_LAYERS, MAX_VOCAB, MAX_WIDTH
from .rope_keys import longest_context, rope_config

_DEFAULT_NORM_EPS = 1e-6  # of every family


def model_config(path: Path) -> ModelConfig:
    """Reads `path`/config.json. Raises ModelLoadError: file, key, value and what is allowed."""
    file = JsonObject.read(path / "config.json")
    architecture = _architecture(file)
    family = FAMILIES[architecture]
    _refuse_unsupported(file)
    dim = file.integer("hidden_size", low=1, high=MAX_WIDTH)
    n_layers = file.integer("num_hidden_layers", low=1, high=MAX_LAYERS)
    n_heads = file.integer("num_attention_heads", low=1, high=MAX_HEADS)
    n_kv_heads = _n_kv_heads(file, family, n_heads)
    head_dim = _head_dim(file, family, dim, n_heads)
    max_positions = file.integer(
        "max_position_embeddings", low=1, high=MAX_CONTEXT, default=family.max_positions
    )
    rope = rope_config(file, head_dim, max_positions)
    vocab_size = file.integer("vocab_size", low=1, high=MAX_VOCAB)
    bos_token_ids = file.token_ids("bos_token_id", vocab_size)
    sizes = Sizes(
        n_layers=n_layers,
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        head_dim=head_dim,
        hidden_dim=file.integer("intermediate_size", low=1, high=MAX_WIDTH),
    )
    return ModelConfig(
        architecture=architecture,
        dim=dim,
        vocab_size=vocab_size,
        norm_eps=file.number("rms_norm_eps", low=0.0, high=1.0, default=_DEFAULT_NORM_EPS),
        ropes=(rope,),
        layers=family.layers(file, sizes),
        tie_embeddings=file.boolean("tie_word_embeddings", default=False),
        max_seq_len=longest_context(rope, max_positions),
        eos_token_ids=file.token_ids("eos_token_id", vocab_size),
        bos_token_id=bos_token_ids[0] if bos_token_ids else None,
    )


def _architecture(file: JsonObject) -> str:
    names = file.strings("architectures")
    allowed = ", ".join(FAMILIES)
    if len(names) != 1:
        file.fail("architectures", names, f"a list of one of {allowed}")
    if names[0] not in FAMILIES:
        raise ModelLoadError(
            f"{file.where}: architectures: {shown_name(names[0])} is not supported; "
            f"allowed are {allowed}; choose a model of one of these families"
        )
    return names[0]


def _refuse_unsupported(file: JsonObject) -> None:
    if file.has("quantization_config"):
        method = shown(file.nested("quantization_config").values.get("quant_method", "unknown"))
        raise ModelLoadError(
            f"{file.where}: quantization_config: quantized weights are not supported (quant_method "
            f"{method}); allowed are F32, F16 and BF16; load the original model and quantize it "
            f"here, to 8bit, 6bit, 5bit or 4bit"
        )
    activation = file.string("hidden_act", default="silu")
    if activation != "silu":
        file.fail("hidden_act", activation, "'silu'")


def _n_kv_heads(file: JsonObject, family: Family, n_heads: int) -> int:
    # null means as many as heads; a missing key means the family's own default.
    default = n_heads
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
        file.fail("num_attention_heads", n_heads, f"a divisor of hidden_size {dim}")
    head_dim = file.integer("head_dim", low=2, high=MAX_WIDTH, default=default)
    if head_dim % 2:
        file.fail("head_dim", head_dim, "an even number")
    return head_dim
