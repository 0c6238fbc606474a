"""Opens a speculator for a mode, loads its drafters, and measures what passes cost.

Owns the modes and the loading of a draft model, of a block that predicts more tokens, or of an
EAGLE-3 head. Knows no request.
"""

import time
from collections.abc import Iterable
from pathlib import Path

from ..cache.kv import KVCache
from ..checkpoint.config import ModelConfig
from ..checkpoint.eagle import EagleFiles, is_eagle_head
from ..device.ops import Ops
from ..errors import ModelLoadError
from ..files import is_there
from ..model.eagle import EagleHead, EagleWeights, load_eagle
from ..model.loading import load_weights
from ..model.model import Model
from ..model.predictor import Predictor, PredictorFusion, load_predictor
from ..model.weights import Weights
from ..model_files import ModelFiles
from ..text.tokenizer import Tokenizer
from ..text.tokenizer_json import TOKENIZER_FILE
from .block import Block
from .drafter import Drafter, Origin
from .model import ModelDrafter, check_same_vocabulary
from .mtp import BlockDrafter
from .ngram import NgramDrafter
from .row_costs import UNMEASURED, RowCosts, measure_row_costs
from .speculator import Speculator

MODES = ("off", "ngram", "draft", "mtp", "eagle")
MIN_CONFIDENCE = 0.15
"""The least probability of a draft as a whole, by a block that follows the model."""
MOST_PREDICTED = 3  # the block was trained for one token, and each more is less likely
MOST_BY_HEAD = 6  # an EAGLE-3 head was trained on its own outputs too
OWN_DRAFT = "draft"  # the directory, inside a model's, of a draft model made for it
OWN_HEAD = "eagle"  # the same of an EAGLE-3 head


class DraftSource:
    """A draft model on disk that fits the model it is for."""

    def __init__(self, path: Path, config: ModelConfig, tokenizer: Tokenizer) -> None:
        """`config`, `tokenizer`: those of the model that verifies. Raises ModelLoadError."""
        if is_eagle_head(path):
            raise ModelLoadError(f"draft_model: {path} is an EAGLE-3 head; use speculate=eagle")
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
        return ModelDrafter(model, cache, RowCosts(UNMEASURED), vocab_size=vocab_size)

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
                f"speculate: mtp needs a model with a block that predicts more tokens; "
                f"{files.path} has none that is supported; use ngram, or draft with a draft_model"
            )
        self._sources, self._tensors = found
        self.config = self._sources.config

    def load(self, model: Model, target: KVCache) -> BlockDrafter:
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
        predictor = Predictor(block, fusion)
        model.keep_hidden()
        return _following(predictor, model, target, origin="mtp", most=MOST_PREDICTED)

    def reload(self, drafter: Drafter, model: Model) -> None:
        """Gives a drafter that dropped its weights the same again. Raises ModelLoadError."""
        if isinstance(drafter, BlockDrafter) and isinstance(drafter.block, Predictor):
            drafter.block.take_weights(*self._read(model))

    def _read(self, model: Model) -> tuple[Weights, PredictorFusion]:
        return load_predictor(
            self._sources,
            self._tensors,
            model.weights,
            model.ops,
            max_rows=model.max_rows,
        )


class EagleSource:
    """An EAGLE-3 head on disk that fits the model it is for."""

    def __init__(self, path: Path, config: ModelConfig) -> None:
        """`config`: of the model that verifies. Raises ModelLoadError."""
        try:
            self._files = EagleFiles.open(path, config)
        except ModelLoadError as error:
            raise ModelLoadError(f"EAGLE-3 head: {error}") from error
        self.config = self._files.sources.config

    def load(self, model: Model, target: KVCache) -> BlockDrafter:
        """`target`: the cache of `model`, which verifies. The drafter follows its passes."""
        ops = model.ops
        if ops.is_async:
            raise ModelLoadError("speculate: eagle is not there on CUDA yet; use ngram")
        weights = self._read(model)
        block = Model(
            weights.of_layer,
            self.config,
            ops,
            max_seq_len=model.max_seq_len,
            chunk_size=model.chunk_size,
            fusion=weights.fusion,
        )
        head = EagleHead(block, weights.fc, self._files.token_ids, ops, max_rows=model.max_rows)
        model.keep_residuals(self._files.sources.layers)
        return _following(head, model, target, origin="eagle", most=MOST_BY_HEAD)

    def reload(self, drafter: Drafter, model: Model) -> None:
        """Gives a drafter that dropped its weights the same again. Raises ModelLoadError."""
        if isinstance(drafter, BlockDrafter) and isinstance(drafter.block, EagleHead):
            drafter.block.take_weights(self._read(model))

    def _read(self, model: Model) -> EagleWeights:
        return load_eagle(self._files, model.weights, model.ops, max_rows=model.max_rows)


