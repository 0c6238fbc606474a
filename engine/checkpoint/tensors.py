"""The tensors that a checkpoint must hold, by name, shape and dtype.

Owns the comparison of a family's sources with what is stored. All tensors are verified before
anything is allocated.
"""

import re
from collections.abc import Mapping

from ..errors import ModelLoadError
from ..files import shown_name
from ..gguf.types import READ
from ..stored_tensor import StoredTensor
from .config import ModelConfig
from .families.known import ARCHITECTURES, FAMILIES
from .families.predictor import PredictorSources
from .sources import ModelSources
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
    rows = {source.name for source in needed if source.as_row or source.flattened}
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
        # A vector may be stored as a single row.
        if tensor.shape != wanted and not (name in rows and tensor.shape == (1, *wanted)):
            raise ModelLoadError(
                f"{tensor.file}: {name}: has shape {list(tensor.shape)}, "
                f"{says} asks for {list(wanted)}"
            )
        allowed_dtypes = PLAIN_DTYPES if len(wanted) <= 1 else (*PLAIN_DTYPES, *READ)
        if tensor.dtype not in allowed_dtypes:
            allowed = ", ".join(PLAIN_DTYPES)
            raise ModelLoadError(
                f"{tensor.file}: {name}: dtype {tensor.dtype} is not supported; allowed: {allowed}"
            )
    return {name: tensors[name] for name in expected}


def predictor_tensors(
    checkpoint: Checkpoint, config: ModelConfig
) -> tuple[PredictorSources, dict[str, StoredTensor]] | None:
    """The block that predicts one token more, and its tensors; None: the checkpoint has none.

    Raises ModelLoadError for a block with other tensors than the family's.
    """
    family = FAMILIES.get(config.architecture)
    if family is None or family.predictor is None:
        return None
    sources, tensors = family.predictor(config), checkpoint.tensors
    if sources.from_hidden.name not in tensors:
        return None
    expected = {source.name: source.shape for source in sources.needed()}
    for name, shape in expected.items():
        found = tensors[name].shape if name in tensors else None
        if found != shape:
            says = "is missing" if found is None else f"has shape {list(found)}"
            raise ModelLoadError(
                f"{checkpoint.file}: {name}: {says}; predicting more tokens asks for {list(shape)}"
            )
    return sources, {name: tensors[name] for name in expected}


def matrix_dtypes(tensors: Mapping[str, StoredTensor]) -> set[str]:
    """The dtypes of a checkpoint's matrices."""
    return {tensor.dtype for tensor in tensors.values() if len(tensor.shape) >= 2}
