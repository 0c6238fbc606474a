"""The thread pool and the tape, driven without Python: pool_driver.cpp asserts, this reports."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SOURCES = ("tests/native/pool_driver.cpp", "csrc/pool.cpp", "csrc/tape.cpp")


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = os.environ.get("CXX") or shutil.which("c++") or "g++"
    path = tmp_path_factory.mktemp("pool") / "driver"
    flags = os.environ.get("CXXFLAGS", "").split()
    command = [compiler, "-std=c++20", "-O1", "-pthread", *flags, *SOURCES, "-o", str(path)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=100)
    return path


def drive(driver: Path, scenario: str, n_threads: int, *arguments: int) -> None:
    """Runs a scenario; exceeding the time limit means that a thread waits for ever."""
    command = [str(driver), scenario, str(n_threads), *map(str, arguments)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("n_threads", [1, 2, 3, 8])
def test_a_region_sees_what_the_one_before_wrote(driver: Path, n_threads: int) -> None:
    drive(driver, "regions", n_threads, 5_000)


@pytest.mark.parametrize("n_threads", [2, 8])
def test_threads_that_fell_asleep_are_woken(driver: Path, n_threads: int) -> None:
    drive(driver, "runs", n_threads, 500)


@pytest.mark.parametrize("n_threads", [1, 2, 8])
def test_each_chunk_is_called_once(driver: Path, n_threads: int) -> None:
    drive(driver, "chunks", n_threads)


@pytest.mark.parametrize("n_threads", [1, 2, 8])
def test_an_abort_leaves_out_the_chunks_that_have_not_begun(driver: Path, n_threads: int) -> None:
    drive(driver, "aborts", n_threads)


@pytest.mark.parametrize("n_threads", [1, 4])
def test_each_thread_has_scratch_of_its_own(driver: Path, n_threads: int) -> None:
    drive(driver, "scratch", n_threads)


@pytest.mark.parametrize("n_threads", [2, 4])
def test_a_run_does_not_wait_for_a_thread_that_is_late(driver: Path, n_threads: int) -> None:
    drive(driver, "late", n_threads)


def test_the_number_of_threads_can_change(driver: Path) -> None:
    drive(driver, "resizes", 2)


@pytest.mark.parametrize("n_threads", [1, 2])
def test_a_second_run_at_once_is_refused(driver: Path, n_threads: int) -> None:
    drive(driver, "refuses_a_second_run", n_threads)


@pytest.mark.parametrize("n_threads", [1, 4])
def test_a_forked_process_has_a_pool_of_its_own(driver: Path, n_threads: int) -> None:
    drive(driver, "forks", n_threads)


@pytest.mark.parametrize("n_threads", [1, 2, 8])
def test_what_the_helpers_have_begun_is_done_once(driver: Path, n_threads: int) -> None:
    drive(driver, "begins", n_threads)


@pytest.mark.parametrize("n_threads", [1, 2, 4])
def test_the_last_op_of_what_has_begun_waits_for_its_caller(driver: Path, n_threads: int) -> None:
    drive(driver, "opens", n_threads)


@pytest.mark.parametrize("n_threads", [1, 2, 8])
def test_what_has_begun_is_dropped_by_everything_else(driver: Path, n_threads: int) -> None:
    drive(driver, "drops", n_threads, 3_000)


@pytest.mark.parametrize("n_threads", [2, 4])
def test_dropping_waits_for_a_chunk_that_runs(driver: Path, n_threads: int) -> None:
    drive(driver, "drops_in_the_middle", n_threads)


@pytest.mark.parametrize("n_threads", [1, 4])
def test_what_has_begun_can_be_aborted(driver: Path, n_threads: int) -> None:
    drive(driver, "aborts_what_has_begun", n_threads)


@pytest.mark.parametrize("n_threads", [1, 4])
def test_a_fork_forgets_what_has_begun(driver: Path, n_threads: int) -> None:
    drive(driver, "forks_with_what_has_begun", n_threads)


def test_the_time_of_each_op_is_told(driver: Path) -> None:
    drive(driver, "times", 2)
