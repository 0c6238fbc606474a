"""The tensors of a block that predicts one token more: in blocks, as copies, missing or wrong."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gguf
import numpy as np
import numpy.typing as npt
import pytest
import torch
from safetensors.torch import load_file, save_file

from engine import Engine, ModelLoadError
from engine.cache.kv import KVCache
from engine.checkpoint.sources import Source
from engine.draft import opening
from engine.draft.mtp import BlockDrafter
from engine.gguf.blocks import BlockRows
from engine.model.model import Model
from engine.model.predictor import PredictorFusion, load_predictor
from engine.sampling.logits import Logits
from tests.support.family_models import FAMILY_MODELS
from tests.support.gguf_blocks import decoded, random_rows
from tests.support.predictor_models import Floats, save_predicting
from tests.support.tiny_models import save_model

PAIR = Path(__file__).parents[1] / "gguf" / "pairs" / "glm4moe-mtp-bf16.gguf"
FUSION = "blk.2.nextn.eh_proj.weight"
NEXT = "model.layers.3"

Type = gguf.GGMLQuantizationType
Tensors = dict[str, torch.Tensor]
Bytes = npt.NDArray[np.uint8]
Change = Callable[[str, Floats], "tuple[Floats | Bytes, Type] | None"]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("predictors") / "model"
    save_predicting(path, FAMILY_MODELS["glm4_moe"])
    return path


class Block(NamedTuple):
    """A block that was loaded, and its model."""

    model: Model
    block: Model
    fusion: PredictorFusion


def block_of(path: Path, *, dtype: str = "float32") -> Block:
    fusions: list[PredictorFusion] = []

    def watched(*args: Any, **options: Any) -> Any:
        weights, fusion = load_predictor(*args, **options)
        fusions.append(fusion)
        return weights, fusion

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "load_predictor", watched)
        engine = Engine.load(path, device="cpu", dtype=dtype, n_threads=1, speculate="mtp")
    assert engine.speculator is not None
    drafter = engine.speculator.drafters[-1]
    assert isinstance(drafter, BlockDrafter)
    return Block(engine.model, drafter.block.model, fusions[0])


def rewritten(path: Path, change: Change) -> None:
    """Writes the pair with its tensors changed, as float32 numbers; None leaves one out."""
    reader = gguf.GGUFReader(PAIR)
    writer = gguf.GGUFWriter(path, "glm4moe")
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            of_items = field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(name, field.contents(), field.types[0], of_items)
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        changed = change(tensor.name, values)
        if changed is not None:
            writer.add_tensor(tensor.name, changed[0], raw_dtype=changed[1])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def logits(found: Block) -> Logits:
    """After a token; the outputs of the model before it are all 0.5."""
    np.asarray(found.fusion.hidden)[:] = 0.5
    cache = KVCache(found.block.config, found.block.ops, max_seq_len=found.block.max_seq_len)
    return np.array(found.block.decode([7], cache))


def test_a_matrix_in_blocks_counts_as_the_numbers_in_it(tmp_path: Path) -> None:
    in_blocks, as_numbers = tmp_path / "blocks.gguf", tmp_path / "numbers.gguf"

    def blocks(name: str, values: Floats) -> tuple[Floats | Bytes, Type]:
        if name in (FUSION, "blk.0.attn_output.weight"):
            return gguf.quants.quantize(values, Type.Q8_0), Type.Q8_0
        return values, Type.F32

    def numbers(name: str, values: Floats) -> tuple[Floats, Type]:
        stored, type_ = blocks(name, values)
        return gguf.quants.dequantize(stored, type_), Type.F32

    rewritten(in_blocks, blocks)
    rewritten(as_numbers, numbers)
    found, wanted = (logits(block_of(each)) for each in (in_blocks, as_numbers))
    np.testing.assert_array_equal(found, wanted)
    as_stored = block_of(in_blocks, dtype="auto")
    assert as_stored.fusion.from_hidden.format == "8bit"
    assert np.linalg.norm(logits(as_stored) - wanted) < 0.02 * np.linalg.norm(wanted)


@pytest.mark.parametrize(("name", "n_in"), [("Q8_0", 128), ("Q4_K", 512), ("Q4_K", 256)])
def test_columns_of_blocks_are_blocks_where_these_end(name: str, n_in: int) -> None:
    rows, half = random_rows(name, 3, n_in), n_in // 2
    for begin in (0, half):
        part = Source("m", (3, n_in), columns=(begin, begin + half)).of(rows)
        assert isinstance(part, BlockRows) == (half % rows.type.columns == 0)
        values = decoded(part) if isinstance(part, BlockRows) else part
        np.testing.assert_array_equal(values, decoded(rows)[:, begin : begin + half])


def test_copies_of_the_model_s_tables_take_no_memory(path: Path, tmp_path: Path) -> None:
    model, block, _ = block_of(path)
    assert block.weights.embedding is model.weights.embedding
    assert block.weights.head is model.weights.head
    save_predicting(tmp_path / "own", FAMILY_MODELS["glm4_moe"], own_tables=True)
    model, block, _ = block_of(tmp_path / "own")
    assert block.weights.embedding is not model.weights.embedding
    assert block.weights.head is not model.weights.head


def drop(tensors: Tensors, name: str) -> None:
    del tensors[name]


def cut(tensors: Tensors, name: str) -> None:
    tensors[name] = tensors[name][:-1].contiguous()


def as_integers(tensors: Tensors, name: str) -> None:
    tensors[name] = tensors[name].to(torch.int8)


@pytest.mark.parametrize(
    ("spoil", "name", "message"),
    [
        (drop, f"{NEXT}.enorm.weight", r"is missing; predicting more tokens asks for \[64\]"),
        (drop, f"{NEXT}.mlp.gate.weight", r"is missing; predicting more tokens asks for \[8, 64\]"),
        (cut, f"{NEXT}.shared_head.head.weight", r"has shape \[319, 64\], .* for \[320, 64\]"),
        (as_integers, f"{NEXT}.eh_proj.weight", "dtype I8 is not supported; allowed: F32"),
    ],
)
def test_a_block_that_is_not_whole_is_refused(
    path: Path,
    tmp_path: Path,
    spoil: Callable[[Tensors, str], None],
    name: str,
    message: str,
) -> None:
    for file in path.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    tensors = load_file(tmp_path / "model.safetensors")
    spoil(tensors, name)
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    Engine.load(tmp_path, device="cpu", n_threads=1)
    with pytest.raises(ModelLoadError, match=f"{name}: {message}"):
        block_of(tmp_path)


def test_a_gguf_file_may_have_lost_its_block(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    rewritten(file, lambda name, values: None if "blk.2." in name else (values, Type.F32))
    assert Engine.load(file, device="cpu", n_threads=1).config.n_layers == 2
    with pytest.raises(ModelLoadError, match="mtp needs a model with a block"):
        block_of(file)


def test_a_block_of_a_family_that_is_not_read_is_left_out(tmp_path: Path) -> None:
    save_model(tmp_path, FAMILY_MODELS["ernie4_5_moe"])
    file = tmp_path / "model.safetensors"
    block = {
        f"model.mtp_{name}.0.weight": torch.ones(64)
        for name in ("emb_norm", "hidden_norm", "linear_proj", "block.0.input_layernorm")
    }
    save_file(load_file(file) | block, file, metadata={"format": "pt"})
    Engine.load(tmp_path, device="cpu", n_threads=1)
    with pytest.raises(ModelLoadError, match="mtp needs a model with a block"):
        block_of(tmp_path)
