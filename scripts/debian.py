"""Debian's packages of any release and architecture, without installing them; roots of Debian.

Needs apt-get, dpkg-deb and a network; `make_root` needs root and debootstrap. This machine's own
packages stay as they are. Knows nothing of wheels.
"""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

_KEY = "/usr/share/keyrings/debian-archive-keyring.gpg"
# With these, a root has the network as this machine has it.
_NETWORK = ("/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs/ca-certificates.crt")


@dataclass(frozen=True)
class Release:
    """A release of Debian for one architecture; `folder` keeps what was fetched."""

    name: str  # "bookworm"
    arch: str  # "arm64"
    folder: Path

    def unpack(self, names: tuple[str, ...], to: Path) -> None:
        """The files of these packages below `to`; fetches nothing if `to` exists."""
        if to.exists():
            return
        packages = self.folder / f"packages-{self.name}-{self.arch}"
        self._download(names, packages)
        unfinished = to.with_name(f"{to.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        for package in packages.glob("*.deb"):
            subprocess.run(["dpkg-deb", "--extract", package, unfinished], check=True)
        shutil.rmtree(packages)
        unfinished.rename(to)

    def _download(self, names: tuple[str, ...], to: Path) -> None:
        state = self.folder / f"apt-{self.name}-{self.arch}"
        for folder in (state / "lists/partial", state / "archives/partial", to):
            folder.mkdir(parents=True, exist_ok=True)
        (state / "status").touch()
        (state / "sources.list").write_text(f"deb [signed-by={_KEY}] {mirror()} {self.name} main\n")
        options = {
            "APT::Architecture": self.arch,
            "APT::Architectures": self.arch,
            "APT::Sandbox::User": "root",
            "Dir::State": state,
            "Dir::State::status": state / "status",
            "Dir::Cache": state,
            "Dir::Etc::sourcelist": state / "sources.list",
            "Dir::Etc::sourceparts": "-",
        }
        apt = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in options.items())]
        subprocess.run([*apt, "update"], check=True)
        subprocess.run([*apt, "download", *names], check=True, cwd=to)

    def make_root(self, packages: tuple[str, ...]) -> Path:
        """A root with these packages and this machine's network; one made before is kept."""
        root = self.folder / f"root-{self.name}-{self.arch}"
        done = root / "made-by-soliton"
        if not done.exists():
            shutil.rmtree(root, ignore_errors=True)
            include = f"--include={','.join(packages)}"
            command = ["debootstrap", "--variant=minbase", include, self.name, str(root), mirror()]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            done.touch()
        for name in _NETWORK:
            shutil.copy(name, root / name[1:])
        return root


def run_in_root(root: Path, *command: str) -> None:
    """Runs a command in a root, with processes and mounts of its own. Needs root."""
    unshare = ["unshare", "--mount", "--pid", "--fork", f"--mount-proc={root}/proc"]
    subprocess.run([*unshare, "chroot", str(root), *command], check=True)


def can_make_roots() -> bool:
    return os.geteuid() == 0 and shutil.which("debootstrap") is not None


def mirror() -> str:
    """Where this machine gets Debian's packages from."""
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(ORIGIN) $(LABEL)"]
    lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    for line in lines.splitlines():
        if line.endswith(" Debian Debian"):
            return line.split()[0]
    raise SystemExit("soliton: apt-get knows no mirror of Debian; wheels are built on Debian")
