"""`soliton health`: its line and its exit code, which a container's health check reads."""

import subprocess
import sys
from pathlib import Path

import pytest

from server.__main__ import main
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import LiveServer, live_server

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SOLITON_HOST", "SOLITON_PORT", "SOLITON_HEALTH_PORT"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("suffix", ["", "/", "/v1"])
def test_a_server_that_is_ready_is_0(
    fake_server: LiveServer, capsys: pytest.CaptureFixture[str], suffix: str
) -> None:
    assert main(["health", "--url", fake_server.url + suffix]) == 0
    assert capsys.readouterr().out == f"ready: {fake_server.url}{suffix} answered 200\n"


def test_the_port_is_the_servers_variable(
    fake_server: LiveServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SOLITON_HOST", "0.0.0.0")
    monkeypatch.setenv("SOLITON_PORT", str(fake_server.port))
    monkeypatch.setenv("SOLITON_HEALTH_PORT", "")
    assert main(["health"]) == 0
    assert f"ready: http://127.0.0.1:{fake_server.port} " in capsys.readouterr().out


def test_the_port_for_health_checks_is_preferred(
    fake: FakeEngine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with live_server(fake.as_engine, health_port=0) as server:
        monkeypatch.setenv("SOLITON_PORT", str(server.port))
        monkeypatch.setenv("SOLITON_HEALTH_PORT", str(server.health_port))
        assert main(["health"]) == 0
    assert f":{server.health_port} " in capsys.readouterr().out


def test_it_needs_no_key_and_uses_no_proxy(
    fake: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with live_server(fake.as_engine, api_keys=("key",), allow_hosts=("example.org",)) as server:
        assert main(["health", "--url", server.url]) == 0


def test_a_server_that_takes_no_work_is_1(
    fake_server: LiveServer, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_server.lease.stop_admitting()
    assert main(["health", "--url", fake_server.url]) == 1
    assert capsys.readouterr().out == f"not ready: {fake_server.url} answered 503\n"


def test_no_server_is_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["health", "--url", "http://127.0.0.1:9"]) == 1
    assert capsys.readouterr().out == "not ready: http://127.0.0.1:9: Connection refused\n"


@pytest.mark.parametrize("port", ["eighty", "99999"])
def test_a_variable_that_is_not_a_port_is_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], port: str
) -> None:
    monkeypatch.setenv("SOLITON_PORT", port)
    assert main(["health"]) == 1
    assert port in capsys.readouterr().out


@pytest.mark.parametrize("url", ["nonsense", "127.0.0.1:8000", "ftp://127.0.0.1"])
def test_a_url_needs_its_scheme(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["health", "--url", url]) == 2
    assert url in capsys.readouterr().err


@pytest.mark.parametrize("url", ["http://", "http://[::1", "http://127.0.0.1:http", "http://a b"])
def test_an_address_that_leads_nowhere_is_1(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["health", "--url", url]) == 1
    assert capsys.readouterr().out.startswith(f"not ready: {url}: ")


def test_a_check_loads_no_settings() -> None:
    """It runs every few seconds, on the cores that the server computes on."""
    code = """
import sys
from server.__main__ import main
main(["health", "--url", "http://127.0.0.1:9"])
assert not {"pydantic", "httpx", "fastapi", "engine"} & set(sys.modules)
"""
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
