"""The text of a custom tool's call is the same wherever the JSON around it is cut."""

import json

import pytest

from server.api.responses.custom_input import CustomInput

TEXTS = ["", "plain", 'a "b" \\ c\n\t/', "*** Begin Patch\n+é🧀\n", "\\u0041 stays", "\ud83e\uddc0"]


def read(arguments: str, size: int) -> str:
    custom = CustomInput()
    pieces = [arguments[i : i + size] for i in range(0, len(arguments), size)]
    return "".join(map(custom.add, pieces))


@pytest.mark.parametrize("size", [1, 2, 3, 5, 1000])
@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("spaces", [(",", ":"), (" , ", " : ")])
def test_the_text_comes_out_as_it_was(size: int, ascii_only: bool, spaces: tuple[str, str]) -> None:
    for text in map(paired, TEXTS):
        arguments = json.dumps({"input": text}, ensure_ascii=ascii_only, separators=spaces)
        assert read(arguments, size) == text
        assert read(f" {arguments} ", size) == text


def paired(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16")


@pytest.mark.parametrize("size", [1, 4, 1000])
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("*** Begin Patch", "*** Begin Patch"),
        ('{"patch": "x"}', '{"patch": "x"}'),
        ('{"input": 3}', '{"input": 3}'),
        ('{"input": "cut o', "cut o"),
        ('{"input": "cut \\u00', "cut "),
        ('{"input": "half \\ud83e"}', "half \ufffd"),
        ('{"input": "wrong \\x"}', "wrong \\x"),
        ('{"input": "x", "more": "y"}', "x"),
    ],
)
def test_what_is_no_such_object(size: int, arguments: str, text: str) -> None:
    assert read(arguments, size) == text
