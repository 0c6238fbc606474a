"""What a prompt reuses of earlier sequences: as much as is known, never anything else."""

import tempfile
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.cache.prefix import PrefixCache
from engine.cache.reuse import Reuse
from tests.support.toy_cache import ToyCache, ToyPositions

CHUNK = 8
CHUNK_BYTES = 4 * CHUNK
PLENTY = 1000 * CHUNK_BYTES
MAX_SEQ_LEN = 64
N_ROUND, WINDOW = 16, 5  # of a cache in which a layer with a window holds the last positions


class Server:
    """A cache, its prefix cache, and what each request does with them."""

    def __init__(
        self, byte_budget: int = PLENTY, directory: Path | None = None, *, n_round: int = 0
    ) -> None:
        self.cache = ToyCache(MAX_SEQ_LEN, n_round=n_round, window=WINDOW if n_round else 0)
        self.reads_files = directory is not None
        self.prefix = PrefixCache(
            self.cache, block=CHUNK, byte_budget=byte_budget, directory=directory
        )

    def request(self, token_ids: Sequence[int], *, key: str = "") -> Reuse:
        expected = self.prefix.expected(token_ids, isolation_key=key)
        reuse = self.prefix.prepare(token_ids, isolation_key=key)
        # Only reading a copy tells that its file was damaged.
        assert expected == reuse or (self.reads_files and reuse.n_reused < expected.n_reused)
        assert self.cache.token_ids == list(token_ids[: reuse.n_reused])
        assert self.cache.is_whole
        self.cache.check()
        self.cache.run(token_ids[reuse.n_reused :])
        return reuse


def conversation(first: int, n: int = 40) -> list[int]:
    return [first + i for i in range(n)]


def test_a_prompt_that_goes_on_reuses_the_active_sequence() -> None:
    server = Server(byte_budget=0)
    assert server.request(conversation(0)) == Reuse(0, 40, "none", None, "nothing cached")
    longer = Reuse(40, 45, "active", None, "prompt is longer")
    assert server.request(conversation(0, 45)) == longer
    shorter = Reuse(30, 30, "active", None, "all of the prompt is known")
    assert server.request(conversation(0, 30)) == shorter
    other = Reuse(7, 9, "active", 7, "differs at token 7", (*range(7, 15),))
    assert server.request([*conversation(0, 7), 99, 98]) == other
    assert server.request([]) == Reuse(0, 0, "none", None, "nothing wanted")


def test_without_a_budget_only_the_active_sequence_is_known() -> None:
    server = Server(byte_budget=0)
    for first in (0, 100, 0, 100):
        reuse = server.request(conversation(first))
        assert reuse.n_reused == 0
    assert reuse == Reuse(0, 40, "none", 0, "differs at token 0", (*range(8),))
    assert server.prefix.n_bytes == 0


def test_two_alternating_conversations_are_never_computed_twice() -> None:
    server, length = Server(), {0: 0, 100: 0}
    for n in (20, 29, 30, 41, 55):
        for first, n_known in length.items():
            reuse = server.request(conversation(first, n))
            assert reuse.n_reused == n_known
            length[first] = n
            if n_known:
                assert reuse == Reuse(n_known, n, "memory", None, "prompt is longer")


def test_what_is_reused_ends_where_the_tokens_differ() -> None:
    server = Server()
    server.request(conversation(0))
    server.request(conversation(100))
    for n in (0, 1, 7, 8, 9, 20, 32, 39):
        reuse = server.request([*conversation(0, n), 999])
        assert reuse[:5] == (n, n + 1, "memory" if n else "none", n, f"differs at token {n}")
        # What is known instead: the rest of a block, or of the active sequence.
        known = (conversation(0), conversation(100)) if n == 0 else (conversation(0),)
        assert reuse.other_ids
        assert [*reuse.other_ids] in [ids[n : n + len(reuse.other_ids)] for ids in known]
        server.request(conversation(100))


def test_of_two_sources_the_longer_is_taken() -> None:
    server = Server()
    server.request(conversation(0))
    server.request([*conversation(0, 12), *conversation(500, 20)])
    # 12 tokens are active, 40 are known.
    assert server.request(conversation(0, 44)).source == "memory"
    assert server.cache.token_ids == conversation(0, 44)
    assert server.request([*conversation(0, 12), *conversation(500, 30)]).n_reused == 32


