"""EAGLE-3 heads: their logits and drafts, that these change no bit, and heads that do not fit."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from engine import Engine, ModelLoadError
from engine.model.model import Model
from tests.support.drafted import (
    PROMPT,
    SETTINGS,
    block_drafter,
    origins_when_right,
    told,
    with_cheap_drafts,
)
from tests.support.eagle_heads import ReferenceHead, save_head
from tests.support.family_models import FAMILY_MODELS
from tests.support.tiny_models import FAMILIES, VOCAB_SIZE, Family, save_model

KEY = "eagle_aux_hidden_state_layer_ids"
# By name: the model, what the head's config.json says of its layers, and which residuals these are.
TARGETS: dict[str, tuple[Family, dict[str, Any], dict[str, Any], tuple[int, ...]]] = {
    "usual layers": (FAMILIES["llama"], {"num_hidden_layers": 8}, {}, (2, 4, 5)),
    "layers behind": (
        FAMILY_MODELS["gemma2"],
        {"num_hidden_layers": 4},
        {"eagle_config": {KEY: [0, 1, 2]}},
        (1, 2, 3),
    ),
    "recurrent layers": (
        FAMILY_MODELS["qwen3_5"],
        {"num_hidden_layers": 4, "layer_types": 2 * ["linear_attention", "full_attention"]},
        {KEY: [1, 2, 3]},
        (1, 2, 3),
    ),
    "a wider head": (
        FAMILIES["llama"],
        {"num_hidden_layers": 4, "hidden_size": 32, "head_dim": 16},
        {KEY: [1, 2, 3]},
        (1, 2, 3),
    ),
}


class Target:
    """A random model, and a head for it in a folder inside."""

    def __init__(self, path: Path, name: str) -> None:
        family, sizes, keys, self.layers = TARGETS[name]
        save_model(path, Family(family.name, {**family.options, **sizes}))
        self.path = path
        self.model: Any = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
        dim = int(self.model.config.hidden_size)
        self.head = save_head(path / "eagle", vocab_size=VOCAB_SIZE, dim=dim, **keys)

    def load(self, speculate: str = "eagle") -> Engine:
        return Engine.load(self.path, device="cpu", dtype="float32", speculate=speculate)


@pytest.fixture(scope="module", params=TARGETS)
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Target:
    return Target(tmp_path_factory.mktemp("eagle") / "model", request.param)


@pytest.fixture(scope="module")
def plain(target: Target) -> Engine:
    return target.load("off")


@pytest.fixture(scope="module")
def drafting(target: Target) -> Engine:
    return with_cheap_drafts(target.load)


def chained(target: Target, token_ids: list[int], n: int) -> tuple[list[np.ndarray], list[int]]:
    """The logits for the next `n` tokens after a text, and these tokens, by the reference."""
    with torch.no_grad():
        found = target.model(torch.tensor([token_ids]), output_hidden_states=True).hidden_states
        head = ReferenceHead(target.head, target.model.get_input_embeddings().weight)
        g = head.fused(torch.cat([found[index][0, :-1] for index in target.layers], dim=-1))
        after, rows, drafted = token_ids[1:], [], []
        for _ in range(n):
            outputs = head.outputs(g, torch.tensor(after))
            row = head.logits(outputs[-1:])[0]
            rows.append(row.numpy())
            drafted.append(head.token_id(int(row.argmax())))
            g, after = torch.cat((g, outputs[-1:])), [*after, drafted[-1]]
    return rows, drafted


def test_a_draft_is_that_of_the_reference(target: Target, drafting: Engine) -> None:
    found: list[np.ndarray] = []

    def watched(self: Model, token_ids: list[int], cache: Any) -> Any:
        rows = decode(self, token_ids, cache)
        if self is drafter.block.model:
            found.append(np.array(rows[-1]))
        return rows

    drafter, decode = block_drafter(drafting), Model.decode
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Model, "decode", watched)
        drafting.generator.begin_stream_ex(PROMPT, SETTINGS["greedy"], max_new_tokens=2)
        drafter.prospect(4)
        drafted = drafter.draft(4)
    rows, expected = chained(target, PROMPT, 4)
    assert list(drafted) == expected
    for row, wanted in zip(found[-4:], rows, strict=True):
        assert np.abs(row - wanted).max() < 1e-4
    assert drafter.positions == list(range(len(PROMPT) - 1))


@pytest.mark.parametrize("name", SETTINGS)
def test_drafts_change_no_bit(plain: Engine, drafting: Engine, name: str) -> None:
    text = told(plain, name)
    assert told(drafting, name) == text
    assert drafting.speculator is not None
    assert drafting.speculator.stats.by_origin["eagle"].drafted > 0
    following = [*PROMPT, *(record.token_id for record in text), 9, 10, 11]
    assert told(drafting, name, following) == told(plain, name, following)
    other = [*PROMPT[:20], 3, *PROMPT[21:]]
    assert told(drafting, name, other) == told(plain, name, other)


def test_banned_strings_guidance_and_long_prompts_change_no_bit(
    plain: Engine, drafting: Engine
) -> None:
    text = plain.tokenizer.decode([record.token_id for record in told(plain, "greedy")])
    long = [11 * i % 290 + 5 for i in range(200)]
    cases: tuple[tuple[list[int], dict[str, Any]], ...] = (
        (PROMPT, {"banned_strings": [text[6:8], text[12:15]]}),
        (PROMPT, {"negative_ids": long[:50], "cfg_scale": 1.5}),
        (long, {}),
        (long[:150], {}),
    )
    for prompt, options in cases:
        expected = told(plain, "greedy", prompt, **options)
        assert told(drafting, "greedy", prompt, **options) == expected


def test_a_draft_that_comes_true_says_where_it_comes_from(drafting: Engine) -> None:
    assert origins_when_right(drafting).count("eagle") > 10


def test_another_isolation_key_leaves_nothing(drafting: Engine) -> None:
    drafter = block_drafter(drafting)
    told(drafting, "greedy", isolation_key="anna")
    assert drafter.positions
    drafter.begin(PROMPT, None, "ben")
    assert not drafter.positions
    drafter.end()


@pytest.fixture(scope="module")
def fitting(tmp_path_factory: pytest.TempPathFactory) -> Target:
    return Target(tmp_path_factory.mktemp("fit") / "model", "usual layers")


def without(name: str) -> Callable[[Any], None]:
    return lambda tensors: tensors.pop(name)


def far(tensors: Any) -> None:
    tensors["d2t"][7] = 1000


@pytest.mark.parametrize(
    ("values", "change", "says"),
    [
        ({"architectures": ["LlamaForCausalLM"]}, None, "such as LlamaForCausalLMEagle3"),
        ({"vocab_size": 321}, None, "vocab_size: must be 320, that of the model"),
        ({"num_hidden_layers": 2}, None, "num_hidden_layers: must be 1"),
        ({"draft_vocab_size": 321}, None, "draft_vocab_size: must be an integer between 1 and 320"),
        ({"draft_vocab_size": 199}, None, r"lm_head.weight: has shape \[200, 64\]"),
        ({KEY: [1, 2]}, None, r"must name 3 layers of the model, which has 8.*allowed: 1 to 7"),
        ({KEY: [1, 2, 8]}, None, r"they are \[1, 2, 8\]"),
        ({"eagle_config": {KEY: [1, 2, 7]}}, None, r"they are \[2, 3, 8\]"),
        ({KEY: [1, "x", 3]}, None, "must name 3 layers"),
        ({"hidden_size": 32}, None, r"hidden_size: must be 64, as the head has no embed_tokens"),
        ({}, without("fc.weight"), r"fc.weight: missing; .* has one of \[64, 192\]"),
        ({}, without("midlayer.hidden_norm.weight"), "hidden_norm.weight: missing"),
        ({}, without("d2t"), "d2t: missing; it says which 200 of 320"),
        ({}, far, r"d2t: entry 7 leads to token 1007; the model has 0 to 319"),
    ],
)
def test_a_head_that_does_not_fit_is_refused(
    fitting: Target,
    tmp_path: Path,
    values: dict[str, Any],
    change: Callable[[Any], None] | None,
    says: str,
) -> None:
    head = save_head(tmp_path / "head", **{"vocab_size": VOCAB_SIZE, **values})
    file = head / "model.safetensors"
    tensors = load_file(file)
    if change is not None:
        change(tensors)
        save_file(tensors, file)
    with pytest.raises(ModelLoadError, match=says):
        Engine.load(fitting.path, device="cpu", speculate="eagle", draft_model=head)


def test_a_head_for_a_model_of_another_width_is_refused(fitting: Target, tmp_path: Path) -> None:
    head = save_head(tmp_path / "head", vocab_size=VOCAB_SIZE, dim=48)
    with pytest.raises(ModelLoadError, match=r"fc.weight: has shape \[64, 144\].*has \[64, 192\]"):
        Engine.load(fitting.path, device="cpu", speculate="eagle", draft_model=head)


def test_a_model_with_few_layers_needs_a_head_that_names_them(tmp_path: Path) -> None:
    save_model(tmp_path / "model")
    head = save_head(tmp_path / "head", vocab_size=VOCAB_SIZE)
    with pytest.raises(ModelLoadError, match="the usual three of a head need 8 or more"):
        Engine.load(tmp_path / "model", device="cpu", speculate="eagle", draft_model=head)


def test_a_pickle_is_refused_with_advice(fitting: Target, tmp_path: Path) -> None:
    head = save_head(tmp_path / "head", vocab_size=VOCAB_SIZE)
    (head / "model.safetensors").rename(head / "pytorch_model.bin")
    with pytest.raises(ModelLoadError, match=r"can run code; convert it once: .*save_file"):
        Engine.load(fitting.path, device="cpu", speculate="eagle", draft_model=head)


def test_a_vocabulary_that_is_the_models_needs_no_table(fitting: Target, tmp_path: Path) -> None:
    head = save_head(tmp_path / "head", vocab_size=VOCAB_SIZE, draft_vocab_size=VOCAB_SIZE)
    tensors = load_file(head / "model.safetensors")
    tensors["lm_head.weight"] = torch.randn(VOCAB_SIZE, tensors["lm_head.weight"].shape[1])
    del tensors["d2t"], tensors["t2d"]
    save_file(tensors, head / "model.safetensors")
    engine = Engine.load(fitting.path, device="cpu", speculate="eagle", draft_model=head)
    assert [block_drafter(engine).block.token_id(i) for i in (0, 319)] == [0, 319]


def test_a_head_wakes_with_its_model(plain: Engine, drafting: Engine) -> None:
    drafting.sleep()
    drafting.wake()
    assert told(drafting, "greedy") == told(plain, "greedy")
    assert drafting.generator.draft_counts["eagle"].drafted


@pytest.mark.parametrize("quantize", ["8bit", "4bit"])
def test_a_quantised_head_changes_no_bit(fitting: Target, quantize: str) -> None:
    options: dict[str, Any] = {"device": "cpu", "quantize": quantize}
    plain = Engine.load(fitting.path, **options)
    drafting = with_cheap_drafts(lambda: Engine.load(fitting.path, speculate="eagle", **options))
    assert told(drafting, "sampled") == told(plain, "sampled")


def test_without_a_head_the_error_says_where_one_would_be(tmp_path: Path) -> None:
    save_model(tmp_path)
    with pytest.raises(ModelLoadError, match=r"eagle needs a draft_model.*one in eagle/"):
        Engine.load(tmp_path, device="cpu", speculate="eagle")


def test_a_head_is_no_draft_model(fitting: Target) -> None:
    with pytest.raises(ModelLoadError, match="speculate=eagle"):
        Engine.load(fitting.path, device="cpu", speculate="draft", draft_model=fitting.head)
