"""What a prompt reuses with recurrent layers: the last copied states before it differs."""

import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.cache.prefix import PrefixCache
from engine.cache.reuse import Reuse
from engine.cache.saved_states import byte_shares
from engine.cache.states import KEPT_ROWS
from tests.support.toy_cache import ToyCache

CHUNK = 8
CHUNK_BYTES = 4 * CHUNK
STATE_BYTES = 8
PLENTY = 10_000 * CHUNK_BYTES  # 310 states
MAX_SEQ_LEN = 160


class Server:
    """A cache, its prefix cache, and what each request does with them."""

    def __init__(
        self,
        byte_budget: int = PLENTY,
        directory: Path | None = None,
        *,
        disk_budget: int = 2**20,
        fingerprint: str = "one",
    ) -> None:
        self.cache = ToyCache(MAX_SEQ_LEN, has_states=True)
        self.reads_files = directory is not None
        self.prefix = PrefixCache(
            self.cache,
            block=CHUNK,
            byte_budget=byte_budget,
            directory=directory,
            disk_budget=disk_budget,
            fingerprint=fingerprint,
        )

    def request(
        self, token_ids: Sequence[int], *, ends: Collection[int] = (), key: str = ""
    ) -> Reuse:
        """Passes end at `ends`, and at the end of the prompt."""
        expected = self.prefix.expected(token_ids, isolation_key=key)
        reuse = self.prefix.prepare(token_ids, isolation_key=key)
        # Only reading a copy tells that its file was damaged.
        assert expected == reuse or (self.reads_files and reuse.n_reused < expected.n_reused)
        assert self.cache.token_ids == list(token_ids[: reuse.n_reused])
        assert self.cache.is_whole
        self.cache.check()
        for at, token_id in enumerate(token_ids[reuse.n_reused :], reuse.n_reused + 1):
            self.cache.run([token_id])
            if at in ends or at == len(token_ids):
                self.prefix.keep_state()
        return reuse


def conversation(first: int, n: int = 100) -> list[int]:
    return [first + i for i in range(n)]


def test_what_was_kept_on_the_way_is_where_another_prompt_goes_on() -> None:
    server = Server()
    server.request(conversation(0), ends=(40, 64))
    assert server.request(conversation(0)).n_reused == 100, "the active sequence itself"
    reuse = server.request([*conversation(0, 70), 999, 998])
    reason = "differs at token 70, and the state nearest before token 70 is at 64"
    assert reuse == Reuse(64, 72, "memory", 70, reason, tuple(range(70, 78)))
    assert server.request(conversation(0)).source == "memory", "what was left is copied"
    reuse = server.request(conversation(0, 50))
    assert (reuse.n_reused, reuse.reason) == (40, "the state nearest before token 50 is at 40")
    reuse = server.request([*conversation(0, 30), 999])
    assert reuse.reason == "differs at token 30, and no state before token 30 is held or copied"
    assert (reuse.n_reused, reuse.source, reuse.mismatch_at) == (0, "none", 30)


def test_where_an_answer_ended_is_kept_when_the_prompt_goes_on() -> None:
    server = Server()
    server.request(conversation(0, 50))
    server.cache.run(conversation(50, 30))
    server.request([*conversation(0, 80), *conversation(500, 40)])
    reuse = server.request([*conversation(0, 80), *conversation(700, 40)])
    assert (reuse.n_reused, reuse.reason) == (80, "differs at token 80")


def test_conversations_take_turns() -> None:
    server = Server()
    for n in (40, 60, 90):
        for first in (0, 1000, 2000):
            reuse = server.request(conversation(first, n))
            assert reuse.n_reused == {40: 0, 60: 40, 90: 60}[n]
    assert server.request(conversation(0), key="another").n_reused == 0


def test_states_that_save_little_are_not_kept() -> None:
    server = Server()
    server.request(conversation(0), ends=range(64, 64 + KEPT_ROWS))
    reuse = server.request([*conversation(0, 75), 999])
    assert reuse.n_reused == 64


def four_states() -> Server:
    """Room for four states, and for more keys and values than are needed."""
    of_blocks = 400 * CHUNK_BYTES
    budget = next(
        n
        for n in range(of_blocks, 2 * of_blocks)
        if byte_shares(n, state=STATE_BYTES, block=CHUNK_BYTES, block_tokens=CHUNK)[0]
        >= 4 * STATE_BYTES
    )
    while byte_shares(budget, state=STATE_BYTES, block=CHUNK_BYTES, block_tokens=CHUNK)[0] > 32:
        budget -= CHUNK_BYTES
    server = Server(budget)
    assert server.prefix.state_capacity == 4
    return server


