"""Adds ExLlamaV2 to what travels to a machine with a GPU.

    python scripts/gpu_exllamav2.py

Run by a Python with the torch of that machine and nvcc in PATH, before scripts/gpu_carry.py packs.
The package compiles its extension when it is first imported, which takes 20 minutes on one core;
here that is done for Hopper, and the module is laid beside the package, where it is looked for.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from scripts.gpu_carry import CARRY, SITE  # noqa: E402

_PACKAGE = "exllamav2==0.3.2"
_BUILD = ROOT / "build" / "gpu-exllamav2"
# Needed for compiling and converting only.
_LEFT_OUT = ("exllamav2/exllamav2_ext", "exllamav2/conversion/standard_cal_data")


def main() -> int:
    site = CARRY / SITE
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade"]
    subprocess.run([*pip, "--target", str(site), _PACKAGE], check=True)
    # The headers of CUDA's libraries, which torch's packages bring.
    headers = [str(each) for each in Path(sys.prefix).glob("lib/*/site-packages/nvidia/*/include")]
    subprocess.run(
        [sys.executable, "-c", "import exllamav2.ext"],
        check=True,
        env={
            **os.environ,
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PYTHONPATH": str(site),
            "CPATH": os.pathsep.join(headers),
            "TORCH_CUDA_ARCH_LIST": "9.0",
            "TORCH_EXTENSIONS_DIR": str(_BUILD),
        },
    )
    (module,) = _BUILD.rglob("exllamav2_ext.so")
    shutil.copy2(module, site)
    subprocess.run(["strip", str(site / module.name)], check=True)
    for name in _LEFT_OUT:
        shutil.rmtree(site / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
