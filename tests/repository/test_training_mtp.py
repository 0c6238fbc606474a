"""The training of a block that predicts one token more: it learns, and the engine drafts with it
what it drafts in torch.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from engine import Engine
from tests.support.drafted import drafted_after, told, with_cheap_drafts
from tests.support.exported_model import STORIES, as_training_sets_torch, export_random
from training.export import load_exported
from training.model import Llama
from training.mtp import main
from training.mtp_block import MtpBlock, block_loss
from training.tokenizer import load_tokenizer


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    with as_training_sets_torch():
        yield


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A model, and the same with a block that was trained for it."""
    path, text = export_random(tmp_path_factory.mktemp("training"))
    output = path.with_name("predicting")
    options = {"--model": path, "--output": output, "--text": text, "--tokens": "60k"}
    assert main([str(part) for option in options.items() for part in option]) == 0
    return path, output


def trained(paths: tuple[Path, Path]) -> tuple[MtpBlock, Llama]:
    model = load_exported(paths[0])
    block = MtpBlock(model.config)
    prefix = f"model.layers.{model.config.n_layers}."
    stored = load_file(paths[1] / "model.safetensors")
    block.load_state_dict(
        {
            name.removeprefix(prefix): tensor.float()
            for name, tensor in stored.items()
            if name.startswith(prefix)
        }
    )
    return block, model


@pytest.fixture(scope="module")
def engine(paths: tuple[Path, Path]) -> Engine:
    return with_cheap_drafts(
        lambda: Engine.load(paths[1], device="cpu", dtype="float32", speculate="mtp")
    )


def test_a_block_learns(paths: tuple[Path, Path]) -> None:
    block, model = trained(paths)
    begun = MtpBlock(model.config)
    begun.begin_as(model)
    tokenizer = load_tokenizer(paths[0])
    rows = [tokenizer.encode(story).ids[:20] for story in STORIES[:32]]
    with torch.no_grad():
        before, after = (
            block_loss(each, model, torch.tensor(rows), 2)[0] for each in (begun, block)
        )
    # A random model's tokens are hard to guess.
    assert after < before - 0.1


def test_with_its_block_the_model_is_the_same(paths: tuple[Path, Path], engine: Engine) -> None:
    plain = Engine.load(paths[0], device="cpu", dtype="float32", speculate="off")
    prompt = plain.tokenizer.encode(STORIES[3])[:24]
    assert told(engine, "sampled", prompt) == told(plain, "sampled", prompt)


def test_drafts_in_torch_are_those_of_the_engine(paths: tuple[Path, Path], engine: Engine) -> None:
    block, model = trained(paths)
    prompt = engine.tokenizer.encode(STORIES[7])[:24]
    drafted = drafted_after(engine, prompt, 3)
    token_ids = torch.tensor([[*prompt, *drafted[:2]]])
    with torch.no_grad():
        hidden = model.hidden(token_ids)[:, :-1]
        steps = block.drafts(hidden, token_ids[:, 1:], model, 3)
    first = len(prompt) - 2
    expected = [int(np.argmax(logits[0, first + n].numpy())) for n, logits in enumerate(steps)]
    assert drafted == expected
