"""Makes tests/engine/gguf/pairs: tiny GGUF files, each with the logits that transformers computes.

    python scripts/gguf_pairs.py [--llama-cpp SOURCES] [--quantize LLAMA_QUANTIZE]

The models are random ones of transformers. llama.cpp's own converter writes the files: its sources
are those in the sdist of llama-cpp-python, which pip downloads unless `--llama-cpp` names them. The
files of quantised types are made by llama-quantize; without it they stay as they are. To build it,
in the sources:

    cmake -B build -DCMAKE_BUILD_TYPE=Release && cmake --build build --target llama-quantize

The oracle of a quantised file is transformers with the weights that the `gguf` package decodes.
Needs `pip install 'gguf>=0.19' sentencepiece` besides what the tests need.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import torch
from tokenizers import pre_tokenizers
from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

from tests.support.family_models import GGUF_FAMILIES  # noqa: E402
from tests.support.gguf_weights import decoded  # noqa: E402
from tests.support.mxfp4_models import save_in_blocks  # noqa: E402
from tests.support.predictor_models import Predictor, add_predictor  # noqa: E402
from tests.support.tiny_models import (  # noqa: E402
    LLAMA3_ROPE,
    TEMPLATE,
    Family,
    byte_level_tokenizer,
    gemma_tokenizer,
    name_architecture,
    oracle,
    sentencepiece_tokenizer,
)

PAIRS = ROOT / "tests" / "engine" / "gguf" / "pairs"
_SDIST = "llama-cpp-python==0.3.36"
_PATTERNS = {"qwen2": PRETOKENIZE_REGEX, "gpt-4o": GGUF_PRE_TOKENIZER_SPLITS["gpt-4o"]}
_N_TOKENS, _N_KEPT = 48, 4  # of the prompt, and rows of logits that are kept: the last ones
# Texts whose ids are kept, as tokenizer.json gives them without BOS.
_TEXTS = (
    "Once upon a time there was a little otter.",
    " two  spaces, 12345 digits\n\n\tand a tab",
    "na\u00efve \u4f60\u597d \U0001f680 we'll SHE'LL \u0301",
)
# The converter knows a pre-tokenizer by the ids that its public tokenizer gives a probe. A small
# tokenizer gives other ids, so the name of its pre-tokenizer is put in place of the look-up.
_CONVERT = """
import sys
sources, pre, *sys.argv[1:] = sys.argv[1:]
sys.path.insert(0, sources)
import convert_hf_to_gguf
from conversion.base import TextModel
TextModel.get_vocab_base_pre = lambda self, tokenizer: pre
if pre != "default":
    find = convert_hf_to_gguf.get_model_class
    def with_vocabulary(*args, **kwargs):
        found = find(*args, **kwargs)
        found.set_vocab = TextModel._set_vocab_gpt2  # some classes ask for a file of SentencePiece
        begin = found.set_gguf_parameters
        def with_old_key(self):
            partial = self.rope_parameters.get("partial_rotary_factor", 1.0)
            self.hparams = {"rotary_pct": partial, **self.hparams}
            begin(self)
        found.set_gguf_parameters = with_old_key
        return found
    convert_hf_to_gguf.get_model_class = with_vocabulary
