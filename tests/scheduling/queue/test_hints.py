"""Which event wakes which waiting pod."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from scheduling.queue.hints import RULES, WaitingPod, Wakes, claim_key, class_key, news_of
from scheduling.queue.reasons import Hold, Reason

CLAIMS = "resourceclaims.resource.k8s.io"
SLICES = "resourceslices.resource.k8s.io"
CLASSES = "deviceclasses.resource.k8s.io"


@dataclass(frozen=True)
class Record:
    type: str
    resource: str
    name: str = "thing"
    namespace: str = "default"
    uid: str = "uid-thing"
    text: str = "{}"
    revision: int = 7


def record(type_: str, resource: str, document: dict[str, Any] | None = None, **names: Any) -> Record:
    return Record(type=type_, resource=resource, text=json.dumps(document or {}), **names)


def waiting(reasons: Reason, *, awaited: str = "", uid: str = "uid-pod", generation: int = 1) -> WaitingPod:
    keys = frozenset({awaited} if awaited else ())
    return WaitingPod(uid=uid, generation=generation, hold=Hold(reasons=reasons, awaited=keys))


ALLOCATED: dict[str, Any] = {"status": {"allocation": {"devices": {}}}}
BOUND = {"spec": {"nodeName": "n1"}}
FINISHED = {"spec": {"nodeName": "n1"}, "status": {"phase": "Succeeded"}}

CASES: dict[str, tuple[Record, WaitingPod, bool]] = {
    "a deallocated claim frees devices": (record("MODIFIED", CLAIMS), waiting(Reason.DEVICES), True),
    "an allocated claim frees none": (record("MODIFIED", CLAIMS, ALLOCATED), waiting(Reason.DEVICES), False),
    "a deleted claim frees devices": (record("DELETED", CLAIMS), waiting(Reason.DEVICES), True),
    "a new claim frees none": (record("ADDED", CLAIMS), waiting(Reason.DEVICES), False),
    "a new claim wakes the pod that awaits it": (
        record("ADDED", CLAIMS, name="shared"),
        waiting(Reason.CLAIM_MISSING, awaited=claim_key("default", "shared")),
        True,
    ),
    "a new claim of that name elsewhere does not": (
        record("ADDED", CLAIMS, name="shared", namespace="other"),
        waiting(Reason.CLAIM_MISSING, awaited=claim_key("default", "shared")),
        False,
    ),
    "a claim that changed wakes the pod that it kept off its node": (
        record("MODIFIED", CLAIMS, ALLOCATED, name="shared"),
        waiting(Reason.CLAIM_ELSEWHERE, awaited=claim_key("default", "shared")),
        True,
    ),
    "a deleted claim wakes the pod that waits for its successor": (
        record("DELETED", CLAIMS, name="shared"),
        waiting(Reason.CLAIM_BUSY, awaited=claim_key("default", "shared")),
        True,
    ),
    "a new slice brings devices": (record("ADDED", SLICES), waiting(Reason.DEVICES), True),
    "a changed slice brings devices": (record("MODIFIED", SLICES), waiting(Reason.DEVICES), True),
    "a slice that goes completes a pool": (record("DELETED", SLICES), waiting(Reason.DEVICES), True),
    "a slice does not bring cpu": (record("ADDED", SLICES), waiting(Reason.RESOURCES), False),
    "a changed slice may end an error": (record("MODIFIED", SLICES), waiting(Reason.ERROR), True),
    "a created class wakes the pod that awaits it": (
        record("ADDED", CLASSES, name="gpu"),
        waiting(Reason.CLASS_MISSING, awaited=class_key("gpu")),
        True,
    ),
    "another created class does not": (
        record("ADDED", CLASSES, name="nic"),
        waiting(Reason.CLASS_MISSING, awaited=class_key("gpu")),
        False,
    ),
    "an updated class may match more devices": (record("MODIFIED", CLASSES), waiting(Reason.DEVICES), True),
    "an updated class may end an error": (record("MODIFIED", CLASSES), waiting(Reason.ERROR), True),
    "a new node may fit": (record("ADDED", "nodes"), waiting(Reason.NODE), True),
    "a changed node may have room": (record("MODIFIED", "nodes"), waiting(Reason.RESOURCES), True),
    "a node does not create claims": (record("ADDED", "nodes"), waiting(Reason.CLAIM_MISSING), False),
    "a deleted pod frees its node": (record("DELETED", "pods", BOUND), waiting(Reason.RESOURCES), True),
    "a deleted pod without a node frees nothing": (record("DELETED", "pods"), waiting(Reason.RESOURCES), False),
    "a deleted pod gives up the room that was kept for it": (
        record("DELETED", "pods", {"status": {"nominatedNodeName": "n1"}}),
        waiting(Reason.DEVICES),
        True,
    ),
    "a node that goes is one place less to spread over": (record("DELETED", "nodes"), waiting(Reason.NEIGHBOURS), True),
    "a node that goes brings no room": (record("DELETED", "nodes"), waiting(Reason.RESOURCES), False),
    "a finished pod frees its node": (record("MODIFIED", "pods", FINISHED), waiting(Reason.RESOURCES), True),
    "a running pod frees nothing": (record("MODIFIED", "pods", BOUND), waiting(Reason.RESOURCES), False),
    "its own status wakes the pod that waits for its claims": (
        record("MODIFIED", "pods", uid="uid-pod"),
        waiting(Reason.CLAIM_MISSING),
        True,
    ),
    "another pod's status does not": (
        record("MODIFIED", "pods", uid="uid-other"),
        waiting(Reason.CLAIM_MISSING),
        False,
    ),
    "the condition that the scheduler writes does not wake its pod": (
        record("MODIFIED", "pods", {"metadata": {"generation": 1}}, uid="uid-pod"),
        waiting(Reason.DEVICES | Reason.NODE),
        False,
    ),
    "a changed spec wakes its pod whatever held it": (
        record("MODIFIED", "pods", {"metadata": {"generation": 2}}, uid="uid-pod"),
        waiting(Reason.NODE),
        True,
    ),
    "an event of a kind outside the table wakes nobody": (
        record("ADDED", "namespaces"),
        waiting(Reason(sum(Reason))),
        False,
    ),
}


@pytest.mark.parametrize("phrase", CASES)
def test_event_wakes_pod(phrase: str) -> None:
    event, pod, expected = CASES[phrase]
    assert Wakes([news_of(event)]).helps(pod) is expected


def test_every_reason_that_does_not_lie_in_the_pod_is_lifted_by_some_event_of_another_object() -> None:
    lifted = Reason(0)
    for resource, type_ in RULES:
        for wake in news_of(record(type_, resource, BOUND)).wakes:
            lifted |= wake.reasons
    assert Reason(sum(Reason)) & ~lifted == Reason.GATED | Reason.NOT_PLACED  # a mirror adds the rules of that one
