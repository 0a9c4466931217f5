"""The examples of docs/reference/policies.md do what is said of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from manciple.access.authentication import chain
from tests.manciple.admission.documents import BINDINGS, POLICIES, WEBHOOKS
from tests.manciple.admission.test_slices_by_node import SLICES, DriverTokens, driver_on, published
from tests.manciple.admission.webhook_server import serving
from tests.manciple.api.requests import CLAIMS, Api, claim

PLACES = {
    "ValidatingAdmissionPolicy": POLICIES,
    "ValidatingAdmissionPolicyBinding": BINDINGS,
    "ValidatingWebhookConfiguration": WEBHOOKS,
}
TEMPLATES = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates"


def documented() -> list[dict[str, Any]]:
    text = (Path(__file__).parents[3] / "docs" / "reference" / "policies.md").read_text()
    blocks = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    return [document for block in blocks for document in yaml.safe_load_all(block)]


def test_a_driver_writes_the_slices_of_its_own_node_alone(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(chain._tokens, "drivers", DriverTokens("system:serviceaccount:gpu-driver:plugin"))
    for document in documented():
        if document["kind"] != "ValidatingWebhookConfiguration":
            api.made(PLACES[document["kind"]], document)
    driver_on("node-1").made(SLICES, published("a", "node-1"))
    refused = driver_on("node-1").post(SLICES, published("b", "node-2"))
    assert refused.message.endswith("denied request: a driver on node node-1 may not write slices of node-2")


def test_a_webhook_looks_at_the_parameters_of_its_driver(api: Api, tmp_path: Path) -> None:
    (document,) = (one for one in documented() if one["kind"] == "ValidatingWebhookConfiguration")
    with serving(tmp_path) as server:
        server.behaviours["/"] = {"response": {"allowed": False, "status": {"message": "no such strategy"}}}
        document["webhooks"][0]["clientConfig"] = server.client_config("/")
        api.made(WEBHOOKS, document)
        api.made(CLAIMS, claim())
        api.made(CLAIMS, with_parameters("nic.example.com", "other"))
        ours = with_parameters("gpu.example.com", "ours")
        template = {**ours, "kind": "ResourceClaimTemplate", "spec": {"spec": ours["spec"]}}
        for path, body in ((CLAIMS, ours), (TEMPLATES, template)):
            answer = api.post(path, body)
            assert answer.message == (
                'admission webhook "parameters.gpu.example.com" denied the request: no such strategy'
            )


def with_parameters(driver: str, name: str) -> dict[str, Any]:
    document = claim(name)
    document["spec"]["devices"]["config"] = [{"opaque": {"driver": driver, "parameters": {"strategy": "x"}}}]
    return document
