"""The optimizer and the learning-rate schedule.

Owns which parameters are updated how. Knows nothing of the model's structure beyond names and
shapes, and nothing of data.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from training.parallel import World

# Found in runs of 250,000 tokens of the target; held-out stories, nats per token: AdamW at 3e-3
# throughout 4.68; Muon at 6e-3 with embeddings at 3e-3 4.38, at 8e-3 4.33; Muon at 12e-3 was worse
# than Muon at 6e-3 by 0.1 after 120,000 tokens. A step with Muon takes about 10 % longer.
EMBEDDING_LR = 8e-3
MATRIX_LR = 6e-3
BETAS = (0.9, 0.95)
MOMENTUM = 0.95
WEIGHT_DECAY = 0.1
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
NEWTON_SCHULZ_STEPS = 5


class Muon(torch.optim.Optimizer):
    """Momentum made orthogonal by Newton-Schulz iterations, for hidden matrices.

    torch.optim.Muon iterates in bfloat16, one matrix at a time; on a CPU without bfloat16
    arithmetic that costs more than the model. This one stacks matrices of one shape and works in
    bfloat16 on CUDA only. Updates have the root mean square of AdamW's, so learning rates compare.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float, world: World) -> None:
        super().__init__(parameters, {"lr": lr})
        self._world = world

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[nn.Parameter]] = defaultdict(list)
            for parameter in group["params"]:
                by_shape[parameter.shape].append(parameter)
            for parameters in by_shape.values():
                self._step_stack(parameters, group["lr"])

    def _step_stack(self, parameters: list[nn.Parameter], lr: float) -> None:
        updates = []
        for parameter in parameters:
            if parameter.grad is None:
                raise RuntimeError("a parameter has no gradient")
            state = self.state[parameter]
            if not state:
                state["momentum"] = torch.zeros_like(parameter)
            state["momentum"].lerp_(parameter.grad, 1 - MOMENTUM)
            updates.append(parameter.grad.lerp(state["momentum"], MOMENTUM))
        stack = self._orthogonalise_together(torch.stack(updates))
        scale = 0.2 * max(parameters[0].shape) ** 0.5
        for parameter, update in zip(parameters, stack, strict=True):
            parameter.mul_(1 - lr * WEIGHT_DECAY)
            parameter.add_(update, alpha=-lr * scale)

    def _orthogonalise_together(self, stack: Tensor) -> Tensor:
        """Every process updates its share of the matrices, and receives all of them."""
        if self._world.size == 1:
            return orthogonalise(stack)
        done = torch.zeros_like(stack)
        done[self._world.mine()] = orthogonalise(stack[self._world.mine()])
        return self._world.sum_(done)


def orthogonalise(stack: Tensor) -> Tensor:
    """Brings the singular values of each matrix of (N, rows, columns) near one."""
    a, b, c = NEWTON_SCHULZ
    tall = stack.shape[1] > stack.shape[2]
    x = stack.transpose(1, 2) if tall else stack
    if x.is_cuda:
        x = x.bfloat16()
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(NEWTON_SCHULZ_STEPS):
        gram = x @ x.transpose(1, 2)
        x = a * x + torch.baddbmm(gram, gram, gram, beta=b, alpha=c) @ x
    flat: Tensor = x.transpose(1, 2) if tall else x
    return flat.to(stack.dtype)


class Optimizer:
    """Muon for hidden matrices, AdamW for the embedding and the norms, stepped together."""

    def __init__(
        self, model: nn.Module, *, use_muon: bool, lr_scale: float = 1.0, world: World
    ) -> None:
        matrices: list[nn.Parameter] = []
        others: list[nn.Parameter] = []
        for name, parameter in model.named_parameters():
            hidden = use_muon and parameter.ndim == 2 and "embed_tokens" not in name
            (matrices if hidden else others).append(parameter)
        embedding_lr = EMBEDDING_LR * lr_scale
        decayed = [p for p in others if p.ndim == 2]
        norms = [p for p in others if p.ndim == 1]
        groups = [
            {"params": decayed, "weight_decay": WEIGHT_DECAY},
            {"params": norms, "weight_decay": 0.0},
        ]
        adamw = torch.optim.AdamW(groups, lr=embedding_lr, betas=BETAS, fused=True)
        self._parts: list[tuple[torch.optim.Optimizer, float]] = [(adamw, embedding_lr)]
        if matrices:
            matrix_lr = MATRIX_LR * lr_scale
            self._parts.append((Muon(matrices, matrix_lr, world), matrix_lr))

    def step(self, factor: float) -> None:
        """Updates at `factor` times the peak learning rates and clears the gradients."""
        for part, lr in self._parts:
            for group in part.param_groups:
                group["lr"] = lr * factor
            part.step()
            part.zero_grad(set_to_none=True)

    def state_dict(self) -> dict[str, Any]:
        return {"parts": [part.state_dict() for part, _ in self._parts]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for (part, _), saved in zip(self._parts, state["parts"], strict=True):
            part.load_state_dict(saved)
