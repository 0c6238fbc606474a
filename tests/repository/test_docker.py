"""The container's files agree with each other; no image is built here."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from server.settings import Settings

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "docker/Dockerfile").read_text()


@pytest.fixture
def service() -> dict[str, Any]:
    service = yaml.safe_load((ROOT / "docker/compose.yaml").read_text())["services"]["soliton"]
    assert isinstance(service, dict)
    return service


def test_compose_builds_the_dockerfile_from_the_root(service: dict[str, Any]) -> None:
    context = (ROOT / "docker" / service["build"]["context"]).resolve()
    assert context == ROOT
    assert (context / service["build"]["dockerfile"]).is_file()
    assert set(service["build"]["args"]) <= set(re.findall(r"^ARG (\w+)", DOCKERFILE, re.M))


def test_compose_sets_variables_that_the_settings_have(service: dict[str, Any]) -> None:
    names = {name.removeprefix("SOLITON_").lower() for name in service["environment"]}
    assert "api_keys" in names, "outside the loopback interface the server wants keys"
    assert names <= set(Settings.model_fields)


def test_compose_publishes_the_port_that_the_image_serves(service: dict[str, Any]) -> None:
    arguments = json.loads(re.findall(r"^CMD (\[.*\])$", DOCKERFILE, re.M)[-1])
    port = arguments[arguments.index("--port") + 1]
    assert [published.split(":")[-1] for published in service["ports"]] == [port]
    assert f"EXPOSE {port}" in DOCKERFILE
    assert f"127.0.0.1:{port}/health/ready" in DOCKERFILE


def test_the_build_context_holds_what_the_package_is_built_from() -> None:
    kept = set(re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(), re.M))
    needed = {
        "pyproject.toml",
        "CMakeLists.txt",
        "README.md",
        "LICENSE",
        "csrc",
        "engine",
        "server",
    }
    assert kept == needed
