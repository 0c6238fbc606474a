"""Builds the container image, runs it as docker/compose.yaml does, and checks what users rely on.

Prints a line per goal with its figure, and exits with 1 when one is missed. Where containers cannot
be built or run, it says what is missing and exits with 0.

    python scripts/image_test.py

Owns the goals. scripts/image_engine.py owns buildah and podman. Works in build/image, which keeps
the layers for the next run.
"""

import http.client
import json
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # the scripts and tests are not an installed package

from scripts.image_engine import (  # noqa: E402
    IMAGE,
    BuildError,
    Engine,
    UnavailableError,
    compose_flags,
    compose_service,
    open_engine,
)
from tests.soak.goals import Goal  # noqa: E402

KEY = "image-test"
NAME, VOLUME = "soliton-image-test", "soliton-image-test-cache"
MAX_MB = 300
HEALTHY_S = 60  # the start period of the health check
STOP_S = 30  # compose's stop_grace_period
N_TOKENS = 128
PANELS = "/home/soliton/.cache/soliton"
# A model whose weights are large enough for the panel cache.
WRITE_MODEL = """
from pathlib import Path
from engine.benchmark.shapes import SHAPES, write_model
write_model(SHAPES["125M"], Path("/models/125M"))
"""
LOOK = """
echo uid=$(id -u) home=$(stat -c %U "$HOME") cache=$(touch ~/.cache/x && echo writable)
echo root=$(grep -Eo ' / [a-z]+ r[ow]' /proc/mounts | grep -o 'r[ow]$')
echo var=$(touch /var/tmp/x 2>/dev/null && echo writable || echo read-only)
grep -E '^(CapEff|NoNewPrivs)' /proc/self/status | tr -d '\\t'
cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null
"""


def main() -> int:
    all_met = True
    try:
        engine = open_engine()
        with tempfile.TemporaryDirectory() as models:
            seconds = engine.build()
            print(f"build: {seconds:.0f} s (layers of an earlier run are used)", flush=True)
            for goal in goals(engine, Path(models)):
                verdict = "ok  " if goal.met else "MISS"
                print(f"{verdict} {goal.name}: {goal.figure} (goal: {goal.limit})", flush=True)
                all_met &= goal.met
    except UnavailableError as error:
        print(f"image-test skipped: {error}")
        return 0
    except BuildError as error:
        print(f"MISS the image does not build:\n{error}")
        return 1
    return 0 if all_met else 1


def goals(engine: Engine, models: Path) -> Iterator[Goal]:
    """Runs the checks one after the other."""
    yield size(engine)
    yield without_keys(engine)
    models.chmod(0o755)
    wrote = engine.run("--rm", "--user=0", f"--volume={models}:/models", "--entrypoint=python3",
                       IMAGE, "-c", WRITE_MODEL)  # fmt: skip
    assert wrote.returncode == 0, wrote.stderr
    server = Server(engine, models, free_port())
    server.remove()
    try:
        cold_s = server.start()
        yield Goal("start to healthy, weights not packed yet, port by variable",
                   f"{cold_s:.1f} s", f"<= {HEALTHY_S} s", cold_s <= HEALTHY_S)  # fmt: skip
        yield confined(server)
        yield keys_needed(server)
        yield page(server)
        yield unhealthy(server)
        panels = server.panels()
        yield drained(server)
        warm_s = server.start()
        weights = "kept" if server.panels() == panels else "packed again"
        n_cached = server.n_cached()
        yield Goal(
            "restart with the cache volume",
            f"healthy after {warm_s:.1f} s, weights {weights}, {n_cached} tokens from disk",
            "weights kept, tokens from disk",
            "panels" in panels and weights == "kept" and n_cached > 0,
        )
        yield idle_stop(server)
        yield quiet(server)
    finally:
        server.remove()


