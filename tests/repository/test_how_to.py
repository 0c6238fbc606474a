"""The configuration in docs/how-to fits the server: options, ports, routes, exit codes, metrics."""

import configparser
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

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
    [text] = blocks("systemd.md", "ini")
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
