"""What the recorded answers do not ask: rules of Services that change, of Ingresses and of NetworkPolicies."""

from __future__ import annotations

from typing import Any

import pytest

from tests.manciple.api.requests import MERGE, Api

SERVICES = "/api/v1/namespaces/default/services"
NETWORKING = "/apis/networking.k8s.io/v1"
KINDS = {
    "Ingress": f"{NETWORKING}/namespaces/default/ingresses",
    "IngressClass": f"{NETWORKING}/ingressclasses",
    "NetworkPolicy": f"{NETWORKING}/namespaces/default/networkpolicies",
}
HINTS, MODE = "service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode"


def make_service(**spec: Any) -> dict[str, Any]:
    spec = {"ports": [{"port": 80}], "selector": {"app": "web"}, **spec}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": spec}


def wrong(answer: Any) -> set[tuple[str, str]]:
    """Reason and field of what is refused; nothing of what is accepted."""
    assert answer.code in (200, 201, 422), answer.text
    return answer.causes if answer.code == 422 else set()


BALANCED = {"type": "LoadBalancer"}
CLASSED = {**BALANCED, "loadBalancerClass": "example.com/one"}
LOCAL = {**BALANCED, "externalTrafficPolicy": "Local", "healthCheckNodePort": 30123}
#: what changes -> (the Service, the change of its spec, what is wrong with it)
CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any], set[tuple[str, str]]]] = {
    "the class of a load balancer": (
        CLASSED,
        {"loadBalancerClass": "example.com/two"},
        {("FieldValueInvalid", "spec.loadBalancerClass")},
    ),
    "a class for a load balancer without": (
        BALANCED,
        {"loadBalancerClass": "example.com/two"},
        {("FieldValueInvalid", "spec.loadBalancerClass")},
    ),
    "a load balancer with a class, of what was none": ({}, CLASSED, set()),
    "a load balancer that is one no more": (CLASSED, {"type": "ClusterIP"}, set()),
    "the port of a health check": (
        LOCAL,
        {"healthCheckNodePort": 30124},
        {("FieldValueForbidden", "spec.healthCheckNodePort")},
    ),
    "no health check any more": (LOCAL, {"externalTrafficPolicy": "Cluster"}, set()),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_service_keeps_what_its_load_balancer_was_made_with(api: Api, what: str) -> None:
    spec, change, refused = CHANGES[what]
    api.made(SERVICES, make_service(**spec))
    assert wrong(api.patch(f"{SERVICES}/web", {"spec": change}, content_type=MERGE)) == refused


#: an entry of status.loadBalancer.ingress -> what is wrong with it
REACHED: list[tuple[dict[str, Any], set[str]]] = [
    ({"ip": "192.0.2.1"}, set()),
    ({"ip": "192.0.2.1", "ipMode": "Proxy"}, set()),
    ({"ip": "192.0.2.1", "ipMode": "Magic"}, {"ipMode"}),
    ({"hostname": "lb.example.com", "ipMode": "VIP"}, {"ipMode"}),
    ({"hostname": "192.0.2.1"}, {"hostname"}),
    ({"hostname": "Capital"}, {"hostname"}),
    ({"ip": "not an address"}, {"ip"}),
]


@pytest.mark.parametrize(("entry", "fields"), REACHED)
def test_a_load_balancer_says_where_it_is_reached(api: Api, entry: dict[str, Any], fields: set[str]) -> None:
    api.made(SERVICES, make_service(type="LoadBalancer"))
    status = {"status": {"loadBalancer": {"ingress": [entry]}}}
    answer = api.patch(f"{SERVICES}/web/status", status, content_type=MERGE)
    assert {field for _, field in wrong(answer)} == {f"status.loadBalancer.ingress[0].{name}" for name in fields}
    if answer.code == 200 and "ip" in entry:
        (kept,) = answer.json["status"]["loadBalancer"]["ingress"]
        assert kept["ipMode"] == entry.get("ipMode", "VIP")


def test_annotations_that_contradict_each_other_are_refused(api: Api) -> None:
    service = make_service()
    service["metadata"]["annotations"] = {HINTS: "Auto", MODE: "Disabled"}
    assert {field for _, field in wrong(api.post(SERVICES, service))} == {f"metadata.annotations[{MODE}]"}


# Warnings -------------------------------------------------------------------------------------------------------------

#: the Service -> a part of what its author is warned of
WARNED: list[tuple[dict[str, Any], str]] = [
    ({}, ""),
    ({"type": "LoadBalancer"}, "not served here"),
    ({"type": "LoadBalancer", "loadBalancerClass": "example.com/one"}, ""),  # whose controller somebody runs
    ({"clusterIP": "None", "sessionAffinity": "ClientIP"}, "ignored for headless"),
    ({"externalIPs": ["192.0.2.1"]}, "deprecated"),
    ({"trafficDistribution": "PreferClose"}, "PreferSameZone"),
    ({"externalName": "a.example.com"}, "is ignored when"),
]


@pytest.mark.parametrize(("spec", "text"), WARNED)
def test_the_author_of_a_service_is_warned_of_what_has_no_effect(api: Api, spec: dict[str, Any], text: str) -> None:
    answer = api.post(SERVICES, make_service(**spec))
    assert answer.code == 201, answer.text
    assert text in answer.header("Warning")
    assert bool(text) == bool(answer.header("Warning"))


def test_a_load_balancer_is_spoken_of_once(api: Api) -> None:
    api.made(SERVICES, make_service())
    change: dict[str, Any] = {"spec": {"type": "LoadBalancer"}}
    assert "not served here" in api.patch(f"{SERVICES}/web", change, content_type=MERGE).header("Warning")
    change = {"metadata": {"labels": {"a": "b"}}}
    assert not api.patch(f"{SERVICES}/web", change, content_type=MERGE).header("Warning")


@pytest.mark.parametrize("kind", ["Ingress", "NetworkPolicy"])
def test_the_author_of_what_nobody_serves_is_told(api: Api, kind: str) -> None:
    assert "here" in api.post(KINDS[kind], document(kind, "valid", {})).header("Warning")


# Ingresses and NetworkPolicies ----------------------------------------------------------------------------------------

BACKEND = {"service": {"name": "web", "port": {"number": 80}}}
VALID: dict[str, dict[str, Any]] = {
    "Ingress": {"defaultBackend": BACKEND},
    "IngressClass": {"controller": "example.com/one"},
    "NetworkPolicy": {"podSelector": {"matchLabels": {"app": "web"}}},
}


def document(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    spec = {**VALID[kind], **spec}
    return {"apiVersion": "networking.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def path(text: str | None = "/", type_: str | None = "Prefix", backend: Any = BACKEND) -> dict[str, Any]:
    given = {"path": text, "pathType": type_, "backend": backend}
    return {"rules": [{"http": {"paths": [{key: value for key, value in given.items() if value is not None}]}}]}


def port(**fields: Any) -> dict[str, Any]:
    return {"ingress": [{"ports": [fields]}]}


def peer(**fields: Any) -> dict[str, Any]:
    return {"egress": [{"to": [fields]}]}


PATH, PORT, PEER = "rules[0].http.paths[0]", "ingress[0].ports[0]", "egress[0].to[0]"
#: (kind, what its spec says, the fields below it that are wrong)
RULES: list[tuple[str, dict[str, Any], set[str]]] = [
    ("Ingress", {}, set()),
    ("Ingress", {"defaultBackend": None}, {""}),
    ("Ingress", path(), set()),
    ("Ingress", path("/a", "Exact"), set()),
    ("Ingress", path(None, "ImplementationSpecific"), set()),
    ("Ingress", path("a", "ImplementationSpecific"), {f"{PATH}.path"}),
    ("Ingress", path("a"), {f"{PATH}.path"}),
    ("Ingress", path("/a//b/.."), {f"{PATH}.path"}),
    ("Ingress", path(type_="Regex"), {f"{PATH}.pathType"}),
    ("Ingress", path(type_=None), {f"{PATH}.pathType"}),
    ("Ingress", path(backend={}), {f"{PATH}.backend"}),
    ("Ingress", path(backend={**BACKEND, "resource": {"kind": "A", "name": "a"}}), {f"{PATH}.backend"}),
    ("Ingress", path(backend={"resource": {"apiGroup": "a.com", "kind": "A", "name": "a"}}), set()),
    (
        "Ingress",
        path(backend={"resource": {"kind": "", "name": "a/b"}}),
        {f"{PATH}.backend.resource.{one}" for one in ("kind", "name")},
    ),
    ("Ingress", path(backend={"service": {"name": "web", "port": {}}}), {f"{PATH}.backend"}),
    ("Ingress", path(backend={"service": {"name": "web", "port": {"name": "a", "number": 1}}}), {f"{PATH}.backend"}),
    (
        "Ingress",
        path(backend={"service": {"name": "", "port": {"number": 70000}}}),
        {f"{PATH}.backend.service.name", f"{PATH}.backend.service.port.number"},
    ),
    ("Ingress", {"rules": [{"host": "*.example.com"}, {"host": "a.example.com"}]}, set()),
    ("Ingress", {"rules": [{"host": "*"}, {"host": "192.0.2.1"}]}, {"rules[0].host", "rules[1].host"}),
    ("Ingress", {"rules": [{"host": f"*.{'a.' * 125}com"}]}, {"rules[0].host"}),
    ("Ingress", {"rules": [{"http": {"paths": []}}]}, {"rules[0].http.paths"}),
    ("Ingress", {"tls": [{"hosts": ["A"], "secretName": "A_"}]}, {"tls[0].hosts[0]", "tls[0].secretName"}),
    ("Ingress", {"ingressClassName": "A_"}, {"ingressClassName"}),
    ("IngressClass", {}, set()),
    ("IngressClass", {"controller": ""}, {"controller"}),
    ("IngressClass", {"controller": "one"}, {"controller"}),
    ("IngressClass", {"controller": "example.com/a b"}, {"controller"}),
    ("IngressClass", {"parameters": {"kind": "A", "name": "a"}}, set()),
    ("IngressClass", {"parameters": {"kind": "A", "name": "a", "namespace": "b"}}, {"parameters.namespace"}),
    ("IngressClass", {"parameters": {"kind": "A", "name": "a", "scope": "Namespace"}}, {"parameters.namespace"}),
    ("IngressClass", {"parameters": {"kind": "A", "name": "a", "scope": "World"}}, {"parameters.scope"}),
    ("NetworkPolicy", {}, set()),
    ("NetworkPolicy", {"podSelector": {"matchLabels": {"a": "b c"}}}, {"podSelector.matchLabels"}),
    ("NetworkPolicy", port(port=80, endPort=90), set()),
    ("NetworkPolicy", port(port="http"), set()),
    ("NetworkPolicy", port(port=80, endPort=70), {f"{PORT}.endPort"}),
    ("NetworkPolicy", port(port="http", endPort=70), {f"{PORT}.endPort"}),
    ("NetworkPolicy", port(endPort=70), {f"{PORT}.endPort"}),
    ("NetworkPolicy", port(port=70000, protocol="ICMP"), {f"{PORT}.port", f"{PORT}.protocol"}),
    ("NetworkPolicy", peer(podSelector={}, namespaceSelector={}), set()),
    ("NetworkPolicy", peer(), {PEER}),
    ("NetworkPolicy", peer(podSelector={}, ipBlock={"cidr": "10.0.0.0/8"}), {PEER}),
    ("NetworkPolicy", peer(ipBlock={"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}), set()),
    ("NetworkPolicy", peer(ipBlock={"cidr": "10.0.0.0/8", "except": ["11.0.0.0/16"]}), {f"{PEER}.ipBlock.except[0]"}),
    ("NetworkPolicy", peer(ipBlock={"cidr": "10.0.0.0/8", "except": ["10.0.0.0/8"]}), {f"{PEER}.ipBlock.except[0]"}),
    ("NetworkPolicy", peer(ipBlock={"cidr": "10.0.0.0/8", "except": ["::/64"]}), {f"{PEER}.ipBlock.except[0]"}),
    ("NetworkPolicy", peer(ipBlock={"cidr": "10.0.0.0"}), {f"{PEER}.ipBlock.cidr"}),
    ("NetworkPolicy", peer(ipBlock={}), {f"{PEER}.ipBlock.cidr"}),
    ("NetworkPolicy", {"policyTypes": ["Ingress", "Sideways"]}, {"policyTypes[1]"}),
    ("NetworkPolicy", {"policyTypes": ["Ingress", "Egress", "Ingress"]}, {"policyTypes"}),
]


def test_rules_are_kubernetes(api: Api) -> None:
    for number, (kind, spec, fields) in enumerate(RULES):
        answer = api.post(KINDS[kind], document(kind, f"n{number}", spec))
        found = {field for _, field in wrong(answer)}
        assert found == {f"spec.{name}" if name else "spec" for name in fields}, (kind, spec, answer.text)


def test_what_is_left_out_gets_its_default(api: Api) -> None:
    spec = {"ingress": [{"ports": [{"port": 80}]}], "egress": [{}]}
    made = api.made(KINDS["NetworkPolicy"], document("NetworkPolicy", "n", spec))["spec"]
    assert (made["policyTypes"], made["ingress"][0]["ports"][0]["protocol"]) == (["Ingress", "Egress"], "TCP")
    only = api.made(KINDS["NetworkPolicy"], document("NetworkPolicy", "m", {}))["spec"]
    assert only["policyTypes"] == ["Ingress"]
    reference = {"parameters": {"kind": "A", "name": "a"}}
    made = api.made(KINDS["IngressClass"], document("IngressClass", "n", reference))["spec"]
    assert made["parameters"]["scope"] == "Cluster"


def test_the_controller_of_a_class_stays_and_a_spec_counts_generations(api: Api) -> None:
    api.made(KINDS["IngressClass"], document("IngressClass", "n", {}))
    change = {"spec": {"controller": "example.com/two"}}
    assert wrong(api.patch(f"{KINDS['IngressClass']}/n", change, content_type=MERGE)) == {
        ("FieldValueInvalid", "spec.controller")
    }
    api.made(KINDS["Ingress"], document("Ingress", "n", {}))
    changed = api.patch(f"{KINDS['Ingress']}/n", {"spec": {"ingressClassName": "n"}}, content_type=MERGE).json
    assert changed["metadata"]["generation"] == 2
    status = {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}}
    written = api.patch(f"{KINDS['Ingress']}/n/status", status, content_type=MERGE).json
    assert (written["metadata"]["generation"], written["status"]) == (2, status["status"])