@dataclass(frozen=True, slots=True)
class Server:
    """The container of docker/compose.yaml, with a 125M model, a cache volume and its own port."""

    engine: Engine
    models: Path
    port: int

    def start(self) -> float:
        """Starts it, the first time or again. Returns the seconds until it is healthy, or infinity
        after twice the limit.
        """
        begin = time.monotonic()
        if self.engine.podman("container", "exists", NAME).returncode:
            variables = {"SOLITON_API_KEYS": KEY, "SOLITON_PORT": str(self.port), "MEMORY": "1g",
                         "MODELS": str(self.models), "SOLITON_MODEL": "/models/125M"}  # fmt: skip
            flags = compose_flags(compose_service(variables))
            flags = [flag.replace("=cache:", f"={VOLUME}:") for flag in flags]
            run = self.engine.run("--detach", "--name", NAME, *flags, IMAGE)
            assert run.returncode == 0, run.stderr
        else:
            self.engine.podman("start", NAME)
        while (seconds := time.monotonic() - begin) < 2 * HEALTHY_S:
            if self.engine.podman("healthcheck", "run", NAME).returncode == 0:
                return seconds
            time.sleep(0.1)
        print(self.logs()[-2000:])
        return float("inf")

    def stop(self) -> tuple[float, int]:
        """Stops it as `docker stop` does. Returns the seconds and the exit code."""
        begin = time.monotonic()
        self.engine.podman("stop", "--time", str(STOP_S), NAME)
        seconds = time.monotonic() - begin
        code = self.engine.podman("inspect", "--format", "{{.State.ExitCode}}", NAME).stdout
        return seconds, int(code)

    def inside(self, command: str, *flags: str) -> tuple[int, str]:
        run = self.engine.podman("exec", *flags, NAME, "sh", "-c", command)
        return run.returncode, (run.stdout + run.stderr).strip()

    def panels(self) -> str:
        """Inodes and names of the files with packed weights: they change when it packs again."""
        return self.inside(f"cd {PANELS} && ls -i | grep panels$")[1]

    def logs(self) -> str:
        run = self.engine.podman("logs", NAME)
        return run.stdout + run.stderr

    def post(self, body: dict[str, object], key: str = KEY) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
        connection.request("POST", "/v1/completions", json.dumps(body), headers)
        return connection.getresponse()

    def get(self, path: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()

    def n_cached(self) -> int:
        """How many tokens of the drained stream's prompt need no computation."""
        body = json.loads(self.post({**PROMPT, "max_tokens": 1}).read())
        return int(body["usage"]["prompt_tokens_details"]["cached_tokens"])

    def remove(self) -> None:
        self.engine.podman("rm", "--force", "--time", "1", NAME)
        self.engine.podman("volume", "rm", "--force", VOLUME)


PROMPT: dict[str, object] = {"prompt": "once upon a time there was a lion " * 8, "seed": 7}


def page(server: Server) -> Goal:
    """Whether pip installs all files of the page."""
    files = {path.name: path.read_bytes() for path in (ROOT / "server/api/ui").iterdir()}
    same = [name for name, data in files.items() if server.get(f"/ui/{name}") == (200, data)]
    status, _ = server.get("/ui")
    figure = f"status {status}, {len(same)} of {len(files)} files"
    return Goal("the page", figure, "200, all files", status == 200 and len(same) == len(files))


def size(engine: Engine) -> Goal:
    shown = engine.podman("image", "inspect", "--format", "{{.Size}}", IMAGE).stdout
    mb = int(shown) / 1e6
    return Goal("size of the image", f"{mb:.0f} MB", f"<= {MAX_MB} MB", mb <= MAX_MB)


def without_keys(engine: Engine) -> Goal:
    run = engine.run("--rm", IMAGE)
    line = run.stderr.strip().rsplit("\n", 1)[-1]
    met = run.returncode == 2 and "SOLITON_API_KEYS" in line
    return Goal("without keys", f"exit code {run.returncode}, {line!r}",
                "exit code 2, names SOLITON_API_KEYS", met)  # fmt: skip


def confined(server: Server) -> Goal:
    seen = " ".join(server.inside(LOOK)[1].split())
    wanted = ("uid=10001 home=soliton cache=writable root=ro var=read-only "
              f"CapEff:{0:016x} NoNewPrivs:1 {2**30}")  # fmt: skip
    return Goal("confined, with a home", seen, "no privileges, 1 GiB", seen == wanted)


def keys_needed(server: Server) -> Goal:
    short: dict[str, object] = {"prompt": "once", "max_tokens": 1}
    statuses = [server.post(short, key).status for key in (KEY, "another")]
    return Goal("published port, right and wrong key", f"{statuses}", "[200, 401]",
                statuses == [200, 401])  # fmt: skip


def unhealthy(server: Server) -> Goal:
    """The check must be able to fail: nothing listens on port 1."""
    code, line = server.inside("soliton health", "--env", "SOLITON_PORT=1")
    return Goal("health check without a server", f"exit code {code}, {line!r}", "exit code 1",
                code == 1 and "\n" not in line)  # fmt: skip


def drained(server: Server) -> Goal:
    """SIGTERM while a stream runs: it ends in its own time."""
    response = server.post({**PROMPT, "max_tokens": N_TOKENS, "stream": True, "ignore_eos": True})
    first = response.readline()
    seconds, code = server.stop()
    data = [line[6:].strip() for line in (first, *response) if line.startswith(b"data: ")]
    n_events = sum(line != b"[DONE]" for line in data)
    met = code == 0 and data[-1] == b"[DONE]" and n_events >= N_TOKENS and seconds < STOP_S
    return Goal(
        "SIGTERM during a stream",
        f"{n_events} events, last {data[-1].decode()[:40]!r}, exit code {code}, {seconds:.1f} s",
        f"{N_TOKENS} tokens, [DONE], exit code 0",
        met,
    )


def idle_stop(server: Server) -> Goal:
    seconds, code = server.stop()
    return Goal("SIGTERM when idle", f"exit code {code}, {seconds:.1f} s", "exit code 0, < 10 s",
                code == 0 and seconds < 10)  # fmt: skip


def quiet(server: Server) -> Goal:
    lines = [line for line in server.logs().splitlines() if "WARN" in line or "ERROR" in line]
    return Goal("warnings in the log of both starts", f"{lines}", "none", not lines)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())
