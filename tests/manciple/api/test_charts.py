"""What charts of drivers render, and kustomize, is applied unchanged: nothing of it is refused, and nothing dropped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.kubectl import Kubectl, find_kubectl
from tests.manciple.api.server import ApiServer

CHARTS = Path(__file__).with_name("charts")
RENDERED = sorted(path.name for path in CHARTS.glob("*.yaml"))


@pytest.fixture
def kubectl(api_server: ApiServer) -> Kubectl:
    return Kubectl(api_server.kubeconfig, find_kubectl())


def lost(sent: Any, kept: Any, path: str = "") -> list[str]:
    """Where what was sent is not what is kept; quantities and numbers may be written in another way."""
    if isinstance(sent, dict) and isinstance(kept, dict):
        return [where for name, value in sent.items() for where in lost(value, kept.get(name), f"{path}.{name}")]
    if isinstance(sent, list) and isinstance(kept, list) and len(sent) == len(kept):
        return [where for at, pair in enumerate(zip(sent, kept, strict=True)) for where in lost(*pair, f"{path}[{at}]")]
    is_empty = sent in ({}, [], "", None, False, 0) and kept in ({}, [], "", None, False, 0)
    return [] if sent == kept or is_empty else [path]


def revisions(found: Any) -> dict[str, str]:
    return {one["metadata"]["uid"]: one["metadata"]["resourceVersion"] for one in found["items"]}


@pytest.mark.parametrize("chart", RENDERED)
def test_a_rendered_chart_is_applied_as_it_is(kubectl: Kubectl, chart: str) -> None:
    documents = list(yaml.safe_load_all((CHARTS / chart).read_text()))
    answer = kubectl("apply", "-f", str(CHARTS / chart))
    assert [line.rsplit(" ", 1)[-1] for line in answer.splitlines()] == ["created"] * len(documents)
    made = kubectl.json("get", "-f", str(CHARTS / chart))["items"]
    for document, kept in zip(documents, made, strict=True):
        assert lost(document, kept) == [], (document["kind"], document["metadata"]["name"])
    # Where defaults are in lists without keys kubectl says "configured", and nothing is written.
    kubectl("apply", "-f", str(CHARTS / chart))
    assert revisions(kubectl.json("get", "-f", str(CHARTS / chart))) == revisions({"items": made})
    assert kubectl("diff", "-f", str(CHARTS / chart)) == ""
    kubectl("apply", "--server-side", "--force-conflicts", "-f", str(CHARTS / chart))
    kubectl("delete", "--wait=false", "-f", str(CHARTS / chart))


def test_kustomize_s_output_is_applied_as_it_is(kubectl: Kubectl) -> None:
    folder = str(CHARTS / "kustomized")
    answer = kubectl("apply", "-k", folder)
    assert {line.rsplit(" ", 1)[-1] for line in answer.splitlines()} == {"created"}
    deployment = kubectl.json("get", "deployment", "my-training", "-n", "kustomized")
    spec = deployment["spec"]
    assert (spec["replicas"], spec["selector"]["matchLabels"]) == (2, {"app": "training", "team": "a"})
    (container,) = spec["template"]["spec"]["containers"]
    assert container["image"] == "registry.example.com/training:v3"
    names = {kubectl.json("get", kind, "-n", "kustomized")["items"][0]["metadata"]["name"] for kind in ("cm", "secret")}
    named = {next(iter(one.values()))["name"] for one in container["envFrom"]}
    assert named == names
    before = revisions(kubectl.json("get", "-k", folder))
    kubectl("apply", "-k", folder)
    assert revisions(kubectl.json("get", "-k", folder)) == before
