"""Writes openapi.yaml from the app, or checks with --check that it is up to date."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml
from typing_extensions import override

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT)]

from engine import DEFAULT_MODEL, Engine  # noqa: E402
from server.app import create_app  # noqa: E402
from server.settings import Settings  # noqa: E402

PATH = ROOT / "openapi.yaml"
LONGEST_LINE = 80


class _Dumper(yaml.SafeDumper):
    """Short values on one line, texts of several lines as such, and no references in the file."""

    @override
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _list(dumper: yaml.SafeDumper, values: list[Any]) -> yaml.SequenceNode:
    return dumper.represent_sequence("tag:yaml.org,2002:seq", values, flow_style=_is_flat(values))


def _object(dumper: yaml.SafeDumper, fields: dict[str, Any]) -> yaml.MappingNode:
    on_one_line = _is_flat(fields.values()) and len(str(fields)) < LONGEST_LINE
    return dumper.represent_mapping("tag:yaml.org,2002:map", fields, flow_style=on_one_line)


_Dumper.add_representer(str, _text)
_Dumper.add_representer(list, _list)
_Dumper.add_representer(dict, _object)


def _is_flat(values: Iterable[Any]) -> bool:
    return not any(isinstance(value, dict | list) for value in values)


def document() -> str:
    """The app's OpenAPI document as YAML. It is the same for every model."""
    app = create_app(Settings(), Engine.load(DEFAULT_MODEL, device="cpu"))
    text = yaml.dump(app.openapi(), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    return f"# Written by `make openapi`; do not edit.\n{text}"


def main() -> int:
    if "--check" not in sys.argv[1:]:
        PATH.write_text(document())
        return 0
    if PATH.exists() and PATH.read_text() == document():
        return 0
    print("openapi.yaml does not match the app: run `make openapi`", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
