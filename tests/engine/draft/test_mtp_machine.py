"""Streams that the block of a GGUF file drafts for, in any order of turns, restarts and steps back,
against the same model without drafts and without a cache.
"""

import os
import tempfile
from functools import cache
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from engine import (
    Engine,
    SamplingSettings,
    StreamOptions,
    StreamResult,
    TokenRecord,
    snapshot_from_bytes,
    snapshot_to_bytes,
)
from tests.engine.draft.test_speculation import load_drafting

PAIRS = Path(__file__).parents[1] / "gguf" / "pairs"
KINDS = {
    "greedy": SamplingSettings(temperature=0.0),
    "sampled": SamplingSettings(temperature=0.8, seed=4, repetition_penalty=1.2),
}
BASES = [np.random.default_rng(seed).integers(5, 300, 100).tolist() for seed in range(2)]
N_SEQUENCES = int(os.environ.get("SOLITON_SEQUENCES", "6"))
N_TOKENS = 24
MAX_SEQ_LEN = 200


class Asked(NamedTuple):
    prompt: tuple[int, ...]
    kind: str


def facts(results: list[StreamResult]) -> list[TokenRecord]:
    """What must not depend on drafts."""
    records = [record for result in results for record in result.tokens]
    return [record._replace(origin="", proposed=None) for record in records]


class Oracle:
    """The model, for every prompt from an empty cache."""

    def __init__(self, name: str) -> None:
        self.path = PAIRS / f"{name}.gguf"
        self.engine = Engine.load(self.path, device="cpu", n_threads=1, max_seq_len=MAX_SEQ_LEN)
        self._known: dict[Asked, list[TokenRecord]] = {}

    def records(self, asked: Asked) -> list[TokenRecord]:
        if asked not in self._known:
            options = StreamOptions(
                max_new_tokens=N_TOKENS, ignore_eos=True, return_top_tokens=2, reuse_prefix=False
            )
            stream = self.engine.generator.begin(asked.prompt, KINDS[asked.kind], options)
            found: list[StreamResult] = []
            while not stream.ended:
                found.append(stream.step())
            self._known[asked] = facts(found)
        return self._known[asked]


oracle = cache(Oracle)


class AnyTurns(RuleBasedStateMachine):
    name = ""

    @initialize(n_bytes=st.sampled_from([0, 2**16, 2**24]), has_directory=st.booleans())
    def start(self, n_bytes: int, has_directory: bool) -> None:
        self.oracle = oracle(self.name)
        self.folder = tempfile.TemporaryDirectory() if has_directory and n_bytes else None
        self.n_bytes = n_bytes
        self.boot()

    def boot(self) -> None:
        self.engine = load_drafting(
            self.oracle.path,
            speculate="mtp",
            dtype="auto",
            n_threads=1,
            max_seq_len=MAX_SEQ_LEN,
            prefix_bytes=self.n_bytes,
            prefix_directory=Path(self.folder.name) if self.folder else None,
        )
        self.asked = Asked((), "")
        self.is_running = False

    def teardown(self) -> None:
        if hasattr(self, "engine"):
            self.engine.generator.close()
        if getattr(self, "folder", None):
            cast(tempfile.TemporaryDirectory[str], self.folder).cleanup()

    @rule(
        base=st.sampled_from(BASES),
        n=st.integers(1, 100),
        tail=st.lists(st.integers(5, 8), max_size=12),
        kind=st.sampled_from(sorted(KINDS)),
    )
    def ask(self, base: list[int], n: int, tail: list[int], kind: str) -> None:
        self.begin(Asked((*base[:n], *tail), kind))

    @precondition(lambda self: self.asked.prompt and len(self.asked.prompt) < 120)
    @rule(
        n=st.integers(1, N_TOKENS),
        tail=st.lists(st.integers(5, 300), min_size=1, max_size=8),
        kind=st.sampled_from(sorted(KINDS)),
    )
    def go_on(self, n: int, tail: list[int], kind: str) -> None:
        """The next turn of a conversation, whose answer may have been cut."""
        said = [record.token_id for record in self.oracle.records(self.asked)[:n]]
        self.begin(Asked((*self.asked.prompt, *said, *tail), kind))

    def begin(self, asked: Asked) -> None:
        self.asked, self.is_running = asked, True
        options = StreamOptions(max_new_tokens=N_TOKENS, ignore_eos=True, return_top_tokens=2)
        self.stream = self.engine.generator.begin(asked.prompt, KINDS[asked.kind], options)
        self.n_shown = 0

    @precondition(lambda self: self.is_running)
    @rule(n=st.integers(1, 30))
    def step(self, n: int) -> None:
        for _ in range(n):
            if self.stream.ended:
                self.is_running = False
                return
            found = facts([self.stream.step()])
            end = self.n_shown + len(found)
            assert found == self.oracle.records(self.asked)[self.n_shown : end]
            self.n_shown = end

    @precondition(lambda self: self.is_running and not self.stream.ended)
    @rule(share=st.floats(0.0, 1.0))
    def step_back(self, share: float) -> None:
        self.stream.rewind(round(share * self.stream.mark()))
        self.n_shown = self.stream.n_inherited_tokens

    @precondition(lambda self: self.is_running)
    @rule()
    def move(self) -> None:
        """To a process that has only the cache of its own."""
        kept = snapshot_to_bytes(self.stream.snapshot())
        self.stream.end()
        self.stream = self.engine.generator.restore(snapshot_from_bytes(kept))
        self.n_shown = self.stream.n_inherited_tokens

    @rule()
    def restart(self) -> None:
        self.engine.generator.close()
        self.boot()


@pytest.mark.parametrize("name", ["qwen35-mtp-bf16", "glm4moe-mtp-bf16"])
def test_drafts_of_the_block_change_nothing(name: str) -> None:
    machine = type(name, (AnyTurns,), {"name": name})
    case = cast(type[AnyTurns], machine).TestCase
    case.settings = settings(
        max_examples=N_SEQUENCES,
        stateful_step_count=20,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    case().runTest()


def test_the_block_is_asked() -> None:
    engine = load_drafting(
        PAIRS / "qwen35-mtp-bf16.gguf", speculate="mtp", dtype="auto", n_threads=1
    )
    stream = engine.generator.begin(
        BASES[0], KINDS["greedy"], StreamOptions(max_new_tokens=N_TOKENS, ignore_eos=True)
    )
    while not stream.ended:
        stream.step()
    assert stream.draft_counts["mtp"].drafted > N_TOKENS / 2
