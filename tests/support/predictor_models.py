"""Random models with a block that predicts one token more, and what it computes, in torch.

transformers leaves these blocks out, so the equations stand here: those of "multi-token prediction"
in the technical report of DeepSeek-V3 (arXiv 2412.19437, 2.2), as vLLM (glm4_moe_mtp) and llama.cpp
(glm4-moe, qwen35) have them for the families here. The layer of a block and what comes after it are
a model of transformers with one layer, over the mixed embeddings.
"""

import copy
import json
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load_file, save_file

from tests.support.tiny_models import Family, oracle, save_model

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Layout:
    """How a family stores its block."""

    prefix: str  # {}: the number of the model's layers
    names: dict[str, str]
    config: dict[str, int]
    one_layer: dict[str, Any]
    """What makes a model of one layer like that of the block."""


_APART = Layout(
    prefix="mtp.layers.0.",
    names={
        "fusion": "mtp.fc",
        "embedding_norm": "mtp.pre_fc_norm_embedding",
        "hidden_norm": "mtp.pre_fc_norm_hidden",
        "model.norm": "mtp.norm",
    },
    config={"mtp_num_hidden_layers": 1},
    one_layer={"num_hidden_layers": 1, "layer_types": ["full_attention"]},
)
_LAYER = "model.layers.{}."
_APPENDED = Layout(
    prefix=_LAYER,
    names={
        "fusion": f"{_LAYER}eh_proj",
        "embedding_norm": f"{_LAYER}enorm",
        "hidden_norm": f"{_LAYER}hnorm",
        "model.norm": f"{_LAYER}shared_head.norm",
        "model.embed_tokens": f"{_LAYER}embed_tokens",
        "lm_head": f"{_LAYER}shared_head.head",
    },
    config={"num_nextn_predict_layers": 1},
    one_layer={"num_hidden_layers": 1, "first_k_dense_replace": 0},
)


def layout_of(family: Family) -> Layout:
    return _APPENDED if family.name == "Glm4Moe" else _APART


class Predictor:
    """The block of `model`."""

    def __init__(self, model: Any, family: Family, *, own_tables: bool = False) -> None:
        """`own_tables`: an embedding and a head of its own; otherwise those of the model."""
        layout = layout_of(family)
        one = replace(family, options={**family.options, **layout.one_layer})
        config = model.config
        self.model = model
        self.one = oracle(
            one,
            seed=1,
            vocab_size=config.vocab_size,
            bos_token_id=config.bos_token_id,
            eos_token_id=config.eos_token_id,
        )
        if not own_tables:
            self.one.model.embed_tokens = model.model.embed_tokens
            self.one.lm_head = model.lm_head
        dim = config.hidden_size
        self.fusion = torch.nn.Parameter(torch.randn(dim, 2 * dim) * dim**-0.5)
        self.embedding_norm, self.hidden_norm = (self._norm() for _ in range(2))

    def _norm(self) -> Any:
        norm = copy.deepcopy(self.model.model.norm)
        with torch.no_grad():
            norm.weight.add_(torch.randn_like(norm.weight) * 0.1)
        return norm

    def parameters(self) -> list[torch.nn.Parameter]:
        norms = [*self.embedding_norm.parameters(), *self.hidden_norm.parameters()]
        return [*self.one.parameters(), self.fusion, *norms]

    def logits(self, token_ids: list[int]) -> Floats:
        """(n - 1, vocab_size): row i, from the model's output at i and token i + 1, predicts token
        i + 2.
        """
        ids = torch.tensor([token_ids])
        with torch.no_grad():
            hidden = self.model.model(ids).last_hidden_state[:, :-1]
            embedded = self.one.model.embed_tokens(ids[:, 1:])
            both = torch.cat([self.embedding_norm(embedded), self.hidden_norm(hidden)], -1)
            mixed = both @ self.fusion.T
            found: Floats = self.one(inputs_embeds=mixed).logits[0].numpy()
            return found

    def tensors(self, family: Family) -> dict[str, torch.Tensor]:
        """Under the names of the family's checkpoints."""
        layout, n_layers = layout_of(family), self.model.config.num_hidden_layers
        with tempfile.TemporaryDirectory() as path:
            self.one.save_pretrained(path)
            stored = load_file(Path(path) / "model.safetensors")
        if "lm_head.weight" not in stored:
            stored["lm_head.weight"] = self.one.lm_head.weight.detach().clone()
        stored |= {
            "fusion.weight": self.fusion.detach(),
            "embedding_norm.weight": self.embedding_norm.weight.detach(),
            "hidden_norm.weight": self.hidden_norm.weight.detach(),
        }
        named = {
            name.format(n_layers) + ".weight": stored[f"{own}.weight"]
            for own, name in layout.names.items()
        }
        prefix = layout.prefix.format(n_layers)
        named |= {
            prefix + name.removeprefix("model.layers.0."): tensor
            for name, tensor in stored.items()
            if name.startswith("model.layers.0.")
        }
        return named


def add_predictor(path: Path, predictor: Predictor, family: Family) -> None:
    """Stores the block beside its model, in the directory `path`."""
    file = path / "model.safetensors"
    save_file(load_file(file) | predictor.tensors(family), file, metadata={"format": "pt"})
    config = path / "config.json"
    values = json.loads(config.read_text("utf-8")) | layout_of(family).config
    config.write_text(json.dumps(values), "utf-8")


def save_predicting(path: Path, family: Family, *, own_tables: bool = False) -> Predictor:
    """Writes a random model with a block, a tokenizer and a template."""
    predictor = Predictor(save_model(path, family), family, own_tables=own_tables)
    add_predictor(path, predictor, family)
    return predictor


def make_predictable(predictor: Predictor, step: int, deceived: set[int]) -> None:
    """The model says token + `step` after each token, very surely, and so does the block, but not
    after `deceived` ones: after these it predicts what does not come. Of models whose norms have
    plain weights, and blocks with tables of their own.
    """
    model, one = predictor.model, predictor.one
    vocab_size, dim = model.config.vocab_size, model.config.hidden_size
    with torch.no_grad():
        for parameter in [*model.model.parameters(), *one.model.parameters()]:
            # Layers add nothing, and norms only norm.
            parameter.fill_(1.0 if parameter.ndim == 1 else 0.0)
        directions = torch.randn(vocab_size, dim, generator=torch.Generator().manual_seed(0))
        directions /= directions.norm(dim=-1, keepdim=True)
        heard = directions.clone()
        for token_id in deceived:
            heard[token_id] = directions[(token_id + 1) % vocab_size]
        for each, table in ((model, directions), (one, heard)):
            each.model.embed_tokens.weight.copy_(table)
            each.lm_head.weight.copy_(2.0 * directions.roll(step, 0))
        predictor.fusion.copy_(torch.cat([torch.eye(dim), torch.zeros(dim, dim)], -1))
        for norm in (predictor.embedding_norm, predictor.hidden_norm):
            norm.weight.fill_(1.0)
