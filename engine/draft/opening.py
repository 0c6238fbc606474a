"""Opens a speculator for a mode: loads its drafters and measures what passes cost.

Owns the modes and the loading of a draft model, or of a block that predicts more tokens. Knows no
request.
"""

import time
from collections.abc import Iterable
from pathlib import Path

from ..cache.kv import KVCache
from ..checkpoint.config import ModelConfig
from ..device.ops import Ops
from ..errors import ModelLoadError
from ..files import is_there
from ..model.loading import load_weights
from ..model.model import MAX_DECODE_ROWS, Model
from ..model.predictor import Fusion, load_predictor
from ..model.weights import Weights
from ..model_files import ModelFiles
from ..text.tokenizer import Tokenizer
from ..text.tokenizer_json import TOKENIZER_FILE
from .drafter import Drafter
from .model import ModelDrafter, check_same_vocabulary
from .mtp import MtpDrafter
from .ngram import NgramDrafter
from .row_costs import measure_row_costs
from .speculator import Speculator

MODES = ("off", "ngram", "draft", "mtp")
MIN_CONFIDENCE = 0.15
"""The least probability of a draft as a whole, by a block that predicts more tokens."""
OWN_DRAFT = "draft"  # the directory, inside a model's, of a draft model made for it


class DraftSource:
    """A draft model on disk that fits the model it is for."""

    def __init__(self, path: Path, config: ModelConfig, tokenizer: Tokenizer) -> None:
        """`config`, `tokenizer`: those of the model that verifies. Raises ModelLoadError."""
        try:
            files = ModelFiles.open(path)
        except ModelLoadError as error:
            raise ModelLoadError(f"draft model: {error}") from error
        self.config = files.config
        has_tokenizer = files.gguf is not None or is_there(files.path / TOKENIZER_FILE)
        own = files.tokenizer() if has_tokenizer else None
        check_same_vocabulary(config, tokenizer, self.config, own)
        self._tensors = files.tensors()

    def load(self, ops: Ops, *, max_seq_len: int, vocab_size: int) -> ModelDrafter:
        """`max_seq_len`, `vocab_size`: those of the model that verifies."""
        weights = self._weights(ops)
        length = min(max_seq_len, self.config.max_seq_len)
        model = Model(weights, self.config, ops, max_seq_len=length)
        cache = KVCache(self.config, ops, max_seq_len=length)
        row_costs = measure_row_costs(model, cache, time.perf_counter)
        return ModelDrafter(model, cache, row_costs, vocab_size=vocab_size)

    def reload(self, drafter: Drafter, _: Model) -> None:
        """Gives a drafter that dropped its weights the same again. Raises ModelLoadError."""
        if isinstance(drafter, ModelDrafter):
            if drafter.model.config != self.config:
                raise ModelLoadError("draft model: it has changed: start the program again")
            drafter.model.take_weights(self._weights(drafter.model.ops))

    def _weights(self, ops: Ops) -> Weights:
        return load_weights(self._tensors, self.config, ops, panels=None, on_progress=None)


class PredictorSource:
    """The block of a checkpoint that predicts one token more than the model."""

    def __init__(self, files: ModelFiles) -> None:
        """Raises ModelLoadError if the checkpoint has none."""
        found = files.predictor()
        if found is None:
            raise ModelLoadError(
                f"speculate: mtp needs a model with a block that predicts more tokens (mtp.*); "
                f"{files.path} has none that is supported; use ngram, or draft with a draft_model"
            )
        self._sources, self._tensors = found
        self.config = self._sources.config

    def load(self, model: Model, target: KVCache) -> MtpDrafter:
        """`target`: the cache of `model`, which verifies. The drafter follows its passes."""
        ops, length = model.ops, model.max_seq_len
        if ops.is_async:
            raise ModelLoadError("speculate: mtp is not there on CUDA yet; use ngram")
        weights, fusion = self._read(model)
        block = Model(
            weights,
            self.config,
            ops,
            max_seq_len=length,
            chunk_size=model.chunk_size,
            fusion=fusion,
        )
        block.keep_hidden()
        cache = KVCache(self.config, ops, max_seq_len=length)
        row_costs = measure_row_costs(block, cache, time.perf_counter)
        drafter = MtpDrafter(
            block, fusion, cache, row_costs, target=target, min_confidence=MIN_CONFIDENCE
        )
        model.keep_hidden()
        model.on_hidden = drafter.on_hidden
        return drafter

    def reload(self, drafter: Drafter, model: Model) -> None:
        """Gives a drafter that dropped its weights the same again. Raises ModelLoadError."""
        if isinstance(drafter, MtpDrafter):
            drafter.take_weights(*self._read(model))

    def _read(self, model: Model) -> tuple[Weights, Fusion]:
        return load_predictor(
            self._sources,
            self._tensors,
            model.weights,
            model.ops,
            max_rows=max(model.chunk_size, MAX_DECODE_ROWS),
        )


def draft_source(
    mode: str, draft_model: Path | None, files: ModelFiles, tokenizer: Tokenizer
) -> DraftSource | PredictorSource | None:
    """What drafts in `mode`: `draft_model`, or the one inside the directory of `files`, or a block
    of their checkpoint.

    Raises ModelLoadError for an unknown mode, and if there is nothing like that.
    """
    path = files.path
    if mode not in MODES:
        raise ModelLoadError(f"speculate: must be one of {', '.join(MODES)}, not {mode!r}")
    if mode != "draft":
        if draft_model is not None:
            raise ModelLoadError(f"draft_model: only used with speculate=draft, not {mode!r}")
        return PredictorSource(files) if mode == "mtp" else None
    if draft_model is None and not (path / OWN_DRAFT).is_dir():
        raise ModelLoadError(
            f"speculate: draft needs a draft_model; {path} does not contain one in {OWN_DRAFT}/"
        )
    return DraftSource(draft_model or path / OWN_DRAFT, files.config, tokenizer)


def open_speculator(
    mode: str, source: DraftSource | PredictorSource | None, model: Model, cache: KVCache
) -> Speculator | None:
    """The speculator of `mode`; `cache`, of `model`, is empty afterwards."""
    if mode == "off":
        return None
    drafters: list[Drafter] = [NgramDrafter()]
    if isinstance(source, PredictorSource):
        drafters.append(source.load(model, cache))
    elif source is not None:
        drafters.append(
            source.load(
                model.ops, max_seq_len=model.max_seq_len, vocab_size=model.config.vocab_size
            )
        )
    return Speculator(drafters, measure_row_costs(model, cache, time.perf_counter))


def reload_drafters(
    source: DraftSource | PredictorSource, drafters: Iterable[Drafter], model: Model
) -> None:
    """Gives those that dropped their weights the same again; `model`, for which they draft, has its
    own already. Raises ModelLoadError.
    """
    for drafter in drafters:
        source.reload(drafter, model)


def drop_drafters_weights(drafters: Iterable[Drafter]) -> None:
    """Frees the memory of all weights that the drafters have."""
    for drafter in drafters:
        match drafter:
            case ModelDrafter():
                drafter.model.drop_weights()
            case MtpDrafter():
                drafter.block.drop_weights()