def test_what_is_only_expected_does_not_become_younger() -> None:
    server = Server(byte_budget=2 * CHUNK_BYTES)
    old, young = conversation(0, CHUNK), conversation(100, CHUNK)
    server.request(old)
    server.request(young)
    server.request(conversation(200, CHUNK))
    for _ in range(3):
        assert server.prefix.expected(old).n_reused == CHUNK
    server.request(conversation(300, CHUNK))
    assert server.prefix.expected(old).n_reused == 0, "the oldest copy makes room"
    assert server.prefix.expected(young).n_reused == CHUNK


def test_a_short_sequence_is_not_kept() -> None:
    server = Server()
    server.request(conversation(0, CHUNK - 1))
    server.request(conversation(100, CHUNK))
    assert server.request(conversation(0, CHUNK)).n_reused == 0
    assert server.request(conversation(100, CHUNK)).n_reused == CHUNK


def test_shared_beginnings_are_stored_once() -> None:
    server = Server()
    shared = conversation(0, 4 * CHUNK)
    for first in range(100, 150, 10):
        server.request([*shared, *conversation(first, CHUNK)])
    server.request([999])
    assert server.prefix.n_bytes == (4 + 5) * CHUNK_BYTES
    server.request([*shared, *conversation(100, CHUNK)])
    server.request([999])
    assert server.prefix.n_bytes == (4 + 5) * CHUNK_BYTES, "what is known is not copied again"


def test_a_longer_end_takes_the_place_of_a_shorter_one() -> None:
    server = Server()
    for n in (CHUNK + 1, CHUNK + 3, 2 * CHUNK):
        server.request(conversation(0, n))
        server.request([999])
        assert server.prefix.n_bytes == 2 * CHUNK_BYTES
    server.request(conversation(0, CHUNK + 5))
    server.request([999])
    assert server.prefix.n_bytes == 2 * CHUNK_BYTES, "a shorter end adds nothing"


def test_nothing_is_copied_while_nothing_is_lost() -> None:
    server = Server()
    for n in (10, 20, 40):
        server.request(conversation(0, n))
    assert server.prefix.n_bytes == 0


def test_the_longest_unused_goes_first_and_ends_before_beginnings() -> None:
    server = Server(byte_budget=4 * CHUNK_BYTES)
    for first in (0, 100):
        server.request(conversation(first, 2 * CHUNK))
    server.request([999])  # both are in memory, which is full
    assert server.request(conversation(0, 2 * CHUNK)).n_reused == 2 * CHUNK  # and now younger
    server.request(conversation(200, CHUNK))
    server.request([999])
    assert server.request(conversation(100, 2 * CHUNK)).n_reused == CHUNK, "its end was dropped"
    server.request([999])
    assert server.request(conversation(200, CHUNK)).n_reused == CHUNK
    # To keep the whole of 100 again, the end of 0 was dropped.
    assert server.request(conversation(0, 2 * CHUNK)).n_reused == CHUNK


def test_what_is_restored_is_not_evicted_for_what_is_lost() -> None:
    server = Server(byte_budget=3 * CHUNK_BYTES)
    server.request(conversation(0, 3 * CHUNK))
    server.request(conversation(100, 3 * CHUNK))
    assert server.request(conversation(0, 3 * CHUNK)).n_reused == 3 * CHUNK


