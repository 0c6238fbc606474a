"""Several processes training one model, each on its share of every batch.

Owns starting them and summing between them. Knows nothing of models: what is summed is the
caller's business. Two processes of one thread each lose less than one of two threads where other
programs use the same cores, because they meet once a step instead of at every operation.
"""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed
from torch.multiprocessing.spawn import spawn


@dataclass(frozen=True, slots=True)
class World:
    """Which of the processes this one is; alone by default."""

    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def mine(self) -> slice:
        """This process's share of a list of things."""
        return slice(self.rank, None, self.size)

    def sum_(self, tensor: Tensor) -> Tensor:
        """Replaces the tensor with its sum over all processes."""
        if self.size > 1:
            distributed.all_reduce(tensor)
        return tensor


def run_workers(
    work: Callable[..., None], size: int, rendezvous: Path, arguments: tuple[Any, ...]
) -> None:
    """Calls `work(world, *arguments)` in `size` processes and waits for them."""
    if size == 1:
        work(World(), *arguments)
        return
    rendezvous.unlink(missing_ok=True)
    arguments = (work, size, rendezvous, arguments)
    spawn(_worker, args=arguments, nprocs=size)  # type: ignore[no-untyped-call]


def _worker(
    rank: int,
    work: Callable[..., None],
    size: int,
    rendezvous: Path,
    arguments: tuple[Any, ...],
) -> None:
    # All processes are on this machine, whatever its host name resolves to.
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    method = f"file://{rendezvous.resolve()}"
    distributed.init_process_group("gloo", init_method=method, rank=rank, world_size=size)
    work(World(rank, size), *arguments)
    distributed.destroy_process_group()
    # Exit without Python's own shutdown: a thread of the process group that waits for the
    # interpreter lock then would be unwound through C++, which aborts a process that has finished.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
