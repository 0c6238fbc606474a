"""The training loop, for target and draft alike.

Owns stepping, held-out losses, checkpoints and the log. Knows nothing of corpora files, export
formats or serving.
"""

import contextlib
import csv
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm

from training.checkpoint import load_checkpoint, save_checkpoint
from training.corpus import END_OF_TEXT
from training.data import Batch, Mixer, held_out_batch
from training.model import Llama, ModelConfig
from training.optimizer import Optimizer
from training.parallel import World
from training.prepare import PreparedData
from training.schedule import Schedule
from training.tokenizer import special_token_id

CLIP_NORM = 1.0
HELD_OUT_CONTEXT = 256

Log = Callable[[dict[str, Any]], None]
LossFunction = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """How to train one model."""

    schedule: Schedule
    seed: int = 2026
    batch_tokens: int = 4096
    use_muon: bool = True
    lr_scale: float = 1.0
    dropout: float = 0.0
    """A run that is resumed drops others than one without interruption would."""
    device: str = "cpu"
    compile: bool = True
    save_every_s: float = 240.0
    evaluate_every_tokens: int = 500_000
    held_out_rows: int = 16
    stop_after_steps: int | None = None
    distill_from_share: float = 0.6
    """With a teacher: the share of the tokens after which its logits become part of the loss."""


