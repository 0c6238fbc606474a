"""Models with recurrent layers answer as from an empty cache, bit for bit, whatever came before."""

import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from engine.abort import AbortFlag
from engine.cache.kv import KVCache
from engine.cache.prefix import PrefixCache
from engine.checkpoint.config_json import model_config
from engine.checkpoint.safetensors import read_checkpoint
from engine.checkpoint.tensors import check_tensors
from engine.device.open import open_ops
from engine.device.ops import Ops
from engine.model.loading import load_weights
from engine.model.model import Model
from engine.sampling.logits import Logits
from tests.support.family_models import FAMILY_MODELS
from tests.support.tiny_models import VOCAB_SIZE, save_model

BLOCK, CHUNK_SIZE, MAX_SEQ_LEN, N_ANSWER = 16, 40, 150, 3

OPS: dict[str, Callable[[], Ops]] = {
    "float32": lambda: open_ops(device="cpu", dtype="float32"),
    "bfloat16": lambda: open_ops(device="cpu", dtype="bfloat16", kv_cache="bfloat16"),
    "8bit": lambda: open_ops(device="cpu", quantize="8bit", kv_cache="8bit"),
}
BASES = [np.random.default_rng(seed).integers(0, VOCAB_SIZE, 120).tolist() for seed in range(3)]


class Oracle:
    """A model that answers every prompt from an empty cache."""

    def __init__(self, name: str, kind: str) -> None:
        with tempfile.TemporaryDirectory() as folder:
            save_model(Path(folder), FAMILY_MODELS[name])
            config, ops = model_config(Path(folder)), OPS[kind]()
            tensors = check_tensors(read_checkpoint(Path(folder)), config)
            weights = load_weights(tensors, config, ops)
        self.model = Model(weights, config, ops, max_seq_len=MAX_SEQ_LEN, chunk_size=CHUNK_SIZE)
        self.cache = self.new_cache()
        self._known: dict[tuple[int, ...], list[Logits]] = {}

    def new_cache(self) -> KVCache:
        return KVCache(self.model.config, self.model.ops, max_seq_len=MAX_SEQ_LEN)

    def answer(self, token_ids: list[int]) -> list[Logits]:
        key = tuple(token_ids)
        if key not in self._known:
            self.cache.clear()
            self.model.prefill(token_ids[:-1], self.cache)
            self._known[key] = self.greedy(token_ids[-1], self.cache)
        return self._known[key]

    def greedy(self, last: int, cache: KVCache) -> list[Logits]:
        """The logits of a few tokens."""
        logits: list[Logits] = []
        for _ in range(N_ANSWER):
            logits.append(self.model.decode([last], cache)[0].copy())
            last = int(logits[-1].argmax())
        return logits


oracle = cache(Oracle)


class AnyConversations(RuleBasedStateMachine):
    """Prompts, edits, branches, restarts and failures in any order."""

    name, kind = "qwen3_5", "float32"

    @initialize(n_states=st.sampled_from([0, 1, 4, 100]), has_directory=st.booleans())
    def start(self, n_states: int, has_directory: bool) -> None:
        self.folder = tempfile.TemporaryDirectory() if has_directory else None
        self.oracle = oracle(self.name, self.kind)
        self.model = self.oracle.model
        states = self.oracle.cache.states
        assert states is not None
        positions = self.oracle.cache.positions
        self.budget = n_states * (states.n_bytes + 4 * positions.n_bytes(BLOCK))
        self.boot()

    def boot(self) -> None:
        self.cache = self.oracle.new_cache()
        self.prefix = PrefixCache(
            self.cache,
            block=BLOCK,
            byte_budget=self.budget,
            directory=Path(self.folder.name) if self.folder else None,
        )

    @rule(
        base=st.sampled_from(BASES),
        n=st.integers(1, 120),
        tail=st.lists(st.integers(0, 3), max_size=20),
        ends=st.sets(st.integers(1, 140), max_size=3),
    )
    def ask(self, base: list[int], n: int, tail: list[int], ends: set[int]) -> None:
        token_ids = [*base[:n], *tail]
        expected = self.prefix.expected(token_ids[:-1])
        reuse = self.prefix.prepare(token_ids[:-1])
        assert reuse.n_reused == self.cache.length <= expected.n_reused
        assert self.prefix.n_bytes <= self.budget
        self.prefill(token_ids[reuse.n_reused : -1], ends)
        logits = self.oracle.greedy(token_ids[-1], self.cache)
        assert np.array_equal(logits, self.oracle.answer(token_ids)), reuse

    @rule(base=st.sampled_from(BASES), n=st.integers(50, 120), ends=st.sets(st.integers(1, 100)))
    def abort(self, base: list[int], n: int, ends: set[int]) -> None:
        reuse, flag = self.prefix.prepare(base[:n]), AbortFlag()
        self.prefill(base[reuse.n_reused : n], ends, flag)

    def prefill(self, ids: list[int], ends: set[int], abort: AbortFlag | None = None) -> None:
        self.model.prefill(
            ids,
            self.cache,
            abort=abort,
            on_progress=lambda *_: abort.set() if abort else None,
            ends=sorted(ends),
            after_pass=self.prefix.keep_state,
        )

    @rule(back=st.integers(0, 30))
    def go_back(self, back: int) -> None:
        self.cache.forget_from(max(self.cache.length - back, 0))

    @rule(how=st.sampled_from(["clear", "discard"]))
    def fail(self, how: str) -> None:
        (self.cache.clear if how == "clear" else self.prefix.discard)()

    @rule()
    @precondition(lambda self: self.folder)
    def restart(self) -> None:
        self.prefix.flush()
        self.boot()

    @rule(byte=st.integers(0, 2**20), which=st.integers(0, 20))
    @precondition(lambda self: self.folder)
    def damage(self, byte: int, which: int) -> None:
        assert self.folder is not None
        for file in sorted(Path(self.folder.name).glob("*.kv"))[which : which + 1]:
            content = bytearray(file.read_bytes())
            content[byte % len(content)] ^= 1
            file.write_bytes(content)

    def teardown(self) -> None:
        if hasattr(self, "folder") and self.folder:
            self.folder.cleanup()


@pytest.mark.parametrize(
    ("name", "kind"), [("qwen3_5", "float32"), ("qwen3_5", "8bit"), ("lfm2", "bfloat16")]
)
def test_any_conversations_answer_as_from_an_empty_cache(name: str, kind: str) -> None:
    machine = type("Conversations", (AnyConversations,), {"name": name, "kind": kind})
    case = cast(type[AnyConversations], machine).TestCase
    case.settings = settings(max_examples=15, stateful_step_count=15, deadline=None)
    case().runTest()


def test_passes_end_where_they_are_told() -> None:
    known = oracle("qwen3_5", "float32")
    lengths: list[int] = []
    own = known.new_cache()
    known.model.prefill(
        BASES[0], own, ends=(10, 60, 60, 119, 300), after_pass=lambda: lengths.append(own.length)
    )
    assert lengths == [10, 50, 60, 100, 119, 120]
