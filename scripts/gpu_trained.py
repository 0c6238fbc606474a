"""Packs what a training has made, in files small enough to be brought back.

    python scripts/gpu_trained.py RUN_DIR DIR

Writes DIR/trained.tar.gz.0 and so on; `cat trained.tar.gz.* | tar xz` unpacks a run directory, with
which `python -m training --run-dir` exports, evaluates and describes the model. Its checkpoints
have no state of the optimizer, which is twice as large as the model: training cannot go on.
"""

import io
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

import torch

PART_BYTES = 15 * 2**20
_LEFT_OUT = ("optimizer", "mixer")


def main(argv: Sequence[str]) -> int:
    run_dir, directory = map(Path, argv)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as archive:
        for pattern in ("tokenizer/*", "*/log.csv", "*/loss.png"):
            for file in sorted(run_dir.glob(pattern)):
                archive.add(file, file.relative_to(run_dir))
        for file in sorted(run_dir.glob("*/checkpoint.pt")):
            _add(archive, str(file.relative_to(run_dir)), slim(file))
    content = packed.getvalue()
    for number, begin in enumerate(range(0, len(content), PART_BYTES)):
        part = directory / f"trained.tar.gz.{number}"
        part.write_bytes(content[begin : begin + PART_BYTES])
        print(f"{part.name}: {part.stat().st_size / 2**20:.1f} MiB")
    return 0


def slim(checkpoint: Path) -> bytes:
    """The file without what only training needs."""
    state = torch.load(checkpoint, map_location="cpu", weights_only=True)
    written = io.BytesIO()
    torch.save({name: value for name, value in state.items() if name not in _LEFT_OUT}, written)
    return written.getvalue()


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
