"""What the packages import and call, read from their syntax trees. Wings: test_layers.py."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILES = sorted(
    path.relative_to(ROOT).as_posix()
    for package in ("server", "engine")
    for path in (ROOT / package).rglob("*.py")
)
HTTP = {
    "fastapi",
    "starlette",
    "uvicorn",
    "sse_starlette",
    "pydantic",
    "pydantic_settings",
    "httpx",
}
CONCURRENCY = {"asyncio", "threading", "concurrent", "multiprocessing", "anyio"}


def imported(file: str) -> Iterator[tuple[str, int]]:
    """(module, line) of every import in a file; relative ones keep their leading dots."""
    for node in ast.walk(ast.parse((ROOT / file).read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield module, node.lineno
            for alias in node.names:
                yield f"{module}{'' if module.endswith('.') else '.'}{alias.name}", node.lineno


def roots(file: str) -> set[str]:
    return {module.split(".")[0] for module, _ in imported(file) if not module.startswith(".")}


def names_of(file: str) -> set[str]:
    """Every attribute that a file mentions, and what it imports from modules by name."""
    tree = ast.parse((ROOT / file).read_text())
    attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return attributes | {module.split(".")[-1] for module, _ in imported(file)}


def test_the_walk_sees_the_packages() -> None:
    assert "server/__main__.py" in FILES
    assert "engine/device/ops.py" in FILES


def test_imports_point_from_server_to_engine() -> None:
    for file in FILES:
        forbidden = {"torch"} if file.startswith("server/") else {"server", *HTTP}
        assert not roots(file) & forbidden, f"{file} must not import {roots(file) & forbidden}"


def test_inside_a_package_imports_are_relative() -> None:
    wrong = [file for file in FILES if file.split("/")[0] in roots(file)]
    assert not wrong, "these name their own package"


def test_server_imports_the_root_of_engine_only() -> None:
    public = {
        alias.name
        for node in ast.parse((ROOT / "engine/__init__.py").read_text()).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    # The engine does not import its own benchmark, so it costs no other start-up anything.
    public.add("benchmark")
    for file in FILES:
        reached = {module for module, _ in imported(file) if module.startswith("engine.")}
        assert reached <= {f"engine.{name}" for name in public}, f"{file} reaches into engine"


def test_threads_and_asyncio_stand_where_they_are_owned() -> None:
    wrong = [file for file in FILES if roots(file) & CONCURRENCY]
    # prefix.py and recent.py have only a lock; load.py ends its threads before it returns, kv.py
    # asks for memory pages in one, and spans.py waits for the one in which the exporter ends.
    names = (
        "cluster/asgi_call", "cluster/door", "cluster/passage", "cluster/replica",
        "http/large_bodies", "http/lingering", "http/protocol", "http/slow_readers",
        "kept/files", "kept/kept", "kept/log", "kept/registry",
        "lease/deadlines", "lease/lease", "lease/trials", "lease/waiter", "lease/watchdog",
        "process/drain", "process/last_resort", "stream/engine_call", "stream/feed",
        "stream/idle_timeout", "stream/spans", "stream/steering", "stream/stream",
    )  # fmt: skip
    engine = ("cache/prefix", "device/cpu/kv", "device/cuda/load", "grammar/recent")
    owners = {f"server/{name}.py" for name in names} | {f"engine/{name}.py" for name in engine}
    assert set(wrong) <= owners


def test_the_environment_is_read_in_three_files() -> None:
    """A health check runs every few seconds, and loading the settings takes 0.4 s. What systemd
    says is no setting.
    """
    wrong = [file for file in FILES if names_of(file) & {"environ", "environb", "getenv"}]
    assert wrong == [
        "server/commands/health.py",
        "server/process/service_manager.py",
        "server/settings.py",
    ]


def clocks_of(file: str) -> Iterator[str]:
    """The functions with which a file reads the wall clock."""
    for node in ast.walk(ast.parse((ROOT / file).read_text())):
        if isinstance(node, ast.Attribute):
            *_, module, name = ast.unparse(node).rsplit(".", 2)
            if name in WALL_CLOCK.get(module, ()):
                yield f"{module}.{name}"


WALL_CLOCK = {
    "time": ("time", "time_ns", "localtime", "gmtime", "ctime", "strftime"),
    "datetime": ("now", "today", "utcnow"),
    "date": ("today",),
}


def test_the_wall_clock_is_read_where_a_date_is_meant() -> None:
    """Waiting and measuring use a clock that cannot be set."""
    assert {(file, clock) for file in FILES for clock in clocks_of(file)} == {
        ("server/answer/head.py", "time.time"),  # `created`
        ("server/api/metrics.py", "time.time"),  # since when the server runs
        ("server/api/ollama/answer.py", "datetime.now"),  # `created_at`
        ("server/commands/bench_rows.py", "datetime.now"),  # when it was measured
        ("server/stream/spans.py", "time.time_ns"),  # what collectors order spans by
        ("engine/chat/template/sandbox.py", "datetime.now"),  # strftime_now of chat templates
        # Compared with the times of files, which come from the same clock.
        ("engine/device/cpu/panel_cache.py", "time.time"),
        ("engine/cache/files.py", "time.time"),
        ("engine/cache/files.py", "time.time_ns"),
        ("server/kept/files.py", "time.time"),
        # The order of streams holds over restarts.
        ("server/kept/registry.py", "time.time_ns"),
    }
    by_name = {f"time.{name}" for name in WALL_CLOCK["time"]}
    wrong = [file for file in FILES if by_name & {module for module, _ in imported(file)}]
    assert not wrong, "these would hide what they read"