class Trainer:
    """The training of one model; `run` continues from the last checkpoint in the directory."""

    def __init__(
        self,
        model_config: ModelConfig,
        config: TrainConfig,
        data: PreparedData,
        directory: Path,
        *,
        teacher: Llama | None = None,
        world: World | None = None,
    ) -> None:
        torch.manual_seed(config.seed)
        torch.set_flush_denormal(True)
        self.config = config
        self.world = world or World()
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.model = Llama(model_config, dropout=config.dropout).to(config.device)
        self.teacher = teacher.to(config.device).eval() if teacher is not None else None
        self.optimizer = Optimizer(
            self.model, use_muon=config.use_muon, lr_scale=config.lr_scale, world=self.world
        )
        bos = special_token_id(data.tokenizer, END_OF_TEXT)
        self._shares, self._late_shares = data.shares, data.late_shares
        self.mixer = Mixer(data.train, data.shares, config.seed, bos)
        self.held_out = {
            name: held_out_batch(
                corpus, data.tokenizer, n_rows=config.held_out_rows, context=HELD_OUT_CONTEXT
            )
            for name, corpus in data.held_out.items()
        }
        self.tokens = 0
        self.step = 0
        self.seconds = 0.0
        self._loss = self._ready(self._cross_entropy)
        self._distilled_loss = self._ready(self._distilled)
        if self.checkpoint_path.is_file():
            self._restore(load_checkpoint(self.checkpoint_path))

    @property
    def checkpoint_path(self) -> Path:
        return self.directory / "checkpoint.pt"

    def run(self) -> None:
        """Trains until the schedule's last token, or for `stop_after_steps` more steps."""
        schedule = self.config.schedule
        last_step = None
        if self.config.stop_after_steps is not None:
            last_step = self.step + self.config.stop_after_steps
        begun = saved = time.monotonic()
        base_seconds = self.seconds
        bar = tqdm(
            total=schedule.total_tokens,
            initial=self.tokens,
            unit="tok",
            mininterval=10,
            disable=not self.world.is_first,
        )
        with bar, self._log() as log:
            while self.tokens < schedule.total_tokens and self.step != last_step:
                tokens_before = self.tokens
                loss = self._train_step()
                self.seconds = base_seconds + time.monotonic() - begun
                bar.update(self.tokens - tokens_before)
                bar.set_postfix(loss=f"{loss:.3f}", refresh=False)
                row: dict[str, Any] = {"loss": loss}
                every = self.config.evaluate_every_tokens
                if self.tokens // every > tokens_before // every:
                    row |= self.held_out_losses()
                log(self._log_row(row))
                if time.monotonic() - saved > self.config.save_every_s:
                    self.save()
                    saved = time.monotonic()
            log(self._log_row(self.held_out_losses()))
        self.save()

    def held_out_losses(self) -> dict[str, float]:
        """Nats per token on a fixed batch of each corpus."""
        losses = {}
        self.model.eval()
        with torch.no_grad():
            for name, batch in self.held_out.items():
                loss = self._loss(*self._tensors(batch))
                losses[name] = float(self.world.sum_(loss).item())
        self.model.train()
        return losses

    def save(self) -> None:
        if not self.world.is_first:
            return
        state = {
            "model": self.model.state_dict(),
            "model_config": asdict(self.model.config),
            "optimizer": self.optimizer.state_dict(),
            "mixer": self.mixer.state(),
            "tokens": self.tokens,
            "step": self.step,
            "seconds": self.seconds,
            "total_tokens": self.config.schedule.total_tokens,
            "dropout": self.config.dropout,
            "seed": self.config.seed,
        }
        save_checkpoint(state, self.checkpoint_path)

    def _restore(self, state: dict[str, Any]) -> None:
        check_total_tokens(self.config.schedule, state["total_tokens"], state["tokens"])
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.tokens, self.step, self.seconds = state["tokens"], state["step"], state["seconds"]
        self.mixer.use_shares(self._shares_now())
        self.mixer.restore(state["mixer"])

    def _shares_now(self) -> dict[str, float]:
        late = self.config.schedule.is_late_mix(self.tokens)
        return self._late_shares if late else self._shares

    def _train_step(self) -> float:
        schedule = self.config.schedule
        context = schedule.context(self.tokens)
        self.mixer.use_shares(self._shares_now())
        batch = self.mixer.next_batch(max(1, self.config.batch_tokens // context), context)
        distill_from = self.config.distill_from_share * schedule.total_tokens
        distill = self.teacher is not None and self.tokens >= distill_from
        loss_function = self._distilled_loss if distill else self._loss
        loss = loss_function(*self._tensors(batch))
        loss.backward()  # type: ignore[no-untyped-call]
        self._sum_gradients(loss)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), CLIP_NORM)
        self.optimizer.step(schedule.lr_factor(self.tokens))
        self.tokens += batch.weights.size
        self.step += 1
        return float(loss.item())

    def _cross_entropy(self, token_ids: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        logits = self.model(token_ids)  # (B, T, V)
        losses = F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), reduction="none")
        return (losses * weights.flatten()).sum()

    def _distilled(self, token_ids: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        """Half cross entropy, half divergence from the teacher's distribution."""
        if self.teacher is None:
            raise RuntimeError("distillation needs a teacher")
        with torch.no_grad():
            taught = F.log_softmax(self.teacher(token_ids).float().flatten(0, 1), dim=-1)
        logprobs = F.log_softmax(self.model(token_ids).float().flatten(0, 1), dim=-1)  # (B*T, V)
        divergence = (taught.exp() * (taught - logprobs)).sum(-1)
        plain = -logprobs.gather(1, targets.reshape(-1, 1)).squeeze(1)
        losses = 0.5 * divergence + 0.5 * plain
        return (losses * weights.flatten()).sum()

    def _ready(self, function: LossFunction) -> LossFunction:
        """Compiles the function and chooses the arithmetic of its matrix products."""
        inner = torch.compile(function, dynamic=False) if self.config.compile else function
        if not has_fast_bfloat16(self.config.device):
            return inner

        def with_autocast(token_ids: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
            with torch.autocast(self.config.device, dtype=torch.bfloat16):
                return inner(token_ids, targets, weights)

        return with_autocast

    def _tensors(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """This process's rows: inputs, targets, and weights that sum to one over all rows."""
        mine = self.world.mine()
        weights = batch.weights[mine] / batch.weights.sum()
        token_ids = torch.from_numpy(batch.token_ids[mine]).to(self.config.device)
        weights = torch.from_numpy(weights).to(self.config.device)
        return token_ids[:, :-1].contiguous(), token_ids[:, 1:].contiguous(), weights

    def _sum_gradients(self, loss: Tensor) -> None:
        """Adds up the processes' gradients, and the loss with them."""
        if self.world.size == 1:
            return
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        pieces = [*gradients, loss.detach()]
        flat = self.world.sum_(torch.cat([piece.flatten() for piece in pieces]))
        summed = torch.split(flat, [piece.numel() for piece in pieces])
        for piece, values in zip(pieces, summed, strict=True):
            piece.copy_(values.view_as(piece))

    def _log(self) -> contextlib.AbstractContextManager[Log]:
        if self.world.is_first:
            return open_log(self.directory / "log.csv")
        return contextlib.nullcontext(lambda row: None)

    def _log_row(self, row: dict[str, Any]) -> dict[str, Any]:
        return {
            "step": self.step,
            "tokens": self.tokens,
            "seconds": round(self.seconds, 1),
            "lr_factor": round(self.config.schedule.lr_factor(self.tokens), 4),
            "loss": "",
        } | {name: value if value == "" else f"{value:.4f}" for name, value in row.items()}


def check_total_tokens(schedule: Schedule, saved_total: int, tokens: int) -> None:
    """Refuses a new total if the decay depends on the old one, or would already have begun."""
    if schedule.total_tokens == saved_total:
        return
    if tokens > Schedule(saved_total).decay_begins:
        raise ValueError(
            f"the decay towards {saved_total} tokens has begun at {tokens}: "
            "the total cannot be changed any more"
        )
    if tokens > schedule.decay_begins:
        raise ValueError(
            f"{schedule.total_tokens} tokens is too few: the decay would have begun at "
            f"{schedule.decay_begins}, and {tokens} are trained already"
        )


def has_fast_bfloat16(device: str) -> bool:
    """Whether bfloat16 products are faster than float32 ones; without AVX-512 they are not."""
    if device == "cuda":
        return True
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))


@contextlib.contextmanager
def open_log(path: Path) -> Iterator[Log]:
    """Yields a function that appends a row; columns are those of the first row ever written."""
    columns = ["step", "tokens", "seconds", "lr_factor", "loss"]
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)

        def log(row: dict[str, Any]) -> None:
            held_out = ";".join(f"{k}={v}" for k, v in row.items() if k not in columns)
            writer.writerow([row[column] for column in columns] + [held_out])
            file.flush()

        if file.tell() == 0:
            writer.writerow([*columns, "held_out"])
        yield log


def read_losses(path: Path) -> tuple[np.ndarray, np.ndarray, dict[str, list[tuple[int, float]]]]:
    """Reads a log: tokens and losses of every step, and the held-out losses of each corpus."""
    tokens, losses = [], []
    held_out: dict[str, list[tuple[int, float]]] = {}
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["loss"]:
                tokens.append(int(row["tokens"]))
                losses.append(float(row["loss"]))
            for pair in filter(None, row["held_out"].split(";")):
                name, value = pair.split("=")
                held_out.setdefault(name, []).append((int(row["tokens"]), float(value)))
    return np.array(tokens), np.array(losses), held_out
