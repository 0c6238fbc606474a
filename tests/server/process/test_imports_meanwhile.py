"""Imports in a thread: when they are done, what of their failures is told, and what is restored."""

import sys
import threading

import pytest

from server.process.imports import imported_meanwhile


def test_the_block_runs_beside_the_imports_and_ends_after_them() -> None:
    begun, may_end, done = threading.Event(), threading.Event(), threading.Event()

    def imports() -> None:
        begun.set()
        may_end.wait(10)
        done.set()

    usual = sys.getswitchinterval()
    with imported_meanwhile(imports):
        assert begun.wait(10)
        assert sys.getswitchinterval() < usual
        assert not done.is_set()
        may_end.set()
    assert done.is_set()
    assert sys.getswitchinterval() == usual


def test_a_failed_import_is_left_to_whoever_needs_it(capsys: pytest.CaptureFixture[str]) -> None:
    def imports() -> None:
        raise ImportError("not installed")

    with imported_meanwhile(imports):
        pass
    assert capsys.readouterr().err == ""


def test_a_signal_in_the_block_waits_for_the_imports() -> None:
    """Python must not end while a thread initialises a module."""
    done, usual = threading.Event(), sys.getswitchinterval()

    def imports() -> None:
        threading.Event().wait(0.05)
        done.set()

    with pytest.raises(SystemExit), imported_meanwhile(imports):
        raise SystemExit(0)
    assert done.is_set()
    assert sys.getswitchinterval() == usual
