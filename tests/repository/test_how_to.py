"""The configuration in docs/how-to fits the server: options, ports, routes, exit codes, metrics."""

import configparser
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from server.commands.serve_options import settings_from
from server.settings import Settings
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import live_server

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"
DRAIN_S = Settings.model_fields["drain_seconds"].default
# Prometheus's own metrics, next to those of the server.
SCRAPED = {"up"}


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (HOW_TO / page).read_text(), re.S | re.M)


def check_arguments(words: list[str]) -> None:
    """Every `--option` of a `soliton serve` exists."""
    for word in words:
        if word.startswith("--"):
            assert word.removeprefix("--").replace("-", "_") in Settings.model_fields, word


def accepted(program: str, *words: str | Path) -> None:
    """The program reads the file without an error; skips where it is not installed."""
    # Debian has the servers where only root looks for programs.
    found = shutil.which(program) or shutil.which(program, path="/usr/sbin")
    if found is None:
        pytest.skip(f"{program} is not installed")
    result = subprocess.run(
        [found, *map(str, words)], capture_output=True, text=True, errors="replace"
    )
    assert result.returncode == 0, result.stdout + result.stderr


def check_variables(names: set[str]) -> None:
    assert {name.removeprefix("SOLITON_").lower() for name in names} <= set(Settings.model_fields)


@pytest.fixture(scope="module")
def metrics() -> set[str]:
    """The names of all metrics that a server shows once it has answered."""
    with live_server(FakeEngine().as_engine) as server:
        server.post("/v1/completions", {"prompt": "Once", "max_tokens": 2})
        text = server.get("/metrics").body.decode()
    names = set()
    for name, kind in re.findall(r"^# TYPE (\S+) (\w+)$", text, re.M):
        names |= {f"{name}_bucket"} if kind == "histogram" else {name}
    return names


def names_in(query: str) -> set[str]:
    """The metrics of a PromQL query."""
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]|\bby \([^)]*\)", "", query)
    return set(re.findall(r"\b[a-z_]+\b(?!\s*\()", bare))


@pytest.fixture
def deployment() -> Any:
    [text] = blocks("kubernetes.md", "yaml")
    documents = list(yaml.safe_load_all(text))
    assert [document["kind"] for document in documents] == ["Secret", "Deployment", "Service"]
    return documents[1]["spec"]["template"]["spec"]


def test_the_pod_is_started_with_options_that_exist(deployment: Any) -> None:
    [container] = deployment["containers"]
    assert container["args"][0] == "serve"
    check_arguments(container["args"])
    check_variables({variable["name"] for variable in container["env"]})


def test_kubernetes_accepts_the_deployment(tmp_path: Path) -> None:
    """By the schemas of its API; a package of PyPI has them."""
    [text] = blocks("kubernetes.md", "yaml")
    file = tmp_path / "soliton.yaml"
    file.write_text(text)
    accepted("kubernetes-validate", "--strict", file)


def test_the_pod_starts_next_to_a_service_of_its_name(deployment: Any) -> None:
    """Kubernetes would set SOLITON_PORT=tcp://…"""
    assert deployment["enableServiceLinks"] is False


def test_the_probes_of_the_pod_ask_the_port_for_health(deployment: Any) -> None:
    [container] = deployment["containers"]
    ports = {port["name"]: str(port["containerPort"]) for port in container["ports"]}
    arguments = container["args"]
    assert ports["http"] == arguments[arguments.index("--port") + 1]
    assert ports["health"] == arguments[arguments.index("--health-port") + 1]
    with live_server(FakeEngine().as_engine) as server:
        for name in ("startupProbe", "readinessProbe", "livenessProbe"):
            probe = container[name]["httpGet"]
            assert probe["port"] == "health"
            assert server.get(probe["path"]).status == 200


def test_the_pod_has_the_time_to_drain(deployment: Any) -> None:
    [container] = deployment["containers"]
    pause = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert deployment["terminationGracePeriodSeconds"] > pause + DRAIN_S + 1


def test_every_volume_of_the_pod_is_mounted(deployment: Any) -> None:
    [container] = deployment["containers"]
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in deployment["volumes"]}


def test_the_unit_fits_the_server() -> None:
    text, _ = blocks("systemd.md", "ini")
    unit = configparser.ConfigParser(delimiters="=", strict=True)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(text)
    service = unit["Service"]
    program, command, *arguments = service["ExecStart"].split()
    assert (Path(program).name, command) == ("soliton", "serve")
    check_arguments(arguments)
    check_variables({word.split("=")[0] for word in service["Environment"].split()})
    assert int(service["TimeoutStopSec"]) > DRAIN_S + 1
    assert int(service["LimitNOFILE"]) > Settings.model_fields["max_connections"].default + 56
    operations = (HOW_TO.parent / "operations.md").read_text()
    assert f"RestartPreventExitStatus={service['RestartPreventExitStatus']}`" in operations


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    text, _ = blocks("systemd.md", "ini")
    unit = tmp_path / "soliton.service"
    unit.write_text(text.replace("/opt/soliton/bin/soliton", "/bin/true"))
    accepted("systemd-analyze", "verify", unit)


