"""What the tests keep in build/kept is made once, and again when what it is made of has changed."""

from pathlib import Path

import pytest

from tests.support import kept as module
from tests.support.kept import kept


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "KEPT", tmp_path / "kept")
    path = tmp_path / "source"
    path.write_text("one")
    return path


def made_from(source: Path, *words: str) -> tuple[str, bool]:
    """What is in the kept file, and whether it was made for this call."""
    calls = []

    def make(place: Path) -> None:
        calls.append(place)
        (place / "file").write_text(source.read_text())

    return (kept("copy", [source, *words], make) / "file").read_text(), bool(calls)


def test_it_is_made_once(source: Path) -> None:
    assert made_from(source) == ("one", True)
    assert made_from(source) == ("one", False)


def test_a_change_makes_it_anew_and_ends_the_old_one(source: Path, tmp_path: Path) -> None:
    made_from(source)
    source.write_text("two")
    assert made_from(source) == ("two", True)
    assert made_from(source, "-O3") == ("two", True)
    assert len(list((tmp_path / "kept").iterdir())) == 1


def test_a_failure_leaves_nothing(source: Path, tmp_path: Path) -> None:
    def fail(place: Path) -> None:
        (place / "half").touch()
        raise OSError("no compiler")

    with pytest.raises(OSError, match="no compiler"):
        kept("copy", [source], fail)
    assert list((tmp_path / "kept").iterdir()) == []
    assert made_from(source) == ("one", True)
