"""The block that predicts one token more: its logits, and that its drafts change no bit."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from engine import Engine, ModelLoadError, SamplingSettings
from engine.draft import opening
from engine.draft.mtp import MtpDrafter
from engine.draft.row_costs import RowCosts
from engine.draft.speculator import Speculator
from engine.model.model import Model
from tests.support.family_models import FAMILY_MODELS
from tests.support.scripted_model import records_of, run
from tests.support.tiny_models import save_model

PROMPT = [7 * i % 300 + 5 for i in range(40)]
FAMILIES = ("qwen3_5", "qwen3_next")
SETTINGS = {
    "greedy": SamplingSettings(temperature=0.0),
    "sampled": SamplingSettings(temperature=0.8, seed=4, repetition_penalty=1.2),
}


class FlatCosts(RowCosts):
    """Any draft pays, and no clock decides a test."""

    def observe(self, n_rows: int, seconds: float) -> None:
        pass


@pytest.fixture(scope="module", params=FAMILIES)
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model with a block whose layer is a copy of the model's last one."""
    path = tmp_path_factory.mktemp("mtp") / str(request.param)
    save_model(path, FAMILY_MODELS[request.param])
    file = path / "model.safetensors"
    tensors = load_file(file)
    dim = tensors["model.norm.weight"].shape[0]
    last = max(
        int(name.split(".")[2]) for name in tensors if name.endswith("self_attn.q_proj.weight")
    )
    prefix = f"model.layers.{last}."
    random = torch.Generator().manual_seed(0)

    def drawn(*shape: int, scale: float) -> torch.Tensor:
        return torch.randn(*shape, generator=random) * scale

    block = {
        name.replace(prefix, "mtp.layers.0."): tensor.clone()
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }
    block["mtp.fc.weight"] = drawn(dim, 2 * dim, scale=dim**-0.5)
    for name in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"):
        block[f"mtp.{name}.weight"] = drawn(dim, scale=0.1)
    save_file(tensors | block, file, metadata={"format": "pt"})
    return path


@pytest.fixture(scope="module")
def plain(path: Path) -> Engine:
    return Engine.load(path, device="cpu", dtype="float32")


def load(path: Path, **options: Any) -> Engine:
    with pytest.MonkeyPatch.context() as patch:
        costs = iter([FlatCosts((1e-3,) * 5)])
        patch.setattr(opening, "measure_row_costs", lambda *_: next(costs, FlatCosts((1.0,) * 5)))
        patch.setattr(opening, "MIN_CONFIDENCE", 0.0)
        return Engine.load(path, device="cpu", dtype="float32", speculate="mtp", **options)


@pytest.fixture(scope="module")
def drafting(path: Path) -> Engine:
    return load(path)


def drafter_of(engine: Engine) -> MtpDrafter:
    assert engine.speculator is not None
    (drafter,) = [each for each in engine.speculator.drafters if each.origin == "mtp"]
    assert isinstance(drafter, MtpDrafter)
    return drafter


def reference(path: Path, token_ids: list[int]) -> Any:
    """Logits (n - 1, vocab_size) of the block over a whole text, with transformers' modules."""
    model: Any = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    tensors, inner = load_file(path / "model.safetensors"), model.model
    layer = [each for each in inner.layers if hasattr(each, "self_attn")][-1]

    def normed(x: torch.Tensor, name: str) -> torch.Tensor:
        # Their norms store the weight minus one.
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + model.config.rms_norm_eps)
        return x * scale * (1.0 + tensors[f"mtp.{name}.weight"])

    ids = torch.tensor([token_ids])
    with torch.no_grad():
        hidden = inner(ids).last_hidden_state[:, :-1]
        embedded = inner.embed_tokens(ids[:, 1:])
        both = torch.cat(
            [normed(embedded, "pre_fc_norm_embedding"), normed(hidden, "pre_fc_norm_hidden")], -1
        )
        x = both @ tensors["mtp.fc.weight"].T
        n = x.shape[1]
        places = torch.arange(n)[None]
        mask = torch.full((n, n), -torch.inf).triu(1)[None, None]
        out = layer(
            x,
            position_embeddings=inner.rotary_emb(x, places),
            attention_mask=mask,
            position_ids=places,
        )
        out = out[0] if isinstance(out, tuple) else out
        return model.lm_head(normed(out, "norm"))[0].numpy()


