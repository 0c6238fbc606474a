"""The container's files agree with each other. `make image-test` builds the image and runs it."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.image_engine import compose_flags, compose_service
from server.settings import Settings

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "docker/Dockerfile").read_text()


DOCKERFILES = [DOCKERFILE, (ROOT / "docker/Dockerfile.cuda").read_text()]


@pytest.fixture
def services() -> dict[str, Any]:
    services = yaml.safe_load((ROOT / "docker/compose.yaml").read_text())["services"]
    assert isinstance(services, dict)
    return services


def test_compose_builds_each_dockerfile_from_the_root(services: dict[str, Any]) -> None:
    built = [service["build"] for service in services.values()]
    assert {(ROOT / "docker" / build["context"]).resolve() for build in built} == {ROOT}
    files = sorted(build["dockerfile"] for build in built)
    assert files == ["docker/Dockerfile", "docker/Dockerfile.cuda"]


def test_compose_sets_variables_that_the_settings_have(services: dict[str, Any]) -> None:
    for service in services.values():
        names = {name.removeprefix("SOLITON_").lower() for name in service["environment"]}
        assert "api_keys" in names, "outside the loopback interface the server wants keys"
        assert names <= set(Settings.model_fields)


def test_only_the_service_without_a_gpu_starts_by_default(services: dict[str, Any]) -> None:
    assert [name for name, service in services.items() if not service.get("profiles")] == [
        "soliton"
    ]


def test_the_port_is_a_variable_everywhere() -> None:
    """The image serves on SOLITON_PORT, `soliton health` asks there, compose publishes it."""
    for dockerfile in DOCKERFILES:
        assert re.search(r"^ENV .*SOLITON_HOST=0\.0\.0\.0 SOLITON_PORT=8000$", dockerfile, re.M)
        assert 'CMD ["soliton", "health"]' in dockerfile
        assert "EXPOSE 8000" in dockerfile
        assert '\nCMD ["serve"]' in dockerfile
    service = compose_service({"SOLITON_API_KEYS": "key", "SOLITON_PORT": "8123"})
    assert service["environment"]["SOLITON_PORT"] == 8123
    assert service["ports"] == ["127.0.0.1:8123:8123"]


def test_compose_confines_the_container() -> None:
    flags = compose_flags(compose_service({"SOLITON_API_KEYS": "key"}))
    assert {"--read-only", "--tmpfs=/tmp", "--cap-drop=ALL", "--memory=4g"} <= set(flags)
    assert "--security-opt=no-new-privileges" in flags
    with pytest.raises(KeyError, match="API keys"):
        compose_service({})


def test_the_caches_are_in_the_volume() -> None:
    service = compose_service({"SOLITON_API_KEYS": "key"})
    prefixes = service["environment"]["SOLITON_PREFIX_CACHE_DIR"]
    (volume,) = [text for text in service["volumes"] if text.startswith("cache:")]
    home_cache = volume.split(":")[1]
    assert prefixes.startswith(f"{home_cache}/")
    for dockerfile in DOCKERFILES:
        assert "--create-home soliton" in dockerfile, "without a warning: not a system user"
        assert f"--owner=soliton --group=soliton {home_cache}" in dockerfile


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
