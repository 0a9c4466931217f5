"""What an update of a pod, and of its status, may change, beside what `test_recorded_rules.py` replays."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from msgspec.structs import replace

from claims.kinds.containers import ResourceRequirements
from claims.kinds.pods import (
    ContainerState,
    ContainerStateTerminated,
    ContainerStatus,
    Pod,
    PodResourceClaimStatus,
    PodSchedulingGate,
)
from claims.kinds.registration import POD
from manciple.wire.errors import FieldError
from tests.builders import make_pod, stored

STATUS = POD.subresources["status"]


def texts(errors: Iterable[FieldError]) -> list[str]:
    return [str(error) for error in errors]


def assert_begins(found: list[str], expected: list[str]) -> None:
    assert [text[: len(start)] for text, start in zip(found, expected, strict=True)] == expected


OLD: Pod = stored(POD.prepare_create(make_pod(claims={"gpu": "mine"}, active_deadline_seconds=60)))


def changed(**spec: Any) -> Pod:
    return replace(OLD, spec=replace(OLD.spec, **spec))


def on_node(pod: Pod) -> Pod:
    return replace(pod, spec=replace(pod.spec, node_name="n"))


def annotated(**annotations: str) -> Pod:
    named = {f"kubernetes.io/config.{name}": text for name, text in annotations.items()}
    return replace(OLD, metadata=replace(OLD.metadata, annotations=named))


@pytest.mark.parametrize(
    ("before", "after", "what"),
    [
        (OLD, annotated(mirror="a"), "add"),
        (OLD, annotated(mirror=""), "add"),
        (annotated(mirror="a"), annotated(mirror="b"), "remove or update"),
        (annotated(mirror="a"), OLD, "remove or update"),
        (annotated(mirror="a"), annotated(mirror="a", seen="b"), ""),
    ],
)
def test_a_pod_neither_becomes_a_mirror_pod_nor_ceases_to_be_one(before: Pod, after: Pod, what: str) -> None:
    refusal = f"metadata.annotations[kubernetes.io/config.mirror]: Forbidden: may not {what} mirror pod annotation"
    for kind in (POD, STATUS):
        assert texts(kind.validate_update(on_node(after), on_node(before))) == ([refusal] if what else [])


def test_a_refused_update_names_the_fields() -> None:
    (found,) = texts(POD.validate_update(changed(node_name="n", resource_claims=()), OLD))[-1:]
    assert found.endswith("; changed: nodeName, resourceClaims")


def test_a_gated_pod_may_be_let_go_and_narrowed() -> None:
    gated = stored(POD.prepare_create(make_pod(scheduling_gates=(PodSchedulingGate(name="x"),))))
    free = replace(gated, spec=replace(gated.spec, scheduling_gates=(), node_selector={"zone": "a"}))
    assert POD.validate_update(free, gated) == []


RESIZED = POD.subresources["resize"]
NOT_RESIZED = "spec: Forbidden: only cpu and memory resources are mutable"


@pytest.mark.parametrize(
    ("name", "resources", "expected"),
    {
        "no level before, an empty one now": ("main", ResourceRequirements(), [NOT_RESIZED]),
        "beside another fault": (
            "other",
            ResourceRequirements(),
            ["spec.containers[0].name: Forbidden: containers may not be renamed or reordered on resize"],
        ),
        "none before and now": ("main", None, []),
    }.values(),
)
def test_empty_resources_of_a_whole_pod_are_no_resize(
    name: str, resources: ResourceRequirements | None, expected: list[str]
) -> None:
    (container,) = OLD.spec.containers
    new = changed(containers=(replace(container, name=name),), resources=resources)
    assert texts(RESIZED.validate_update(new, OLD)) == expected


# Status --------------------------------------------------------------------------------------------------------------


def ended(name: str = "main", code: int = 0) -> ContainerStatus:
    return ContainerStatus(name=name, state=ContainerState(terminated=ContainerStateTerminated(exit_code=code)))


def with_status(pod: Pod, **fields: Any) -> Pod:
    return replace(pod, status=replace(pod.status, **fields))


ONCE: Pod = stored(POD.prepare_create(make_pod(restart_policy="Never")))
ON_FAILURE: Pod = stored(POD.prepare_create(make_pod(restart_policy="OnFailure")))
RUNNING = ContainerStatus(name="main")


@pytest.mark.parametrize(
    ("new", "old", "expected"),
    {
        "running": (with_status(OLD, phase="Running"), OLD, []),
        "its claim": (
            with_status(
                OLD, resource_claim_statuses=(PodResourceClaimStatus(name="gpu", resource_claim_name="mine-1"),)
            ),
            OLD,
            [],
        ),
        "a claim it does not have": (
            with_status(OLD, resource_claim_statuses=(PodResourceClaimStatus(name="nic"),)),
            OLD,
            ['status.resourceClaimStatuses[0].name: Invalid value: "nic": must match the name of an entry in'],
        ),
        "a claim twice": (
            with_status(OLD, resource_claim_statuses=(PodResourceClaimStatus(name="gpu"),) * 2),
            OLD,
            ['status.resourceClaimStatuses[1].name: Duplicate value: "gpu"'],
        ),
        "another quality of service": (
            with_status(OLD, qos_class="Guaranteed"),
            OLD,
            ['status.qosClass: Invalid value: "Guaranteed": field is immutable'],
        ),
        "a node that cannot be": (
            with_status(OLD, nominated_node_name="_"),
            OLD,
            ['status.nominatedNodeName: Invalid value: "_"'],
        ),
        "risen from the dead": (
            with_status(ONCE, container_statuses=(RUNNING,)),
            with_status(ONCE, container_statuses=(ended(),)),
            ["status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state"],
        ),
        "restarted after a failure": (
            with_status(ON_FAILURE, container_statuses=(RUNNING,)),
            with_status(ON_FAILURE, container_statuses=(ended(code=1),)),
            [],
        ),
    }.values(),
)
def test_what_a_status_of_a_pod_may_become(new: Pod, old: Pod, expected: list[str]) -> None:
    assert_begins(texts(STATUS.validate_update(new, old)), expected)
