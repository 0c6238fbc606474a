"""Prefixes on disk: a later process finds them, and never uses a file that is wrong."""

import logging
import os
import resource
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from engine.cache.prefix import PrefixCache
from engine.cache.reuse import Reuse
from tests.support.toy_cache import ToyCache

CHUNK = 8
CHUNK_BYTES = 4 * CHUNK
A, B = list(range(40)), list(range(100, 140))


class Process:
    """Keeps four chunks in memory."""

    def __init__(
        self, directory: Path, *, fingerprint: str = "one", disk_budget: int = 2**20
    ) -> None:
        self.cache = ToyCache(64)
        self.prefix = PrefixCache(
            self.cache,
            block=CHUNK,
            byte_budget=4 * CHUNK_BYTES,
            directory=directory,
            disk_budget=disk_budget,
            fingerprint=fingerprint,
        )

    def request(self, token_ids: Sequence[int], *, key: str = "") -> Reuse:
        reuse = self.prefix.prepare(token_ids, isolation_key=key)
        self.cache.check()
        self.cache.run(token_ids[reuse.n_reused :])
        return reuse


def files_of(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.kv"))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory that does not exist yet."""
    return tmp_path / "parent" / "prefixes"


@pytest.fixture
def left(directory: Path) -> Path:
    """What a process that had read A left behind."""
    process = Process(directory)
    process.request(A)
    process.prefix.flush()
    return directory


def test_a_later_process_finds_what_an_earlier_one_kept(left: Path) -> None:
    assert len(files_of(left)) == 5, "more than memory had room for"
    later = Process(left)
    assert later.request([*A, 99]) == Reuse(40, 41, "disk", None, "prompt is longer")
    other = Process(left).request([*A[:19], 99])
    assert other == Reuse(19, 20, "disk", 19, "differs at token 19", tuple(A[19:24]))
    assert Process(left, fingerprint="two").request(A).n_reused == 0
    assert Process(left).request(A, key="another").n_reused == 0


def test_the_files_are_the_users_own(left: Path) -> None:
    assert left.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in files_of(left)} == {0o600}
    assert {file.suffix for file in left.iterdir()} == {".kv"}, "nothing unfinished remains"


def test_what_memory_has_no_room_for_is_on_disk(directory: Path) -> None:
    process = Process(directory)
    process.request(A[:32])
    process.request(B[:32])
    assert not files_of(directory), "nothing is written before it must"
    process.request(A[:32], key="another")
    assert len(files_of(directory)) == 4
    assert process.request(A).source == "disk"
    assert process.request(B[:32]).n_reused == 32


def test_an_end_is_not_on_disk_without_its_beginning(directory: Path) -> None:
    process = Process(directory)
    process.request(A[:32])
    process.request(B[:CHUNK])
    process.request([999])  # B's chunk takes the place of A's last
    assert Process(directory).request(A).n_reused == 32


def test_a_shorter_end_is_removed_with_its_file(directory: Path) -> None:
    process = Process(directory)
    for n in (CHUNK + 3, 2 * CHUNK):
        process.request(A[:n])
        process.prefix.flush()
        assert len(files_of(directory)) == 2


def cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size - 1)


def cut_to_nothing(file: Path) -> None:
    os.truncate(file, 0)


def cut_in_its_header(file: Path) -> None:
    os.truncate(file, 70)


def append(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b"x")


def change_version(file: Path) -> None:
    file.write_bytes(b"solitkv0" + file.read_bytes()[8:])


def change_byte(place: int) -> Callable[[Path], None]:
    def change(file: Path) -> None:
        content = bytearray(file.read_bytes())
        content[place] ^= 1
        file.write_bytes(content)

    change.__name__ = f"change_byte_{place}"
    return change


