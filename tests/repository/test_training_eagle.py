"""The training of an EAGLE-3 head: it learns, and drafts in torch what it drafts in the engine."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from engine import Engine
from tests.support.drafted import drafted_after, with_cheap_drafts
from tests.support.exported_model import STORIES, as_training_sets_torch, export_random
from training.eagle import layers_of, main
from training.eagle_head import EagleHead, draft_loss, followed
from training.export import load_exported
from training.model import Llama
from training.tokenizer import load_tokenizer

N_DRAFTED = 100


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    with as_training_sets_torch():
        yield


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with a head that was trained for it inside."""
    path, text = export_random(tmp_path_factory.mktemp("training"))
    options = {
        "--model": path,
        "--output": path / "eagle",
        "--text": text,
        "--tokens": "30k",
        "--draft-vocab": N_DRAFTED,
    }
    assert main([str(part) for option in options.items() for part in option]) == 0
    return path


def trained(path: Path) -> tuple[EagleHead, Llama, torch.Tensor]:
    """The head, its model, and the ids of the head's vocabulary."""
    model, tensors = load_exported(path), load_file(path / "eagle" / "model.safetensors")
    distances, taken = tensors.pop("d2t"), tensors.pop("t2d")
    chosen = distances + torch.arange(N_DRAFTED)
    assert taken.nonzero().flatten().tolist() == chosen.tolist()
    head = EagleHead(model.config, N_DRAFTED)
    head.load_state_dict({name: tensor.float() for name, tensor in tensors.items()})
    return head, model, chosen


def test_a_head_learns(model_path: Path) -> None:
    head, model, chosen = trained(model_path)
    begun = EagleHead(model.config, N_DRAFTED)
    begun.begin_as(model, chosen)
    tokenizer = load_tokenizer(model_path)
    rows = [tokenizer.encode(story).ids[:20] for story in STORIES[:32]]
    with torch.no_grad():
        before, after = (
            draft_loss(each, model, torch.tensor(rows), layers_of(model), chosen, 2)[1]
            for each in (begun, head)
        )
    # Of the first token of a draft, on rows that begin otherwise than those it was trained on.
    assert after[0] > before[0] + 0.05


def test_drafts_in_torch_are_those_of_the_engine(model_path: Path) -> None:
    head, model, chosen = trained(model_path)
    engine = with_cheap_drafts(
        lambda: Engine.load(model_path, device="cpu", dtype="float32", speculate="eagle")
    )
    prompt = engine.tokenizer.encode(STORIES[7])[:24]
    drafted = drafted_after(engine, prompt, 3)
    token_ids = torch.tensor([[*prompt, *drafted[:2]]])
    with torch.no_grad():
        residuals, _ = followed(model, token_ids, layers_of(model))
        embedded = model.model.embed_tokens(token_ids[:, 1:])
        steps = head.drafts(residuals[:, :-1], embedded, 3)
    first = len(prompt) - 2
    expected = [int(chosen[logits[0, first + step].argmax()]) for step, logits in enumerate(steps)]
    assert drafted == expected
