"""A pod whose claims are not in order does not run; its owner is told why, and nothing on the node is touched."""

from __future__ import annotations

from typing import Any

import pytest

from tests.nodeagent.machine import Machine
from tests.nodeagent.objects import claim, container, pod


def without(document: dict[str, Any], field: str) -> dict[str, Any]:
    return {**document, "status": {k: v for k, v in document["status"].items() if k != field}}


REFUSED: dict[str, tuple[dict[str, Any] | None, str]] = {
    "missing": (None, "ResourceClaim c does not exist"),
    "not allocated": (without(claim("c", "gpu-0", pods=("uid-p",)), "allocation"), "ResourceClaim c is not allocated"),
    "reserved for nobody": (claim("c", "gpu-0"), "pod p (uid-p) is not allowed to use ResourceClaim c (claim-c)"),
    "reserved for an earlier pod of the same name": (
        claim("c", "gpu-0", pods=("uid-earlier",)),
        "p (uid-p)",
    ),
    "allocated for other nodes": (
        claim("c", "gpu-0", pods=("uid-p",), node="beta"),
        "ResourceClaim c is allocated for other nodes than alpha",
    ),
    "of a driver that is not here": (
        claim("c", "gpu-0", pods=("uid-p",), driver="nic.example.com"),
        "DRA driver nic.example.com is not registered on node alpha",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_must_not_run_a_pod_if_a_claim_is_not_ready(machine: Machine, case: str) -> None:
    document, reason = REFUSED[case]
    if document is not None:
        machine.api.put("resourceclaims", document)
    machine.api.put("pods", pod("p", claims={"gpus": "c"}))

    machine.look()
    machine.look()

    assert machine.agent.runtime.runs("uid-p") == {}
    assert machine.pod("p")["status"]["phase"] == "Pending"
    (waiting,) = machine.pod("p")["status"]["containerStatuses"]
    assert waiting["state"] == {"waiting": {"reason": "ContainerCreating"}}
    assert machine.agent.preparer.records() == ()
    assert machine.cdi_files() == {}
    (event,) = machine.api.all("events")
    assert event["type"] == "Warning"
    assert event["reason"] == "FailedPrepareDynamicResources"
    assert event["message"].startswith("Failed to prepare dynamic resources: ")
    assert reason in event["message"]
    assert event["count"] == 2
    assert event["involvedObject"]["uid"] == "uid-p"


@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_pod_can_be_deleted(machine: Machine, case: str) -> None:
    document, _ = REFUSED[case]
    if document is not None:
        machine.api.put("resourceclaims", document)
    machine.api.put("pods", pod("p", claims={"gpus": "c"}))
    machine.look()

    machine.api.delete("pods", "p")
    machine.settle()

    assert machine.api.all("pods") == []
    assert machine.driver.count("unprepare") == 0


def test_a_refused_pod_runs_once_its_claim_is_in_order(machine: Machine) -> None:
    machine.api.put("resourceclaims", claim("c", "gpu-0"))
    machine.api.put("pods", pod("p", claims={"gpus": "c"}))
    machine.look()

    machine.api.put("resourceclaims", claim("c", "gpu-0", pods=("uid-p",)))
    machine.settle()

    assert machine.condition("p", "Ready") == "True"
    machine.check_invariants()


def from_template(name: str, generated: str | None) -> dict[str, Any]:
    document = pod(name, container("main", "gpus"))
    document["spec"]["resourceClaims"] = [{"name": "gpus", "resourceClaimTemplateName": "t"}]
    if generated is not None:
        document["status"]["resourceClaimStatuses"] = [{"name": "gpus", "resourceClaimName": generated}]
    return document


def test_a_container_that_names_a_request_that_is_not_there_is_refused(machine: Machine) -> None:
    machine.api.put("resourceclaims", claim("c", "gpu-0", pods=("uid-p",)))
    machine.api.put("pods", pod("p", container("main", "gpus/nope"), claims={"gpus": "c"}))

    machine.look()

    assert machine.agent.runtime.runs("uid-p") == {}
    (told,) = machine.events("FailedPrepareDynamicResources")
    assert told.endswith(
        "container main names request nope of ResourceClaim c, which has gpu0; "
        "the container would start without a device"
    )


def owned(document: dict[str, Any], uid: str) -> dict[str, Any]:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": True}
    return {**document, "metadata": {**document["metadata"], "ownerReferences": [owner]}}


def test_simple_pod_referencing_inline_claim(machine: Machine) -> None:
    machine.api.put("resourceclaims", owned(claim("p-gpus-x", "gpu-0", pods=("uid-p",)), "uid-p"))
    machine.api.put("pods", from_template("p", "p-gpus-x"))

    machine.settle()

    assert machine.devices("p") == ("k8s.gpu.example.com/claim=claim-p-gpus-x-gpu-0",)


@pytest.mark.parametrize("request_name", ["gpu0", "nope"])
def test_an_extended_resource_that_is_mapped_to_no_request_of_the_claim_is_refused(
    machine: Machine, request_name: str
) -> None:
    machine.api.put("resourceclaims", owned(claim("p-extended", "gpu-0", pods=("uid-p",)), "uid-p"))
    document = pod("p", container("main"))
    mapping = {"containerName": "main", "resourceName": "example.com/gpu", "requestName": request_name}
    document["status"]["extendedResourceClaimStatus"] = {
        "resourceClaimName": "p-extended",
        "requestMappings": [mapping],
    }
    machine.api.put("pods", document)

    machine.look()

    assert bool(machine.agent.runtime.runs("uid-p")) == (request_name == "gpu0")
    if request_name == "nope":
        (told,) = machine.events("FailedPrepareDynamicResources")
        assert "container main names request nope of ResourceClaim p-extended, which has gpu0" in told


def test_a_generated_claim_of_another_pod_is_refused(machine: Machine) -> None:
    machine.api.put("resourceclaims", owned(claim("p-gpus-x", "gpu-0", pods=("uid-p",)), "uid-earlier"))
    machine.api.put("pods", from_template("p", "p-gpus-x"))

    machine.look()

    assert "ResourceClaim p-gpus-x was not created for pod p" in machine.events("FailedPrepareDynamicResources")[0]


def test_a_pod_waits_for_its_claim_to_be_created(machine: Machine) -> None:
    machine.api.put("pods", from_template("p", None))

    machine.look()

    assert "entry gpus of the pod has not been created yet" in machine.events("FailedPrepareDynamicResources")[0]


def test_runs_a_pod_without_a_generated_resource_claim(machine: Machine) -> None:
    document = from_template("p", None)
    document["status"]["resourceClaimStatuses"] = [{"name": "gpus"}]
    machine.api.put("pods", document)

    machine.settle()

    assert machine.devices("p") == ()
    assert machine.condition("p", "Ready") == "True"


def test_extended_resources_reach_the_containers_that_asked(machine: Machine) -> None:
    document = pod("p", container("one"), container("two"))
    document["status"]["extendedResourceClaimStatus"] = {
        "resourceClaimName": "p-extended",
        "requestMappings": [{"containerName": "two", "resourceName": "example.com/gpu", "requestName": "gpu1"}],
    }
    machine.api.put("resourceclaims", owned(claim("p-extended", "gpu-0", "gpu-1", pods=("uid-p",)), "uid-p"))
    machine.api.put("pods", document)

    machine.settle()

    assert machine.devices("p", "one") == ()
    assert machine.devices("p", "two") == ("k8s.gpu.example.com/claim=claim-p-extended-gpu-1",)
    (one,) = (s for s in machine.pod("p")["status"]["containerStatuses"] if s["name"] == "two")
    assert one["allocatedResourcesStatus"] == [
        {
            "name": "example.com/gpu",
            "resources": [{"resourceID": "k8s.gpu.example.com/claim=claim-p-extended-gpu-1", "health": "Healthy"}],
        }
    ]