DAMAGES: list[Callable[[Path], None]] = [
    cut,
    cut_to_nothing,
    cut_in_its_header,
    append,
    change_version,
]
# Model, parent, key, lengths, checksum, ids, checksum of the header, content.
DAMAGES += [change_byte(place) for place in (8, 24, 40, 56, 60, 68, 72, 104, 108, -1)]
IN_CONTENT = DAMAGES[-2:]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("is_known", [False, True], ids=["before", "after"])
def test_a_damaged_file_is_ignored_and_removed(
    left: Path,
    damage: Callable[[Path], None],
    is_known: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Damage before a process begins, or while it runs."""
    process = Process(left) if is_known else None
    second = sorted(files_of(left), key=lambda file: file.stat().st_mtime_ns)[-2]  # beginnings last
    damage(second)
    process = process or Process(left)
    reuse = process.request(A)
    assert reuse.n_reused == CHUNK
    # The content is not read before it is needed.
    is_noticed = not is_known and damage not in IN_CONTENT
    unread = "the copy of token 8 could not be read"
    assert reuse.reason == ("prompt is longer" if is_noticed else unread)
    assert not second.exists()
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage().startswith(f"{second} ")
    # It is written again, and then found.
    process.request([999])
    process.prefix.flush()
    assert Process(left).request(A).n_reused == 40


def test_a_file_under_the_name_of_another_is_not_used(left: Path) -> None:
    first, second, *_ = files_of(left)
    first.write_bytes(second.read_bytes())
    process = Process(left)
    assert not first.exists()
    process.request(A)


def test_a_file_that_another_process_removed_is_missed_in_silence(
    left: Path, caplog: pytest.LogCaptureFixture
) -> None:
    process = Process(left)
    for file in files_of(left):
        file.unlink()
    missing = Reuse(0, 40, "none", None, "the copy of token 0 could not be read")
    assert process.request(A) == missing
    assert not caplog.records


def test_the_active_sequence_is_kept_when_a_longer_copy_cannot_be_read(left: Path) -> None:
    process = Process(left)
    process.cache.run(A[:11])
    for file in files_of(left):
        cut(file)
    reuse = process.request(A)
    assert reuse == Reuse(11, 40, "active", None, "the copy of token 11 could not be read")


def test_a_directory_that_cannot_be_written_is_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    process = Process(tmp_path / "file" / "directory")
    for token_ids in (A, B, A, B):
        process.request(token_ids)
    process.prefix.flush()
    (record,) = caplog.records
    assert "no prefixes are written to it for a minute" in record.getMessage()
    process.request([999])
    assert process.request(B).source == "memory"


def test_a_full_disk_is_one_warning(
    directory: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Process(directory)
    process.request(A)
    process.prefix.flush()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    for token_ids in (B, A, B, A):
        process.request(token_ids)
    process.prefix.flush()
    assert [record.getMessage() for record in caplog.records] == [
        f"{directory}: No space left on device: no prefixes are written to it for a minute"
    ]
    assert len(list(directory.iterdir())) == 5, "nothing unfinished remains"
    process.request([999])
    assert process.request(A).n_reused == 40


def test_a_disk_that_has_room_again_is_written_again(
    directory: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Process(directory)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, limits[1]))
    try:
        for token_ids in (A, B, A, B):
            process.request(token_ids)
        process.prefix.flush()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert len(caplog.records) == 1
    assert not list(directory.iterdir())
    process.prefix.flush()
    assert not list(directory.iterdir()), "not within the minute"
    monotonic = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: monotonic() + 61)
    process.prefix.flush()
    assert len(list(directory.iterdir())) > 4
    assert len(caplog.records) == 1


def test_the_disk_has_a_budget_too(directory: Path) -> None:
    one = 76 + 4 * CHUNK + CHUNK_BYTES
    process = Process(directory, disk_budget=6 * one)
    for first in range(0, 1000, 100):
        process.request(list(range(first, first + 32)))
    process.prefix.flush()
    assert 4 <= len(files_of(directory)) <= 6
    assert {file.stat().st_size for file in files_of(directory)} == {one}
    later = Process(directory, disk_budget=6 * one)
    assert later.request(list(range(900, 932))).n_reused == 32, "the last stays"
    assert later.request(list(range(32))).n_reused == 0, "the first went"


def test_the_longest_unused_files_go_first_whoever_wrote_them(directory: Path) -> None:
    one = 76 + 4 * CHUNK + CHUNK_BYTES
    for fingerprint, token_ids in (("one", A[:32]), ("two", A[:32]), ("one", B[:32])):
        process = Process(directory, fingerprint=fingerprint, disk_budget=100 * one)
        process.request(token_ids)
        process.prefix.flush()
    assert Process(directory, disk_budget=100 * one).request(A).n_reused == 32  # and now younger
    small = Process(directory, fingerprint="three", disk_budget=12 * one)
    small.request(list(range(200, 232)))
    small.prefix.flush()
    assert Process(directory, fingerprint="two").request(A).n_reused < 32
    assert Process(directory).request(A).n_reused == 32
    assert Process(directory).request(B).n_reused == 32
    assert Process(directory, fingerprint="three").request(list(range(200, 232))).n_reused == 32


def test_a_start_with_a_smaller_budget_removes_what_is_beyond_it_of_any_model(
    directory: Path,
) -> None:
    one = 76 + 4 * CHUNK + CHUNK_BYTES
    for fingerprint, token_ids in (("one", A[:32]), ("two", A[:32]), ("one", B[:32])):
        process = Process(directory, fingerprint=fingerprint, disk_budget=100 * one)
        process.request(token_ids)
        process.prefix.flush()
    assert len(files_of(directory)) == 12
    small = Process(directory, disk_budget=5 * one)
    assert 3 <= len(files_of(directory)) <= 5
    assert small.request([*B[:32], 9]).n_reused == 32, "the last used stays"
    assert small.request([*A[:32], 9]).n_reused == 0, "and what is gone is not looked for"
    assert Process(directory, fingerprint="two").request(A[:32]).n_reused == 0


def put_directory(file: Path) -> None:
    file.mkdir()


def put_loop(file: Path) -> None:
    file.symlink_to(file.name)


def put_device(file: Path) -> None:
    file.symlink_to("/dev/zero")


@pytest.mark.parametrize(
    "put", [os.mkfifo, put_directory, put_loop, put_device], ids=lambda put: put.__name__
)
def test_what_is_no_file_stops_nothing(left: Path, put: Callable[[Path], None]) -> None:
    first, *_ = files = files_of(left)
    first.unlink()
    put(first)
    put(left / f"{'0' * 32}-{'1' * 32}.kv")  # of another model
    put(left / "0.unfinished")
    process = Process(left)
    reuse = process.request(A)
    process.request(B)
    process.prefix.flush()
    assert reuse.n_reused % CHUNK == 0
    assert reuse.n_reused < len(files) * CHUNK
    later = Process(left, disk_budget=3 * (76 + 4 * CHUNK + CHUNK_BYTES))
    assert len([file for file in files_of(left) if file.is_file()]) <= 3
    assert later.request(A).n_wanted == len(A)


def test_of_a_sequence_larger_than_all_budgets_the_beginning_is_kept(directory: Path) -> None:
    one = 76 + 4 * CHUNK + CHUNK_BYTES
    process = Process(directory, disk_budget=6 * one + one // 2)
    process.request(list(range(60)))
    process.prefix.flush()
    assert len(files_of(directory)) == 6
    assert Process(directory).request(list(range(60))).n_reused == 6 * CHUNK


def test_less_than_one_file_is_no_budget(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    process = Process(directory, disk_budget=50)
    process.request(A)
    process.prefix.flush()
    assert not files_of(directory)
    assert len(caplog.records) == 1


def test_two_processes_may_share_a_directory(directory: Path) -> None:
    first, second = Process(directory), Process(directory)
    for token_ids in (A, B, A):
        for process in (first, second):
            process.request(token_ids)
            process.prefix.flush()
    later = Process(directory)
    assert later.request(A).n_reused == 40
    assert later.request(B).n_reused == 40


def test_what_was_not_finished_is_removed_when_nobody_can_be_writing_it(left: Path) -> None:
    old, young = left / "tmpold.unfinished", left / "tmpyoung.unfinished"
    for file in (old, young):
        file.write_bytes(b"half")
    os.utime(old, (0, time.time() - 100))
    Process(left)
    assert not old.exists()
    assert young.exists()


def test_without_memory_there_is_no_disk(directory: Path) -> None:
    cache = ToyCache(64)
    PrefixCache(cache, block=CHUNK, byte_budget=0, directory=directory).flush()
    assert not directory.exists()
