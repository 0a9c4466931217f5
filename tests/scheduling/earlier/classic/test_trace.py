"""Every state of a recorded Kubernetes 1.30 with an unmodified driver appears here, in the same order."""

from __future__ import annotations

import json
from typing import Any

import pytest

from claims.classic.conversion import claim_from_storage
from claims.kinds.resource_claims import ResourceClaim
from manciple.store import event_log
from manciple.wire.resources import CLAIMS, CONTEXTS, PODS
from tests import conformance
from tests.builders import make_pod
from tests.scheduling.earlier.classic.world import World

RECORDED = json.loads(conformance.read("classic_trace.json"))
KINDS = {PODS: "Pod", CLAIMS: "ResourceClaim", CONTEXTS: "PodSchedulingContext"}
State = tuple[str, str, str, Any]


def state(type_: str, kind: str, name: str, document: dict[str, Any]) -> State:
    """What of an object both have, but for what is made up anew each time: a generated name, uids, times."""
    spec, status = document.get("spec") or {}, document.get("status") or {}
    deleting = bool(document.get("deleting"))
    if kind == "Pod":
        conditions = [
            [one["type"], one["status"], one.get("reason"), one.get("message") or None]
            for one in status.get("conditions", ())
            if one["type"] == "PodScheduled"
        ]
        claims = [one["name"] for one in status.get("resourceClaimStatuses", ())]
        return type_, kind, name, [spec.get("nodeName"), conditions, claims, deleting]
    if kind == "PodSchedulingContext":
        answers = [[one["name"], one.get("unsuitableNodes", [])] for one in status.get("resourceClaims", ())]
        return type_, kind, name, [spec.get("selectedNode"), spec.get("potentialNodes"), answers]
    allocation = status.get("allocation")
    short = name.rsplit("-", 1)[0] if name.count("-") > 1 or name.startswith("pod") else name
    held = [
        # Of what is gone Kubernetes tells as it was before the last finalizer went, and we as it was then.
        bool(document.get("finalizers")) or type_ == "DELETED", deleting, spec, status.get("driverName"),
        allocation and [allocation.get("shareable"), allocation.get("availableOnNodes")],
        sorted(one["name"] for one in status.get("reservedFor", ())), bool(status.get("deallocationRequested")),
    ]  # fmt: skip
    return type_, kind, short, held


def in_the_keps_words(message: str) -> str:
    """1.30 has one message before and after a node is selected, KEP-3063 has two. The recorded pods have one claim,
    for which a node is selected at once.
    """
    return "waiting for resource driver to allocate resource" if message == "waiting for resource driver" else message


def recorded(namespace: str) -> list[State]:
    found = [one for one in RECORDED["trace"] if one["namespace"] == namespace]
    for one in found:
        for condition in one.get("status", {}).get("conditions", ()):
            condition["message"] = in_the_keps_words(condition.get("message", ""))
    return [state(one["type"], one["kind"], one["name"], one) for one in found]


def appeared(namespace: str) -> list[State]:
    found = []
    for event in event_log.read_after(0, limit=10_000):
        if event.resource not in KINDS or event.namespace != namespace:
            continue
        document = json.loads(event.text)
        if event.resource == CLAIMS:
            document = claim_from_storage(document)
        meta = document["metadata"]
        shown = {**document, "finalizers": meta.get("finalizers"), "deleting": "deletionTimestamp" in meta}
        found.append(state(event.type, KINDS[event.resource], event.name, shown))
    return found


def each(states: list[State]) -> dict[tuple[str, str], list[State]]:
    """The states of each object for itself: two objects may overtake one another."""
    found: dict[tuple[str, str], list[State]] = {}
    for one in states:
        found.setdefault((one[1], one[2]), []).append(one)
    return found


@pytest.fixture
def laboratory(world: World) -> World:
    world.with_nodes("worker-1")
    world.with_driver()
    return world


@pytest.mark.parametrize(("namespace", "entry"), [("gpu-test2", "shared-gpu"), ("gpu-test4", "gpus")])
def test_one_pod_with_a_template_goes_through_the_states_of_kubernetes_in_their_order(
    laboratory: World, namespace: str, entry: str
) -> None:
    # gpu-test4 differs by its parameters alone, which are the driver's business.
    laboratory.make_template("gpu", namespace=namespace)
    laboratory.create(make_pod("pod0", namespace=namespace, templates={entry: "gpu"}))
    laboratory.run()
    laboratory.end("pod0", namespace)
    laboratory.run()
    wanted = recorded(namespace)
    for one in wanted:
        if one[1] == "ResourceClaim":
            one[3][2].pop("parametersRef", None)
    assert appeared(namespace) == wanted


def test_two_pods_with_a_template_go_through_the_states_of_kubernetes(laboratory: World) -> None:
    laboratory.make_template("gpu", namespace="gpu-test1")
    for name in ("pod0", "pod1"):
        laboratory.create(make_pod(name, namespace="gpu-test1", templates={"gpu": "gpu"}))
    laboratory.run()
    for name in ("pod0", "pod1"):
        laboratory.end(name, "gpu-test1")
    laboratory.run()
    assert each(appeared("gpu-test1")) == each(recorded("gpu-test1"))


def test_two_pods_that_share_a_claim_go_through_the_states_of_kubernetes(laboratory: World) -> None:
    laboratory.make_claim("shared-gpu", namespace="gpu-test3")
    for name in ("pod0", "pod1"):
        laboratory.create(make_pod(name, namespace="gpu-test3", claims={"shared-gpu": "shared-gpu"}))
    laboratory.run()
    laboratory.end("pod0", "gpu-test3")
    laboratory.run()
    laboratory.end("pod1", "gpu-test3")
    laboratory.run()
    laboratory.delete(laboratory.get(ResourceClaim, "shared-gpu", "gpu-test3"))
    assert each(appeared("gpu-test3")) == each(recorded("gpu-test3"))


def test_claims_that_no_pod_uses_go_through_the_states_of_kubernetes(laboratory: World) -> None:
    # The recorded driver answers an Immediate claim with an error, once it has protected it.
    laboratory.drivers[0].immediate = False
    for name, mode in (("immediate", "Immediate"), ("waitforfirstconsumer", "WaitForFirstConsumer")):
        laboratory.make_claim(name, mode=mode, namespace="gpu-test5")
    laboratory.run()
    for name in ("immediate", "waitforfirstconsumer"):
        laboratory.delete(laboratory.get(ResourceClaim, name, "gpu-test5"))
    laboratory.run()
    assert each(appeared("gpu-test5")) == each(recorded("gpu-test5"))


def test_every_manifest_that_was_recorded_is_replayed() -> None:
    assert {one["namespace"] for one in RECORDED["trace"]} == {f"gpu-test{number}" for number in range(1, 6)}


def test_a_waiting_pod_has_the_event_of_kubernetes_with_the_message_of_the_kep(laboratory: World) -> None:
    laboratory.make_template("gpu")
    pod = laboratory.create(make_pod("pod", templates={"gpu": "gpu"}))
    laboratory.run()
    found = {(one.type, one.reason, one.message) for one in laboratory.events("FailedScheduling")}
    events = [one for one in RECORDED["events"] if one[4] == "FailedScheduling"]
    assert found == {(one[3], one[4], in_the_keps_words(one[5])) for one in events}
    assert laboratory.pod(pod.metadata.name).spec.node_name == "worker-1"
