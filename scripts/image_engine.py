"""The container image of a checkout, built with buildah and run with podman, in their own storage.

Owns the tools, the base image and the flags that are needed where there is neither systemd nor a
registry. Knows no check.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent
PLACE = ROOT / "build" / "image"
IMAGE = "localhost/soliton-image-test"
_BASE = "docker.io/library/debian:trixie-slim"
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
_INSTALL_S, _PULL_S, _BASE_S, _BUILD_S = 180, 120, 600, 1800
# What Debian's slim images leave out.
_NOT_SLIM = ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man",
             "usr/share/info", "usr/share/locale")  # fmt: skip
_NO_NETWORK = r"name resolution|[Cc]ould not resolve|Network is unreachable|new connection"

Result = subprocess.CompletedProcess[str]


class UnavailableError(Exception):
    """This machine cannot build or run containers; the message says what it lacks."""


class BuildError(Exception):
    """The image does not build; the message is the end of the output."""


@dataclass(frozen=True, slots=True)
class Engine:
    """buildah and podman with their own storage."""

    runtime: str

    def podman(self, *words: str, limit_s: float | None = None) -> Result:
        return subprocess.run(
            ["podman", *self._storage, "--cgroup-manager", "cgroupfs", "--runtime", self.runtime,
             *words],
            capture_output=True, text=True, errors="replace", timeout=limit_s,
        )  # fmt: skip

    def run(self, *words: str) -> Result:
        """`podman run` with limits and logs that need neither privileges nor systemd."""
        limits = ("--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096")
        return self.podman("run", *limits, "--log-driver", "k8s-file", *words)

    def provide_base(self) -> str:
        """The base image: from an earlier run, from a registry, or made here. Returns which."""
        if self.podman("image", "exists", _BASE).returncode == 0:
            return "of an earlier run"
        try:
            if self.podman("pull", "--quiet", _BASE, limit_s=_PULL_S).returncode == 0:
                return "from the registry"
        except subprocess.TimeoutExpired:
            pass
        self._make_base()
        return "made with debootstrap, since the registry cannot be reached"

    def build(self) -> float:
        """Builds docker/Dockerfile. Returns the seconds that took. Raises BuildError."""
        start = time.monotonic()
        # Steps run in a chroot with the network of this machine, whose certificates may have been
        # added to for a proxy.
        pip_conf = PLACE / "pip.conf"
        pip_conf.write_text("[global]\ncert = /run/host.crt\n" if _CERTIFICATES.exists() else "")
        volumes = [f"--volume={pip_conf}:/etc/pip.conf:ro"]
        volumes += [f"--volume={_CERTIFICATES}:/run/host.crt:ro"] * _CERTIFICATES.exists()
        command = [
            "buildah", *self._storage, "build", "--isolation", "chroot", "--pull=never",
            "--layers", "--format", "docker", *volumes, "--file", "docker/Dockerfile",
            "--tag", IMAGE, ".",
        ]  # fmt: skip
        try:
            built = subprocess.run(
                command,
                cwd=ROOT,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_BUILD_S,
            )
        except subprocess.TimeoutExpired as error:
            raise UnavailableError(f"the build did not end within {_BUILD_S} s") from error
        if built.returncode:
            output = (built.stdout + built.stderr)[-3000:]
            if re.search(_NO_NETWORK, output):
                raise UnavailableError(f"the build reaches no network:\n{output}")
            raise BuildError(output)
        return time.monotonic() - start

    @property
    def _storage(self) -> list[str]:
        # podman insists on the same second path in every run; sockets in it want it short.
        digest = hashlib.sha256(os.fsencode(PLACE)).hexdigest()[:8]
        return ["--root", str(PLACE / "storage"), "--runroot", f"/run/soliton-image-{digest}"]

    def _make_base(self) -> None:
        with tempfile.TemporaryDirectory(dir=PLACE) as name:
            tree = Path(name, "tree")
            self._debootstrap(tree)
            for path in _NOT_SLIM:
                shutil.rmtree(tree / path, ignore_errors=True)
            (tree / "var/lib/apt/lists").mkdir(parents=True)
            (tree / "var/cache/apt/archives/partial").mkdir(parents=True)
            with subprocess.Popen(["tar", "-C", tree, "-c", "."], stdout=subprocess.PIPE) as tar:
                command = ["podman", *self._storage, "import", "--quiet", "-", _BASE]
                imported = subprocess.run(command, stdin=tar.stdout, capture_output=True, text=True)
            if imported.returncode:
                raise UnavailableError(f"podman import failed:\n{imported.stderr[-1000:]}")

    def _debootstrap(self, tree: Path) -> None:
        try:
            made = subprocess.run(
                ["debootstrap", "--variant=minbase", "trixie", tree],
                capture_output=True, text=True, timeout=_BASE_S,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise UnavailableError(f"debootstrap did not end within {_BASE_S} s") from error
        if made.returncode:
            raise UnavailableError(f"debootstrap failed:\n{made.stdout[-1000:]}{made.stderr}")


def open_engine() -> Engine:
    """The engine, after a container has run in it. Raises UnavailableError."""
    if os.geteuid() != 0:
        raise UnavailableError("it needs root")
    _install_tools()
    runtime = next((tool for tool in ("crun", "runc") if shutil.which(tool)), "")
    PLACE.mkdir(parents=True, exist_ok=True)
    engine = Engine(runtime)
    print(f"base image: {engine.provide_base()}", flush=True)
    tried = engine.run("--rm", "--memory", "64m", "-p", "127.0.0.1::8000", _BASE, "true")
    if tried.returncode:
        raise UnavailableError(f"a container does not run:\n{tried.stderr[-1000:]}")
    return engine


def _install_tools() -> None:
    script = [str(ROOT / "scripts/packages.sh"), sys.executable, "image"]
    try:
        run = subprocess.run(script, capture_output=True, text=True, timeout=_INSTALL_S)
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(f"installing took more than {_INSTALL_S} s") from error
    print(run.stdout, end="", flush=True)
    if run.returncode:
        raise UnavailableError(run.stderr.strip())


def compose_flags(service: Mapping[str, Any]) -> list[str]:
    """What `docker compose` passes on for these keys of a service, as flags of `podman run`."""
    flags = [f"--env={name}={value}" for name, value in service["environment"].items()]
    flags += [f"--publish={port}" for port in service["ports"]]
    flags += [f"--volume={volume}" for volume in service["volumes"]]
    flags += [f"--tmpfs={path}" for path in service["tmpfs"]]
    flags += [f"--cap-drop={name}" for name in service["cap_drop"]]
    # Docker writes no-new-privileges:true, podman without a value.
    flags += [f"--security-opt={text.removesuffix(':true')}" for text in service["security_opt"]]
    # Docker makes nothing writable in a read-only container; podman does unless it is forbidden.
    flags += ["--read-only", "--read-only-tmpfs=false"] if service["read_only"] else []
    return [*flags, f"--memory={service['mem_limit']}"]


def compose_service(variables: Mapping[str, str]) -> dict[str, Any]:
    """The service `soliton` of docker/compose.yaml with these variables."""

    def value(match: re.Match[str]) -> str:
        name, kind, text = match.groups()
        if kind == "?" and name not in variables:
            raise KeyError(f"{name}: {text}")
        return variables.get(name) or (text if kind == "-" else "")

    text = (ROOT / "docker/compose.yaml").read_text()
    filled = re.sub(r"\$\{(\w+):([-?])([^}]*)\}", value, text)
    service = yaml.safe_load(filled)["services"]["soliton"]
    assert isinstance(service, dict)
    return service
