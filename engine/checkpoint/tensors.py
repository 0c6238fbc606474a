"""The tensors that a checkpoint must hold, by name, shape and dtype.

Owns the comparison of a family's sources with what is stored. All tensors are verified before
anything is allocated.
"""

import re
from collections.abc import Iterable, Mapping

from ..errors import ModelLoadError
from ..files import shown_name
from ..gguf.types import READ
from ..stored_tensor import StoredTensor
from .config import ModelConfig
from .families.known import ARCHITECTURES, FAMILIES
from .families.predictor import PredictorSources
from .sources import ModelSources, Shape, Source
from .stored import PLAIN_DTYPES, Checkpoint


def model_sources(config: ModelConfig) -> ModelSources:
    """Where the weights of such a model are in a checkpoint: the names of architectures differ
    between config.json ("LlamaForCausalLM") and GGUF files ("llama").
    """
    if config.architecture in ARCHITECTURES:
        return ARCHITECTURES[config.architecture].sources(config)
    return FAMILIES[config.architecture].sources(config)


def expected_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Every tensor that a checkpoint of `config` must hold, by its name."""
    needed = model_sources(config).stored(tied=config.tie_embeddings)
    return {source.name: source.shape for source in needed}


def check_tensors(checkpoint: Checkpoint, config: ModelConfig) -> dict[str, StoredTensor]:
    """The tensors that the model needs, after comparing names, shapes and dtypes with `config`.

    Raises ModelLoadError naming file and tensor. A stored head of a tied model is ignored.
    """
    sources, expected = model_sources(config), expected_shapes(config)
    allowed_shapes = {sources.head.name: sources.head.shape} | expected
    ignored, tensors = re.compile(sources.ignored), checkpoint.tensors
    says = checkpoint.described_in
    needed = sources.stored(tied=config.tie_embeddings)
    rows = _stored_as_rows(needed)
    for name, shape in expected.items():
        if name not in tensors:
            raise ModelLoadError(
                f"{checkpoint.file}: {name}: missing; {says} asks for shape {list(shape)}"
            )
    for name, tensor in tensors.items():
        if ignored.fullmatch(name):
            continue
        wanted = allowed_shapes.get(name)
        if wanted is None:
            raise ModelLoadError(
                f"{tensor.file}: {shown_name(name)}: a {config.architecture} with this "
                f"{says} has no such tensor"
            )
        _check(tensor, wanted, f"{says} asks", is_row=name in rows)
    return {name: tensors[name] for name in expected}


def predictor_tensors(
    checkpoint: Checkpoint, config: ModelConfig
) -> tuple[PredictorSources, dict[str, StoredTensor]] | None:
    """The block that predicts one token more, and its tensors, with the model's embedding and head;
    None: the checkpoint has none.

    Raises ModelLoadError for a block with other tensors than the family's.
    """
    found, tensors = _predictor_sources(config), checkpoint.tensors
    if found is None or found.from_hidden.name not in tensors:
        return None
    sources = found.stored_in(tensors)
    rows = _stored_as_rows(sources.needed())
    expected = {source.name: source.shape for source in sources.needed()}
    asks = "predicting more tokens asks"
    for name, shape in expected.items():
        if name not in tensors:
            raise ModelLoadError(f"{checkpoint.file}: {name}: is missing; {asks} for {list(shape)}")
        _check(tensors[name], shape, asks, is_row=name in rows)
    names = dict.fromkeys([*expected, *_tables(config)])
    return sources, {name: tensors[name] for name in names}


def _stored_as_rows(sources: Iterable[Source]) -> set[str]:
    return {source.name for source in sources if source.as_row or source.flattened}


def _check(tensor: StoredTensor, wanted: Shape, asks: str, *, is_row: bool) -> None:
    """Raises ModelLoadError for another shape, or a dtype that is not read. `is_row`: a vector may
    be stored as a single row.
    """
    where = f"{tensor.file}: {shown_name(tensor.name)}"
    if tensor.shape != wanted and not (is_row and tensor.shape == (1, *wanted)):
        raise ModelLoadError(f"{where}: has shape {list(tensor.shape)}, {asks} for {list(wanted)}")
    allowed_dtypes = PLAIN_DTYPES if len(wanted) <= 1 else (*PLAIN_DTYPES, *READ)
    if tensor.dtype not in allowed_dtypes:
        allowed = ", ".join(PLAIN_DTYPES)
        raise ModelLoadError(f"{where}: dtype {tensor.dtype} is not supported; allowed: {allowed}")


def _tables(config: ModelConfig) -> list[str]:
    """The names of the model's embedding and head, which are one tensor if they are tied."""
    sources = model_sources(config)
    tables = [sources.embedding] if config.tie_embeddings else [sources.embedding, sources.head]
    return [source.name for source in tables]


def _predictor_sources(config: ModelConfig) -> PredictorSources | None:
    if config.architecture in ARCHITECTURES:
        return ARCHITECTURES[config.architecture].predictor(config)
    family = FAMILIES[config.architecture]
    return None if family.predictor is None else family.predictor(config)


def matrix_dtypes(tensors: Mapping[str, StoredTensor]) -> set[str]:
    """The dtypes of a checkpoint's matrices."""
    return {tensor.dtype for tensor in tensors.values() if len(tensor.shape) >= 2}
