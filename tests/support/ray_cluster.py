"""`soliton cluster serve` as a process, with the real Ray, and the processes of its replicas."""

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / "tests" / "ray" / ".venv" / "bin" / "python"
_START_S = 300.0
_END_S = 60.0
_REPLICA = "ray::ServeReplica:soliton:Replica"


@dataclass
class RayCluster:
    """A cluster that runs."""

    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)
    url: str = ""

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=60)

    def pids(self) -> list[int]:
        """Of its replicas."""
        return [pid for pid in descendants(self.process.pid) if _name_of(pid).startswith(_REPLICA)]

    def pids_by_name(self) -> dict[str, int]:
        """Those whose start the metrics of a replica tell."""
        with self.client() as client:
            text = client.get("/metrics").text
        begun = re.findall(r'process_start_time_seconds\{replica="(\w+)"\} (\S+)', text)
        assert begun
        return {
            name: min(self.pids(), key=lambda pid: abs(_begun_at(pid) - float(at)))
            for name, at in begun
        }


def need_ray() -> None:
    """Skip the test without Ray."""
    if not (PYTHON.parents[1] / ".stamp").exists():
        pytest.skip("Ray is not installed into tests/ray/.venv: `make test-ray` does it, from PyPI")


@contextmanager
def ray_cluster(*options: str, code: str = "") -> Iterator[RayCluster]:
    """`code`: run instead of the command. Whatever happens, its processes are gone afterwards."""
    command = [str(PYTHON), "-c", code] if code else [str(PYTHON), "-m", "server", "cluster"]
    process = subprocess.Popen(
        [*command, *([] if code else ["serve", "--port", "0", *options])],
        cwd=ROOT,
        env={**os.environ, "RAY_AUTH_MODE": "disabled", "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    cluster = RayCluster(process)
    reader = threading.Thread(target=_read, args=(cluster,), daemon=True)
    reader.start()
    try:
        until = time.monotonic() + _START_S
        while not cluster.url:
            if process.poll() is not None:
                reader.join(10)
                told = "".join(cluster.lines)
                if "Ray does not start" in told:  # its own limit, which a busy machine exceeds
                    pytest.skip(told.splitlines()[-1])
                raise AssertionError(told)
            assert time.monotonic() < until, "".join(cluster.lines)
            time.sleep(0.05)
        yield cluster
    finally:
        _end(cluster, reader)


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, and they again."""
    children = dict[int, list[int]]()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(path.parent.name))
    found, waiting = list[int](), [pid]
    while waiting:
        own = children.get(waiting.pop(), [])
        found += own
        waiting += own
    return found


def _read(cluster: RayCluster) -> None:
    assert cluster.process.stdout is not None
    for line in cluster.process.stdout:
        cluster.lines.append(line)
        if match := re.search(r"is ready at (http://\S+)", line):
            cluster.url = match[1]


def _end(cluster: RayCluster, reader: threading.Thread) -> None:
    process, started = cluster.process, descendants(cluster.process.pid)
    process.terminate()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
    until = time.monotonic() + _END_S / 4
    while (left := [pid for pid in started if _is_there(pid)]) and time.monotonic() < until:
        time.sleep(0.05)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert process.stdout is not None
    reader.join(10)
    process.stdout.close()
    assert not left, f"processes were left behind: {left}"
    assert process.returncode == 0 or not cluster.url, "".join(cluster.lines)


def _is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def _begun_at(pid: int) -> float:
    """Seconds of the clock at which a process started."""
    boot = next(
        float(line.split()[1])
        for line in Path("/proc/stat").read_text().splitlines()
        if line.startswith("btime")
    )
    ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return boot + ticks / os.sysconf("SC_CLK_TCK")
