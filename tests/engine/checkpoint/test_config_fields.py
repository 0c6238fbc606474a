"""Every field of the configurations of transformers that would change the arithmetic is understood
or refused: none is ignored.

The configurations' classes say which fields there are. A field is understood when a family reads it
in one of the configurations that the tests build.
"""

import dataclasses
from typing import Any

import pytest
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from engine.checkpoint.config_json import model_config_of
from engine.checkpoint.families.known import FAMILIES
from engine.checkpoint.families.refusals import refused_keys
from engine.files import JsonObject
from tests.support.family_models import FAMILY_MODELS
from tests.support.tiny_models import FAMILIES as LLAMA_MODELS
from tests.support.tiny_models import SIZES

# They change nothing of what a trained model computes for a text.
HARMLESS = {
    # training
    "attention_dropout", "attn_pdrop", "classifier_dropout", "embd_pdrop", "embedding_dropout",
    "hidden_dropout", "initializer_range", "resid_pdrop", "residual_dropout",
    "output_router_logits", "router_aux_loss_coef", "router_jitter_noise", "input_jitter_noise",
    # of the library
    "use_cache", "pretraining_tp", "is_decoder", "reorder_and_upcast_attn",
    # other tasks
    "eod_token_id", "pad_token_id", "summary_activation", "summary_first_dropout",
    "summary_proj_to_labels", "summary_type", "summary_use_proj",
}  # fmt: skip
# What transformers works out of other fields, which a file may give instead.
DERIVED = ("layer_types", "no_rope_layers")
# Read from a copy in which old names of LongRoPE are replaced.
FROM_A_COPY = {"Phi3ForCausalLM": {"original_max_position_embeddings", "rope_parameters"}}


class Watched(dict[str, Any]):
    """Remembers which keys were asked for."""

    def __init__(self, values: dict[str, Any]) -> None:
        super().__init__(values)
        self.asked: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.asked.add(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        self.asked.add(key)
        return super().__getitem__(key)


def config_class(architecture: str) -> Any:
    """Of those that share an architecture, the one of which the tests build models."""
    kinds = [k for k, name in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.items() if name == architecture]
    names = [CONFIG_MAPPING_NAMES[kind] for kind in kinds]
    return getattr(transformers, next(name for name in names if options_of(name)))


@pytest.mark.parametrize("architecture", sorted(FAMILIES))
def test_no_field_is_ignored(architecture: str) -> None:
    made = config_class(architecture)
    own = {each.name for each in dataclasses.fields(made)}
    inherited = {each.name for each in dataclasses.fields(transformers.PreTrainedConfig)}
    asked: set[str] = set()
    for options in options_of(made.__name__):
        config = {**made(**{**SIZES, **options}).to_dict(), "architectures": [architecture]}
        fewer = {key: value for key, value in config.items() if key not in DERIVED}
        for values in (config, fewer):
            watched = Watched(values)
            model_config_of(JsonObject(watched, "config.json"))
            asked |= watched.asked
    reads = FAMILIES[architecture].reads
    refused = {
        key for key in own if any(refused_keys(JsonObject({key: "another"}, "config.json"), reads))
    }
    asked |= FROM_A_COPY.get(architecture, set())
    assert own - inherited - asked - refused - HARMLESS == set()


def options_of(name: str) -> list[dict[str, Any]]:
    """Of all models that the tests build of one class of configurations."""
    models = (*FAMILY_MODELS.values(), *LLAMA_MODELS.values())
    return [each.options for each in models if f"{each.name}Config" == name]


def test_a_key_that_a_family_claims_to_understand_is_read() -> None:
    """`reads` only silences the refusal; the family must ask for the key itself."""
    for architecture, family in FAMILIES.items():
        silent = set(family.reads)
        made = config_class(architecture)
        for options in options_of(made.__name__):
            watched = Watched(
                {**made(**{**SIZES, **options}).to_dict(), "architectures": [architecture]}
            )
            model_config_of(JsonObject(watched, "config.json"))
            silent -= watched.asked
        assert silent == set(), architecture
