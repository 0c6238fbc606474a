"""Which keys of a config.json a family does not understand.

Owns the keys that say nothing of the arithmetic, so that nobody need know them. A key is understood
when the family asks for it.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..errors import ModelLoadError
from ..files import JsonObject

HARMLESS = frozenset(
    {
        # training
        "attention_dropout", "attn_pdrop", "classifier_dropout", "embd_pdrop", "embedding_dropout",
        "hidden_dropout", "initializer_range", "input_jitter_noise", "output_router_logits",
        "resid_pdrop", "residual_dropout", "router_aux_loss_coef", "router_jitter_noise",
        # of libraries
        "_attn_implementation", "_name_or_path", "architectures", "auto_map",
        "chunk_size_feed_forward", "dtype", "id2label", "is_decoder", "is_encoder_decoder",
        "label2id", "model_type", "output_attentions", "output_hidden_states",
        "pretraining_tp", "problem_type", "reorder_and_upcast_attn", "return_dict",
        "chunk_size", "mamba_chunk_size", "mamba_ssm_cache_dtype", "num_logits_to_keep",
        "rescale_prenorm_residual", "residual_in_fp32", "time_step_floor", "time_step_max",
        "use_mamba_kernels",
        "tokenizer_class", "torch_dtype", "transformers_version", "use_cache",
        # other tasks, and layers that predict further tokens, which are left out
        "eod_token_id", "mtp_layers_block_type", "num_mtp_layers", "num_nextn_predict_layers",
        "pad_token_id", "sep_token_id", "summary_activation", "summary_first_dropout",
        "summary_proj_to_labels", "summary_type", "summary_use_proj",
    }
)  # fmt: skip
"""They change nothing of what a trained model computes for a text."""


class Watched(Mapping[str, Any]):
    """Values that remember which keys were asked for."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values
        self.asked: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self.asked.add(key)
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def unknown_keys(file: JsonObject, read: Callable[[JsonObject], object]) -> list[str] | None:
    """The keys that `read` does not ask for, but for harmless ones; None if it raises
    ModelLoadError, because then it has not come to all of them.
    """
    values = Watched(file.values)
    try:
        read(JsonObject(values, file.where))
    except ModelLoadError:
        return None
    return [key for key in file.values if key not in values.asked | HARMLESS]
