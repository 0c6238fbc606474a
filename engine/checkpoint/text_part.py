"""The text model inside a checkpoint that has more: towers for images or sound.

Owns where config.json describes it, and how its tensors are called then. Knows no family.
"""

from collections.abc import Mapping
from dataclasses import replace

from ..files import JsonObject
from ..stored_tensor import StoredTensor
from .stored import Checkpoint

# By architecture: what of it each kind of text model is.
WRAPPERS: Mapping[str, Mapping[str, str]] = {
    "Mistral3ForConditionalGeneration": {
        "mistral": "MistralForCausalLM",
        "ministral3": "Ministral3ForCausalLM",
    },
    "Gemma3ForConditionalGeneration": {"gemma3_text": "Gemma3ForCausalLM"},
    "Gemma4ForConditionalGeneration": {"gemma4_text": "Gemma4ForCausalLM"},
    "Gemma4UnifiedForConditionalGeneration": {"gemma4_unified_text": "Gemma4UnifiedForCausalLM"},
    "Qwen3_5ForConditionalGeneration": {"qwen3_5_text": "Qwen3_5ForCausalLM"},
    "Qwen3_5MoeForConditionalGeneration": {"qwen3_5_moe_text": "Qwen3_5MoeForCausalLM"},
}
# What holds for the text model too if it is said outside its description.
_SHARED = ("eos_token_id", "bos_token_id", "tie_word_embeddings")
# Prefixes of names, old and new, and what stands for them in a text model.
_PREFIXES = {
    "language_model.model.": "model.",
    "language_model.lm_head.": "lm_head.",
    "model.language_model.": "model.",
}


def text_config(file: JsonObject) -> JsonObject:
    """The description of the text model, as if it stood by itself; `file` itself if it does.

    Raises ModelLoadError for a kind of text model that is not known inside another.
    """
    match file.values.get("architectures"):
        case [str(name)] if name in WRAPPERS:
            kinds = WRAPPERS[name]
        case _:
            return file
    text = file.nested("text_config")
    kind = text.string("model_type", default=next(iter(kinds)))
    if kind not in kinds:
        text.fail("model_type", kind, " or ".join(f"'{each}'" for each in kinds))
    shared = {key: file.values[key] for key in _SHARED if file.has(key)}
    return JsonObject({**text.values, **shared, "architectures": [kinds[kind]]}, text.where)


def text_tensors(checkpoint: Checkpoint) -> tuple[Checkpoint, list[str]]:
    """The tensors of the text model under the names that they have in one by itself, and what else
    there is, such as `vision_tower`. A text model by itself stays as it is.
    """
    tensors = checkpoint.tensors
    if not any(name.startswith(tuple(_PREFIXES)) for name in tensors):
        return checkpoint, []
    found: dict[str, StoredTensor] = {}
    left_out: dict[str, None] = {}
    for name, tensor in tensors.items():
        for prefix, own in _PREFIXES.items():
            if name.startswith(prefix):
                found[own + name.removeprefix(prefix)] = tensor
                break
        else:
            if name.startswith("lm_head."):
                found[name] = tensor
            else:
                left_out[name.removeprefix("model.").split(".")[0]] = None
    return replace(checkpoint, tensors=found), list(left_out)
