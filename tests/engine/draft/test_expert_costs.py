"""What passes over several tokens cost where each token chooses experts of its own."""

from typing import Any

import numpy as np
import pytest
import torch

from engine.cache.kv import KVCache
from engine.checkpoint.config_json import model_config
from engine.checkpoint.safetensors import read_checkpoint
from engine.checkpoint.tensors import check_tensors
from engine.device import reference, routing_reference
from engine.device.torch_ops import TorchOps
from engine.draft.row_costs import measure_row_costs
from engine.model.loading import load_weights
from engine.model.model import MAX_DECODE_ROWS, Model
from tests.support.family_models import FAMILY_MODELS
from tests.support.tiny_models import VOCAB_SIZE, save_model

N_EXPERTS, N_USED = 64, 2


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    path = tmp_path_factory.mktemp("experts") / "model"
    save_model(path, FAMILY_MODELS["qwen3_moe"], num_experts=N_EXPERTS, num_experts_per_tok=N_USED)
    config, ops = model_config(path), TorchOps("cpu", "float32")
    weights = load_weights(check_tensors(read_checkpoint(path), config), config, ops)
    return Model(weights, config, ops, max_seq_len=128)


def test_the_rows_that_are_timed_choose_as_many_experts_as_those_of_a_text(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_chosen: dict[int, list[int]] = {}
    choose = routing_reference.choose

    def watched(numbers: torch.Tensor, *options: Any) -> Any:
        chosen, weights = choose(numbers, *options)
        n_chosen.setdefault(len(chosen), []).append(len(set(chosen.flatten().tolist())))
        return chosen, weights

    monkeypatch.setattr(reference, "choose", watched)
    cache = KVCache(model.config, model.ops, max_seq_len=128)
    measure_row_costs(model, cache, iter(range(10_000)).__next__, budget=10_000)
    timed = {n_rows: np.mean(counts) for n_rows, counts in n_chosen.items()}
    assert set(timed) == {1, 2, 4, 8, 16}
    assert timed[1] == N_USED
    n_chosen.clear()
    texts = np.random.default_rng(0).integers(0, VOCAB_SIZE, (8, 32 + MAX_DECODE_ROWS))
    for text in texts.tolist():
        cache.clear()
        model.prefill(text[:32], cache)
        n_chosen.pop(32, None)
        model.decode(text[32:], cache)
    of_text = np.mean(n_chosen[MAX_DECODE_ROWS])
    assert of_text > 4 * N_USED, "the model spreads its rows"
    assert 0.8 * of_text < timed[MAX_DECODE_ROWS] < 1.25 * of_text
