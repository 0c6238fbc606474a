"""The training of an EAGLE-3 head: it learns, and drafts in torch what it drafts in the engine."""

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from engine import Engine
from tests.support.drafted import SETTINGS, block_drafter, with_cheap_drafts
from training.eagle import layers_of, main
from training.eagle_head import EagleHead, draft_loss, followed
from training.export import export_target, load_exported
from training.model import Llama, ModelConfig
from training.tokenizer import load_tokenizer, save_tokenizer, train_tokenizer

TINY = ModelConfig(dim=64, n_layers=4, n_heads=2, n_kv_heads=1, hidden_dim=64, head_dim=32)
STORIES = [
    f"Once there was a cat called number {n} who met a dog by the old mill and ate {n} berries."
    for n in range(300)
]
N_DRAFTED = 100


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    torch.set_flush_denormal(False)  # the training sets it, which other tests would notice


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model, as `training` exports it, with a head that was trained for it inside."""
    path = tmp_path_factory.mktemp("training")
    save_tokenizer(train_tokenizer(STORIES, vocab_size=300), path / "tokenizer")
    config = replace(TINY, vocab_size=load_tokenizer(path / "tokenizer").get_vocab_size())
    torch.manual_seed(0)
    model = Llama(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    checkpoint = path / "checkpoint.pt"
    torch.save({"model": model.state_dict(), "model_config": asdict(config)}, checkpoint)
    export_target(checkpoint, path / "tokenizer", path / "model")
    text = path / "stories.txt"
    text.write_text("\n<|endoftext|>\n".join(STORIES), "utf-8")
    options = {
        "--model": path / "model",
        "--output": path / "model" / "eagle",
        "--text": text,
        "--tokens": "30k",
        "--draft-vocab": N_DRAFTED,
    }
    assert main([str(part) for option in options.items() for part in option]) == 0
    return path / "model"


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
    drafter = block_drafter(engine)
    engine.generator.begin_stream_ex(prompt, SETTINGS["greedy"], max_new_tokens=2)
    drafter.prospect(3)
    drafted = drafter.draft(3)
    token_ids = torch.tensor([[*prompt, *drafted[:2]]])
    with torch.no_grad():
        residuals, _ = followed(model, token_ids, layers_of(model))
        embedded = model.model.embed_tokens(token_ids[:, 1:])
        steps = head.drafts(residuals[:, :-1], embedded, 3)
    first = len(prompt) - 2
    expected = [int(chosen[logits[0, first + step].argmax()]) for step, logits in enumerate(steps)]
    assert list(drafted) == expected
