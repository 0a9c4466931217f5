"""What charts of drivers render, and kustomize, is applied unchanged: nothing of it is refused, and nothing dropped."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.kubectl import Kubectl, find_kubectl
from tests.manciple.api.requests import Api
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


def test_helm_keeps_its_records(api: Api) -> None:
    """A Secret for each revision of a release: made, found by its labels, rewritten when the next one is there."""
    secrets = "/api/v1/namespaces/default/secrets"

    def record(revision: int, status: str) -> Any:
        labels = {"name": "driver", "owner": "helm", "status": status, "version": str(revision), "modifiedAt": "1"}
        meta = {"name": f"sh.helm.release.v1.driver.v{revision}", "labels": labels}
        release = base64.b64encode(b"H4sI" * 100_000).decode()
        return {"kind": "Secret", "metadata": meta, "type": "helm.sh/release.v1", "data": {"release": release}}

    def found(**labels: str) -> list[str]:
        selector = ",".join(f"{key}={value}" for key, value in {"owner": "helm", **labels}.items())
        listed = api.get(f"{secrets}?labelSelector={selector}").json["items"]
        assert all(len(one["data"]["release"]) > 500_000 for one in listed)
        return [one["metadata"]["labels"]["version"] for one in listed]

    assert found(name="driver") == []
    first = api.made(secrets, record(1, "deployed"))
    api.made(secrets, record(2, "pending-upgrade"))
    first["metadata"]["labels"]["status"] = "superseded"
    assert api.put(f"{secrets}/sh.helm.release.v1.driver.v1", first).code == 200
    second = record(2, "deployed")
    assert api.put(f"{secrets}/sh.helm.release.v1.driver.v2", second).code == 200
    assert (found(name="driver"), found(name="driver", status="deployed")) == (["1", "2"], ["2"])
    for revision in (1, 2):
        assert api.delete(f"{secrets}/sh.helm.release.v1.driver.v{revision}").code == 200
    assert found() == []
