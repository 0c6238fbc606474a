"""Opens a speculator for a mode: loads its drafters and measures what passes cost.

Owns the modes and the loading of a draft model. Knows no request.
"""

import time
from pathlib import Path

from ..cache.kv import KVCache
from ..checkpoint.config import ModelConfig
from ..device.ops import Ops
from ..errors import ModelLoadError
from ..files import is_there
from ..model.loading import load_weights
from ..model.model import Model
from ..model_files import ModelFiles
from ..text.tokenizer import Tokenizer
from ..text.tokenizer_json import TOKENIZER_FILE
from .drafter import Drafter
from .model import ModelDrafter, check_same_vocabulary
from .ngram import NgramDrafter
from .row_costs import measure_row_costs
from .speculator import Speculator

MODES = ("off", "ngram", "draft")
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
        weights = load_weights(self._tensors, self.config, ops, panels=None, on_progress=None)
        length = min(max_seq_len, self.config.max_seq_len)
        model = Model(weights, self.config, ops, max_seq_len=length)
        cache = KVCache(self.config, ops, max_seq_len=length)
        row_costs = measure_row_costs(model, cache, time.perf_counter)
        return ModelDrafter(model, cache, row_costs, vocab_size=vocab_size)


def draft_source(
    mode: str, draft_model: Path | None, path: Path, config: ModelConfig, tokenizer: Tokenizer
) -> DraftSource | None:
    """The draft model for `mode`: `draft_model`, or the one inside the model's own `path`.

    Raises ModelLoadError for an unknown mode, and if there is no such model.
    """
    if mode not in MODES:
        raise ModelLoadError(f"speculate: must be one of {', '.join(MODES)}, not {mode!r}")
    if mode != "draft":
        if draft_model is not None:
            raise ModelLoadError(f"draft_model: only used with speculate=draft, not {mode!r}")
        return None
    if draft_model is None and not (path / OWN_DRAFT).is_dir():
        raise ModelLoadError(
            f"speculate: draft needs a draft_model; {path} does not contain one in {OWN_DRAFT}/"
        )
    return DraftSource(draft_model or path / OWN_DRAFT, config, tokenizer)


def open_speculator(
    mode: str, source: DraftSource | None, model: Model, cache: KVCache
) -> Speculator | None:
    """The speculator of `mode`; `cache`, of `model`, is empty afterwards."""
    if mode == "off":
        return None
    drafters: list[Drafter] = [NgramDrafter()]
    if source is not None:
        drafters.append(
            source.load(
                model.ops, max_seq_len=model.max_seq_len, vocab_size=model.config.vocab_size
            )
        )
    return Speculator(drafters, measure_row_costs(model, cache, time.perf_counter))