convert_hf_to_gguf.main()
"""


@dataclass(frozen=True)
class Pair:
    """A random model and the type that its matrices are converted to."""

    name: str
    family: Family
    stored: str  # f32 or bf16
    tokenizer: str  # spm, gemma4, gpt-2, qwen2 or gpt-4o
    quantised: dict[str, Sequence[str]] = field(default_factory=dict)
    """The arguments of llama-quantize for each file; the converted one is then not kept."""
    predicts: bool = False
    """Whether there is a block that predicts one token more."""
    own_tables: bool = False
    """Whether that block has an embedding and a head of its own."""


_TIED = {"tie_word_embeddings": True}
_TWO = {"num_hidden_layers": 2, "intermediate_size": 64}
_ONE = {"num_hidden_layers": 1, "intermediate_size": 64}
# A row of 96 or 64 columns has no block of 256, as one of 576 has none: those types fall back.
_ODD = {
    "hidden_size": 96,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    **_ONE,
    **_TIED,
}
_WHOLE = _ODD | {"hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 256}
_NEMO = {"head_dim": 24, "sliding_window": None}  # heads that do not add up to the model's width
_ROPE = LLAMA3_ROPE | {"rope_theta": 10000.0}

ALL = (
    Pair("llama-f32", Family("Llama", _ONE | _TIED), "f32", "spm"),
    Pair("llama-bf16", Family("Llama", _ONE), "bf16", "spm"),
    Pair(
        "llama3-bf16", Family("Llama", _ONE | _TIED | {"rope_parameters": _ROPE}), "bf16", "gpt-2"
    ),
    Pair("mistral-bf16", Family("Mistral", _ONE | _TIED | _NEMO), "bf16", "spm"),
    Pair("qwen2-bf16", Family("Qwen2", _TWO | _TIED), "bf16", "qwen2"),
    Pair("qwen3-bf16", Family("Qwen3", _ONE | _TIED | {"head_dim": 24}), "bf16", "qwen2"),
    Pair(
        "odd",
        Family("Llama", _ODD),
        "f32",
        "gpt-2",
        quantised={
            **{each: [each] for each in ("Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1")},
            "Q4_K_M": ["Q4_K_M"],
            "mixed": [
                *("--tensor-type", "attn_q=q8_0", "--tensor-type", "attn_k=q4_0"),
                *("--tensor-type", "attn_v=f16", "--tensor-type", "attn_output=q5_1"),
                *("--tensor-type", "ffn_gate=mxfp4", "--tensor-type", "ffn_up=mxfp4"),
                *("--tensor-type", "ffn_down=iq4_nl", "Q8_0"),
            ],
        },
    ),
    Pair(
        "whole",
        Family("Llama", _WHOLE),
        "f32",
        "gpt-2",
        quantised={
            "Q4_K_M": ["Q4_K_M"],
            "mixed": [
                *("--tensor-type", "attn_q=q3_k", "--tensor-type", "attn_k=q5_k"),
                *("--tensor-type", "attn_v=q2_k", "--tensor-type", "attn_output=iq4_xs"),
                *("--tensor-type", "ffn_gate=q5_k", "--tensor-type", "ffn_up=q4_k"),
                *("--tensor-type", "ffn_down=q6_k", "Q4_K_S"),
            ],
        },
    ),
    *(
        Pair(name, family, "bf16", "gpt-4o")
        if family.in_blocks
        else Pair(
            f"{name}-bf16", family, "bf16", "gemma4" if name.startswith("gemma4") else "gpt-2"
        )
        for name, family in GGUF_FAMILIES.items()
    ),
    *(
        Pair(
            f"{name}-mtp-bf16",
            GGUF_FAMILIES[name],
            "bf16",
            "gpt-2",
            predicts=True,
            own_tables=name == "glm4moe",
        )
        for name in ("qwen35", "qwen35moe", "qwen3next", "glm4moe")
    ),
)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--llama-cpp", type=Path, metavar="SOURCES")
    parser.add_argument("--quantize", type=Path, metavar="LLAMA_QUANTIZE")
    parser.add_argument("--only", default="", metavar="TEXT", help="pairs whose name contains it")
    args = parser.parse_args(arguments)
    PAIRS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        sources = args.llama_cpp or unpacked(work)
        for pair in ALL:
            if args.only in pair.name and (not pair.quantised or args.quantize):
                make(pair, sources, args.quantize, work / pair.name)
    kinds = ("spm", "gemma4", "gpt-2", "qwen2", "gpt-4o")
    ids = {each: _ids(tokenizer_of(each)) for each in kinds}
    tokens = {pair.name: ids[pair.tokenizer] for pair in ALL}
    (PAIRS / "tokens.json").write_text(json.dumps(tokens, indent=1) + "\n", "utf-8")
    print(f"{sum(file.stat().st_size for file in PAIRS.iterdir()) / 1e6:.2f} MB in {PAIRS}")


def unpacked(work: Path) -> Path:
    """The sources of llama.cpp from the sdist."""
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:"]
    subprocess.run([*pip, "--dest", str(work), _SDIST], check=True)
    (archive,) = work.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(work, filter="data")
    (sources,) = work.glob("*/vendor/llama.cpp")
    return sources


def make(pair: Pair, sources: Path, quantize: Path | None, work: Path) -> None:
    """Writes the files of a pair into PAIRS."""
    tokenizer = tokenizer_of(pair.tokenizer)
    model = oracle(pair.family, vocab_size=tokenizer.get_vocab_size(), **_ids_of_ends(tokenizer))
    predictor = None
    if pair.predicts:
        predictor = Predictor(model, pair.family, own_tables=pair.own_tables)
    if pair.stored == "bf16":
        # Not the buffers: rope's frequencies stay float32.
        for parameter in [*model.parameters(), *(predictor.parameters() if predictor else [])]:
            parameter.data = parameter.data.bfloat16().float()
    if pair.family.in_blocks:
        work.mkdir()
        save_in_blocks(work, model)
    else:
        model.save_pretrained(work)
        name_architecture(work, pair.family)
    if predictor is not None:
        add_predictor(work, predictor, pair.family)
    if pair.family.name == "GraniteMoeHybrid":
        use_old_words(work / "config.json")
    if pair.family.name == "NemotronH":
        use_pattern(work / "config.json")
    save_tokenizer(work, tokenizer)
    converted = work / f"{pair.name}.gguf"
    pre = "default" if pair.tokenizer in ("spm", "gemma4") else pair.tokenizer
    convert(
        work,
        converted,
        sources=sources,
        pre=pre,
        stored=pair.stored,
        predicts=pair.predicts,
    )
    if not pair.quantised:
        shutil.copy(converted, PAIRS)
        keep_logits(pair.name, model, predictor)
    for name, options in pair.quantised.items():
        file = PAIRS / f"{pair.name}-{name}.gguf"
        *types, last = options
        subprocess.run([str(quantize), *types, str(converted), str(file), last, "1"], check=True)
        model.load_state_dict(decoded(file, model.config), strict=False)
        keep_logits(file.stem, model)


def convert(
    directory: Path, file: Path, *, sources: Path, pre: str, stored: str, predicts: bool = False
) -> None:
    """Writes a Hugging Face directory as a GGUF file with llama.cpp's converter. `predicts`: it has
    a block that predicts one token more.
    """
    command = [sys.executable, "-c", _CONVERT, str(sources), pre, str(directory)]
    command += ["--outtype", stored, "--outfile", str(file)]
    # Otherwise it wants predictors of more tokens.
    is_qwen = file.name.startswith(("qwen35", "qwen3next"))
    command += ["--no-mtp"] * (is_qwen and not predicts)
    subprocess.run(command, check=True)


def use_old_words(config: Path) -> None:
    """For kinds of layers, which the converter does not know otherwise."""
    text = config.read_text("utf-8")
    for word, old in (("linear_attention", "mamba"), ("full_attention", "attention")):
        text = text.replace(f'"{word}"', f'"{old}"')
    config.write_text(text, "utf-8")


def use_pattern(config: Path) -> None:
    """Of layers, as the models that people have say it. Where no layer has experts, the converter
    must find no number of them either, which transformers would add for a model that it knows.
    """
    said = json.loads(config.read_text("utf-8"))
    letters = {"linear_attention": "M", "full_attention": "*", "mlp": "-", "moe": "E"}
    kinds = said.pop("layers_block_type")
    said["hybrid_override_pattern"] = "".join(letters[kind] for kind in kinds)
    said["num_hidden_layers"] = len(kinds)
    if "moe" not in kinds:
        said = {key: value for key, value in said.items() if "expert" not in key}
        del said["model_type"]
    config.write_text(json.dumps(said), "utf-8")


def keep_logits(name: str, model: Any, predictor: Predictor | None = None) -> None:
    """The ids of a prompt (n,) and the logits after the last ones (n_kept, V), and those of the
    block that predicts one token more.
    """
    generator = np.random.default_rng(len(name))
    token_ids = generator.integers(0, model.config.vocab_size, _N_TOKENS)
    with torch.no_grad():
        logits = model(torch.tensor([token_ids.tolist()])).logits[0].numpy()
    kept = {"token_ids": token_ids, "logits": logits[-_N_KEPT:]}
    if predictor is not None:
        kept["predicted"] = predictor.logits(token_ids.tolist())[-_N_KEPT:]
    np.savez_compressed(PAIRS / f"{name}.npz", **kept)


# ---- Tokenizers. ----


def tokenizer_of(kind: str) -> tokenizers.Tokenizer:
    if kind == "spm":
        return sentencepiece_tokenizer()
    if kind == "gemma4":
        return gemma_tokenizer()
    tokenizer = byte_level_tokenizer()
    if kind != "gpt-2":
        split = pre_tokenizers.Split(tokenizers.Regex(_PATTERNS[kind]), "isolated")
        encode = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, encode])
    return tokenizer


def _ends(tokenizer: tokenizers.Tokenizer) -> tuple[str, str]:
    """BOS and EOS."""
    is_sentencepiece = tokenizer.token_to_id("</s>") is not None
    return ("<s>", "</s>") if is_sentencepiece else ("<|endoftext|>", "<|end|>")


def _ids_of_ends(tokenizer: tokenizers.Tokenizer) -> dict[str, Any]:
    bos, eos = (tokenizer.token_to_id(text) for text in _ends(tokenizer))
    return {"bos_token_id": bos, "eos_token_id": eos}


def save_tokenizer(path: Path, tokenizer: tokenizers.Tokenizer) -> None:
    """As a Hugging Face directory has it."""
    tokenizer.save(str(path / "tokenizer.json"))
    bos, eos = _ends(tokenizer)
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": bos,
        "eos_token": eos,
        "add_bos_token": bos == "<s>",
        "chat_template": TEMPLATE,
    }
    (path / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")


def _ids(tokenizer: tokenizers.Tokenizer) -> dict[str, list[int]]:
    return {text: tokenizer.encode(text, add_special_tokens=False).ids for text in _TEXTS}


if __name__ == "__main__":
    main()