@pytest.mark.parametrize("n", [96, 128, 160])
def test_without_room_states_stay_spread_over_a_sequence(n: int) -> None:
    server = four_states()
    server.request(conversation(0, n), ends=range(0, n, KEPT_ROWS))
    reused = [
        server.prefix.expected([*conversation(0, at), 999]).n_reused for at in range(20, n, 20)
    ]
    assert len(set(reused)) >= 3
    gaps = [at - found for at, found in zip(range(20, n, 20), reused, strict=True)]
    assert max(gaps) <= n / 2, "not only the end or the beginning is kept"


def test_a_pass_ends_only_where_states_would_be_copied() -> None:
    server = Server()
    server.request(conversation(0, 40))
    assert server.prefix.pass_ends((90, 44, 60, 75)) == [60, 90]
    assert not Server(0).prefix.pass_ends((90,))
    dense = PrefixCache(ToyCache(MAX_SEQ_LEN), block=CHUNK, byte_budget=PLENTY)
    assert not dense.pass_ends((90,))
    dense.keep_state()
    assert (dense.n_bytes, dense.state_capacity) == (0, 0)


def test_what_is_not_used_makes_room() -> None:
    server = four_states()
    server.request(conversation(0))
    for first in range(1000, 9000, 1000):
        server.request(conversation(first))
    assert server.request(conversation(0)).n_reused == 0
    assert server.request(conversation(8000)).n_reused == 100


def test_wrong_numbers_are_forgotten_with_their_states() -> None:
    server = Server()
    server.request(conversation(500), ends=(48,))
    server.request(conversation(0), ends=(48,))
    server.request([*conversation(0, 60), *conversation(700, 20)])
    server.prefix.discard()
    assert server.request(conversation(0)).n_reused == 0
    assert server.request([*conversation(500, 60), 999]).n_reused == 48


@pytest.mark.parametrize("budget", [0, STATE_BYTES, CHUNK_BYTES])
def test_without_room_for_both_nothing_is_copied(budget: int) -> None:
    server = Server(budget)
    for first in (0, 1000):
        server.request(conversation(first), ends=(40,))
    assert server.prefix.n_bytes == 0
    assert server.request(conversation(0)).n_reused == 0
    assert server.request(conversation(0, 90)).n_reused == 90, "what the cache reaches itself"


@pytest.mark.parametrize(
    ("budget", "state", "shares"),
    [
        (2**29, 150 * 10**6, (150 * 10**6, 2**29 - 150 * 10**6)),
        (2**32, 150 * 10**6, (14 * 150 * 10**6, 2**32 - 14 * 150 * 10**6)),
        (2**29, 160_000, (5_600_000, 2**29 - 5_600_000)),
        (10**7, 150 * 10**6, (0, 0)),
    ],
)
def test_a_budget_is_shared(budget: int, state: int, shares: tuple[int, int]) -> None:
    block = 4 * 2**20 if state > 10**6 else 3_775_000
    assert byte_shares(budget, state=state, block=block, block_tokens=64) == shares


def left(directory: Path) -> None:
    """What a process leaves behind that had states at 40, 64 and 100."""
    server = Server(directory=directory)
    server.request(conversation(0), ends=(40, 64))
    server.prefix.flush()


def state_files(directory: Path) -> list[Path]:
    return [file for file in sorted(directory.glob("*.kv")) if file.read_bytes()[:8] == b"solitst1"]


def test_a_later_process_finds_states(tmp_path: Path) -> None:
    left(tmp_path)
    assert len(state_files(tmp_path)) == 3
    reuse = Server(directory=tmp_path).request([*conversation(0, 70), 999])
    assert (reuse.n_reused, reuse.source) == (64, "disk")
    assert Server(directory=tmp_path).request([*conversation(0), 999]).n_reused == 100
    assert Server(directory=tmp_path, fingerprint="two").request(conversation(0)).n_reused == 0
    assert Server(directory=tmp_path).request(conversation(0), key="another").n_reused == 0


def test_damaged_states_are_removed_and_not_used(tmp_path: Path) -> None:
    left(tmp_path)
    files = state_files(tmp_path)
    later = Server(directory=tmp_path)
    for file in files:
        content = bytearray(file.read_bytes())
        content[-1] ^= 1  # a byte of the state
        file.write_bytes(content)
    reuse = later.request([*conversation(0, 70), 999])
    assert reuse.n_reused == 0
    assert reuse.reason == "differs at token 70, and the copies before token 64 could not be read"
    assert len(state_files(tmp_path)) == 1, "the one that was not needed stays"


