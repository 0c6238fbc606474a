"""docs/models.md: its numbers follow from the shapes that it gives, by the engine's arithmetic."""

import json
from pathlib import Path

import pytest

from engine import ModelDescription, model_config
from engine.checkpoint.families.known import ARCHITECTURES, FAMILIES
from engine.checkpoint.tensors import expected_shapes
from server.commands.hub import HubName
from tests.repository.test_docs import ROOT, rows

PAGE = (ROOT / "docs" / "models.md").read_text()
SHAPES = {name: cells for name, *cells in rows(PAGE, "shape of")}
N_TOKENS = 4096  # of the KV cache in the page's numbers


def described(directory: Path, cells: list[str]) -> ModelDescription:
    """A model of a row's shape."""
    family, *sizes, tied = cells
    keys = (
        "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
        "head_dim", "intermediate_size", "vocab_size",
    )  # fmt: skip
    config = {
        "architectures": [f"{family}ForCausalLM"],
        "tie_word_embeddings": {"yes": True, "no": False}[tied],
        **dict(zip(keys, map(int, sizes), strict=True)),
    }
    (directory / "config.json").write_text(json.dumps(config))
    read = model_config(directory)
    n_params = 0
    for shape in expected_shapes(read).values():
        n_params += shape[0] * (shape[1] if len(shape) == 2 else 1)
    return ModelDescription(
        path=directory,
        model_id="",
        config=read,
        n_params=n_params,
        stored_bytes={},
        dtypes={},
        groups=(),
        is_gguf=False,
        n_files=0,
        n_tokens=0,
        tokenizer="",
        has_chat_template=False,
        default_format="bfloat16",
    )


@pytest.mark.parametrize("row", rows(PAGE, "model"), ids=lambda row: str(row[0]))
def test_parameters_and_memory_follow_from_the_shape(row: list[str], tmp_path: Path) -> None:
    name, parameters, *memory = row
    assert HubName.read(name) == HubName(name, None)
    model = described(tmp_path, SHAPES[name])
    assert parameters == f"{model.n_params / 1e6:,.0f} M"
    formats = ("bfloat16", "8bit", "4bit")
    assert memory == [f"{model.memory_bytes(N_TOKENS, each) / 1e9:.1f} GB" for each in formats]


def test_both_tables_have_the_same_models() -> None:
    assert [row[0] for row in rows(PAGE, "model")] == list(SHAPES)
    assert {f"{family}ForCausalLM" for family, *_ in SHAPES.values()} <= set(FAMILIES)
    assert f"{N_TOKENS:,} tokens" in PAGE


def test_every_family_and_every_architecture_is_listed() -> None:
    listed = [cells for _, *cells in rows(PAGE, "family")]
    in_config = [name for names, *_ in listed for name in _names(names)]
    in_gguf = {name for _, names, *_ in listed if names for name in _names(names)}
    assert sorted(in_config) == sorted(FAMILIES)
    assert in_gguf == set(ARCHITECTURES)


def _names(cell: str) -> list[str]:
    return cell.replace("`", "").split(", ")
