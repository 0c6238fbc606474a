"""gpt-oss's attention against transformers: sinks, YaRN without rounded borders, and the window."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from engine.checkpoint.ropes import RopeConfig, YarnScaling
from engine.device.arguments import Attention
from engine.device.cpu.ops import CpuOps
from engine.device.step import StepState
from engine.device.torch_ops import TorchOps
from engine.model.rope import rope_tables
from tests.support.tiny_models import YARN_BETAS, YARN_ROPE, fill_randomly

N_ROWS, HEADS, KV_HEADS, HEAD_DIM, WINDOW = 60, 4, 2, 16, 12
ROPE = RopeConfig(
    theta=500.0,
    rotary_dim=HEAD_DIM,
    scaling=YarnScaling(4.0, 32, 0.1 * math.log(4.0) + 1.0, 4.0, 0.25, truncate=False),
)


def oracle(layer: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Queries, keys and values (rows, n), what the heads say, and the sinks."""
    import transformers
    from transformers.models.gpt_oss import modeling_gpt_oss as gpt_oss

    config = transformers.GptOssConfig(
        num_hidden_layers=2,
        hidden_size=HEADS * HEAD_DIM,
        head_dim=HEAD_DIM,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        sliding_window=WINDOW,
        max_position_embeddings=256,
        rope_parameters={**YARN_ROPE, **YARN_BETAS, "truncate": False},
    )
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    module = gpt_oss.GptOssAttention(config, layer)
    fill_randomly(module)
    with torch.no_grad():
        # The projection of the heads would only mix them.
        module.o_proj.weight.copy_(torch.eye(HEADS * HEAD_DIM))
        module.o_proj.bias.zero_()
        module.sinks.copy_(torch.tensor([-1.0, 0.5, 2.0, 4.0]))
        x = torch.randn(1, N_ROWS, HEADS * HEAD_DIM)
        places = torch.arange(N_ROWS)
        tables = gpt_oss.GptOssRotaryEmbedding(config)(x, places[None])
        ages = places[:, None] - places
        hidden = (ages < 0) | (ages >= (WINDOW if layer == 0 else N_ROWS))
        mask = torch.zeros(1, 1, N_ROWS, N_ROWS).masked_fill(hidden, float("-inf"))
        out, _ = module(x, position_embeddings=tables, attention_mask=mask)
        parts = [project(x) for project in (module.q_proj, module.k_proj, module.v_proj)]
    return torch.cat(parts, -1)[0], out[0], module.sinks.detach()


@pytest.mark.parametrize("make_ops", [CpuOps, lambda name: TorchOps("cpu", name)])
@pytest.mark.parametrize("layer", [0, 1], ids=["sliding", "full"])
def test_is_that_of_transformers(layer: int, make_ops: Any) -> None:
    qkv, expected, sinks = oracle(layer)
    ops = make_ops("float32")
    (keys,), (values,), _ = ops.kv_memory([(KV_HEADS, N_ROWS, HEAD_DIM)])
    cos, sin = (ops.table(table) for table in rope_tables(ROPE, N_ROWS))
    op = Attention(
        qkv=ops.table(qkv.numpy()),
        k_cache=keys,
        v_cache=values,
        n_heads=HEADS,
        eps=1e-5,
        cos=cos,
        sin=sin,
        window=WINDOW if layer == 0 else 0,
        scale=HEAD_DIM**-0.5,
        sinks=ops.table(sinks.numpy()),
        out=ops.zeros((N_ROWS, HEADS * HEAD_DIM), "float32"),
    )
    program = ops.program(N_ROWS)
    program.append(op)
    state = StepState(N_ROWS)
    state.set([0] * N_ROWS, 0)
    assert program.run(state)
    np.testing.assert_allclose(np.asarray(op.out), expected.numpy(), atol=2e-5)
