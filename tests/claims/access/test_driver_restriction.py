"""A driver's service account: nothing on other nodes, for other drivers, or with claims of other nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from manciple.access.authentication import chain
from manciple.access.authentication.chain import Authenticated
from manciple.access.bootstrap import ensure_roles
from manciple.wire.identity import AUTHENTICATED, Identity, account_groups, service_account_name
from tests.builders import make_node
from tests.manciple.admission.documents import BINDINGS, POLICIES, binding, policy, rule
from tests.manciple.api.conftest import api
from tests.manciple.api.requests import TABLE, Api
from tests.scheduling.cluster import Cluster

__all__ = ["api"]

RESOURCE, RBAC = "/apis/resource.k8s.io/v1", "/apis/rbac.authorization.k8s.io/v1"
SLICES = f"{RESOURCE}/resourceslices"
DRIVER = "scratch.example.com"
NODE_KEY = "authentication.kubernetes.io/node-name"


def rules_of_the_manual() -> list[dict[str, Any]]:
    """Every rule that docs/how-to/drivers.md gives a driver with a service account."""
    section = (
        (Path(__file__).resolve().parents[3] / "docs" / "how-to" / "drivers.md")
        .read_text()
        .partition("## What a driver may do")[2]
    )
    blocks = [block for block in section.split("\n\n") if block.startswith("    ")]
    documents = [yaml.safe_load(block) for block in blocks if "apiGroups" in block]
    rules = [rule for one in documents for rule in (one["rules"] if isinstance(one, dict) else one)]
    assert {resource for rule in rules for resource in rule["resources"]} >= {"resourceslices", "resourceclaims/driver"}
    return rules


class DriverTokens:
    """`driver/NODE/ACCOUNT`: a token of the account that is bound to the node, or to none."""

    def authenticate(self, token: str, _audiences: Any, _address: str) -> Authenticated | None:
        kind, _, rest = token.partition("/")
        if kind != "driver":
            return None
        node, _, account = rest.partition("/")
        groups = (*account_groups("drv"), AUTHENTICATED)
        extra = ((NODE_KEY, (node,)),) if node else ()
        return Authenticated(Identity(service_account_name("drv", account), groups, extra=extra))

    def remembered(self, _token: str) -> Identity | None:
        return None


def grant(api: Api, account: str, rules: list[dict[str, Any]]) -> None:
    api.made(f"{RBAC}/clusterroles", {"metadata": {"name": account}, "rules": rules})
    subject = {"kind": "ServiceAccount", "name": account, "namespace": "drv"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": account}
    api.made(f"{RBAC}/clusterrolebindings", {"metadata": {"name": account}, "subjects": [subject], "roleRef": role})


def driver(node: str = "node-1", account: str = "plugin") -> Api:
    return Api(f"driver/{node}/{account}")


def slice_of(name: str, *, node: str = "", driver: str = DRIVER, pool: str = "", **spec: Any) -> dict[str, Any]:
    where: dict[str, Any] = {"nodeName": node} if node else {"allNodes": True}
    of_pool = {"name": pool or node or "all", "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": "slot-0"}]
    return {
        "metadata": {"name": name},
        "spec": {"driver": driver, "pool": of_pool, **where, "devices": devices, **spec},
    }


@pytest.fixture(autouse=True)
def root(api: Api, monkeypatch: pytest.MonkeyPatch) -> Api:
    """Two nodes, each with a pod that names a claim, and the driver of the manual."""
    monkeypatch.setitem(chain._tokens, "drivers", DriverTokens())
    ensure_roles()
    grant(api, "plugin", rules_of_the_manual())
    cluster = Cluster()
    for number in (1, 2):
        node, namespace = f"node-{number}", f"team-{number}"
        cluster.create(make_node(node))
        api.made("/api/v1/namespaces", {"metadata": {"name": namespace}})
        spec = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "cls"}}]}}
        for name in ("used", "unused"):
            api.made(f"{RESOURCE}/namespaces/{namespace}/resourceclaims", {"metadata": {"name": name}, "spec": spec})
        container = {"name": "c", "image": "x", "resources": {"claims": [{"name": "g"}]}}
        claims = [{"name": "g", "resourceClaimName": "used"}]
        pod = {"nodeName": node, "containers": [container], "resourceClaims": claims}
        api.made(f"/api/v1/namespaces/{namespace}/pods", {"metadata": {"name": "p"}, "spec": pod})
        api.made(SLICES, slice_of(f"theirs-{number}", node=node, pool=f"{node}/theirs"))
    return api


def code(answer: Any) -> int:
    assert answer.code != 403 or answer.reason == "Forbidden", answer.text
    return int(answer.code)


# Slices ---------------------------------------------------------------------------------------------------------------


def test_a_driver_publishes_on_its_node() -> None:
    plugin = driver()
    made = plugin.made(SLICES, slice_of("own", node="node-1"))
    made["spec"]["pool"]["generation"] = 2
    assert code(plugin.put(f"{SLICES}/own", made)) == 200
    assert code(plugin.patch(f"{SLICES}/own", {"metadata": {"labels": {"x": "y"}}})) == 200
    assert code(plugin.get(f"{SLICES}?fieldSelector=spec.nodeName=node-1,spec.driver={DRIVER}")) == 200
    assert code(plugin.delete(f"{SLICES}/own")) == 200


REFUSED = {
    "on another node": slice_of("x", node="node-2"),
    "on all nodes": slice_of("x"),
    "by a selector": slice_of("x") | {},
    "for another driver": slice_of("x", node="node-1", driver="gpu.example.com"),
    "for another driver on all nodes": slice_of("x", driver="gpu.example.com"),
    "in a pool named after another node": slice_of("x", node="node-1", pool="node-2"),
}
_FIELD = {"key": "metadata.name", "operator": "In", "values": ["node-1"]}
_SELECTOR = {"nodeSelectorTerms": [{"matchFields": [_FIELD]}]}
REFUSED["by a selector"]["spec"] |= {"nodeSelector": _SELECTOR}
del REFUSED["by a selector"]["spec"]["allNodes"]


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("version", ["v1", "v1beta2"])
def test_a_driver_publishes_nothing_else(case: str, version: str) -> None:
    path = f"/apis/resource.k8s.io/{version}/resourceslices"
    for query in ("", "?dryRun=All"):
        assert code(driver().post(path + query, REFUSED[case])) == 403
    applied = driver().patch(
        f"{path}/x?fieldManager=m",
        {"apiVersion": f"resource.k8s.io/{version}", "kind": "ResourceSlice", **REFUSED[case]},
        content_type="application/apply-patch+yaml",
    )
    assert code(applied) == 403


def test_a_driver_does_not_touch_slices_of_another_node(root: Api) -> None:
    plugin, theirs = driver(), root.get(f"{SLICES}/theirs-2").json
    moved = {**theirs, "spec": theirs["spec"] | {"nodeName": "node-1"}}
    for answer in (
        plugin.delete(f"{SLICES}/theirs-2"),
        plugin.delete(f"{SLICES}/theirs-2?dryRun=All"),
        plugin.patch(f"{SLICES}/theirs-2", {"metadata": {"labels": {"x": "y"}}}),
        plugin.patch(f"{SLICES}/theirs-2", {"metadata": {"finalizers": ["a.example/b"]}}),
        plugin.put(f"{SLICES}/theirs-2", theirs | {"metadata": theirs["metadata"] | {"labels": {"x": "y"}}}),
    ):
        assert code(answer) == 403
    assert plugin.put(f"{SLICES}/theirs-2", moved).code in (403, 422)
    assert plugin.delete(f"{SLICES}?fieldSelector=spec.driver={DRIVER}").code == 403
    assert root.get(f"{SLICES}/theirs-2").json == theirs


def test_a_token_that_is_bound_to_no_node_publishes_nothing() -> None:
    for body in (slice_of("x", node="node-1"), slice_of("x")):
        answer = driver("").post(SLICES, body)
        assert code(answer) == 403
        assert answer.message.startswith('resourceslices.resource.k8s.io "x" is forbidden: requires resource=')
        assert "the token is not bound to a node" in answer.message


def test_a_driver_that_is_not_named_by_a_role_publishes_on_its_node_alone(root: Api) -> None:
    """Charts made for Kubernetes name none. Who is named one publishes for no other, and nobody else for it."""
    rules = [rule for rule in rules_of_the_manual() if rule["resources"] != ["resourceclaims/driver"]]
    everything = {"apiGroups": ["resource.k8s.io"], "resources": ["*"], "verbs": ["get", "list", "watch", "update"]}
    grant(root, "nameless", [*rules, everything])
    plugin = driver(account="nameless")
    for name in ("nic.example.com", "gpu.example.com"):
        made = plugin.made(SLICES, slice_of(name, node="node-1", driver=name))
        made["spec"]["pool"]["generation"] = 2
        assert code(plugin.put(f"{SLICES}/{name}", made)) == 200
        assert code(plugin.delete(f"{SLICES}/{name}")) == 200
    for case in ("on another node", "on all nodes", "by a selector", "in a pool named after another node"):
        assert code(plugin.post(SLICES, REFUSED[case])) == 403, case
    assert code(driver("", "nameless").post(SLICES, REFUSED["for another driver"])) == 403
    assert code(plugin.delete(f"{SLICES}/theirs-2")) == 403
    assert code(plugin.post(SLICES, slice_of("taken", node="node-1"))) == 403  # of a driver that another role names
    refused = driver().post(SLICES, REFUSED["for another driver"])
    assert refused.message == (
        'resourceslices.resource.k8s.io "x" is forbidden: requires resource="resourceclaims/driver", '
        'resourceName="gpu.example.com", verb="associated-node:update" permission to write slices of that driver'
    )


POLICY = policy(
    "own-slices",
    rules=[rule("resourceslices", "CREATE", "UPDATE", "DELETE", group="resource.k8s.io", versions=("v1", "v1beta2"))],
    matchConditions=[
        {"name": "driver", "expression": "request.userInfo.username.startsWith('system:serviceaccount:drv')"}
    ],
    variables=[
        {"name": "own", "expression": f"request.userInfo.extra[?'{NODE_KEY}'][0].orValue('')"},
        {"name": "slice", "expression": "request.operation == 'DELETE' ? oldObject : object"},
    ],
    validations=[
        {
            "expression": "variables.own == variables.slice.spec.?nodeName.orValue('')",
            "messageExpression": "'you are on ' + variables.own",
        }
    ],
)


def test_a_policy_of_the_driver_s_chart_says_why_it_is_refused(root: Api) -> None:
    """As in Kubernetes, which has nothing but the policy; also where an update changes nothing."""
    root.made(POLICIES, POLICY)
    root.made(BINDINGS, binding("own-slices", "Deny"))
    plugin, theirs = driver(), root.get(f"{SLICES}/theirs-2").json
    changed = {**theirs, "spec": {**theirs["spec"], "pool": {**theirs["spec"]["pool"], "generation": 7}}}
    for answer in (
        plugin.post(SLICES, REFUSED["on another node"]),
        plugin.post(SLICES, REFUSED["on all nodes"]),
        plugin.put(f"{SLICES}/theirs-2", theirs),
        plugin.put(f"{SLICES}/theirs-2", changed),
        plugin.delete(f"{SLICES}/theirs-2"),
    ):
        assert answer.code in (403, 422)
        assert "you are on node-1" in answer.message
    refused = plugin.post(SLICES, REFUSED["for another driver"])  # the policy has no objection
    assert "permission to write slices of that driver" in refused.message
    assert code(plugin.post(SLICES, slice_of("own", node="node-1"))) == 201


def test_a_driver_for_any_node_publishes_for_itself_alone(root: Api) -> None:
    rules = rules_of_the_manual()
    for given in rules:
        given["verbs"] = [verb.replace("associated", "arbitrary") for verb in given["verbs"]]
    for given in (given for given in rules if given["resources"] == ["resourceclaims"]):
        given["verbs"] = ["get", "list", "watch"]
    grant(root, "network", rules)
    network = driver("", "network")
    assert code(network.post(SLICES, slice_of("fabric"))) == 201
    assert code(network.post(SLICES, slice_of("far", node="node-2"))) == 201
    assert code(network.post(SLICES, slice_of("other", driver="gpu.example.com"))) == 403
    assert code(network.get(f"{RESOURCE}/resourceclaims")) == 200


# Claims ---------------------------------------------------------------------------------------------------------------


def claims(namespace: str) -> str:
    return f"{RESOURCE}/namespaces/{namespace}/resourceclaims"


def test_a_driver_reads_the_claims_of_its_nodes_pods() -> None:
    assert code(driver().get(f"{claims('team-1')}/used")) == 200
    assert code(driver("node-2").get(f"{claims('team-2')}/used")) == 200
    assert code(driver().get(f"{claims('team-1')}/used", accept=TABLE)) == 200


@pytest.mark.parametrize("wide", [False, True])
def test_a_driver_reads_no_other_claim(root: Api, wide: bool) -> None:
    if wide:
        verbs = ["get", "list", "watch", "update", "patch", "delete", "deletecollection"]
        resources = ["resourceclaims", "resourceclaims/status"]
        rules = [{"apiGroups": ["resource.k8s.io"], "resources": resources, "verbs": verbs}]
        grant(root, "wide", [*rules_of_the_manual(), *rules])
    plugin = driver(account="wide" if wide else "plugin")
    for path in (
        f"{claims('team-2')}/used",
        f"{claims('team-1')}/unused",
        claims("team-1"),
        f"{RESOURCE}/resourceclaims",
        f"{RESOURCE}/resourceclaims?limit=1",
        f"{claims('team-2')}?fieldSelector=metadata.name=used",
        f"{claims('team-1')}?fieldSelector=metadata.name!=nothing",
        "/apis/resource.k8s.io/v1beta1/namespaces/team-2/resourceclaims/used",
        f"{claims('team-2')}/used/status",
    ):
        assert code(plugin.get(path)) == 403, path
    for path in (f"{claims('team-2')}/used", f"{claims('team-2')}/used/status"):
        assert code(plugin.patch(path, {})) == 403, path
    assert code(plugin.delete(f"{claims('team-2')}/unused")) == 403
    assert code(plugin.delete(claims("team-2"))) == 403
    assert code(driver("").get(f"{claims('team-1')}/used")) == 403
    review = {
        "spec": {
            "resourceAttributes": {
                "verb": "watch", "group": "resource.k8s.io", "resource": "resourceclaims", "namespace": "team-2"
            }
        }
    }  # fmt: skip
    status = plugin.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review).json["status"]
    assert (status["allowed"], status["denied"]) == (False, True)


def test_accounts_that_are_no_drivers_are_not_restricted(root: Api) -> None:
    grant(
        root, "reader", [{"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims"], "verbs": ["get", "list"]}]
    )
    everything = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    grant(root, "operator", [everything])
    for account in ("reader", "operator"):
        assert code(driver(account=account).get(f"{RESOURCE}/resourceclaims")) == 200
    assert code(driver(account="operator").post(SLICES, slice_of("x", driver="gpu.example.com"))) == 201


def test_it_can_be_turned_off(settings: Any) -> None:
    settings.DRIVER_RESTRICTION = False
    assert code(driver().get(f"{claims('team-2')}/used")) == 200
    assert code(driver().post(SLICES, slice_of("x"))) == 201
