"""What the program never does: run text, contact other machines, or open a name from a request."""

import ast
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from shutil import copytree
from typing import Any
from urllib.parse import quote

import pytest

from tests.repository.test_imports import FILES, ROOT
from tests.support.audited_server import AuditedServer, audited_server
from tests.support.live_server import LiveServer

# What runs bytes as a program, or creates objects from them.
MODULES = {
    "pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "code",
    "codeop", "runpy", "pty", "yaml",
}  # fmt: skip
CALLS = {
    "eval", "exec", "compile", "__import__", "import_module", "system", "popen", "torch.load",
    "np.load", "numpy.load",
}  # fmt: skip
# The methods of regular expressions, and of our constraints.
HARMLESS = {"re.compile"}
# What answers with files or reads forms; both have a history of holes.
CLASSES = {"FileResponse", "StaticFiles", "UploadFile", "Form"}
# The only files that may use these.
PROGRAMS = {
    "engine/grammar/trial.py",
    "server/commands/bench_http.py",
    "server/commands/packaged.py",
}
CLIENTS = {
    "server/commands/chatting/over_http.py",
    "server/commands/bench_http.py",
    "server/commands/health.py",
    "server/commands/hub.py",
}
LISTENERS = {"server/commands/listening.py", "server/commands/serve.py"}
# The socket options and signals that are allowed.
SOCKETS = {
    "server/process/drain.py",
    "server/process/service_manager.py",
    "server/http/slow_readers.py",
    "server/http/socket_options.py",
}


def findings(source: str) -> list[str]:
    """Which of the above the source uses."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.split(".")[0] in MODULES]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found += [str(node.module)] if str(node.module).split(".")[0] in MODULES else []
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found += sorted(names & {"os.system", "os.popen", "torch.load", "numpy.load"})
        elif isinstance(node, ast.Call):
            found += _of_call(node)
        elif isinstance(node, ast.Name) and node.id in CLASSES:
            found.append(node.id)
        elif isinstance(node, ast.Constant) and node.value == "trust_remote_code":
            found.append("trust_remote_code")
    return found


def _of_call(node: ast.Call) -> list[str]:
    name = ast.unparse(node.func)
    found = [f"{name}(shell)" for keyword in node.keywords if keyword.arg == "shell"]
    last = name.split(".")[-1]
    is_plain = name in CALLS or (last in CALLS - {"eval", "exec", "compile"} and last != name)
    return [*found, name] if is_plain and name not in HARMLESS else found


@pytest.mark.parametrize(
    "source",
    ["import pickle", "from marshal import loads", "import dill as d", "import yaml", "eval('1')",
     "def f():\n    exec(text)", "compile('x', 'y', 'exec')", "__import__(name)",
     "importlib.import_module(name)", "os.system('ls')", "subprocess.run(x, shell=True)",
     "torch.load(path)", "np.load(path, allow_pickle=True)", "from torch import load",
     "f(**{'trust_remote_code': True})", "from os import popen", "FileResponse(path)"],
)  # fmt: skip
def test_the_gate_finds_what_it_looks_for(source: str) -> None:
    assert findings(source)


@pytest.mark.parametrize("source", ["re.compile('x')", "x.evaluate(1)", "from .code import a"])
def test_the_gate_finds_nothing_else(source: str) -> None:
    assert not findings(source)


def test_no_file_runs_text_or_reads_objects() -> None:
    assert {file: found for file in FILES if (found := findings((ROOT / file).read_text()))} == {}


@pytest.mark.parametrize(
    ("words", "owners"),
    [
        ({"subprocess", "multiprocessing"}, PROGRAMS),
        (
            {
                "httpx",
                "requests",
                "aiohttp",
                "urllib3",
                "urllib.request",
                "http.client",
                "huggingface_hub",
                "huggingface_hub.errors",
            },
            CLIENTS,
        ),
        ({"socket"}, LISTENERS | CLIENTS | SOCKETS),
    ],
)
def test_few_files_start_programs_or_use_the_network(words: set[str], owners: set[str]) -> None:
    importers = set()
    for file in FILES:
        for node in ast.walk(ast.parse((ROOT / file).read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [str(node.module)]
            importers |= {file for name in names if name in words}
    assert importers <= owners


NAME = "canary-name"
NAMES = [
    f"../../{NAME}", f"/etc/{NAME}", f"{NAME}\0", f"..\\{NAME}", f"%2e%2e/{NAME}", f"~/{NAME}",
    f"file:///{NAME}", f"http://127.0.0.1:9/{NAME}", f"{NAME}/../..", f"a/{NAME}.safetensors",
]  # fmt: skip
PATHS = [
    "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "/v1/../props", "/v1/../../etc/passwd", "/..",
    "/v1/models/../../etc/passwd", "/v1/models/%2fetc%2fpasswd", "/health/../metrics", "/static/x",
    "/redoc", "/.env", "/v1/models/%00", "/%1b%5b31m%0d%0aINFO", "/debug/state",
]  # fmt: skip


@pytest.fixture(scope="module")
def audited(
    tmp_path_factory: pytest.TempPathFactory, tiny_model: Path
) -> Iterator[tuple[AuditedServer, Path]]:
    """A server on a model whose directory also holds files that other programs would run; and that
    directory.
    """
    directory = tmp_path_factory.mktemp("audited")
    model = directory / "model"
    copytree(tiny_model, model)
    for trap in ("modeling_trap.py", "tokenization_trap.py", "sitecustomize.py"):
        (model / trap).write_text("raise SystemExit('it was imported')")
    for trap in ("pytorch_model.bin", "trap.pkl", "model.pt"):
        (model / trap).write_bytes(b"cos\nsystem\n(S'touch /tmp/trap'\ntR.")
    with audited_server(model, directory, "--prefix-cache-dir", str(directory)) as server:
        yield server, directory


def bodies(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Requests with a name in every place that takes one."""
    model = {"model": "model", "max_tokens": 1}
    prompt = {**model, "prompt": "x"}
    chat = {**model, "messages": [{"role": "user", "content": "x"}]}
    for field in (
        "user", "cache_salt", "session_id", "request_id", "prompt_cache_key", "safety_identifier",
        "suffix", "lora", "grammar", "guided_regex", "chat_template", "slot_save_path",
    ):  # fmt: skip
        yield "/v1/completions", {**prompt, field: name}
    yield "/v1/completions", {**prompt, "model": name}
    yield "/v1/completions", {**prompt, "metadata": {name: name}, "include": [name], name: name}
    schema = {"type": "object", "properties": {name: {"$ref": name}}, "$id": name, "$schema": name}
    yield "/v1/completions", {**prompt, "guided_json": schema}
    named = {"type": "json_schema", "json_schema": {"name": name, "schema": {"type": "object"}}}
    yield "/v1/completions", {**prompt, "response_format": named}
    yield "/v1/chat/completions", {**chat, "chat_template_kwargs": {name: name, "tools": name}}
    yield "/v1/chat/completions", {**chat, "chat_template": f"{{% include '{name}' %}}"}
    part = {"type": "image_url", "image_url": {"url": name}}
    yield "/v1/chat/completions", {**chat, "messages": [{"role": "user", "content": [part]}]}
    yield "/v1/chat/completions", {**chat, "messages": [{"role": "user", "name": name}]}
    function = {"name": name, "parameters": {"$ref": name}}
    yield "/v1/chat/completions", {**chat, "tools": [{"type": "function", "function": function}]}
    yield "/tokenize", {"model": name, "prompt": name}