def test_the_logits_of_the_block_are_those_of_the_reference(path: Path, drafting: Engine) -> None:
    found: list[Any] = []

    def watched(self: Model, token_ids: list[int], cache: Any) -> Any:
        rows = decode(self, token_ids, cache)
        if self is drafter.block:
            found.append(np.array(rows))
        return rows

    drafter, decode = drafter_of(drafting), Model.decode
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Model, "decode", watched)
        drafting.generator.begin_stream_ex(PROMPT, SETTINGS["greedy"], max_new_tokens=2)
        drafter.prospect(1)
        drafter.draft(1)
    wanted = reference(path, PROMPT)
    assert np.abs(found[0][-1] - wanted[-1]).max() < 1e-4
    assert drafter.positions == list(range(len(PROMPT) - 1))


def told(engine: Engine, name: str, prompt: list[int] = PROMPT, **options: Any) -> Any:
    options = {"max_new_tokens": 40, "ignore_eos": True, "return_top_tokens": 3, **options}
    engine.generator.begin_stream_ex(prompt, SETTINGS[name], **options)
    results = run(engine.generator)
    records = [*records_of(results), *results[-1].dropped]
    return [record._replace(origin="", proposed=None) for record in records]


@pytest.mark.parametrize("name", SETTINGS)
def test_drafts_change_no_bit(plain: Engine, drafting: Engine, name: str) -> None:
    assert told(drafting, name) == told(plain, name)
    text = told(plain, name)
    following = [*PROMPT, *(record.token_id for record in text), 9, 10, 11]
    assert told(drafting, name, following) == told(plain, name, following)
    other = [*PROMPT[:20], 3, *PROMPT[21:]]
    assert told(drafting, name, other) == told(plain, name, other)


def test_banned_strings_take_the_block_back_too(plain: Engine, drafting: Engine) -> None:
    text = plain.tokenizer.decode([record.token_id for record in told(plain, "greedy")])
    banned = [text[6:8], text[12:15]]
    assert told(drafting, "greedy", banned_strings=banned) == told(
        plain, "greedy", banned_strings=banned
    )


def test_long_prompts_and_guidance_change_no_bit(plain: Engine, drafting: Engine) -> None:
    long = [11 * i % 290 + 5 for i in range(200)]
    guided = {"negative_ids": long[:50], "cfg_scale": 1.5}
    for prompt, options in ((long, {}), (PROMPT, guided), (long[:150], {}), (long, guided)):
        expected = told(plain, "greedy", prompt, **options)
        assert told(drafting, "greedy", prompt, **options) == expected


def test_the_block_is_asked(drafting: Engine) -> None:
    told(drafting, "greedy")
    assert drafting.speculator is not None
    assert drafting.speculator.stats.by_origin["mtp"].drafted > 0


def test_a_draft_that_comes_true_says_where_it_comes_from(path: Path) -> None:
    engine = load(path)
    drafter, speculator = drafter_of(engine), engine.speculator
    assert isinstance(speculator, Speculator)
    expected = [record.token_id for record in told(engine, "greedy", speculate=False)]

    def scripted(n: int) -> tuple[int, ...]:
        done = speculator.mark() - len(PROMPT)
        return tuple(expected[done : done + n])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drafter, "draft", scripted)
        engine.generator.begin_stream_ex(
            PROMPT, SETTINGS["greedy"], max_new_tokens=40, ignore_eos=True
        )
        origins = [record.origin for record in records_of(run(engine.generator))]
    assert origins.count("mtp") > 10


def test_another_isolation_key_leaves_nothing(drafting: Engine) -> None:
    drafter = drafter_of(drafting)
    told(drafting, "greedy", isolation_key="anna")
    assert drafter.positions
    drafter.begin(PROMPT, None, "ben")
    assert not drafter.positions
    drafter.end()


def test_a_model_without_a_block_is_refused(tmp_path: Path) -> None:
    save_model(tmp_path)
    with pytest.raises(ModelLoadError, match="mtp needs a model with a block"):
        Engine.load(tmp_path, device="cpu", speculate="mtp")


def test_the_block_wakes_with_its_model(plain: Engine, drafting: Engine) -> None:
    drafting.sleep()
    drafting.wake()
    runs = []
    for engine in (plain, drafting):
        options = {"max_new_tokens": 30, "ignore_eos": True, "speculate": True}
        engine.generator.begin_stream_ex(PROMPT, SETTINGS["greedy"], **options)
        runs.append([each.token_id for each in records_of(run(engine.generator))])
    assert runs[0] == runs[1]
    assert drafting.generator.draft_counts["mtp"].drafted