def test_systemd_accepts_the_socket(tmp_path: Path) -> None:
    service, listening = blocks("systemd.md", "ini")
    unit = tmp_path / "soliton.service"
    unit.write_text(service.replace("/opt/soliton/bin/soliton", "/bin/true"))
    (tmp_path / "soliton.socket").write_text(listening)
    accepted("systemd-analyze", "verify", tmp_path / "soliton.socket")


def test_gateways_are_told_options_and_routes_that_exist() -> None:
    proxy, swap = (yaml.safe_load(text) for text in blocks("gateways.md", "yaml"))
    with live_server(FakeEngine().as_engine) as server:
        for model in swap["models"].values():
            program, command, *words = shlex.split(model["cmd"].replace("${PORT}", "8001"))
            assert (program, command) == ("soliton", "serve")
            settings_from(words)
            assert server.get(model["checkEndpoint"]).status == 200
    waits_s = Settings.model_fields["queue_timeout"].default
    for model in proxy["model_list"]:
        assert model["litellm_params"]["stream_timeout"] > waits_s


def test_nginx_accepts_its_configuration(tmp_path: Path) -> None:
    [text] = blocks("reverse-proxy.md", "nginx")
    assert (size := re.search(r"client_max_body_size (\d+)m;", text))
    assert int(size[1]) * 2**20 == Settings.model_fields["max_body_bytes"].default
    # Without the certificate, which only the site has.
    text = re.sub(r"^ *ssl_certificate.*\n", "", text.replace("443 ssl", "8443"), flags=re.M)
    file = tmp_path / "nginx.conf"
    file.write_text(f"pid {tmp_path}/pid;\nevents {{}}\nhttp {{\n{text}\n}}\n")
    accepted("nginx", "-t", "-e", "stderr", "-p", tmp_path, "-c", file)


def test_caddy_accepts_its_configuration(tmp_path: Path) -> None:
    [text] = blocks("reverse-proxy.md", "caddyfile")
    file = tmp_path / "Caddyfile"
    file.write_text(text)
    accepted("caddy", "adapt", "--adapter", "caddyfile", "--config", file)


def test_haproxy_accepts_its_configuration(tmp_path: Path) -> None:
    [text] = blocks("reverse-proxy.md", "haproxy")
    file = tmp_path / "haproxy.cfg"
    file.write_text(re.sub(r"bind :443 ssl crt \S+", "bind :8443", text))
    accepted("haproxy", "-c", "-f", file)


def test_prometheus_accepts_configuration_and_rules(tmp_path: Path) -> None:
    scrape, rules = blocks("monitoring.md", "yaml")
    for command, text in (("config", scrape), ("rules", rules)):
        file = tmp_path / f"{command}.yml"
        file.write_text(text)
        accepted("promtool", "check", command, file)


def test_the_server_takes_the_commands_of_the_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """With their values, which it checks before it loads a model."""
    commands = [
        command
        for page in HOW_TO.glob("*.md")
        for command in re.findall(
            r"^\$ (SOLITON_API_KEYS=\S+ |)soliton serve(.*)$", page.read_text(), re.M
        )
    ]
    assert len(commands) > 4
    for keys, options in commands:
        with monkeypatch.context() as environment:
            if keys:
                environment.setenv(*keys.strip().split("="))
            settings_from(shlex.split(options, comments=True))


def test_proxies_pass_on_to_the_default_port() -> None:
    port = Settings.model_fields["port"].default
    for language in ("nginx", "caddyfile", "haproxy"):
        [text] = blocks("reverse-proxy.md", language)
        assert f"127.0.0.1:{port}" in text
        assert text.count("{") == text.count("}")


def test_the_queries_of_the_page_name_metrics_that_exist(metrics: set[str]) -> None:
    page = (HOW_TO / "monitoring.md").read_text()
    queries = re.findall(r"^\| .* \| `(.*)` \|$", page, re.M)
    _, rules = (yaml.safe_load(text) for text in blocks("monitoring.md", "yaml"))
    queries += [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    assert len(queries) > 10
    for query in queries:
        assert names_in(query) <= metrics | SCRAPED, query


def test_the_dashboard_has_the_queries_of_metrics_that_exist(metrics: set[str]) -> None:
    dashboard = json.loads((HOW_TO / "grafana.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    for query in queries:
        names = names_in(query)
        assert names, query
        assert names <= metrics, query
    page = (HOW_TO / "monitoring.md").read_text()
    listed = re.findall(r"^\| .* \| `(.*)` \|$", page, re.M)
    assert set(listed) <= set(queries), "the page says that the dashboard has them"
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in dashboard["panels"]]
    assert len(set(places)) == len(places)


def test_the_names_in_a_query_are_found() -> None:
    query = 'sum by (le) (rate(soliton_a_bucket{status="429"}[5m])) / soliton_b'
    assert names_in(query) == {"soliton_a_bucket", "soliton_b"}
