"""Writes openapi.yaml from the app, or, with --check, says whether it is in step."""

import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT)]

from engine import DEFAULT_MODEL, Engine  # noqa: E402
from server.app import create_app  # noqa: E402
from server.settings import Settings  # noqa: E402

PATH = ROOT / "openapi.yaml"


def document() -> str:
    """The app's own description as YAML. No model is loaded into it: any engine gives the same."""
    app = create_app(Settings(), Engine.load(DEFAULT_MODEL, device="cpu"))
    text = yaml.safe_dump(app.openapi(), sort_keys=False, allow_unicode=True, width=100)
    return f"# Written by `make openapi`; do not edit.\n{text}"


def main() -> int:
    if "--check" not in sys.argv[1:]:
        PATH.write_text(document())
        return 0
    if PATH.exists() and PATH.read_text() == document():
        return 0
    print("openapi.yaml is not what the app says: run `make openapi`", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
