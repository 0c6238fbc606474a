"""The native module is built, names its instruction set, needs no torch, and may be missing."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from engine.native import _cpu

ROOT = Path(__file__).parents[3]

# Each in its own process: what is imported is decided once.
WITHOUT_TORCH = """
import sys
import server.app
from engine import DEFAULT_MODEL, Engine, SamplingSettings
engine = Engine.load(DEFAULT_MODEL, device="cpu", quantize=sys.argv[1], require_native=True)
prompt = engine.tokenizer.encode("Once upon a time")
engine.generator.begin_stream_ex(prompt, SamplingSettings(temperature=0.0), max_new_tokens=8)
text = ""
while not (result := engine.generator.stream_ex()).eos:
    text += result.chunk
print(len(text) > 8, "torch" in sys.modules)
"""

WITHOUT_NATIVE = """
import logging, sys
sys.modules["engine.native._cpu"] = None
from engine import DEFAULT_MODEL, Engine, ModelLoadError, SamplingSettings
for refused in ({"require_native": True}, {"quantize": "8bit"}):
    try:
        Engine.load(DEFAULT_MODEL, device="cpu", **refused)
    except ModelLoadError as error:
        print("refused:", error)
logging.basicConfig(format="%(levelname)s %(name)s %(message)s", stream=sys.stdout)
engine = Engine.load(DEFAULT_MODEL, device="cpu")
prompt = engine.tokenizer.encode("Once upon a time")
settings = SamplingSettings(temperature=0.5, top_p=0.9, seed=7)
engine.generator.begin_stream_ex(prompt, settings, max_new_tokens=8)
text = ""
while not (result := engine.generator.stream_ex()).eos:
    text += result.chunk
print(len(text) > 8)
"""


def run(code: str, *arguments: str) -> list[str]:
    command = [sys.executable, "-c", code, *arguments]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


def test_the_module_contains_the_release() -> None:
    """The fingerprint of a model is that of the module, and must differ in each release."""
    assert version("soliton") == _cpu.RELEASE


def test_reports_its_instruction_set() -> None:
    supported = _cpu.supported_isas()
    assert _cpu.isa() == supported[0], "the best one must be chosen"
    assert supported[-1] == "baseline", "every machine has the baseline"
    assert set(supported) <= {"avx512", "avx2", "neon_dotprod", "neon", "baseline"}


def test_an_unknown_instruction_set_is_refused() -> None:
    chosen = _cpu.isa()
    assert not _cpu.select_isa("mmx")
    assert _cpu.isa() == chosen


@pytest.mark.parametrize("quantize", ["none", "8bit", "5bit"])
def test_the_server_and_a_model_on_the_cpu_need_no_torch(quantize: str) -> None:
    assert run(WITHOUT_TORCH, quantize) == ["True False"], "text should come, without torch"


def test_torch_serves_without_it() -> None:
    required, quantized, warned, spoke = run(WITHOUT_NATIVE)
    assert required.startswith("refused: the native module cannot be imported: ")
    assert quantized == "refused: quantize: 8bit needs native code, not torch"
    assert warned.startswith(
        "WARNING engine.device.open native kernels missing, using torch instead"
    )
    assert spoke == "True"
