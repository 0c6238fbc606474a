"""Models by their name on the Hub: `soliton pull`, and every command that takes a MODEL.

The Hub is a real HTTP server on this machine, the client huggingface_hub itself.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from server.commands.hub import HubName
from tests.support.hub_server import Hub, Repository, hub_server
from tests.support.tiny_models import save_model

ROOT = Path(__file__).parents[3]
SOLITON = [sys.executable, "-m", "server"]
NAME = "tiny/otter"
NEEDED = {
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
}
# What repositories also hold, and no server needs.
IDLE = (
    "README.md",
    "pytorch_model.bin",
    "consolidated.safetensors",
    "original/consolidated.00.pth",
    "onnx/model.onnx",
    "otter.gguf",
    "picture.png",
    "special_tokens_map.json",
)

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def hub() -> Iterator[Hub]:
    with hub_server() as hub:
        yield hub


@pytest.fixture
def files(tiny_model: Path, tmp_path: Path) -> Path:
    """A copy of the tiny model with everything else that a repository holds."""
    directory = tmp_path / "repository"
    shutil.copytree(tiny_model, directory)
    for name in IDLE:
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_bytes(b"x" * 1000)
    return directory


@pytest.fixture
def otter(hub: Hub, files: Path) -> Repository:
    """The model `tiny/otter` of the Hub."""
    hub.repositories[NAME] = Repository(files)
    return hub.repositories[NAME]


@pytest.fixture
def environment(hub: Hub, tmp_path: Path) -> dict[str, str]:
    """Of a user whose Hub is `hub`, with an empty cache and no token."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    return {
        **kept,
        "PYTHONPATH": str(ROOT),
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(tmp_path / "hf"),
        "HF_HUB_ETAG_TIMEOUT": "2",
    }


@pytest.fixture
def run(environment: dict[str, str], tmp_path: Path) -> Run:
    """Runs a command of soliton in an empty directory."""
    here = tmp_path / "here"
    here.mkdir()

    def run(*argv: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*SOLITON, *argv],
            cwd=here,
            env={**environment, **variables},
            capture_output=True,
            text=True,
        )

    return run


def the_error(result: subprocess.CompletedProcess[str]) -> str:
    """The message of a command that failed as it should: exit code 2 and one line."""
    assert result.returncode == 2, result
    assert result.stderr.startswith("soliton: error: "), result.stderr
    assert result.stderr.count("\n") == 1, result.stderr
    return result.stderr


def directory_of(result: subprocess.CompletedProcess[str]) -> Path:
    assert result.returncode == 0, result.stderr
    return Path(result.stdout.strip())


def test_pull_fetches_only_what_is_needed(run: Run, hub: Hub, otter: Repository) -> None:
    result = run("pull", NAME)
    directory = directory_of(result)
    there = {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}
    assert there == NEEDED | {"model.safetensors"}
    for name in there:
        assert (directory / name).read_bytes() == (otter.directory / name).read_bytes()
    fetched = hub.fetched()
    assert set(fetched) == there
    assert fetched[0] == "config.json", "what cannot be served is refused before the rest comes"
    assert fetched[-1] == "model.safetensors", "weights in the cache mean that all is there"
    assert f"downloading {NAME}: " in result.stderr
    assert " in 1 file to " in result.stderr


def test_the_cache_is_the_usual_one(run: Run, otter: Repository, tmp_path: Path) -> None:
    directory = directory_of(run("pull", NAME))
    repository = tmp_path / "hf" / "hub" / "models--tiny--otter"
    assert directory == repository / "snapshots" / otter.commit
    assert (repository / "refs" / "main").read_text() == otter.commit


def test_a_second_pull_fetches_nothing(run: Run, hub: Hub, otter: Repository) -> None:
    first = directory_of(run("pull", NAME))
    n_fetched = len(hub.fetched())
    again = run("pull", NAME)
    assert directory_of(again) == first
    assert len(hub.fetched()) == n_fetched
    assert "downloading" not in again.stderr


def test_shards_are_those_of_the_index(run: Run, hub: Hub, tmp_path: Path) -> None:
    directory = tmp_path / "sharded"
    save_model(directory, shards=True)
    shutil.copy(directory / "config.json", directory / "model-of-another-tool.safetensors")
    hub.repositories[NAME] = Repository(directory)
    pulled = directory_of(run("pull", NAME))
    index = json.loads((directory / "model.safetensors.index.json").read_text())
    shards = set(index["weight_map"].values())
    assert len(shards) > 1
    assert {path.name for path in pulled.glob("*.safetensors")} == shards
    result = run("inspect", NAME)
    assert f"in {len(shards)} safetensors file(s)" in result.stdout


