"""Makes the default model in one command: prepare, target, draft, export, evaluate, card.

Owns the order of the steps and the command line. Finished preparation and training are not
repeated, so an interrupted run continues where it stopped; evaluate and card always run again.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from training.answers import write_answers
from training.checkpoint import load_checkpoint
from training.corpus import CorpusError, Split, load_splits, load_text_splits
from training.evaluate import evaluate, weights_sha256
from training.export import export_target, export_weights
from training.jobs import draft_job, target_job
from training.measures import load_measures, save_measures
from training.model_card import CardFacts, write_model_card
from training.origins import corpus_files
from training.parallel import run_workers
from training.plot import plot_losses
from training.prepare import is_prepared, prepare
from training.schedule import Schedule
from training.train import TrainConfig

DRAFT_LR_SCALE = 1.25
CPU_BATCH_TOKENS = 4096
CUDA_BATCH_TOKENS = 32_768
# Takes minutes on an accelerator; on two CPU cores three hours for the target, 15 minutes for the
# draft.
CUDA_TOKENS = 100_000_000
CUDA_DRAFT_TOKENS = 120_000_000
# So many tokens are every text some twenty times.
CUDA_DROPOUT = 0.2
CPU_TOKENS = 20_000_000
CPU_DRAFT_TOKENS = 6_000_000
MEASURES = "measures.json"


@dataclass(frozen=True, slots=True)
class RunSettings:
    """The options of the command line."""

    corpora: Path
    texts: tuple[Path, ...]
    run_dir: Path
    output: Path
    tokens: int
    draft_tokens: int
    dropout: float
    device: str
    threads: int | None
    processes: int
    hardware: str
    note: str
    seed: int
    only: str | None


def main(arguments: Sequence[str] | None = None) -> int:
    settings = parse_settings(arguments)
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    try:
        make_model(settings)
    except (CorpusError, ValueError) as error:
        print(f"training: {error}", file=sys.stderr)
        return 1
    return 0


def make_model(settings: RunSettings) -> None:
    run_dir = settings.run_dir
    run_dir.mkdir(parents=True, exist_ok=True)
    if not is_prepared(run_dir):
        prepare(read_splits(settings), run_dir)
    steps = {
        "target": train_target,
        "draft": train_draft,
        "export": export_both,
        "evaluate": measure,
        "card": describe,
    }
    for name, step in steps.items():
        if settings.only in (None, name):
            print(f"training: {name}", file=sys.stderr)
            step(settings)


def read_splits(settings: RunSettings) -> list[Split]:
    if settings.texts:
        return load_text_splits(settings.texts)
    return load_splits(settings.corpora)


def train_target(settings: RunSettings) -> None:
    directory = settings.run_dir / "target"
    directory.mkdir(exist_ok=True)
    config = _train_config(settings, settings.tokens, dropout=settings.dropout)
    if is_finished(directory):
        return
    run_workers(
        target_job, settings.processes, directory / "rendezvous", (config, settings.run_dir)
    )
    plot_losses(directory / "log.csv", directory / "loss.png")


def train_draft(settings: RunSettings) -> None:
    directory = settings.run_dir / "draft"
    if is_finished(directory):
        return
    export_target(
        settings.run_dir / "target" / "checkpoint.pt",
        settings.run_dir / "tokenizer",
        settings.run_dir / "export",
    )
    config = _train_config(settings, settings.draft_tokens, lr_scale=DRAFT_LR_SCALE)
    directory.mkdir(exist_ok=True)
    run_workers(draft_job, settings.processes, directory / "rendezvous", (config, settings.run_dir))
    plot_losses(directory / "log.csv", directory / "loss.png")


def export_both(settings: RunSettings) -> None:
    run_dir = settings.run_dir
    tokenizer_dir = run_dir / "tokenizer"
    export_target(run_dir / "target" / "checkpoint.pt", tokenizer_dir, settings.output)
    draft = run_dir / "draft" / "checkpoint.pt"
    export_weights(draft, tokenizer_dir, settings.output / "draft")


def measure(settings: RunSettings) -> None:
    measures = evaluate(settings.output, read_splits(settings))
    save_measures(measures, settings.run_dir / MEASURES)


def describe(settings: RunSettings) -> None:
    run_dir = settings.run_dir
    path = run_dir / MEASURES
    if not path.is_file():
        raise ValueError(f"{path} is missing: run `--only evaluate` before `--only card`")
    measures = load_measures(path)
    if measures.weights_sha256 != weights_sha256(settings.output):
        raise ValueError(
            f"{path} was measured on other weights than those in {settings.output}: "
            "run `--only evaluate` again"
        )
    facts = CardFacts(
        target=load_checkpoint(run_dir / "target" / "checkpoint.pt"),
        draft=load_checkpoint(run_dir / "draft" / "checkpoint.pt"),
        splits=tuple(read_splits(settings)),
        files=corpus_files(settings.corpora) if not settings.texts else (),
        hardware=settings.hardware,
        note=settings.note,
    )
    write_model_card(facts, measures, settings.output / "MODEL_CARD.md")
    write_answers(measures, settings.output / "ANSWERS.md")


def is_finished(directory: Path) -> bool:
    path = directory / "checkpoint.pt"
    if not path.is_file():
        return False
    state = load_checkpoint(path)
    return bool(state["tokens"] >= state["total_tokens"])


def parse_settings(arguments: Sequence[str] | None) -> RunSettings:
    parser = argparse.ArgumentParser(prog="python -m training", description=__doc__)
    here = Path(__file__).parent
    parser.add_argument("--corpora", type=Path, default=here.parents[1] / "shared" / "corpora")
    parser.add_argument(
        "--text",
        type=Path,
        action="append",
        default=[],
        help="text file to train on instead of the corpora; repeatable",
    )
    parser.add_argument("--run-dir", type=Path, default=here / "runs" / "default")
    parser.add_argument("--output", type=Path, default=here.parent / "engine" / "default_model")
    parser.add_argument("--tokens", type=token_count)
    parser.add_argument("--draft-tokens", type=token_count)
    parser.add_argument(
        "--dropout",
        type=share,
        help="share of the target's activations zeroed while it trains, against learning by heart "
        "what it sees many times (default: 0.2 on a CUDA device, 0 on a CPU, where it sees less)",
    )
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--threads", type=int, help="CPU threads of a single process")
    parser.add_argument(
        "--processes", type=int, default=1, help="processes of one thread each, on a CPU"
    )
    parser.add_argument(
        "--hardware", default="unnamed hardware", help="hardware to name in the model card"
    )
    parser.add_argument(
        "--note", default="", help="text to add below the training table of the model card"
    )
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--only", choices=("target", "draft", "export", "evaluate", "card"))
    given = parser.parse_args(arguments)
    device = given.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    on_cuda = device == "cuda"
    return RunSettings(
        corpora=given.corpora,
        texts=tuple(given.text),
        run_dir=given.run_dir,
        output=given.output,
        tokens=given.tokens or (CUDA_TOKENS if on_cuda else CPU_TOKENS),
        draft_tokens=given.draft_tokens or (CUDA_DRAFT_TOKENS if on_cuda else CPU_DRAFT_TOKENS),
        dropout=(CUDA_DROPOUT if on_cuda else 0.0) if given.dropout is None else given.dropout,
        device=device,
        threads=given.threads,
        processes=given.processes,
        hardware=given.hardware,
        note=given.note,
        seed=given.seed,
        only=given.only,
    )


def token_count(text: str) -> int:
    """Reads "14M", "500k" or a plain number."""
    units = {"k": 1_000, "M": 1_000_000}
    unit = units.get(text[-1:], 1)
    try:
        count = round(float(text[:-1] if unit > 1 else text) * unit)
    except ValueError:
        count = 0
    if count <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of tokens such as 14M")
    return count


def share(text: str) -> float:
    """Reads a number of at least 0 and below 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value < 1.0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share, at least 0 and below 1")
    return value


def _train_config(
    settings: RunSettings, tokens: int, *, lr_scale: float = 1.0, dropout: float = 0.0
) -> TrainConfig:
    return TrainConfig(
        schedule=Schedule(tokens),
        seed=settings.seed,
        batch_tokens=CUDA_BATCH_TOKENS if settings.device == "cuda" else CPU_BATCH_TOKENS,
        device=settings.device,
        lr_scale=lr_scale,
        dropout=dropout,
    )


if __name__ == "__main__":
    sys.exit(main())
