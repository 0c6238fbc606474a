"""How many threads there are by default, and which numbers are refused."""

import logging
from pathlib import Path

import pytest

import engine.device.threads
from engine import ModelLoadError
from engine.device.threads import MAX_THREADS, helper_processors, thread_count


@pytest.fixture(autouse=True)
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty control group in place of this machine's."""
    monkeypatch.setattr(engine.device.threads, "_CGROUP", tmp_path)
    return tmp_path


@pytest.fixture
def topology(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory that lists the cores of processors, empty so far."""
    path = tmp_path / "topology"
    path.mkdir()
    monkeypatch.setattr(engine.device.threads, "_TOPOLOGY", f"{path}/{{}}")
    return path


def use_processors(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(count)))


def test_helpers_get_cores_of_their_own_while_there_are_any(
    topology: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for index in range(8):
        (topology / str(index)).write_text(f"{index % 4},{index % 4 + 4}\n")
    use_processors(monkeypatch, 8)
    assert helper_processors(1) == []
    assert helper_processors(4) == [1, 2, 3]
    assert helper_processors(6) == [1, 2, 3, 4, 5]
    assert helper_processors(9) == []


@pytest.mark.usefixtures("topology")
def test_without_a_topology_each_processor_is_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    use_processors(monkeypatch, 4)
    assert helper_processors(4) == [1, 2, 3]


@pytest.mark.parametrize("wanted", [0, -1, MAX_THREADS + 1])
def test_numbers_out_of_range_are_refused(wanted: int) -> None:
    with pytest.raises(ModelLoadError, match=f"threads: must be 1 to 256, not {wanted}"):
        thread_count(wanted)


def test_more_threads_than_processors_are_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    use_processors(monkeypatch, 2)
    with caplog.at_level(logging.WARNING):
        assert thread_count(2) == 2
        assert not caplog.records
        assert thread_count(3) == 3
    assert caplog.messages == ["3 threads share 2 processors: slower than fewer"]


@pytest.mark.parametrize(("processors", "threads"), [(1, 1), (2, 2), (4, 4), (5, 4), (16, 15)])
@pytest.mark.usefixtures("topology")
def test_all_of_few_processors_and_all_but_one_of_many(
    processors: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_processors(monkeypatch, processors)
    assert thread_count() == threads


@pytest.mark.parametrize(("processors", "threads"), [(4, 4), (8, 4), (16, 7)])
def test_of_many_processors_those_of_one_core_count_once(
    processors: int, threads: int, topology: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for index in range(processors):
        (topology / str(index)).write_text(f"{index // 2 * 2}-{index // 2 * 2 + 1}\n")
    use_processors(monkeypatch, processors)
    assert thread_count() == threads


@pytest.mark.parametrize(
    ("limit", "threads"),
    [
        ("max 100000", 8),
        ("300000 100000", 3),
        ("350000 100000", 3),
        ("50000 100000", 1),
        ("900000 100000", 7),
    ],
)
@pytest.mark.usefixtures("topology")
def test_a_time_limit_of_the_container_counts(
    limit: str, threads: int, group: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (group / "cpu.max").write_text(f"{limit}\n")
    use_processors(monkeypatch, 8)
    assert thread_count() == (7 if threads == 8 else threads)


@pytest.mark.parametrize(("quota", "threads"), [("-1", 7), ("200000", 2)])
@pytest.mark.usefixtures("topology")
def test_a_time_limit_of_the_older_kind_counts(
    quota: str, threads: int, group: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (group / "cpu").mkdir()
    (group / "cpu" / "cpu.cfs_quota_us").write_text(f"{quota}\n")
    (group / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    use_processors(monkeypatch, 8)
    assert thread_count() == threads
