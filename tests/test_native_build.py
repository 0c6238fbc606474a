"""The native module is built, says what it runs on, and can be missing without harm."""

import subprocess
import sys

from engine import _native
from engine.ops import Ops

# In a process of its own: whether the module is there is decided when engine.ops is imported.
WITHOUT_NATIVE = """
import logging, sys
import torch
sys.modules["engine._native"] = None
from engine.ops import Ops
try:
    Ops("cpu", require_native=True)
except ImportError as error:
    print("refused:", error)
logging.basicConfig(format="%(levelname)s %(name)s %(message)s", stream=sys.stdout)
ops = Ops("cpu")
x, out = torch.tensor([[3.0, 4.0]]), torch.empty(1, 2)
ops.rms_norm(x, torch.ones(2), eps=0.0, out=out)
print("norm:", torch.allclose(out, x / 12.5**0.5))
"""


def test_reports_its_instruction_set() -> None:
    supported = _native.supported_isas()
    assert _native.isa() == supported[0], "the best one must be chosen"
    assert supported[-1] == "baseline", "every machine has the baseline"
    assert set(supported) <= {"avx512", "avx2", "baseline"}


def test_an_unknown_instruction_set_is_refused() -> None:
    chosen = _native.isa()
    assert not _native.select_isa("mmx")
    assert _native.isa() == chosen


def test_ops_can_require_it() -> None:
    Ops("cpu", require_native=True)


def test_torch_serves_without_it() -> None:
    run = subprocess.run(
        [sys.executable, "-c", WITHOUT_NATIVE], capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 0, run.stderr
    refused, warned, normed = run.stdout.splitlines()
    assert refused.startswith("refused: engine._native cannot be imported")
    assert warned.startswith("WARNING engine.ops native kernels missing, using torch instead")
    assert normed == "norm: True"
