"""The wings and their order: an import goes to a lower layer, and no two files import each other.

Owns the list of layers. docs/architecture.md says what each wing is for.
"""

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Wings on one line do not know each other. A file at the root of its package is its own wing.
LAYERS = {
    "engine": (
        "errors abort garbage native", "files stored_tensor", "gguf", "text checkpoint",
        "model_files", "grammar sampling", "device", "cache", "model", "draft", "stream", "chat",
        "description fingerprint load_options", "weight_files", "engine", "__init__", "benchmark",
    ),
    "server": (
        "errors version suggest", "schema http", "settings lease", "stream", "request answer",
        "kept", "service", "chat", "api", "app process", "commands", "cluster", "__main__",
    ),
}  # fmt: skip
# The first does not know the second, though both layers would allow it.
STRANGERS = (
    ("engine/device/cpu/", "engine/device/cuda/"),
    ("engine/device/cuda/", "engine/device/cpu/"),
    ("engine/chat/template/", "engine/chat/reply/"),
    ("engine/sampling/reference/", "engine/sampling/sampler.py"),
    ("engine/sampling/reference/", "engine/sampling/op.py"),
    ("server/chat/", "server/schema/"),
    ("server/api/completions/", "server/api/chat/"),
    ("server/api/chat/", "server/api/completions/"),
)
# Libraries with an owner; heavy ones are imported inside a function.
OWNERS = {
    "_cpu": ("engine/native/cpu.py",),
    "_cuda": ("engine/native/cuda.py",),
    "fastapi": ("server/api/", "server/app.py", "server/errors.py", "server/http/json_body.py"),
    "huggingface_hub": ("server/commands/hub.py",),
    "jinja2": ("engine/chat/template/",),
    "llguidance": ("engine/grammar/",),
    "ray": ("server/cluster/deploy.py", "server/cluster/router.py", "server/cluster/local_ray.py"),
    "torch": (
        "engine/device/cuda/",
        "engine/device/reference.py",
        "engine/device/mamba_reference.py",
        "engine/device/recurrent_reference.py",
        "engine/device/routing_reference.py",
        "engine/device/torch_ops.py",
    ),
    "torch_ops": ("engine/device/open.py",),
}
TYPES_ONLY = {"server/commands/serve.py"}


def imports(package: str) -> Iterator[tuple[str, str]]:
    """(file, what it imports): a file of the same package, or the dotted name of anything else."""
    for path in sorted((ROOT / package).rglob("*.py")):
        file = path.relative_to(ROOT)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                yield from ((str(file), alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and not node.level:
                yield str(file), node.module or ""
            elif isinstance(node, ast.ImportFrom):
                base = file.parents[node.level - 1].joinpath(*(node.module or "").split("."))
                for alias in node.names:
                    yield str(file), _file_of(base / alias.name) or _file_of(base) or str(base)


def _file_of(module: Path) -> str | None:
    # A compiled module exists only once it was built; its types always exist.
    found = (module.with_suffix(".py"), module.with_suffix(".pyi"), module / "__init__.py")
    return next((str(path) for path in found if (ROOT / path).exists()), None)


def wing_of(file: str) -> str:
    return file.split("/")[1].removesuffix(".py")


def test_imports_go_down() -> None:
    for package, lines in LAYERS.items():
        floor = {wing: i for i, line in enumerate(lines) for wing in line.split()}
        for file, target in imports(package):
            if target.startswith(f"{package}/"):
                own, other = wing_of(file), wing_of(target)
                down = own == other or floor[other] < floor[own]
                assert down, f"{file}: {own} must not know {other}"


def test_no_two_files_import_each_other() -> None:
    for package in LAYERS:
        graph = TopologicalSorter[str]()
        for file, target in imports(package):
            if target.endswith(".py") and target != file:
                graph.add(file, target)
        graph.prepare()  # raises CycleError, which names the files


def test_strangers_stay_strangers() -> None:
    for file, target in (pair for package in LAYERS for pair in imports(package)):
        for one, other in STRANGERS:
            assert not (file.startswith(one) and target.startswith(other)), f"{file}: {target}"


def test_libraries_are_imported_where_they_are_owned() -> None:
    for file, target in (pair for package in LAYERS for pair in imports(package)):
        parts = target.removesuffix(".py").replace("/", ".").split(".")
        for name in OWNERS.keys() & set(parts):
            assert file.startswith(OWNERS[name]) or file in TYPES_ONLY, f"{file} imports {name}"


def test_a_wing_says_what_it_owns_and_nothing_else() -> None:
    """Re-exports would load torch with the devices, and hide which file uses what."""
    heads = [path for package in LAYERS for path in (ROOT / package).glob("*/**/__init__.py")]
    for path in heads:
        if path.parent.name != "benchmark":  # a face of its own, which the engine does not import
            (docstring,) = ast.parse(path.read_text()).body
            assert isinstance(docstring, ast.Expr), path
