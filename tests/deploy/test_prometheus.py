"""A real Prometheus (docs/how-to/monitoring.md) reads a real API server and evaluates alerts and dashboard."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from manciple.access.authentication import tokens
from tests.deploy.test_alerts import ALERTS, ROOT, RULES, panels
from tests.e2e.processes import wait_for
from tests.manciple.api.server import ApiServer
from tests.services import find_binary, free_port


@dataclass(frozen=True)
class Prometheus:
    url: str

    def ask(self, path: str, **query: str) -> Any:
        """The `data` of its answer; None while it does not answer."""
        try:
            answer = httpx.get(f"{self.url}/api/v1/{path}", params=query)
        except httpx.HTTPError:
            return None
        if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE:  # it listens, and is not ready yet
            return None
        found = answer.json()
        assert found["status"] == "success", found
        return found["data"]

    def value(self, expression: str) -> float | None:
        found = (self.ask("query", query=expression) or {"result": []})["result"]
        return float(found[0]["value"][1]) if found else None


def documented() -> Mapping[str, Any]:
    """The configuration that the documentation shows."""
    text = (ROOT / "docs" / "how-to" / "monitoring.md").read_text()
    block = re.search(r"```yaml\n(scrape_configs:.*?)```", text, re.DOTALL)
    assert block is not None
    found: Mapping[str, Any] = yaml.safe_load(block[1])
    return found


@pytest.fixture
def prometheus(api_server: ApiServer, tmp_path: Path) -> Iterator[Prometheus]:
    (job, _agents) = documented()["scrape_configs"]
    token = tmp_path / "token"
    token.write_text(tokens.issue("prometheus", ["system:monitoring"]))
    job["authorization"]["credentials_file"] = str(token)
    job["tls_config"]["ca_file"] = str(api_server.ca_file)
    job["static_configs"] = [{"targets": [api_server.url.removeprefix("https://")]}]
    config = tmp_path / "prometheus.yml"
    often = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config.write_text(yaml.safe_dump({"global": often, "rule_files": [str(RULES)], "scrape_configs": [job]}))
    address = f"127.0.0.1:{free_port()}"
    command = [
        *(find_binary("prometheus"), f"--config.file={config}", f"--web.listen-address={address}"),
        *(f"--storage.tsdb.path={tmp_path / 'data'}", "--log.level=warn"),
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield Prometheus(f"http://{address}")
        finally:
            process.terminate()
            process.wait(20)


@pytest.mark.long
def test_prometheus_reads_the_api_and_evaluates_what_deploy_has(prometheus: Prometheus) -> None:
    value = prometheus.value
    wait_for("a scrape", lambda: value('up{job="manciple"}') == 1.0)
    wait_for("another", lambda: value('sum(apiserver_request_total{subresource="/metrics"})'))
    assert value('count(scheduler_pending_pods{queue="active"})') == 1
    assert value('manciple_processes{role="api"}') == 1
    rules = {rule["name"]: rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]}
    assert rules.keys() == ALERTS.keys()

    def evaluated() -> bool:
        told = [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]
        assert not [rule["lastError"] for rule in told if rule.get("lastError")]
        return all(rule["health"] == "ok" for rule in told)

    wait_for("the rules to be evaluated", evaluated)
    for title, expression in panels():
        asked = expression.replace("$__rate_interval", "1m").replace("$device_class", ".*")
        assert prometheus.ask("query", query=asked) is not None, title
