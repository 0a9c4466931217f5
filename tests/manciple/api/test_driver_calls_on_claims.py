"""What a driver built on Kubernetes' Go library asks of the API about claims, in the library's own encodings."""

from __future__ import annotations

import json

import httpx
import pytest

from tests.manciple.api.driver_calls import BETAS, DRIVER, NODE, Document
from tests.plugin_driver.kube import Kube, Refused

ALLOCATION: Document = {
    "devices": {
        "results": [{"request": "gpu", "driver": DRIVER, "pool": NODE, "device": "gpu-0"}],
        "config": [{"source": "FromClaim", "opaque": {"driver": DRIVER, "parameters": {"mode": "fast"}}}],
    }
}
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"


@pytest.fixture
def allocated(http: httpx.Client) -> Document:
    """A claim that has its device."""
    opaque = {"driver": DRIVER, "parameters": {"mode": "fast"}}
    body = {
        "metadata": {"name": "claim"},
        "spec": {
            "devices": {
                "requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}],
                "config": [{"opaque": opaque}],
            }
        },
    }
    made = http.post(CLAIMS, json=body).json()
    answer = http.put(f"{CLAIMS}/claim/status", json={**made, "status": {"allocation": ALLOCATION}})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


@pytest.mark.parametrize("version", BETAS)
def test_the_claim_to_prepare_is_read_in_the_version_that_the_library_knows(
    kube: Kube, allocated: Document, version: str
) -> None:
    kube.version = version
    found = kube.claim("default", "claim")
    assert found["metadata"]["uid"] == allocated["metadata"]["uid"]
    assert found["status"]["allocation"] == allocated["status"]["allocation"]


def test_a_claim_that_is_gone_is_not_found_in_any_version(kube: Kube) -> None:
    calls: list[str] = []
    kube.record = lambda **call: calls.append(f"{call['code']} {call['path'].split('/')[3]}")
    with pytest.raises(Refused):
        kube.claim("default", "claim")
    assert calls == ["404 v1", "404 v1beta2", "404 v1beta1"]


def device_status() -> list[Document]:
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": "Prepared",
        "message": "link is up",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    }
    network = {"interfaceName": "net1", "ips": ["10.0.0.2/24"], "hardwareAddress": "02:00:00:00:00:01"}
    data = {"vlan": 7}
    return [
        {
            **{"driver": DRIVER, "pool": NODE, "device": "gpu-0"},
            "conditions": [condition],
            "data": data,
            "networkData": network,
        }
    ]


@pytest.mark.parametrize("version", BETAS)
def test_a_driver_reports_the_status_of_its_devices(kube: Kube, allocated: Document, version: str) -> None:
    kube.version = version
    claim = kube.claim("default", "claim")
    claim["status"]["devices"] = device_status()
    answered = kube.update_claim_status(claim)

    [found] = answered["status"]["devices"]
    assert found["networkData"] == device_status()[0]["networkData"]
    assert found["data"] == {"vlan": 7}
    assert found["conditions"][0].items() >= device_status()[0]["conditions"][0].items()
    assert answered["status"]["allocation"] == allocated["status"]["allocation"]


def test_a_driver_applies_the_status_of_its_devices(http: httpx.Client, allocated: Document) -> None:
    """ApplyStatus of the typed client: server-side apply, which is JSON in every client."""
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "claim", "namespace": "default"},
        "status": {"devices": device_status()},
    }
    answer = http.patch(
        f"{CLAIMS}/claim/status",
        params={"fieldManager": DRIVER, "force": "true"},
        content=json.dumps(body),
        headers={"Content-Type": "application/apply-patch+yaml"},
    )
    assert answer.status_code == 200, answer.text
    assert answer.json()["status"]["devices"][0]["networkData"]["interfaceName"] == "net1"
    assert answer.json()["status"]["allocation"] == allocated["status"]["allocation"]
