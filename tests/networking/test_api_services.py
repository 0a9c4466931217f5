"""APIServices are kept by Kubernetes' rules, and say that nobody answers for them here."""

from __future__ import annotations

from typing import Any

import pytest

from tests.manciple.api.requests import MERGE, TABLE, Api

PATH = "/apis/apiregistration.k8s.io/v1/apiservices"
SERVICE = {"namespace": "default", "name": "metrics"}


def document(name: str = "v1.metrics.example.com", **spec: Any) -> dict[str, Any]:
    version, _, group = name.partition(".")
    filled = {"group": group, "version": version, "groupPriorityMinimum": 100, "versionPriority": 100}
    meta = {"name": name}
    return {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": meta, "spec": filled | spec}


def test_one_of_another_server_is_kept_and_not_available(api: Api) -> None:
    answer = api.post(PATH, document(service=SERVICE, caBundle="Q0E="))
    assert answer.code == 201, answer.text
    assert "not served here" in answer.header("Warning")
    made = answer.json
    assert made["spec"]["service"] == SERVICE | {"port": 443}
    (condition,) = made["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("Available", "False", "NotServed")
    assert api.get("/apis/metrics.example.com/v1").code == 404
    row = api.get(f"{PATH}/v1.metrics.example.com", accept=TABLE).json["rows"][0]["cells"]
    assert row[:3] == ["v1.metrics.example.com", "default/metrics", "False (NotServed)"]
    # Its own server's controllers, which there are none of here, may say otherwise.
    made["status"]["conditions"][0] |= {"status": "True", "reason": "Passed"}
    assert api.put(f"{PATH}/v1.metrics.example.com/status", made).code == 200
    changed = api.patch(f"{PATH}/v1.metrics.example.com", {"spec": {"versionPriority": 1}}, content_type=MERGE).json
    assert changed["status"]["conditions"][0]["status"] == "True"


def test_one_of_this_server_is_available(api: Api) -> None:
    made = api.made(PATH, document("v1."))
    assert made["status"]["conditions"][0]["reason"] == "Local"
    assert api.get(f"{PATH}/v1.", accept=TABLE).json["rows"][0]["cells"][1:3] == ["Local", "True"]


NAME, PORT = "metadata.name", "spec.service.port"
#: (the name, its spec, the fields that are wrong)
RULES: list[tuple[str, dict[str, Any], set[str]]] = [
    ("v1.a.example.com", {"group": "b.example.com"}, {NAME}),
    ("v2.", {}, {"spec.group"}),
    ("v1.A", {}, {"spec.group"}),
    ("1.a.example.com", {}, {"spec.version"}),
    ("v1.a.example.com", {"groupPriorityMinimum": 0}, {"spec.groupPriorityMinimum"}),
    ("v1.a.example.com", {"groupPriorityMinimum": 20_001}, {"spec.groupPriorityMinimum"}),
    ("v1.a.example.com", {"versionPriority": 1_001}, {"spec.versionPriority"}),
    ("v1.a.example.com", {"caBundle": "Q0E="}, {"spec.caBundle"}),
    ("v1.a.example.com", {"insecureSkipTLSVerify": True}, {"spec.insecureSkipTLSVerify"}),
    ("v1.a.example.com", {"service": {}}, {"spec.service.namespace", "spec.service.name"}),
    ("v1.a.example.com", {"service": SERVICE | {"port": 0}}, {PORT}),
    (
        "v1.a.example.com",
        {"service": SERVICE, "insecureSkipTLSVerify": True, "caBundle": "Q0E="},
        {"spec.insecureSkipTLSVerify"},
    ),
]


@pytest.mark.parametrize(("name", "spec", "wrong"), RULES)
def test_rules_are_kubernetes(api: Api, name: str, spec: dict[str, Any], wrong: set[str]) -> None:
    answer = api.post(PATH, document(name, **spec))
    assert answer.code == 422, answer.text
    assert {field for _, field in answer.causes} == wrong, answer.text
