"""A failure at any stage ends its own stream; the next streams equal those of a fresh engine."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine import ConstraintSpec, Engine, SamplingSettings, StreamResult
from engine.cache.kv import KVCache
from engine.cache.prefix import PrefixCache
from engine.draft.speculator import Speculator
from engine.grammar.compiler import ConstraintCompiler
from engine.grammar.constraint import Constraint
from engine.sampling.sampler import Sampler
from engine.stream import decoding
from engine.stream.healing import Healing
from engine.stream.held import HeldTokens
from engine.text.prefix_index import PrefixIndex
from engine.text.text_stream import TextStream
from tests.engine.draft.test_speculation import draft_model_of, load_drafting, said
from tests.support.scripted_model import run
from tests.support.tiny_models import save_model

Stage = tuple[object, str]
SAMPLED = SamplingSettings(temperature=0.9, mirostat=True, dry_multiplier=0.5, seed=3)
CONSTRAINT = ConstraintSpec("regex", "[a-z ]*!(yes|no|maybe so)[a-z ]{40}")
# Two conversations that take turns, each longer than a block of the prefix cache.
PROMPTS = ([*range(40, 110), 70], [*range(140, 220), 71])


class Planted(Exception):
    pass


def load(path: Path) -> Engine:
    """An engine with everything switched on."""
    return load_drafting(path, speculate="draft", prefix_bytes=2**26)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("failures") / "model"
    save_model(path)
    save_model(path / "draft")
    return path


@pytest.fixture(scope="module")
def engine(path: Path) -> Engine:
    """One for all tests: a failure in one must not show in another."""
    return load(path)


def everything(engine: Engine, prompt: list[int], **options: Any) -> list[StreamResult]:
    """A stream that passes every stage; a ban takes text and constraint back."""
    engine.generator.begin_stream_ex(
        prompt,
        SAMPLED,
        max_new_tokens=30,
        token_healing=True,
        constraint=CONSTRAINT,
        stop=["zzz"],
        banned_strings=["a", "e", "o"],
        negative_ids=prompt[10:50],
        cfg_scale=1.3,
        return_top_tokens=2,
        **options,
    )
    return run(engine.generator)


def simple(engine: Engine, prompt: list[int]) -> list[StreamResult]:
    engine.generator.begin_stream_ex(prompt, SAMPLED, max_new_tokens=20, return_top_tokens=2)
    return run(engine.generator)


@pytest.fixture(scope="module")
def fresh(path: Path) -> list[Any]:
    """The streams after a failure, each on its own engine."""
    return [said(ask(load(path), prompt)) for ask in (everything, simple) for prompt in PROMPTS]


def positions(engine: Engine) -> type:
    """The class that holds keys and values on this device."""
    return type(KVCache(engine.config, engine.model.ops, max_seq_len=64).positions)


STAGES: dict[str, Callable[[Engine], Stage]] = {
    "sampler": lambda e: (Sampler, "sample"),
    "sampler: accept": lambda e: (Sampler, "accept"),
    "sampler: rollback": lambda e: (Sampler, "rollback"),
    "constraint: compile": lambda e: (ConstraintCompiler, "compile"),
    "constraint: mask": lambda e: (Constraint, "mask"),
    "constraint: forced": lambda e: (Constraint, "forced"),
    "constraint: accept": lambda e: (Constraint, "accept"),
    "constraint: rollback": lambda e: (Constraint, "rollback"),
    "constraint: healed mask": lambda e: (Constraint, "mask_after"),
    "constraint: healed token": lambda e: (Constraint, "accept_bytes"),
    "speculator: begin": lambda e: (Speculator, "begin"),
    "speculator: propose": lambda e: (Speculator, "propose"),
    "speculator: accept": lambda e: (Speculator, "accept"),
    "speculator: rollback": lambda e: (Speculator, "rollback"),
    "speculator: observe": lambda e: (Speculator, "observe"),
    "speculator: observe pass": lambda e: (Speculator, "observe_pass"),
    "speculator: end": lambda e: (Speculator, "end"),
    "draft model: prefill": lambda e: (draft_model_of(e), "prefill"),
    "draft model: pass": lambda e: (draft_model_of(e), "decode"),
    "prefill": lambda e: (e.model, "prefill"),
    "pass": lambda e: (e.model, "decode"),
    "guidance": lambda e: (decoding, "guided"),
    "prefix": lambda e: (PrefixCache, "prepare"),
    "prefix: copy out": lambda e: (positions(e), "copy_out"),
    "prefix: copy in": lambda e: (positions(e), "copy_in"),
    "healing: index": lambda e: (PrefixIndex, "keys_starting_with"),
    "healing: mask": lambda e: (Healing, "mask"),
    "healing: text": lambda e: (Healing, "added"),
    "text": lambda e: (TextStream, "push"),
    "text: release": lambda e: (TextStream, "release"),
    "text: rollback": lambda e: (TextStream, "rollback"),
    "text: end": lambda e: (TextStream, "finish"),
    "held tokens": lambda e: (HeldTokens, "hold"),
    "held tokens: back": lambda e: (HeldTokens, "take_back"),
}


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("n_before", [0, 1, 6])
def test_the_streams_after_a_failure_equal_those_of_a_fresh_engine(
    engine: Engine,
    fresh: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    stage: str,
    n_before: int,
    is_after: bool,
) -> None:
    target, name = STAGES[stage](engine)
    plain: Callable[..., Any] = getattr(target, name)
    n_calls = 0

    def failing(*args: Any, **kwargs: Any) -> Any:
        nonlocal n_calls
        n_calls += 1
        is_due = n_calls == n_before + 1
        if is_due and not is_after:
            raise Planted
        result = plain(*args, **kwargs)
        if is_due:
            raise Planted
        return result

    simple(engine, PROMPTS[0])
    monkeypatch.setattr(target, name, failing)
    failed = False
    for turn in range(24):
        # Copies stay known, so later turns use new keys, under which copies are made again.
        key = "" if turn < 4 else f"{stage} {n_before} {is_after} {turn // 4}"
        try:
            everything(engine, PROMPTS[(turn + 1) % 2], isolation_key=key)
        except Planted:
            failed = True
            break
    monkeypatch.undo()
    assert failed, "the stage was not passed"
    streams = [(ask, prompt) for ask in (everything, simple) for prompt in PROMPTS]
    # A different order each time, so that each stream comes right after a failure.
    for i in range(4):
        ask, prompt = streams[(i + n_before) % 4]
        assert said(ask(engine, prompt)) == fresh[(i + n_before) % 4]


def test_the_streams_pass_every_stage(engine: Engine) -> None:
    results = everything(engine, PROMPTS[0])
    assert any(result.suppressed for result in results)
    assert any(result.healed is not None for result in results)
    assert engine.speculator is not None
    assert {"pool", "draft_model"} <= engine.speculator.stats.by_origin.keys()
