"""Trains an EAGLE-3 head for a model that `training` has exported.

    python -m training.eagle --model engine/default_model --output HEAD [--tokens 600k]

Owns the command line, the order of the steps and the exported folder. The head learns from the
texts that the model learnt from, what the model says of them.
"""

import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from training.corpus import Split
from training.drafter import N_STEPS, drafter_parser, encoded, train_drafter, trained_on_texts
from training.eagle_head import EagleHead, draft_loss
from training.export import hugging_face_config, load_exported
from training.model import Llama

N_DRAFTED = 1024


def main(arguments: Sequence[str] | None = None) -> int:
    parser = drafter_parser("eagle", __doc__, output="folder of the head")
    parser.add_argument("--draft-vocab", type=int, default=N_DRAFTED)
    given = parser.parse_args(arguments)
    train = partial(
        train_head,
        given.model,
        given.output,
        n_tokens=given.tokens,
        n_drafted=given.draft_vocab,
        seed=given.seed,
    )
    return trained_on_texts(given, train)


def train_head(
    directory: Path,
    output: Path,
    splits: Sequence[Split],
    *,
    n_tokens: int,
    n_drafted: int,
    seed: int,
) -> None:
    """Reads the model in `directory` and writes its head to `output`."""
    torch.manual_seed(seed)
    model = load_exported(directory)
    corpora = encoded(splits, directory)
    chosen = torch.from_numpy(
        most_frequent(
            [corpus.token_ids for corpus in corpora.values()], model.config.vocab_size, n_drafted
        )
    )
    layers = layers_of(model)
    head = EagleHead(model.config, len(chosen))
    head.begin_as(model, chosen)
    loss_of = partial(draft_loss, head, model, layers=layers, chosen=chosen, n=N_STEPS)
    train_drafter(head, loss_of, splits, corpora, directory, n_tokens=n_tokens, seed=seed)
    export_head(head, layers, chosen, directory, output)


def most_frequent(all_ids: Sequence[np.ndarray], vocab_size: int, n_drafted: int) -> np.ndarray:
    """The ids of the `n_drafted` most frequent tokens, ascending."""
    counts = sum(np.bincount(ids, minlength=vocab_size) for ids in all_ids)
    return np.sort(np.argsort(-counts, kind="stable")[:n_drafted])


def layers_of(model: Llama) -> tuple[int, int, int]:
    """Low, middle and the last: the head starts as that one."""
    n = model.config.n_layers
    if n < 4:
        raise ValueError(f"the model has {n} layers; a head reads in front of three of 4 or more")
    return (n // 4 or 1, n // 2, n - 1)


def export_head(
    head: EagleHead, layers: tuple[int, ...], chosen: torch.Tensor, model: Path, output: Path
) -> None:
    """Writes config.json and model.safetensors as published heads have them."""
    of_model = json.loads((model / "config.json").read_text("utf-8"))
    config = {
        **hugging_face_config(
            head.config, bos=of_model["bos_token_id"], eos=of_model["eos_token_id"]
        ),
        "architectures": ["LlamaForCausalLMEagle3"],
        "draft_vocab_size": len(chosen),
        "eagle_aux_hidden_state_layer_ids": list(layers),
        "tie_word_embeddings": False,
    }
    taken = torch.zeros(head.config.vocab_size, dtype=torch.bool)
    taken[chosen] = True
    weights = {name: t.to(torch.bfloat16).contiguous() for name, t in head.state_dict().items()}
    output.mkdir(parents=True, exist_ok=True)
    (output / "config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")
    path = output / "model.safetensors"
    tables = {"d2t": chosen - torch.arange(len(chosen)), "t2d": taken}
    save_file({**weights, **tables}, path, metadata={"format": "pt"})
    path.chmod(0o644)  # safetensors makes it readable only by its owner


if __name__ == "__main__":
    sys.exit(main())