def _following(
    block: Block, model: Model, target: KVCache, *, origin: Origin, most: int
) -> BlockDrafter:
    """A drafter that follows the passes of `model` over `target`."""
    cache = KVCache(block.model.config, model.ops, max_seq_len=model.max_seq_len)
    drafter = BlockDrafter(
        block,
        cache,
        RowCosts(UNMEASURED),
        origin=origin,
        most=most,
        target=target,
        min_confidence=MIN_CONFIDENCE,
    )
    model.on_hidden = drafter.on_hidden
    return drafter


Drafts = DraftSource | PredictorSource | EagleSource


def draft_source(
    mode: str, draft_model: Path | None, files: ModelFiles, tokenizer: Tokenizer
) -> Drafts | None:
    """What drafts in `mode`: `draft_model`, or the one inside the directory of `files`, or a block
    of their checkpoint.

    Raises ModelLoadError for an unknown mode, and if there is nothing like that.
    """
    path = files.path
    if mode not in MODES:
        raise ModelLoadError(f"speculate: must be one of {', '.join(MODES)}, not {mode!r}")
    if mode == "draft":
        return DraftSource(
            _directory(draft_model, path, OWN_DRAFT, "draft needs a draft_model"),
            files.config,
            tokenizer,
        )
    if mode == "eagle":
        needs = "eagle needs a draft_model, the folder of an EAGLE-3 head"
        return EagleSource(_directory(draft_model, path, OWN_HEAD, needs), files.config)
    if draft_model is not None:
        raise ModelLoadError(f"draft_model: only used with speculate=draft or eagle, not {mode!r}")
    return PredictorSource(files) if mode == "mtp" else None


def _directory(given: Path | None, model: Path, own: str, needs: str) -> Path:
    """`given`, or the directory `own` inside the model's."""
    if given is None and not (model / own).is_dir():
        raise ModelLoadError(f"speculate: {needs}; {model} does not contain one in {own}/")
    return given or model / own


def open_speculator(
    mode: str, source: Drafts | None, model: Model, cache: KVCache
) -> Speculator | None:
    """The speculator of `mode`; `cache` is that of `model`. What its passes cost is not measured
    yet, so that it drafts from a text only.
    """
    if mode == "off":
        return None
    drafters: list[Drafter] = [NgramDrafter()]
    if isinstance(source, DraftSource):
        drafters.append(
            source.load(
                model.ops, max_seq_len=model.max_seq_len, vocab_size=model.config.vocab_size
            )
        )
    elif source is not None:
        drafters.append(source.load(model, cache))
    return Speculator(drafters, RowCosts(UNMEASURED))


def measure_costs(speculator: Speculator, model: Model, cache: KVCache) -> None:
    """Measures the passes of `model`, which verifies, and of its drafters. All their caches, of
    which `cache` is the model's, are empty afterwards.
    """
    for drafter in speculator.drafters:
        match drafter:
            case ModelDrafter():
                own = measure_row_costs(drafter.model, drafter.cache, time.perf_counter)
                drafter.row_costs = own
            case BlockDrafter():
                own = measure_row_costs(drafter.block.model, drafter.cache, time.perf_counter)
                drafter.row_costs = own
    speculator.take_costs(measure_row_costs(model, cache, time.perf_counter))


def reload_drafters(source: Drafts, drafters: Iterable[Drafter], model: Model) -> None:
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
            case BlockDrafter():
                drafter.block.drop_weights()