def test_names_open_nothing_and_no_other_machine_is_contacted(
    audited: tuple[AuditedServer, Path],
) -> None:
    server, directory = audited
    n_before = len(server.events())
    for path in PATHS:
        assert server.server.get(path).status in (400, 404), path
    for name in NAMES:
        assert server.server.get(f"/v1/models/{quote(name)}").status in (400, 404)
        for path, body in bodies(name):
            assert server.server.post(path, body).status < 500, (path, body)
    assert server.server.get("/metrics").status == 200
    events = server.events()
    assert not [event for event in events if event.name in CONNECTING], (
        "no other machine is contacted"
    )
    assert len([event for event in events if event.name == "socket.bind"]) == 1, "one door"
    assert not [event for event in events if event.name.startswith("pickle.")]
    assert not [event for event in events if any("trap" in part for part in event.arguments)]
    assert not [event for event in events if any(NAME in part for part in event.arguments)]
    opened = {event.arguments[0] for event in events[n_before:] if event.name == "open"}
    assert opened, "the notes are taken"
    homes = (str(ROOT), str(directory), sys.prefix, sys.base_prefix, "/proc/", STDLIB)
    assert not [path for path in opened if not path.isdecimal() and not path.startswith(homes)]


STDLIB = sysconfig.get_path("stdlib")
CONNECTING = {
    "socket.connect", "socket.sendto", "socket.sendmsg", "socket.gethostbyname",
    "socket.gethostbyaddr", "socket.getnameinfo", "urllib.Request", "http.client.connect",
}  # fmt: skip


def test_ranges_are_ignored(audited: tuple[AuditedServer, Path]) -> None:
    live = audited[0].server
    for path in ("/v1/models", "/props", "/openapi.json", "/health/live"):
        whole = live.get(path)
        part = live.get(path, range="bytes=" + 3000 * "0-1,")
        assert (part.status, part.body) == (200, whole.body)


def test_a_storm_leaves_no_trace_in_metrics_and_log(audited: tuple[AuditedServer, Path]) -> None:
    server, _ = audited
    live = server.server
    storm(live, "first")
    series(live)  # this request has series of its own, from the next one on
    n_series, n_logged = len(series(live)), len(server.output())
    for number in range(30):
        storm(live, str(number))
    assert len(series(live)) == n_series
    assert len(server.output()) == n_logged, "what is refused is counted, not logged"


def storm(server: LiveServer, word: str) -> None:
    body = {"model": "model", "prompt": "x", "max_tokens": 1}
    server.request(f"M{word}", f"/{word}")
    server.request(f"M{word}", "/v1/models")
    server.get(f"/v1/models/{word}?{word}={word}")
    server.get("/v1/models", host=word, authorization=f"Bearer {word}")
    server.post("/v1/completions", body, origin=word)
    server.post("/v1/completions", body | {"model": word})
    server.post("/v1/completions", body | {word: word, "cache_salt": word, "user": word})
    server.post("/v1/completions", body | {"strict": True, word: word})
    server.post("/v1/completions", body | {"stop": {word: word}})
    server.post("/v1/completions", f"{{{word}".encode())


def series(server: LiveServer) -> set[bytes]:
    lines = server.get("/metrics").body.splitlines()
    return {line.rpartition(b" ")[0] for line in lines if not line.startswith(b"#")}


def test_the_trap_would_be_noticed(tmp_path: Path, tiny_model: Path) -> None:
    """A control: the notes say what is opened and which machine is contacted."""
    config = tmp_path / "trap.toml"
    config.write_text('host = "localhost"\n')
    with audited_server(tiny_model, tmp_path, "--config", str(config)) as server:
        events = server.events()
    assert any(event.name == "open" and "trap" in event.arguments[0] for event in events)
    assert any(event.name == "socket.getaddrinfo" for event in events)
