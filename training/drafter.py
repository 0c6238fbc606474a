"""How a drafter learns from what an exported model says of texts.

Owns the options and the loop that the trainings of drafters share. Knows no drafter.
"""

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from training.__main__ import token_count
from training.corpus import END_OF_TEXT, CorpusError, Split, load_splits, load_text_splits
from training.data import Mixer, TokenCorpus, encode_documents
from training.optimizer import Optimizer
from training.parallel import World
from training.schedule import Schedule
from training.tokenizer import load_tokenizer, special_token_id

MOST_DOCUMENTS = 4000  # of each corpus: a drafter learns little from more in a few minutes
N_STEPS = 2  # tokens of the drafts that it is trained on
BATCH_TOKENS = 2048
CONTEXT = 256
LR_SCALE = 0.5
REPORT_EVERY_S = 20.0

Loss = Callable[[Tensor], tuple[Tensor, list[float]]]
"""Of token ids (B, T + 1): what to minimize, and the share of right tokens by place in a draft."""


def drafter_parser(name: str, description: str | None, *, output: str) -> argparse.ArgumentParser:
    here = Path(__file__).parent
    parser = argparse.ArgumentParser(prog=f"python -m training.{name}", description=description)
    parser.add_argument("--model", type=Path, default=here.parent / "engine" / "default_model")
    parser.add_argument("--output", type=Path, required=True, help=output)
    parser.add_argument("--corpora", type=Path, default=here.parents[1] / "shared" / "corpora")
    parser.add_argument("--text", type=Path, action="append", default=[])
    parser.add_argument("--tokens", type=token_count, default=token_count("600k"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=2026)
    return parser


def trained_on_texts(given: argparse.Namespace, train: Callable[[Sequence[Split]], None]) -> int:
    """Calls `train` with the texts that were asked for; the exit code."""
    torch.set_num_threads(given.threads)
    try:
        splits = load_text_splits(given.text) if given.text else load_splits(given.corpora)
    except CorpusError as error:
        print(f"training: {error}", file=sys.stderr)
        return 1
    train(splits)
    return 0


def encoded(splits: Sequence[Split], model: Path) -> dict[str, TokenCorpus]:
    """What the splits are trained on, by their names, with the tokenizer of a model's folder."""
    tokenizer = load_tokenizer(model)
    return {
        split.name: encode_documents(split.train[:MOST_DOCUMENTS], tokenizer) for split in splits
    }


def train_drafter(
    drafter: nn.Module,
    loss_of: Loss,
    splits: Sequence[Split],
    corpora: Mapping[str, TokenCorpus],
    model: Path,
    *,
    n_tokens: int,
    seed: int,
) -> None:
    """Reports to stderr how far it is."""
    torch.set_flush_denormal(True)
    shares = {split.name: split.share for split in splits}
    end_id = special_token_id(load_tokenizer(model), END_OF_TEXT)
    mixer = Mixer(dict(corpora), shares, seed, end_id)
    schedule = Schedule(n_tokens, warmup_tokens=20_000)
    optimizer = Optimizer(drafter, use_muon=True, lr_scale=LR_SCALE, world=World())
    done, begun, told = 0, time.monotonic(), 0.0
    while done < n_tokens:
        batch = mixer.next_batch(BATCH_TOKENS // CONTEXT, CONTEXT)
        loss, right = loss_of(torch.from_numpy(batch.token_ids))
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(drafter.parameters(), 1.0)
        optimizer.step(schedule.lr_factor(done))
        done += batch.weights.size
        seconds = time.monotonic() - begun
        if seconds - told > REPORT_EVERY_S or done >= n_tokens:
            told = seconds
            places = ", ".join(f"{share:.3f}" for share in right)
            print(
                f"{done} tokens, {seconds:.0f} s, loss {loss.item():.3f}, right: {places}",
                file=sys.stderr,
            )
