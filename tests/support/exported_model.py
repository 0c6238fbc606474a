"""A random model, as `training` exports it, and the stories that its tokenizer learnt from."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import torch

from training.export import export_target
from training.model import Llama, ModelConfig
from training.tokenizer import load_tokenizer, save_tokenizer, train_tokenizer

STORIES = [
    f"Once there was a cat called number {n} who met a dog by the old mill and ate {n} berries."
    for n in range(300)
]
_TINY = ModelConfig(dim=64, n_layers=4, n_heads=2, n_kv_heads=1, hidden_dim=64, head_dim=32)


def export_random(path: Path) -> tuple[Path, Path]:
    """The folder of the model, in the folder `path`, and the file of the stories."""
    save_tokenizer(train_tokenizer(STORIES, vocab_size=300), path / "tokenizer")
    config = replace(_TINY, vocab_size=load_tokenizer(path / "tokenizer").get_vocab_size())
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
    return path / "model", text


@contextmanager
def as_training_sets_torch() -> Iterator[None]:
    """One thread; undoes what training sets for the whole process."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    torch.set_flush_denormal(False)
