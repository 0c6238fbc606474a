"""The files that the weights of an engine are read from: when it is loaded, and when it wakes.

Owns the check that there is room for them, the cache of packed matrices, and what must not have
changed between two times of reading. Knows no stream.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .cache.states import state_bytes
from .checkpoint.config import ModelConfig
from .device.memory import check_weights_fit
from .device.ops import Ops
from .draft.opening import draft_source, drop_drafters_weights, reload_drafters
from .draft.speculator import Speculator
from .errors import ModelLoadError
from .fingerprint import fingerprint
from .load_options import LoadOptions
from .model.loading import load_weights
from .model.model import Model
from .model.weights import Weights, weight_bytes
from .model_files import ModelFiles
from .stored_tensor import StoredTensor
from .text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from .device.cpu.panel_cache import PanelCache

OnProgress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class WeightFiles:
    """The files of a loaded engine."""

    path: Path
    options: LoadOptions
    fingerprint: str  # of the files alone

    def reload(
        self,
        model: Model,
        speculator: Speculator | None,
        tokenizer: Tokenizer,
        on_progress: OnProgress | None,
        make_room: Callable[[], None],
    ) -> None:
        """Gives `model` and its drafters, all of which have dropped their weights, the same again.
        `make_room` is called when the files have been found as they were.

        Raises ModelLoadError, also for files that have changed; then no weights are in memory.
        """
        options, ops = self.options, model.ops
        source = ModelFiles.open(self.path)
        tensors = source.tensors()
        found = fingerprint(
            source.path,
            tensors,
            ops,
            stretched=source.config.stretched_to(model.max_seq_len),
            chat_template=options.chat_template,
        )
        if found != self.fingerprint:
            raise ModelLoadError(
                f"{self.path}: the files have changed since they were first loaded; put the old "
                "ones back, or start the program again"
            )
        draft = draft_source(options.speculate, options.draft_model, source, tokenizer)
        models = [model.config, *([draft.config] if draft else [])]
        make_room()
        try:
            model.take_weights(
                read_weights(tensors, model.config, models, ops, options, on_progress)
            )
            if draft is not None and speculator is not None:
                reload_drafters(draft, speculator.drafters, model)
        except BaseException:
            drop_weights(model, speculator)
            raise


def drop_weights(model: Model, speculator: Speculator | None) -> None:
    """Frees the memory of the weights of a model and of what drafts for it."""
    drop_drafters_weights(speculator.drafters if speculator else ())
    model.drop_weights()


def read_weights(
    tensors: Mapping[str, StoredTensor],
    config: ModelConfig,
    models: list[ModelConfig],
    ops: Ops,
    options: LoadOptions,
    on_progress: OnProgress | None = None,
) -> Weights:
    """`models`: those that will share the memory, this one too. Raises ModelLoadError before
    anything is read if the weights do not fit into memory.
    """
    dtypes = {name: tensor.dtype for name, tensor in tensors.items()}
    needed = weight_bytes(config, ops.formats(config, dtypes), ops.matrix_bytes)
    check_weights_fit(needed, ops.available_bytes(), working=working_bytes(models, ops))
    with _panels(options.panel_cache, tensors, ops, needed) as panels:
        return load_weights(
            tensors, config, ops, panels=panels, on_progress=on_progress or options.on_progress
        )


def working_bytes(models: list[ModelConfig], ops: Ops) -> int:
    """What models work in that share the memory, without weights, keys and values."""
    return sum(ops.working_bytes(each) + state_bytes(each) for each in models)


def _panels(
    directory: Path | None, tensors: Mapping[str, StoredTensor], ops: Ops, n_bytes: int
) -> "AbstractContextManager[PanelCache | None]":
    if directory is None or not ops.packs:
        return nullcontext()
    from .device.cpu import panel_cache  # needs the native module

    if n_bytes < panel_cache.SMALLEST_BYTES:
        return nullcontext()
    return panel_cache.open_panels(directory, tensors, ops.format, n_bytes=n_bytes)
