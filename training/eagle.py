"""Trains an EAGLE-3 head for a model that `training` has exported.

    python -m training.eagle --model engine/default_model --output HEAD [--tokens 600k]

Owns the command line, the order of the steps and the exported folder. The head learns from the
texts that the model learnt from, what the model says of them.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from training.__main__ import token_count
from training.corpus import END_OF_TEXT, CorpusError, Split, load_splits, load_text_splits
from training.data import Mixer, encode_documents
from training.eagle_head import EagleHead, draft_loss
from training.export import hugging_face_config, load_exported
from training.model import Llama
from training.optimizer import Optimizer
from training.parallel import World
from training.schedule import Schedule
from training.tokenizer import load_tokenizer, special_token_id

MOST_DOCUMENTS = 4000  # of each corpus: a head learns little from more in a few minutes
N_DRAFTED = 1024
N_STEPS = 2  # tokens of the drafts that it is trained on
BATCH_TOKENS = 2048
CONTEXT = 256
LR_SCALE = 0.5
REPORT_EVERY_S = 20.0


def main(arguments: Sequence[str] | None = None) -> int:
    here = Path(__file__).parent
    parser = argparse.ArgumentParser(prog="python -m training.eagle", description=__doc__)
    parser.add_argument("--model", type=Path, default=here.parent / "engine" / "default_model")
    parser.add_argument("--output", type=Path, required=True, help="folder of the head")
    parser.add_argument("--corpora", type=Path, default=here.parents[1] / "shared" / "corpora")
    parser.add_argument("--text", type=Path, action="append", default=[])
    parser.add_argument("--tokens", type=token_count, default=token_count("600k"))
    parser.add_argument("--draft-vocab", type=int, default=N_DRAFTED)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=2026)
    given = parser.parse_args(arguments)
    torch.set_num_threads(given.threads)
    try:
        splits = load_text_splits(given.text) if given.text else load_splits(given.corpora)
    except CorpusError as error:
        print(f"training: {error}", file=sys.stderr)
        return 1
    train_head(
        given.model,
        splits,
        given.output,
        n_tokens=given.tokens,
        n_drafted=given.draft_vocab,
        seed=given.seed,
    )
    return 0


def train_head(
    directory: Path,
    splits: Sequence[Split],
    output: Path,
    *,
    n_tokens: int,
    n_drafted: int,
    seed: int,
) -> None:
    """Reads the model in `directory` and writes its head to `output`."""
    torch.manual_seed(seed)
    model, tokenizer = load_exported(directory), load_tokenizer(directory)
    corpora = {
        split.name: encode_documents(split.train[:MOST_DOCUMENTS], tokenizer) for split in splits
    }
    chosen = torch.from_numpy(
        most_frequent(
            [corpus.token_ids for corpus in corpora.values()], model.config.vocab_size, n_drafted
        )
    )
    shares = {split.name: split.share for split in splits}
    mixer = Mixer(corpora, shares, seed, special_token_id(tokenizer, END_OF_TEXT))
    layers = layers_of(model)
    head = EagleHead(model.config, len(chosen))
    head.begin_as(model, chosen)
    _train(head, model, mixer, layers, chosen, n_tokens)
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


def _train(
    head: EagleHead,
    model: Llama,
    mixer: Mixer,
    layers: tuple[int, ...],
    chosen: torch.Tensor,
    n_tokens: int,
) -> None:
    torch.set_flush_denormal(True)
    schedule = Schedule(n_tokens, warmup_tokens=20_000)
    optimizer = Optimizer(head, use_muon=True, lr_scale=LR_SCALE, world=World())
    done, begun, told = 0, time.monotonic(), 0.0
    while done < n_tokens:
        batch = mixer.next_batch(BATCH_TOKENS // CONTEXT, CONTEXT)
        loss, shares = draft_loss(
            head, model, torch.from_numpy(batch.token_ids), layers, chosen, N_STEPS
        )
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        optimizer.step(schedule.lr_factor(done))
        done += batch.weights.size
        seconds = time.monotonic() - begun
        if seconds - told > REPORT_EVERY_S or done >= n_tokens:
            told = seconds
            right = ", ".join(f"{share:.3f}" for share in shares)
            print(
                f"{done} tokens, {seconds:.0f} s, loss {loss.item():.3f}, right: {right}",
                file=sys.stderr,
            )


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
