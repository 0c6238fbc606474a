"""What an EAGLE-3 head says of itself: a folder with config.json and model.safetensors.

Owns its keys, the names of its tensors, and the comparison with the model that it is for. The
equations are in `engine/model/eagle.py`. Knows no device.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ModelLoadError
from ..files import JsonObject, is_there, shown
from ..stored_tensor import StoredTensor
from .config import ModelConfig
from .config_json import model_config_of
from .directory import other_weights
from .families.names import Names
from .limits import MAX_VOCAB
from .safetensors import INDEX_FILE, SINGLE_FILE, read_checkpoint
from .sources import LayerSources, Source
from .stored import PLAIN_DTYPES, open_values

N_RESIDUALS = 3
"""Of the model, that a head reads."""
_LAYER_IDS = "eagle_aux_hidden_state_layer_ids"
_NAMES = Names(
    embedding="embed_tokens",
    norm="norm",
    layer="midlayer.",
    attention_norm="hidden_norm",
)
_WHOLE_NUMBERS = {"I64": "<i8", "I32": "<i4"}


@dataclass(frozen=True, slots=True, kw_only=True)
class EagleSources:
    """Where the weights of a head are."""

    config: ModelConfig
    """Of the head's layer; its vocabulary is the model's."""
    layers: tuple[int, ...]
    """Of the model: the head reads the residuals in front of these."""
    fc: Source  # (dim, 3 * the model's dim)
    embedding: Source | None  # (vocab_size, dim); None: the model's
    embedding_norm: Source  # (dim,)
    from_embedding: tuple[Source, ...]  # (qkv_dim, dim)
    layer: LayerSources
    norm: Source  # (dim,)
    head: Source  # (draft_vocab_size, dim)

    def needed(self) -> Iterator[Source]:
        yield from (self.fc, self.embedding_norm, self.norm, self.head, *self.from_embedding)
        if self.embedding is not None:
            yield self.embedding
        for field in dataclasses.fields(self.layer):
            yield from getattr(self.layer, field.name)


@dataclass(frozen=True, slots=True)
class EagleFiles:
    """A head that fits the model it is for."""

    sources: EagleSources
    tensors: Mapping[str, StoredTensor]
    token_ids: tuple[int, ...]
    """The token of each entry of the head's vocabulary."""

    @classmethod
    def open(cls, path: Path, target: ModelConfig) -> "EagleFiles":
        """`target`: of the model. Raises ModelLoadError that says what does not fit."""
        file = JsonObject.read(path / "config.json")
        config = _config(file, target)
        n_drafted = file.integer(
            "draft_vocab_size", low=1, high=config.vocab_size, default=config.vocab_size
        )
        _refuse_pickles(path)
        tensors = read_checkpoint(path).tensors
        sources = EagleSources(
            config=config,
            layers=_layers(file, target),
            fc=Source("fc.weight", (config.dim, N_RESIDUALS * target.dim)),
            **_weights(config, n_drafted, has_embedding="embed_tokens.weight" in tensors),
        )
        if sources.embedding is None and config.dim != target.dim:
            file.fail(
                "hidden_size", config.dim, f"{target.dim}, as the head has no embed_tokens.weight"
            )
        expected = {source.name: source.shape for source in sources.needed()}
        _check(path, tensors, expected)
        token_ids = _token_ids(path, tensors, n_drafted, config.vocab_size)
        return cls(sources, {name: tensors[name] for name in expected}, token_ids)


def is_eagle_head(path: Path) -> bool:
    """Whether the config.json of a folder says so. Raises ModelLoadError if it cannot be read."""
    file = path / "config.json"
    return is_there(file) and _is_head(JsonObject.read(file))


def _is_head(file: JsonObject) -> bool:
    names = file.values.get("architectures")
    return isinstance(names, list) and len(names) == 1 and str(names[0]).lower().endswith("eagle3")


def _config(file: JsonObject, target: ModelConfig) -> ModelConfig:
    """The layer is that of a Llama, whatever the model is."""
    if not _is_head(file):
        names = file.values.get("architectures")
        file.fail("architectures", names, "that of an EAGLE-3 head, such as LlamaForCausalLMEagle3")
    if file.integer("num_hidden_layers", low=1, high=1000, default=1) != 1:
        file.fail("num_hidden_layers", file.values["num_hidden_layers"], "1")
    if file.integer("vocab_size", low=1, high=MAX_VOCAB) != target.vocab_size:
        file.fail(
            "vocab_size",
            file.values["vocab_size"],
            f"{target.vocab_size}, that of the model; take a head that was trained for it",
        )
    as_llama = {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1}
    return replace(model_config_of(file.changed(as_llama)), tie_embeddings=False)


