"""Trains a block that predicts one token more (multi-token prediction) for an exported model.

    python -m training.mtp --model engine/default_model --output FOLDER [--tokens 600k]

Owns the command line, the order of the steps and the exported folder. The block learns from the
texts that the model learnt from, what the model says of them.
"""

import json
import shutil
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from training.corpus import Split
from training.drafter import N_STEPS, drafter_parser, encoded, train_drafter, trained_on_texts
from training.export import TOKENIZER_FILES, load_exported
from training.mtp_block import MtpBlock, block_loss


def main(arguments: Sequence[str] | None = None) -> int:
    parser = drafter_parser("mtp", __doc__, output="folder of the model with the block")
    given = parser.parse_args(arguments)
    train = partial(train_block, given.model, given.output, n_tokens=given.tokens, seed=given.seed)
    return trained_on_texts(given, train)


def train_block(
    directory: Path, output: Path, splits: Sequence[Split], *, n_tokens: int, seed: int
) -> None:
    """Reads the model in `directory`, and writes it with its block to `output`."""
    torch.manual_seed(seed)
    model = load_exported(directory)
    block = MtpBlock(model.config)
    block.begin_as(model)
    loss_of = partial(block_loss, block, model, n=N_STEPS)
    corpora = encoded(splits, directory)
    train_drafter(block, loss_of, splits, corpora, directory, n_tokens=n_tokens, seed=seed)
    export_with_block(block, directory, output)


def export_with_block(block: MtpBlock, model: Path, output: Path) -> None:
    """Writes the model as one of GLM 4.5's family whose layers are all dense: that is a Llama, and
    has a place for a block.
    """
    config = json.loads((model / "config.json").read_text("utf-8"))
    n_layers = config["num_hidden_layers"]
    config |= {
        "architectures": ["Glm4MoeForCausalLM"],
        "model_type": "glm4_moe",
        "first_k_dense_replace": n_layers,
        "partial_rotary_factor": 1.0,
        "use_qk_norm": False,
        "num_nextn_predict_layers": 1,
    }
    tensors = {
        f"model.layers.{n_layers}.{name}": tensor.to(torch.bfloat16).contiguous()
        for name, tensor in block.state_dict().items()
    }
    output.mkdir(parents=True, exist_ok=True)
    for name in (*TOKENIZER_FILES, "generation_config.json"):
        shutil.copyfile(model / name, output / name)
    (output / "config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")
    path = output / "model.safetensors"
    save_file(load_file(model / path.name) | tensors, path, metadata={"format": "pt"})
    path.chmod(0o644)  # safetensors makes it readable only by its owner


if __name__ == "__main__":
    sys.exit(main())
