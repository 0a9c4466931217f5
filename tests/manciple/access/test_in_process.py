"""What the parts of the system may write by themselves."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from manciple.access.bootstrap import ensure_roles
from manciple.access.kinds import default_roles, roles
from manciple.store import objects
from manciple.wire.base import ApiObject
from manciple.wire.errors import Forbidden
from manciple.wire.identity import SCHEDULER, SYSTEM, Identity, controller
from manciple.wire.registry import registry
from tests.builders import make_claim, make_class, make_namespace, make_node, make_pod

PODS, NODES, CLAIMS = "pods", "nodes", "resourceclaims.resource.k8s.io"
CLASSES = "deviceclasses.resource.k8s.io"

#: who, the operation, of what, of which part of it
MAY = {
    "the scheduler binds pods": (SCHEDULER, "update", PODS, "binding"),
    "the scheduler says why a pod waits": (SCHEDULER, "update", PODS, "status"),
    "the scheduler allocates claims": (SCHEDULER, "update", CLAIMS, ""),
    "claims are made for pods": (controller("resource-claim-controller"), "create", CLAIMS, ""),
    "pods of lost nodes are removed": (controller("pod-garbage-collector"), "delete", PODS, ""),
    "silent nodes are marked": (controller("node-controller"), "update", NODES, ""),
    "what has no owner is removed": (controller("generic-garbage-collector"), "delete", CLAIMS, ""),
    "a namespace is emptied": (controller("namespace-controller"), "delete", PODS, ""),
    "the installation does anything": (SYSTEM, "delete", NODES, ""),
    "who came through a door was asked there": (Identity("alice").let_in(), "delete", NODES, ""),
}
MAY_NOT = {
    "the scheduler changes pods": (SCHEDULER, "update", PODS, ""),
    "the scheduler makes pods": (SCHEDULER, "create", PODS, ""),
    "the scheduler removes nodes": (SCHEDULER, "delete", NODES, ""),
    "the scheduler changes classes": (SCHEDULER, "update", CLASSES, ""),
    "who makes claims removes pods": (controller("resource-claim-controller"), "delete", PODS, ""),
    "who removes pods changes claims": (controller("pod-garbage-collector"), "update", CLAIMS, ""),
    "who watches nodes changes claims": (controller("node-controller"), "update", CLAIMS, ""),
    "who empties namespaces makes pods": (controller("namespace-controller"), "create", PODS, ""),
    "a controller without a role": (controller("somebody"), "update", PODS, "status"),
    "a person who came through no door": (Identity("alice", ("system:authenticated",)), "delete", PODS, ""),
}
OBJECTS: dict[str, ApiObject] = {
    PODS: make_pod("p", namespace="default"),
    NODES: make_node("n"),
    CLAIMS: make_claim("c", namespace="default"),
    CLASSES: make_class("k"),
}


@pytest.fixture(params=[True, False], ids=["started", "before the first start"])
def store(db: None, request: pytest.FixtureRequest) -> None:
    if request.param:
        ensure_roles()
    with objects.writing(identity=SYSTEM) as writer:
        writer.create(registry.by_resource("namespaces"), make_namespace("default"))


def attempt(who: Identity, operation: str, resource: str, part: str) -> None:
    kind, wanted = registry.by_resource(resource), OBJECTS[resource]
    if operation != "create":
        with objects.writing(identity=SYSTEM) as writer:
            writer.create(kind, wanted)
    with objects.writing(identity=who) as writer:
        meta = wanted.metadata
        if operation == "create":
            writer.create(kind, wanted)
        elif operation == "delete":
            writer.delete(kind, meta.namespace, meta.name)
        else:
            writer.update(kind, labelled(writer, resource), subresource=part)


def labelled(writer: objects.Writer, resource: str) -> ApiObject:
    meta = OBJECTS[resource].metadata
    found = writer.get(registry.by_resource(resource), meta.namespace, meta.name)
    assert found is not None
    return replace(found, metadata=replace(found.metadata, labels={"a": "b"}))


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("case", MAY.values(), ids=MAY.keys())
def test_each_may_write_what_it_is_there_for(case: tuple[Identity, str, str, str]) -> None:
    attempt(*case)


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("case", MAY_NOT.values(), ids=MAY_NOT.keys())
def test_and_nothing_else(case: tuple[Identity, str, str, str]) -> None:
    who, operation, *_ = case
    with pytest.raises(Forbidden, match=f'User "{who.name}" cannot {operation} resource'):
        attempt(*case)


@pytest.mark.django_db
def test_a_right_that_was_taken_away_is_felt() -> None:
    ensure_roles()
    case = (SCHEDULER, "update", PODS, "status")
    with objects.writing(identity=SYSTEM) as writer:
        writer.create(registry.by_resource("namespaces"), make_namespace("default"))
        writer.delete(roles.CLUSTER_ROLE_BINDING, "", SCHEDULER.name)
    with pytest.raises(Forbidden):
        attempt(*case)


def test_every_controller_of_the_roles_is_bound_by_its_service_account() -> None:
    for binding in default_roles.BINDINGS:
        if binding.metadata.name.startswith(default_roles.CONTROLLER):
            (subject,) = binding.subjects
            assert binding.metadata.name == f"{default_roles.CONTROLLER}{subject.name}"
