"""Random tiny models of every family and small tokenizers, saved as Hugging Face directories.

Built by transformers and tokenizers, so that these libraries are the oracle of the tests.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from tests.support.mxfp4_models import save_in_blocks

VOCAB_SIZE = 320
TEMPLATE = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}<|assistant|>"
SPECIALS = ("<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>")
TEXTS = (
    "Once upon a time there was a little otter who loved the river.",
    "The river was cold and the otter was warm. \u00e9\u00e8 na\u00efve \u2014 \u4f60\u597d",
)


@dataclass(frozen=True)
class Family:
    """One kind of random model: the transformers class and its configuration."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    in_blocks: bool = False
    """Whether the experts are stored in blocks of MXFP4."""
    saved_as: str = ""
    """The architecture in config.json, where transformers writes another one."""


# Where they are not called after the family.
_CLASSES = {
    "GPT2": "GPT2LMHeadModel",
    "Gemma3Text": "Gemma3ForCausalLM",
    "Gemma4Text": "Gemma4ForCausalLM",
    "Gemma4UnifiedText": "Gemma4UnifiedForCausalLM",
    "Qwen3_5Text": "Qwen3_5ForCausalLM",
    "Qwen3_5MoeText": "Qwen3_5MoeForCausalLM",
    "InternLM3": "LlamaForCausalLM",
}
# As small as all families can be.
SMALL: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN_ROPE = {
    "rope_type": "yarn",
    "rope_theta": 500.0,
    "factor": 4.0,
    "original_max_position_embeddings": 32,
}
# Longer than the tests' models turn within their original context: both borders lie among the
# frequencies.
YARN_BETAS = {"beta_fast": 4.0, "beta_slow": 0.25}
DYNAMIC_ROPE = {"rope_type": "dynamic", "rope_theta": 500.0, "factor": 3.0}
LONG_ROPE = {
    "rope_type": "longrope",
    "rope_theta": 500.0,
    "original_max_position_embeddings": 32,
    "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7],
    "long_factor": [1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 9.0],
}
FAMILIES = {
    "llama": Family("Llama"),
    "llama-tied": Family("Llama", {"tie_word_embeddings": True}),
    "llama-mha": Family("Llama", {"num_key_value_heads": 4}),
    "llama-mqa": Family("Llama", {"num_key_value_heads": 1}),
    "llama-biases": Family("Llama", {"attention_bias": True, "mlp_bias": True}),
    "llama-head-dim": Family("Llama", {"head_dim": 24}),
    "llama3-rope": Family("Llama", {"rope_parameters": LLAMA3_ROPE}),
    "llama-linear-rope": Family(
        "Llama",
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.5}},
    ),
    "llama-yarn": Family("Llama", {"rope_parameters": YARN_ROPE}),
    "qwen2-yarn": Family("Qwen2", {"rope_parameters": {**YARN_ROPE, **YARN_BETAS}}),
    "qwen3-yarn": Family(
        "Qwen3",
        {
            "head_dim": 24,
            "rope_parameters": {
                **YARN_ROPE,
                **YARN_BETAS,
                "mscale": 0.5,
                "mscale_all_dim": 2.0,
                "truncate": False,
            },
        },
    ),
    "llama-longrope": Family("Llama", {"rope_parameters": LONG_ROPE}),
    "mistral": Family("Mistral", {"sliding_window": None}),
    "mistral-window": Family("Mistral", {"sliding_window": 12}),
    "qwen2": Family("Qwen2"),
    "qwen2-window": Family(
        "Qwen2", {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 1}
    ),
    "qwen2-layer-types": Family(
        "Qwen2",
        {
            "use_sliding_window": True,
            "sliding_window": 9,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
    ),
    "qwen3": Family("Qwen3", {"head_dim": 24, "tie_word_embeddings": True}),
    "qwen3-bias": Family("Qwen3", {"head_dim": 16, "attention_bias": True}),
    "qwen3-window": Family(
        "Qwen3", {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 1}
    ),
}


SIZES: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "bos_token_id": 0,
    "eos_token_id": 4,
    "pad_token_id": None,
}


def architecture_of(family: Family) -> str:
    """Its name in config.json."""
    return family.saved_as or class_of(family)


def class_of(family: Family) -> str:
    return _CLASSES.get(family.name, f"{family.name}ForCausalLM")


def name_architecture(path: Path, family: Family) -> None:
    """In the config.json of a saved model."""
    if family.saved_as:
        file = path / "config.json"
        values = {**json.loads(file.read_text("utf-8")), "architectures": [family.saved_as]}
        file.write_text(json.dumps(values), "utf-8")


def oracle(family: Family, *, seed: int = 0, **options: Any) -> Any:
    """A random float32 transformers model in evaluation mode."""
    # Imported here, because the tokenizers are also needed without transformers.
    import transformers

    config_class = getattr(transformers, f"{family.name}Config")
    sizes = {**SIZES, **family.options, **options}
    if family.name == "Gemma4Text":
        sizes["vocab_size_per_layer_input"] = sizes["vocab_size"]
    config = config_class(**sizes)
    config._attn_implementation = "eager"
    torch.manual_seed(seed)
    model = getattr(transformers, class_of(family))(config)
    model.eval()
    fill_randomly(model)
    if family.name.startswith("Gemma4"):
        _prepare_gemma4(model)
    if family.name == "Phimoe":
        _prepare_phimoe(model)
    return model


