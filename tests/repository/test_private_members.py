"""No test reaches into a private member of `engine` or `server`: what both show is enough."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("engine", "server")
# Negative controls: each puts a bug into the code to see that a test finds it.
PLANT_BUGS = {
    "tests/engine/checkpoint/test_loading.py",
    "tests/server/lease/test_lease_machine.py",
    "tests/server/lease/test_model_queue.py",
    "tests/soak/controls.py",
}
OF_NAMED_TUPLES = {"_asdict", "_fields", "_replace"}  # public, in spite of their names
INSTALLED = {".venv", "node_modules"}  # environments of the clients, inside of tests/
PATCHING = {"setattr", "getattr", "hasattr", "delattr", "object"}


def files(folder: str) -> Iterator[tuple[str, ast.Module]]:
    for path in sorted((ROOT / folder).rglob("*.py")):
        file = path.relative_to(ROOT)
        if INSTALLED.isdisjoint(file.parts):
            yield str(file), ast.parse(path.read_text())


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def private_names() -> set[str]:
    """Private functions, classes and attributes of the packages, by name alone. Constants are not
    among them: a test may make a limit small.
    """
    names: set[str] = set()
    for package in PACKAGES:
        for _, tree in files(package):
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    names.add(node.name)
                elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                    names.add(node.attr)
                elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    names.add(node.id)
    return {name for name in names - OF_NAMED_TUPLES if is_private(name) and not name.isupper()}


def uses(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, name) of what is taken from another object or module; `self._name` does not count."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")):
                yield node.lineno, node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
            if called in PATCHING:
                for argument in node.args:
                    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                        yield node.lineno, argument.value.rpartition(".")[2]


def test_no_test_uses_a_private_member_of_the_packages() -> None:
    private = private_names()
    found = [
        f"{file}:{line} {name}"
        for file, tree in files("tests")
        for line, name in uses(tree)
        if name in private
    ]
    others = [place for place in found if place.partition(":")[0] not in PLANT_BUGS]
    assert not others, "give each a public name, or assert what can be seen from outside"
    assert {place.partition(":")[0] for place in found} == PLANT_BUGS, "each exception is needed"
