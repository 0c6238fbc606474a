"""Packs what a training has made, in files small enough to be brought back.

    python scripts/gpu_trained.py RUN_DIR OUTPUT DIR

Writes DIR/trained.tar.gz.0 and so on: the model with its card and answers, the logs and measures.
`cat trained.tar.gz.* | tar xz` unpacks them. Checkpoints, several times as large, stay.
"""

import io
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

PART_BYTES = 15 * 2**20


def main(argv: Sequence[str]) -> int:
    run_dir, output, directory = map(Path, argv)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        if output.is_dir():
            archive.add(output, "default_model")
        kept = [*run_dir.glob("*/log.csv"), *run_dir.glob("*/loss.png"), *run_dir.glob("*.json")]
        for file in sorted(kept):
            archive.add(file, f"run/{file.relative_to(run_dir)}")
    content = packed.getvalue()
    for number, begin in enumerate(range(0, len(content), PART_BYTES)):
        part = directory / f"trained.tar.gz.{number}"
        part.write_bytes(content[begin : begin + PART_BYTES])
        print(f"{part.name}: {part.stat().st_size / 2**20:.1f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