def scale_queries(text: Any) -> None:
    """Gemma 4 does not scale products: norms that were trained do."""
    with torch.no_grad():
        for layer in text.layers:
            layer.self_attn.q_norm.weight.mul_(layer.self_attn.head_dim**-0.5)


def _prepare_gemma4(model: Any) -> None:
    """Its step that leaves out rows nobody asks for fails in models without embeddings of each
    layer; here all rows are asked for.
    """
    scale_queries(model.model)
    model.model._maybe_slice_kv_shared_inputs = lambda *inputs, **_: inputs[:4]


def _prepare_phimoe(model: Any) -> None:
    """transformers does not tell its frequencies how long the text is, so it would never take those
    of long ones.
    """
    rope = model.model.rotary_emb
    frequencies, length = rope.rope_init_fn, model.config.max_position_embeddings
    if rope.rope_type != "default":
        rope.rope_init_fn = lambda config, **_: frequencies(config, seq_len=length)


def fill_randomly(model: Any) -> None:
    """New weights for a model of transformers."""
    with torch.no_grad():
        # The usual initialisation gives nearly uniform logits and neutral norms and biases, which
        # would hide mistakes.
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.12)
            if parameter.ndim == 1:
                parameter.add_(1.0)
        for name, buffer in model.named_buffers():
            if name.endswith("layer_scalar"):  # of Gemma 4, stored like a weight
                buffer.mul_(0.8)
            if name.endswith("expert_bias"):  # of LFM 2 MoE, likewise
                buffer.copy_(torch.randn_like(buffer) * 0.12)


def save_model(
    path: Path,
    family: Family | str = "llama",
    *,
    seed: int = 0,
    shards: bool = False,
    **options: Any,
) -> Any:
    """Writes a random model, the byte-level tokenizer and the template; returns the oracle."""
    chosen = FAMILIES[family] if isinstance(family, str) else family
    model = oracle(chosen, seed=seed, **options)
    if chosen.in_blocks:
        save_in_blocks(path, model)
    else:
        model.save_pretrained(path, max_shard_size="60KB" if shards else "5GB")
    name_architecture(path, chosen)
    save_tokenizer(path, byte_level_tokenizer())
    return model


def save_tokenizer(path: Path, tokenizer: Tokenizer) -> None:
    """tokenizer.json, tokenizer_config.json and chat_template.jinja."""
    tokenizer.save(str(path / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|endoftext|>",
        "eos_token": "<|end|>",
    }
    (path / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    (path / "chat_template.jinja").write_text(TEMPLATE, "utf-8")


def byte_level_tokenizer() -> Tokenizer:
    """Byte-level BPE as in GPT-2, with the bundled model's special tokens; at most 320 ids."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=[AddedToken(text, special=True) for text in SPECIALS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer


def gemma_tokenizer() -> Tokenizer:
    """BPE with byte fallback as in Gemma 4: merges of its own, also of newlines, and no space
    before a text.
    """
    vocabulary: dict[str, int] = {"<pad>": 0, "</s>": 1, "<s>": 2, "<unk>": 3}
    pieces = [f"<0x{byte:02X}>" for byte in range(256)]
    pieces += ["\n", "\n\n", *list("\u2581abcdefghilnoprstuvw"), "\u2581\u2581", "he", "\u2581the"]
    for piece in [*pieces, "th", "er", "ver", "\u2581t", "\u2581w", "\u2581wa"]:
        vocabulary[piece] = len(vocabulary)
    merges = [("\n", "\n"), ("\u2581", "\u2581"), ("\u2581", "t"), ("h", "e"), ("e", "r")]
    merges += [("\u2581t", "he"), ("v", "er"), ("\u2581", "w"), ("\u2581w", "a"), ("t", "h")]
    tokenizer = Tokenizer(
        models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    specials = ("<pad>", "</s>", "<s>", "<unk>")
    tokenizer.add_special_tokens(
        [AddedToken(text, special=True, normalized=False) for text in specials]
    )
    return tokenizer


def sentencepiece_tokenizer() -> Tokenizer:
    """BPE with byte fallback as in Llama 2: a space before each text, and BOS by post-processor.

    Its merges can build "</s>" from plain text, as real vocabularies may.
    """
    vocabulary: dict[str, int] = {"<unk>": 0, "<s>": 1, "</s>": 2}
    pieces = [f"<0x{byte:02X}>" for byte in range(256)]
    pieces += [*list("▁abcdefghilnoprstuvwxyz</>"), "▁h", "he", "</", "</s", "ll"]
    for piece in pieces:
        vocabulary[piece] = len(vocabulary)
    merges = [("\u2581", "h"), ("h", "e"), ("<", "/"), ("</", "s"), ("</s", ">"), ("l", "l")]
    tokenizer = Tokenizer(
        models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("\u2581", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer.add_special_tokens(
        [AddedToken(text, special=True, normalized=False) for text in ("<unk>", "<s>", "</s>")]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 1)]
    )
    return tokenizer