def test_of_a_sequence_that_is_larger_than_the_budget_the_beginning_is_kept() -> None:
    server = Server(byte_budget=3 * CHUNK_BYTES + CHUNK_BYTES // 2)
    server.request(conversation(0))
    server.request([999])
    assert server.prefix.n_bytes == 3 * CHUNK_BYTES
    reuse = server.request(conversation(0))
    assert reuse == Reuse(3 * CHUNK, 40, "memory", None, "prompt is longer")


def test_isolation_keys_never_share() -> None:
    server = Server()
    server.request(conversation(0), key="a")
    foreign = Reuse(0, 40, "none", None, "isolation key differs")
    assert server.request(conversation(0), key="b") == foreign
    assert server.request(conversation(100), key="c") == foreign, "whatever the tokens"
    assert server.request(conversation(0), key="") == foreign
    server.request([999], key="z")
    assert server.prefix.n_bytes == 4 * 5 * CHUNK_BYTES
    for key in ("a", "b", ""):
        assert server.request(conversation(0, 44), key=key).n_reused == 40
    assert server.request(conversation(0, 44), key="c").reason == "differs at token 0"
    server.cache.clear()  # as after an error
    assert server.request(conversation(0), key="d").reason == "nothing cached"


def test_a_failure_leaves_a_cache_that_is_true_and_no_memory_lost() -> None:
    server = Server(byte_budget=10 * CHUNK_BYTES)  # just enough
    server.request(conversation(0))
    server.cache.positions.fails = True
    with pytest.raises(RuntimeError, match="the device is gone"):
        server.prefix.prepare(conversation(100))
    server.cache.check()
    assert server.cache.token_ids == conversation(0), "nothing was lost yet"
    server.cache.positions.fails = False
    server.request(conversation(100))

    copy_in, n_calls = server.cache.positions.copy_in, 0

    def third_time_fails(*args: int, **options: int) -> None:
        nonlocal n_calls
        n_calls += 1
        server.cache.positions.fails = n_calls == 3
        copy_in(*args, **options)  # type: ignore[arg-type]

    server.cache.positions.copy_in = third_time_fails  # type: ignore[method-assign, assignment]
    with pytest.raises(RuntimeError, match="the device is gone"):
        server.prefix.prepare(conversation(0))
    assert server.cache.token_ids == conversation(0, 2 * CHUNK)
    server.cache.check()
    server.cache.positions.copy_in = copy_in  # type: ignore[method-assign]
    server.cache.positions.fails = False
    assert server.request(conversation(0)).n_reused == 40
    assert server.request(conversation(100)).n_reused == 40


def test_no_memory_is_a_smaller_budget(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def empty(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(ToyPositions, "host_memory", empty)
    server = Server()
    for first in (0, 100, 0):
        assert server.request(conversation(first)).n_reused == 0
    assert [record.getMessage() for record in caplog.records] == [
        "prefix cache: no memory beyond 0 blocks"
    ]


@pytest.mark.parametrize("block", [0, -4, 6])
def test_a_block_that_cannot_be_copied_is_refused(block: int) -> None:
    with pytest.raises(ValueError, match=f"block must be a positive multiple of 4, not {block}"):
        PrefixCache(ToyCache(8), block=block)


def test_windows_that_went_by_are_restored_from_copies() -> None:
    server = Server(n_round=N_ROUND)
    server.request(conversation(0, 60))
    for n in (59, 20, 45, 44, 31, 6):
        reuse = server.request([*conversation(0, n), 999])
        assert (reuse.n_reused, reuse.reason) == (n, f"differs at token {n}")
        server.request(conversation(0, 60))


def test_windows_without_copies_are_computed_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    server = Server(byte_budget=0, n_round=N_ROUND)
    server.request(conversation(0, 60))
    near = server.request([*conversation(0, 50), 999])
    assert near.n_reused == 50, "so far the cache itself goes back"
    far = server.request([*conversation(0, 30), 999])
    reason = "the window before token 30 is neither held nor copied"
    assert far == Reuse(0, 31, "none", None, reason)
    messages = [record.getMessage() for record in caplog.records]
    assert messages == [f"computing from token 0 again: {reason}"]


def test_copies_that_were_dropped_bring_back_less(caplog: pytest.LogCaptureFixture) -> None:
    server = Server(byte_budget=2 * 3 * CHUNK_BYTES, n_round=N_ROUND)
    server.request(conversation(0, 60))
    reuse = server.request([*conversation(0, 40), 999])
    reason = "the window before token 40 is neither held nor copied"
    assert reuse == Reuse(3 * CHUNK, 41, "memory", None, reason)


def test_a_pass_without_its_window_is_refused() -> None:
    server = Server(byte_budget=0, n_round=N_ROUND)
    server.request(conversation(0, 60))
    server.cache.rollback(30)
    with pytest.raises(ValueError, match="lost what token 30 needs"):
        server.cache.run([1])
    server.cache.rollback(0)
    server.cache.run([1])


TOKENS = st.lists(st.integers(0, 1), max_size=12)
KEYS = st.sampled_from(["", "a"])


class AnyRequests(RuleBasedStateMachine):
    """Sequences that share beginnings, in any order, with and without a directory."""

    n_round = 0

    @initialize(n_chunks=st.sampled_from([0, 1, 3, 7, 1000]), has_directory=st.booleans())
    def start(self, n_chunks: int, has_directory: bool) -> None:
        self.folder = tempfile.TemporaryDirectory() if has_directory else None
        self.budget = n_chunks * CHUNK_BYTES * (2 if self.n_round else 1)
        self.has_room = n_chunks == 1000 or (n_chunks > 0 and has_directory)
        self.known: dict[str, list[list[int]]] = {}
        self.lost: dict[str, list[list[int]]] = {}  # copied in part, before a failure
        self.last_key = ""
        self.boot()

    def boot(self) -> None:
        folder = Path(self.folder.name) if self.folder else None
        self.server = Server(self.budget, folder, n_round=self.n_round)

    @rule(parts=st.lists(TOKENS, max_size=5), end=TOKENS, key=KEYS)
    def request(self, parts: list[list[int]], end: list[int], key: str) -> None:
        cache = self.server.cache
        token_ids = [id_ for part in parts for id_ in part]
        active = shared(cache.token_ids, token_ids) if key == self.last_key else 0
        if active < cache.length >= CHUNK:  # it is copied before it loses anything, not earlier
            self.known.setdefault(self.last_key, []).append(list(cache.token_ids))
        best = max([shared(each, token_ids) for each in self.known.get(key, [])] + [active])
        reuse = self.server.request(token_ids, key=key)
        most = max([best, *(shared(each, token_ids) for each in self.lost.get(key, []))])
        assert reuse.n_reused <= most
        assert self.n_round or active <= reuse.n_reused
        if self.has_room:
            assert best <= reuse.n_reused
        assert (reuse.source == "none") == (reuse.n_reused == 0)
        assert reuse.mismatch_at in (None, reuse.n_reused)
        self.last_key = key
        cache.run(end[: MAX_SEQ_LEN - cache.length])

    @rule()
    def fail(self) -> None:
        if self.n_round:
            self.lost.setdefault(self.last_key, []).append(list(self.server.cache.token_ids))
        self.server.cache.clear()

    @rule()
    @precondition(lambda self: self.folder)
    def restart(self) -> None:
        if self.server.cache.length >= CHUNK:
            self.known.setdefault(self.last_key, []).append(list(self.server.cache.token_ids))
        self.server.prefix.flush()
        self.boot()
        self.last_key = ""

    @rule(byte=st.integers(0, 200))
    @precondition(lambda self: self.folder and self.budget == 7 * CHUNK_BYTES)
    def damage(self, byte: int) -> None:
        assert self.folder is not None
        self.has_room = False
        for file in sorted(Path(self.folder.name).glob("*.kv"))[:1]:
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


def shared(first: Sequence[int], second: Sequence[int]) -> int:
    pairs = zip(first, second, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))


class AnyRequestsWithWindows(AnyRequests):
    """The same where layers with a window hold the last positions only."""

    n_round = N_ROUND


TestAnyRequestsWithWindows = AnyRequestsWithWindows.TestCase
TestAnyRequestsWithWindows.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None
)

TestAnyRequests = AnyRequests.TestCase
TestAnyRequests.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


@pytest.mark.parametrize("on_disk", [False, True])
def test_many_isolation_keys_take_no_more_than_the_budget(tmp_path: Path, on_disk: bool) -> None:
    server = Server(byte_budget=10 * CHUNK_BYTES, directory=tmp_path if on_disk else None)
    for number in range(60):
        server.request(conversation(number), key=f"key {number}")
    assert server.prefix.n_bytes <= 10 * CHUNK_BYTES


def test_nothing_is_remembered_of_what_was_dropped() -> None:
    server = Server(byte_budget=10 * CHUNK_BYTES)

    def use(keys: range) -> None:
        for number in keys:
            server.request(conversation(number), key=f"key {number}")

    use(range(100))
    tracemalloc.start()
    try:
        use(range(100, 600))
        n_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert n_bytes < 50_000, "an empty dict per conversation is already more"
