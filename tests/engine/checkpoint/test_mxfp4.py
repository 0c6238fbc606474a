"""MXFP4 as gpt-oss stores it, against what transformers decodes; and its experts as an op."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from safetensors.numpy import save_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from engine.checkpoint.config import ExpertsConfig
from engine.checkpoint.families.expert_names import ExpertNames
from engine.checkpoint.safetensors import read_checkpoint
from engine.checkpoint.stored import plain_values, stored_values
from engine.device.arguments import Expert, Experts
from engine.device.cpu.ops import CpuOps
from engine.device.step import StepState
from engine.device.torch_ops import TorchOps
from engine.errors import ModelLoadError

N, DIM, HIDDEN = 4, 96, 64
CONFIG = ExpertsConfig(
    n_experts=N,
    n_used=2,
    hidden_dim=HIDDEN,
    scoring="chosen_softmax",
    router_bias=True,
    bias=True,
)
NAMES = ExpertNames(
    router="router",
    gate_up=("gate_up_proj",),
    down="down_proj",
    takes_turns=True,
    weight="",
    bias="_bias",
)


@pytest.fixture
def stored(tmp_path: Path) -> dict[str, npt.NDArray[Any]]:
    """Random experts, written to a file."""
    generator = np.random.default_rng(0)
    tensors: dict[str, npt.NDArray[Any]] = {}
    for name, n_out, n_in in (("gate_up_proj", 2 * HIDDEN, DIM), ("down_proj", DIM, HIDDEN)):
        shape = (N, n_out, n_in // 32)
        tensors[f"{name}_blocks"] = generator.integers(0, 256, (*shape, 16), np.uint8)
        tensors[f"{name}_scales"] = generator.integers(120, 126, shape, np.uint8)
        tensors[f"{name}_bias"] = generator.standard_normal((N, n_out), np.float32)
    save_file(tensors, tmp_path / "model.safetensors")
    return tensors


def decoded(tensors: dict[str, npt.NDArray[Any]], name: str) -> npt.NDArray[np.float32]:
    """What transformers makes of them, as (N, n_out, n_in)."""
    codes, scales = (torch.from_numpy(tensors[f"{name}_{kind}"]) for kind in ("blocks", "scales"))
    values = convert_moe_packed_tensors(codes, scales, dtype=torch.float32)
    return np.asarray(values.transpose(1, 2).contiguous())


def test_values_are_those_of_transformers(
    tmp_path: Path, stored: dict[str, npt.NDArray[Any]]
) -> None:
    tensors = read_checkpoint(tmp_path).tensors
    for name in ("gate_up_proj", "down_proj"):
        assert tensors[name].dtype == "MXFP4"
        assert tensors[name].n_bytes == sum(
            stored[f"{name}_{kind}"].nbytes for kind in ("blocks", "scales")
        )
        assert np.array_equal(plain_values(tensors[name]), decoded(stored, name))


def test_experts_multiply_the_blocks_as_stored(
    tmp_path: Path, stored: dict[str, npt.NDArray[Any]]
) -> None:
    """Gates and ups take turns by rows; activations are rounded to 8 bits, weights are not."""
    tensors = read_checkpoint(tmp_path).tensors
    outs = []
    for ops, format_ in ((CpuOps("stored"), "mxfp4"), (TorchOps("cpu", "float32"), "float32")):
        is_torch = isinstance(ops, TorchOps)
        read = plain_values if is_torch else stored_values
        whole = {name: read(tensor) for name, tensor in tensors.items()}
        wrap: Any = torch.from_numpy if is_torch else np.ascontiguousarray

        def parts(sources: Any, whole: Any = whole) -> list[Any]:
            return [source.of(whole[source.name]) for source in sources]

        gate_up = NAMES.gate_up_of("", CONFIG, DIM, gated=True)
        down = NAMES.down_of("", CONFIG, DIM, HIDDEN)
        b_gate_up, b_down = (
            NAMES.gate_up_of("", CONFIG, None, gated=True),
            NAMES.down_of("", CONFIG, DIM, None),
        )
        generator = np.random.default_rng(1)
        x = generator.standard_normal((20, DIM), np.float32)
        op: Any = Experts(
            x=wrap(x),
            norm=None,
            eps=1e-5,
            router=wrap(generator.standard_normal((20, N), np.float32)),
            config=CONFIG,
            experts=Expert(
                gate_up=[
                    ops.matrix(parts(gate_up[2 * i : 2 * i + 2]), format_, gated=True)
                    for i in range(N)
                ],
                b_gate_up=ops.vector(parts(b_gate_up)),
                down=[ops.matrix(parts(down[i : i + 1]), format_) for i in range(N)],
                b_down=ops.vector(parts(b_down)),
            ),
            activation="clamped",
            residual=None,
            out=wrap(np.zeros_like(x)),
        )
        program, state = ops.program(20), StepState(20)
        program.append(op)
        state.set([0] * 20, 0)
        assert program.run(state)
        outs.append(np.asarray(op.out).copy())
    ours, exact = outs
    assert np.linalg.norm(ours - exact) < 0.02 * np.linalg.norm(exact)
    first = decoded(stored, "gate_up_proj")[0]
    assert np.array_equal(plain_values(tensors["gate_up_proj"])[0, 0::2], first[0::2])


def test_parts_that_do_not_fit_are_refused(
    tmp_path: Path, stored: dict[str, npt.NDArray[Any]]
) -> None:
    stored["down_proj_scales"] = stored["down_proj_scales"][:, :, :1].copy()
    save_file(stored, tmp_path / "model.safetensors")
    with pytest.raises(ModelLoadError, match=r"down_proj_blocks: has shape \[4, 96, 2, 16\]"):
        read_checkpoint(tmp_path)