def test_a_cut_connection_is_resumed(run: Run, hub: Hub, otter: Repository) -> None:
    whole = os.urandom(24 * 2**20)  # the client writes parts of 10 MiB
    (otter.directory / "model.safetensors").write_bytes(whole)
    otter.cut.add("model.safetensors")
    directory = directory_of(run("pull", NAME))
    assert (directory / "model.safetensors").read_bytes() == whole
    ranges = [
        request.range
        for request in hub.requests
        if request.method == "GET" and request.path.endswith("model.safetensors")
    ]
    assert ranges == [None, f"bytes={10 * 2**20}-"], "what was written does not come again"


def test_a_pull_that_failed_goes_on_with_the_missing_files(
    run: Run, hub: Hub, otter: Repository
) -> None:
    otter.broken.add("model.safetensors")
    assert "HTTP 500" in the_error_after_progress(run("pull", NAME))
    otter.broken.clear()
    directory = directory_of(run("pull", NAME))
    assert (directory / "model.safetensors").is_file()
    assert hub.fetched().count("tokenizer.json") == 1


def the_error_after_progress(result: subprocess.CompletedProcess[str]) -> str:
    """The same, for an error after the line that says how much is coming."""
    assert result.returncode == 2, result
    progress, error, end = result.stderr.split("\n")
    assert progress.startswith("downloading ")
    assert error.startswith("soliton: error: ")
    assert not end
    return error