def test_a_state_whose_keys_are_gone_is_not_used(tmp_path: Path) -> None:
    left(tmp_path)
    states = state_files(tmp_path)
    for file in tmp_path.glob("*.kv"):
        if file not in states:
            file.unlink()
    assert Server(directory=tmp_path).request(conversation(0)).n_reused == 0


def test_states_count_against_the_budget_of_the_disk(tmp_path: Path) -> None:
    budget = 3000
    server = Server(4 * CHUNK_BYTES, tmp_path, disk_budget=budget)
    for first in range(0, 10_000, 1000):
        server.request(conversation(first), ends=(40, 64))
    server.prefix.flush()
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= budget


def test_what_makes_room_goes_to_the_disk(tmp_path: Path) -> None:
    server = Server(4 * CHUNK_BYTES, tmp_path)  # room for one state
    assert server.prefix.state_capacity == 1
    for first in (0, 1000, 2000):
        server.request(conversation(first, 20))
    reuse = server.request(conversation(0, 30))
    assert (reuse.n_reused, reuse.source) == (20, "disk")


TOKENS = st.lists(st.integers(0, 1), max_size=40)


class AnyRequestsWithStates(RuleBasedStateMachine):
    """Sequences that share beginnings, in any order, with and without a directory."""

    @initialize(n_chunks=st.sampled_from([0, 2, 7, 40, 10_000]), has_directory=st.booleans())
    def start(self, n_chunks: int, has_directory: bool) -> None:
        self.folder = tempfile.TemporaryDirectory() if has_directory else None
        self.budget = n_chunks * CHUNK_BYTES
        self.has_room = n_chunks == 10_000
        self.kept: dict[str, list[list[int]]] = {"": [], "a": []}
        self.boot()

    def boot(self) -> None:
        self.server = Server(self.budget, Path(self.folder.name) if self.folder else None)

    @rule(
        parts=st.lists(TOKENS, max_size=4),
        end=TOKENS,
        ends=st.sets(st.integers(1, MAX_SEQ_LEN), max_size=4),
        key=st.sampled_from(["", "a"]),
    )
    def request(self, parts: list[list[int]], end: list[int], ends: set[int], key: str) -> None:
        wanted = [id_ for part in parts for id_ in part]
        reuse = self.server.request(wanted, ends=ends, key=key)
        known = [each for each in self.kept[key] if wanted[: len(each)] == each]
        if self.has_room and known:
            assert reuse.n_reused > max(map(len, known)) - KEPT_ROWS
        assert (reuse.source == "none") == (reuse.n_reused == 0)
        new = (at for at in (*ends, len(wanted)) if reuse.n_reused < at <= len(wanted))
        self.kept[key] += [wanted[:at] for at in new]
        cache = self.server.cache
        cache.run(end[: MAX_SEQ_LEN - cache.length])

    @rule(back=st.integers(0, 12))
    def go_back(self, back: int) -> None:
        cache = self.server.cache
        cache.forget_from(max(cache.length - back, 0))
        self.has_room = False

    @rule()
    def fail(self) -> None:
        self.server.cache.clear()
        self.has_room = False

    @rule()
    def discard(self) -> None:
        self.server.prefix.discard()
        self.has_room = False

    @rule()
    @precondition(lambda self: self.folder)
    def restart(self) -> None:
        self.server.prefix.flush()
        self.boot()

    @rule(byte=st.integers(0, 200), which=st.integers(0, 50))
    @precondition(lambda self: self.folder)
    def damage(self, byte: int, which: int) -> None:
        assert self.folder is not None
        self.has_room = False
        for file in sorted(Path(self.folder.name).glob("*.kv"))[which : which + 1]:
            content = bytearray(file.read_bytes())
            content[byte % len(content)] ^= 1
            file.write_bytes(content)

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "server"):
            self.server.cache.check()
            assert self.server.prefix.n_bytes <= self.budget

    def teardown(self) -> None:
        if hasattr(self, "server") and self.folder:
            self.folder.cleanup()


TestAnyRequestsWithStates = AnyRequestsWithStates.TestCase
TestAnyRequestsWithStates.settings = settings(
    max_examples=60, stateful_step_count=25, deadline=None
)
