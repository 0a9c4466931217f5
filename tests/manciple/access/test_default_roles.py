"""The default roles and bindings: upstream's where upstream has them, made at the first start, completed later."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from manciple.access import rbac
from manciple.access.authorization import Attributes
from manciple.access.bootstrap import ensure_roles, let_edit
from manciple.access.kinds import default_roles, role_parts, roles
from manciple.access.kinds.policy_rules import uncovered
from manciple.access.kinds.roles import ClusterRole, ClusterRoleBinding, PolicyRule
from manciple.store import event_log, objects
from manciple.wire import codec
from manciple.wire.identity import SYSTEM, Identity
from tests import conformance

OURS = {role.metadata.name: role for role in default_roles.gathered()}
BINDINGS = {binding.metadata.name: binding for binding in default_roles.BINDINGS}
UPSTREAM: dict[str, list[dict[str, Any]]] = json.loads(conformance.read("rbac_defaults.json"))
#: Those that gather our own rules besides.
EXPLAIN = {("pods/explain",), ("resourceclaims/explain",)}
SIMULATE = {("pods/simulate",), ("resourceclaims/simulate",)}
#: Upstream adds them with the gate GenericWorkload.
GROUPS, CHANGED_GROUPS = {("podgroups", "podgroups/status", "workloads")}, {("podgroups", "workloads")}
#: KEP-3063's first draft, beside claims of resource.k8s.io.
DRAFT, CHANGED_DRAFT = {("resourceclaims", "resourceclaims/status")}, {("resourceclaims",)}
#: KEP-3063: how a pod's scheduling goes on, and what a claim with structured parameters asks for.
CLASSIC = {("podschedulingcontexts", "podschedulingcontexts/status", "resourceclaimparameters")}
CHANGED_CLASSIC = {("resourceclaimparameters",)}
#: Upstream's metrics server brings a role of its own for them.
METRICS = {("pods",)}
VIEWED = EXPLAIN | GROUPS | DRAFT | CLASSIC | METRICS
EDITED = VIEWED | SIMULATE | CHANGED_GROUPS | CHANGED_DRAFT | CHANGED_CLASSIC
GATHERED = {"view": VIEWED, "edit": EDITED, "admin": EDITED}
#: Of parts that do not exist here.
OF_OTHERS = {"system:kube-controller-manager", "system:kube-dns", "system:node-proxier", "system:volume-scheduler"}
#: Upstream makes them while a feature is on that is off there.
OF_FEATURES = {"system:controller:resourcepoolstatusrequest-controller"}


def rules_of(document: dict[str, Any]) -> tuple[PolicyRule, ...]:
    return tuple(codec.decode_value(PolicyRule, rule) for rule in document["rules"])


@pytest.mark.parametrize("document", UPSTREAM["clusterroles"], ids=lambda one: str(one["metadata"]["name"]))
def test_a_default_role_is_upstreams(document: dict[str, Any]) -> None:
    ours = OURS[document["metadata"]["name"]]
    assert ours.metadata.labels == document["metadata"]["labels"]
    assert ours.metadata.annotations == document["metadata"]["annotations"]
    assert codec.to_builtins(ours).get("aggregationRule") == document.get("aggregationRule")
    if ours.metadata.name not in GATHERED:
        assert ours.rules == rules_of(document)
        return
    assert [rule for rule in ours.rules if rule in rules_of(document)] == list(rules_of(document))
    besides = {rule.resources for rule in ours.rules} - {rule.resources for rule in rules_of(document)}
    assert besides == GATHERED[ours.metadata.name]


def test_a_default_binding_is_upstreams() -> None:
    upstream = {document["metadata"]["name"]: document for document in UPSTREAM["clusterrolebindings"]}
    for name, ours in BINDINGS.items():
        if name.startswith("manciple:") or name in OF_FEATURES:
            continue  # what kubeadm binds beside the defaults
        wanted = upstream[name]
        document = codec.to_builtins(ours)
        assert document.get("subjects", []) == wanted.get("subjects", []), name
        assert document["roleRef"] == wanted["roleRef"]


def test_what_is_bound_exists_and_what_controllers_need_is_bound() -> None:
    assert {binding.role_ref.name for binding in BINDINGS.values()} <= OURS.keys()
    assert {name for name in OURS if name.startswith("system:controller:")} <= BINDINGS.keys()


def test_no_more_is_left_out_than_parts_that_do_not_exist() -> None:
    missing = {document["metadata"]["name"] for document in UPSTREAM["clusterroles"]} - OURS.keys()
    assert missing <= OF_OTHERS


def stored(name: str) -> ClusterRole:
    found = objects.get(roles.CLUSTER_ROLE, "", name)
    assert found is not None
    return codec.decode_text(ClusterRole, found.text)


def stored_binding(name: str) -> ClusterRoleBinding:
    found = objects.get(roles.CLUSTER_ROLE_BINDING, "", name)
    assert found is not None
    return codec.decode_text(ClusterRoleBinding, found.text)


@pytest.mark.django_db
def test_the_first_start_makes_them_and_the_second_writes_nothing() -> None:
    ensure_roles()
    revision = event_log.latest_revision()
    assert {item.name for item in objects.list(roles.CLUSTER_ROLE).items} == OURS.keys()
    assert {item.name for item in objects.list(roles.CLUSTER_ROLE_BINDING).items} == BINDINGS.keys()
    ensure_roles()
    assert event_log.latest_revision() == revision


@pytest.mark.django_db
def test_a_later_start_brings_back_what_was_taken_and_keeps_what_was_added() -> None:
    ensure_roles()
    extra = PolicyRule(verbs=("get",), api_groups=("example.com",), resources=("things",))
    role, binding = stored("system:basic-user"), stored_binding("system:discovery")
    with objects.writing(identity=SYSTEM) as writer:
        writer.update(roles.CLUSTER_ROLE, replace(role, rules=(extra,)))
        writer.update(roles.CLUSTER_ROLE_BINDING, replace(binding, subjects=()))
    ensure_roles()
    after = stored("system:basic-user")
    assert after.rules[0] == extra
    assert not uncovered(after.rules, role.rules)
    assert stored_binding("system:discovery").subjects == binding.subjects


@pytest.mark.django_db
def test_what_says_so_is_left_alone() -> None:
    ensure_roles()
    binding = stored_binding("system:discovery")
    annotations = {role_parts.AUTO_UPDATE: "false"}
    with objects.writing(identity=SYSTEM) as writer:
        changed = replace(binding, subjects=(), metadata=replace(binding.metadata, annotations=annotations))
        writer.update(roles.CLUSTER_ROLE_BINDING, changed)
    ensure_roles()
    assert stored_binding("system:discovery").subjects == ()


@pytest.mark.django_db
def test_an_ordinary_user_edits_one_namespace_and_looks_at_the_inventory() -> None:
    ensure_roles()
    let_edit("user", "default")
    user = Identity("user", ("system:authenticated",))

    def may(verb: str, resource: str, *, group: str = "", namespace: str = "") -> bool:
        return rbac.authorize(user, Attributes(verb=verb, group=group, resource=resource, namespace=namespace)).allowed

    assert may("create", "pods", namespace="default")
    assert may("create", "resourceclaims", group="resource.k8s.io", namespace="default")
    assert may("list", "nodes")
    assert may("watch", "resourceslices", group="resource.k8s.io")
    assert not may("create", "pods", namespace="kube-system")
    assert not may("patch", "nodes")
    assert not may("create", "deviceclasses", group="resource.k8s.io")
    assert not may("create", "rolebindings", group=roles.GROUP, namespace="default")