def _layers(file: JsonObject, target: ModelConfig) -> tuple[int, ...]:
    """In front of which layers of the model the residuals are read. The key has two meanings: by
    itself it counts so too, inside `eagle_config` the layers are those behind which they are read.
    """
    n = target.n_layers
    layers: Any = [2, n // 2, n - 3]
    nested = file.nested("eagle_config") if file.has("eagle_config") else None
    if file.has(_LAYER_IDS):
        layers = file.values[_LAYER_IDS]
    elif nested is not None and nested.has(_LAYER_IDS):
        layers = nested.values[_LAYER_IDS]
        if isinstance(layers, list):
            layers = [each + 1 if isinstance(each, int) else each for each in layers]
    elif not layers[0] < layers[1] < layers[2]:
        raise ModelLoadError(
            f"{file.where}: {_LAYER_IDS}: missing, and the model has only {n} layers: the usual "
            f"three of a head need 8 or more"
        )
    is_known = isinstance(layers, list) and all(
        isinstance(each, int) and 1 <= each < n for each in layers
    )
    if not is_known or len(layers) != N_RESIDUALS or len(set(layers)) != N_RESIDUALS:
        raise ModelLoadError(
            f"{file.where}: {_LAYER_IDS}: must name {N_RESIDUALS} layers of the model, which has "
            f"{n}; counted as those in front of which the residuals are read, they are "
            f"{shown(layers)}; allowed: 1 to {n - 1}"
        )
    return tuple(layers)


def _weights(config: ModelConfig, n_drafted: int, *, has_embedding: bool) -> dict[str, Any]:
    """Those of the layer and what stands around it."""
    usual, dim = _NAMES.sources(config), config.dim
    layer = usual.layers[0]

    def part(begin: int) -> tuple[Source, ...]:
        """The columns of queries, keys and values for the embedding, or after it the residual."""
        return tuple(
            Source(source.name, (source.shape[0], 2 * dim), columns=(begin, begin + dim))
            for source in layer.wqkv
        )

    return {
        "embedding": usual.embedding if has_embedding else None,
        "embedding_norm": Source("midlayer.input_layernorm.weight", (dim,)),
        "from_embedding": part(0),
        "layer": replace(layer, wqkv=part(dim)),
        "norm": usual.norm,
        "head": Source("lm_head.weight", (n_drafted, dim)),
    }


def _refuse_pickles(path: Path) -> None:
    """Heads were often published as such."""
    if is_there(path / SINGLE_FILE) or is_there(path / INDEX_FILE):
        return
    other = other_weights(path)
    if other is None:
        return
    raise ModelLoadError(
        f"{path}: {other} is not read, as such a file can run code; convert it once: "
        f"safetensors.torch.save_file(torch.load({other!r}, weights_only=True), {SINGLE_FILE!r})"
    )


def _check(
    path: Path, tensors: Mapping[str, StoredTensor], expected: Mapping[str, tuple[int, ...]]
) -> None:
    for name, shape in expected.items():
        if name not in tensors:
            raise ModelLoadError(
                f"{path}: {name}: missing; an EAGLE-3 head for this model has one of {list(shape)}"
            )
        found = tensors[name]
        if found.shape != shape:
            raise ModelLoadError(
                f"{path}: {name}: has shape {list(found.shape)}; a head with this config.json, for "
                f"this model, has {list(shape)}"
            )
        if found.dtype not in PLAIN_DTYPES:
            allowed = ", ".join(PLAIN_DTYPES)
            raise ModelLoadError(
                f"{path}: {name}: dtype {found.dtype} is not supported; allowed: {allowed}"
            )


def _token_ids(
    path: Path, tensors: Mapping[str, StoredTensor], n_drafted: int, vocab_size: int
) -> tuple[int, ...]:
    """`d2t` holds the distance of each token from its place."""
    if "d2t" not in tensors:
        if n_drafted != vocab_size:
            raise ModelLoadError(
                f"{path}: d2t: missing; it says which {n_drafted} of {vocab_size} tokens are "
                f"drafted"
            )
        return tuple(range(vocab_size))
    tensor = tensors["d2t"]
    if tensor.shape != (n_drafted,) or tensor.dtype not in _WHOLE_NUMBERS:
        raise ModelLoadError(
            f"{path}: d2t: has shape {list(tensor.shape)} and dtype {tensor.dtype}; it must be "
            f"[{n_drafted}], in I64 or I32"
        )
    distances: npt.NDArray[Any] = np.empty(tensor.shape, _WHOLE_NUMBERS[tensor.dtype])
    with open_values(tensor) as read:
        read(0, distances.view(np.uint8))
    token_ids = distances.astype(np.int64) + np.arange(n_drafted)
    wrong = np.flatnonzero((token_ids < 0) | (token_ids >= vocab_size))
    if len(wrong):
        raise ModelLoadError(
            f"{path}: d2t: entry {wrong[0]} leads to token {token_ids[wrong[0]]}; the model has 0 "
            f"to {vocab_size - 1}"
        )
    return tuple(token_ids.tolist())
