"""Who may do what: 1,325 requests of thirteen identities, answered as a Kubernetes 1.36 API server answered them.

The server had the Node and RBAC authorizers and NodeRestriction; writes are dry runs. What is compared is the code and,
where it is a refusal, the message.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from manciple.access.bootstrap import ensure_roles
from tests import conformance
from tests.manciple.api.requests import MERGE, NAMESPACES, Answer, Api

RESOURCE, RBAC = "/apis/resource.k8s.io/v1", "/apis/rbac.authorization.k8s.io/v1"
#: of each team's pod, claim and slice
NODES = {"team-a": "n1", "team-b": "n2"}

# Where the requests are made ------------------------------------------------------------------------------------------


def bound(name: str, role: str, subject: dict[str, str]) -> dict[str, Any]:
    return {"metadata": {"name": name}, "roleRef": {"kind": "ClusterRole", "name": role}, "subjects": [subject]}


def user(name: str) -> dict[str, str]:
    return {"kind": "User", "name": name}


def rule(verbs: str, resources: str, group: str = "resource.k8s.io") -> dict[str, Any]:
    return {"apiGroups": [group], "resources": resources.split(), "verbs": verbs.split()}


def meta(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}}


DRIVER_RULES = [
    rule("get list watch", "resourceclaims"),
    rule("update patch", "resourceclaims/status"),
    rule("associated-node:update associated-node:patch", "resourceclaims/driver"),
    rule("get list watch create update patch delete", "resourceslices"),
    rule("get", "nodes", ""),
]
CLAIM_SPEC = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "cls"}}]}}
#: Which are there already, in every cluster.
STANDING = (409,)


def make(api: Api, path: str, document: dict[str, Any]) -> None:
    answer = api.post(path, document)
    assert answer.code in (201, *STANDING), f"{path}: {answer.text}"


def set_up_people(api: Api) -> None:
    for namespace in (*NODES, "drv"):
        make(api, NAMESPACES, meta(namespace))
    for name, role in {"alice": "admin", "bob": "edit", "carol": "view"}.items():
        make(api, f"{RBAC}/namespaces/team-a/rolebindings", bound(name, role, user(name)))
    make(api, f"{RBAC}/clusterrolebindings", bound("erin-views", "view", user("erin")))
    make(api, f"{RBAC}/clusterroles", {**meta("drv"), "rules": DRIVER_RULES})
    plugin = {"kind": "ServiceAccount", "name": "plugin", "namespace": "drv"}
    make(api, f"{RBAC}/clusterrolebindings", bound("drv", "drv", plugin))


def set_up_nodes(api: Api) -> None:
    for name in NODES.values():
        make(api, "/api/v1/nodes", meta(name))
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": "d.example.com", "nodeName": name, "pool": pool, "devices": [{"name": "d0"}]}
        make(api, f"{RESOURCE}/resourceslices", {**meta(f"s-{name}"), "spec": spec})
        lease = {**meta(name), "spec": {"holderIdentity": name}}
        make(api, "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", lease)
    make(api, f"{RESOURCE}/deviceclasses", {**meta("cls"), "spec": {}})


def set_up_team(api: Api, namespace: str, node: str) -> None:
    core, claims = f"{NAMESPACES}/{namespace}", f"{RESOURCE}/namespaces/{namespace}/resourceclaims"
    make(api, claims, {**meta("cl"), "spec": CLAIM_SPEC})
    make(api, f"{claims.removesuffix('s')}templates", {**meta("t"), "spec": {"spec": CLAIM_SPEC}})
    container = {"name": "c", "image": "x", "resources": {"claims": [{"name": "g"}]}}
    spec = {"nodeName": node, "containers": [container], "resourceClaims": [{"name": "g", "resourceClaimName": "cl"}]}
    make(api, f"{core}/pods", {**meta("p"), "spec": spec})
    make(api, f"{core}/secrets", meta("s"))
    make(api, f"{core}/configmaps", meta("c"))
    uid = api.get(f"{core}/pods/p").json["metadata"]["uid"]
    results = [{"request": "r", "driver": "d.example.com", "pool": node, "device": "d0"}]
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    allocation = {
        "devices": {"results": results},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
    }
    reserved = [{"resource": "pods", "name": "p", "uid": uid}]
    answer = api.patch(f"{claims}/cl/status", {"status": {"allocation": allocation, "reservedFor": reserved}})
    assert answer.code == 200, answer.text


@pytest.fixture
def cluster(api: Api) -> Api:
    ensure_roles()
    set_up_people(api)
    set_up_nodes(api)
    for namespace, node in NODES.items():
        set_up_team(api, namespace, node)
    return api


# The requests ---------------------------------------------------------------------------------------------------------


TABLE: dict[str, Any] = json.loads(conformance.read("access_table.json"))


def headers_of(who: str) -> dict[str, str]:
    """The table's identities; the anonymous one shows nothing."""
    name, groups, *extra = TABLE["who"][who]
    headers = {"Impersonate-User": name, **({"Impersonate-Group": ",".join(groups)} if groups else {})}
    for key, value in (extra[0] if extra else {}).items():
        headers[f"Impersonate-Extra-{quote(key, safe='')}"] = value
    return headers


def asked(root: Api, row: dict[str, Any]) -> Answer:
    method, path = row["method"], row["path"]
    if method != "GET" and "review" not in path and "/token" not in path:
        path += ("&" if "?" in path else "?") + "dryRun=All"
    body = json.dumps(row["body"]).encode() if "body" in row else b""
    anonymous = row["who"] == "anonymous"
    return (Api("") if anonymous else root).send(
        method, path, body=body, content_type=row.get("type", MERGE), extra={} if anonymous else headers_of(row["who"])
    )


def differences(root: Api) -> Iterator[tuple[str, str, str]]:
    for row in TABLE["rows"]:
        answer = asked(root, row)
        message = answer.json.get("message", "")[:400] if answer.code in (403, 422) else ""
        expected = (row["code"], row.get("message", ""))
        if (answer.code, message) != expected:
            yield row["who"], row["what"], f"{answer.code} {message} instead of {expected[0]} {expected[1]}"


#: (who, what) -> why ours is right; at most ten.
OURS_IS_RIGHT = {
    ("node-n2", "team-b service account token"): (
        "its pod runs as the account, as every pod runs as one here, so the node may ask for a token of it; refused is "
        "that this one is bound to no pod"
    ),
}


def test_everybody_is_answered_as_the_reference_answers(cluster: Api, settings: Any) -> None:
    settings.DRIVER_RESTRICTION = False  # as where it was recorded: `claims.access.node_rights` is ours
    found = {(who, what): difference for who, what, difference in differences(cluster)}
    assert {key: difference for key, difference in found.items() if key not in OURS_IS_RIGHT} == {}
    assert found.keys() == OURS_IS_RIGHT.keys()
    assert len(TABLE["rows"]) == 1325
    assert len(OURS_IS_RIGHT) <= 10