def test_serve_by_name_from_the_hub_and_then_without_it(
    environment: dict[str, str], hub: Hub, otter: Repository
) -> None:
    for variables in ({}, {"HF_HUB_OFFLINE": "1"}):
        n_requests = len(hub.requests)
        with subprocess.Popen(
            [*SOLITON, "serve", NAME, "--port", "0"],
            env={**environment, **variables},
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                assert process.stdout is not None
                line = process.stdout.readline()
                assert line.startswith(f"{NAME} is ready at http://127.0.0.1:"), line
                url = next(word for word in line.split() if word.startswith("http://"))
                models = httpx.get(f"{url}/v1/models").json()
                assert [model["id"] for model in models["data"]] == [NAME]
                assert httpx.get(f"{url}/v1/models/{NAME}").status_code == 200
                body = {"model": NAME, "prompt": "The river", "max_tokens": 3, "ignore_eos": True}
                answer = httpx.post(f"{url}/v1/completions", json=body)
                assert answer.json()["usage"]["completion_tokens"] == 3
            finally:
                process.terminate()
        if variables:
            assert len(hub.requests) == n_requests, "a model in the cache needs no network"


def test_every_command_takes_a_name(run: Run, otter: Repository) -> None:
    directory_of(run("pull", NAME))
    for argv in (
        ["inspect", NAME],
        ["complete", "The river", "--model", NAME, "--max-tokens", "2"],
        ["chat", "--model", NAME, "--max-tokens", "2"],
        ["bench", NAME, "--only", "decode", "--rounds", "1", "--tokens", "2", "--buffer-mb", "1"],
    ):
        result = run(*argv, HF_HUB_OFFLINE="1")
        assert result.returncode == 0, (argv, result.stderr)


def test_a_directory_wins_over_a_name(
    run: Run, hub: Hub, otter: Repository, tmp_path: Path
) -> None:
    shutil.copytree(otter.directory, tmp_path / "here" / NAME)
    result = run("inspect", NAME)
    assert result.returncode == 0, result.stderr
    assert not hub.requests


def test_a_revision_is_a_branch_or_a_commit(run: Run, hub: Hub, otter: Repository) -> None:
    otter.revisions = ("main", "v1")
    directory = directory_of(run("pull", f"{NAME}@v1"))
    assert directory_of(run("pull", NAME, "--revision", otter.commit)) == directory
    error = the_error(run("pull", f"{NAME}@v2"))
    assert f"no revision v2 of {NAME}" in error


def test_an_unknown_name(run: Run) -> None:
    for argv, variables in (
        (["pull", "no/such"], {"HF_TOKEN": "hf_any"}),
        (["serve", "no/such", "--port", "0"], {}),
    ):
        error = the_error(run(*argv, **variables))
        assert "no/such: neither a directory here nor a model on the Hub" in error
        assert "hf download no/such --local-dir DIR" in error


def test_a_gated_model_needs_a_token(run: Run, hub: Hub, otter: Repository) -> None:
    otter.token = "hf_right"
    for variables in ({}, {"HF_TOKEN": "hf_wrong"}):
        error = the_error(run("pull", NAME, **variables))
        assert "gated" in error
        assert "HF_TOKEN" in error
        assert "hf_wrong" not in error
    assert directory_of(run("pull", NAME, HF_TOKEN="hf_right"))


def test_no_network(run: Run) -> None:
    error = the_error(run("pull", NAME, HF_ENDPOINT="http://127.0.0.1:9"))
    assert "cannot download from http://127.0.0.1:9" in error
    assert f"hf download {NAME} --local-dir DIR" in error
    assert "soliton serve DIR" in error


def test_offline_without_a_cached_model(run: Run, hub: Hub, otter: Repository) -> None:
    error = the_error(run("serve", NAME, "--port", "0", HF_HUB_OFFLINE="1"))
    assert "HF_HUB_OFFLINE is set" in error
    assert "hf download" in error
    assert not hub.requests


def test_more_than_the_disk_holds(run: Run, hub: Hub, otter: Repository) -> None:
    otter.claimed_bytes = 10**17
    error = the_error(run("pull", NAME))
    assert "100000000.0 GB to download" in error
    assert "HF_HOME" in error
    assert "model.safetensors" not in hub.fetched()


def test_a_cache_that_cannot_be_written(run: Run, otter: Repository, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    error = the_error(run("pull", NAME, HF_HOME=str(tmp_path / "file" / "hf")))
    assert "HF_HOME" in error


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("architectures", ["GemmaForCausalLM"], "GemmaForCausalLM is not supported; the nearest"),
        ("quantization_config", {"quant_method": "awq"}, "quantized weights are not supported"),
    ],
)
def test_what_cannot_be_served_is_refused_before_it_is_fetched(
    run: Run, hub: Hub, otter: Repository, key: str, value: object, message: str
) -> None:
    config = json.loads((otter.directory / "config.json").read_text())
    (otter.directory / "config.json").write_text(json.dumps({**config, key: value}))
    assert message in the_error(run("pull", NAME))
    assert hub.fetched() == ["config.json"]


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        (
            "model.safetensors",
            "1 GGUF file(s) such as otter.gguf, and no safetensors; get one with: hf download",
        ),
        ("config.json", "has no config.json"),
        ("tokenizer.json", "has no tokenizer.json"),
    ],
)
def test_a_repository_without_a_needed_file(
    run: Run, hub: Hub, otter: Repository, missing: str, message: str
) -> None:
    (otter.directory / missing).unlink()
    assert message in the_error(run("pull", NAME))
    assert not hub.fetched()


def test_pull_without_a_name_prints_help(run: Run) -> None:
    result = run("pull")
    assert result.returncode == 2
    assert not result.stderr
    assert "ORG/NAME" in result.stdout
    assert "HF_TOKEN" in result.stdout


@pytest.mark.parametrize(
    "text",
    ["", "otter", "/tiny/otter", "./tiny/otter", "../tiny", "a/b/c", "tiny/", "a--b/c", "-a/b",
     "tiny/ot ter", "tiny/otter@", "tiny/otter@a b", "tiny/.otter", "tiny/otter.git", "tiny/o..r",
     "~/otter", "tiny/otter@../x", "t/" + "o" * 97],
)  # fmt: skip
def test_what_is_not_a_name_on_the_hub(text: str) -> None:
    assert HubName.read(text) is None


def test_a_bad_name_is_refused(run: Run) -> None:
    assert "write ORG/NAME" in the_error(run("pull", "otter"))


def test_names_on_the_hub() -> None:
    assert HubName.read("tiny/otter") == HubName("tiny/otter", None)
    assert HubName.read("Qwen/Qwen2.5-0.5B_x@refs/pr/1") == HubName(
        "Qwen/Qwen2.5-0.5B_x", "refs/pr/1"
    )


def test_help_does_not_load_the_client_of_the_hub() -> None:
    code = """
import sys
from server.__main__ import main
try:
    assert main(["pull"]) == 2
finally:
    assert not {"huggingface_hub", "engine", "torch", "fastapi"} & set(sys.modules)
"""
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
