"""What a worker process does: train one of the two models.

Owns the pairing of shapes, data and directories. It is a separate module because processes find
their work by its name. Knows nothing of the command line.
"""

from pathlib import Path

from training.export import load_exported
from training.model import DRAFT, TARGET
from training.parallel import World
from training.prepare import load_prepared
from training.train import TrainConfig, Trainer


def target_job(world: World, config: TrainConfig, run_dir: Path) -> None:
    Trainer(TARGET, config, load_prepared(run_dir), run_dir / "target", world=world).run()


def draft_job(world: World, config: TrainConfig, run_dir: Path) -> None:
    teacher = load_exported(run_dir / "export")
    data = load_prepared(run_dir)
    Trainer(DRAFT, config, data, run_dir / "draft", teacher=teacher, world=world).run()
