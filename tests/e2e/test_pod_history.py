"""The judge of the tests with kills: it sees a pod that is one too many, and no other."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.api_client import Document
from tests.e2e.pod_history import INDEX, wrongly_created


def a_thing(kind: str, name: str, owner: Document | None = None, **fields: Any) -> Document:
    references = [{"kind": owner["kind"], "uid": owner["metadata"]["uid"], "controller": True}] if owner else []
    annotations = fields.pop("annotations", {})
    meta = {"name": name, "uid": name, "ownerReferences": references, "annotations": annotations}
    return {"kind": kind, "metadata": meta, **fields}


WEB = a_thing("Deployment", "web", spec={"replicas": 2, "strategy": {"rollingUpdate": {"maxSurge": 1}}})
OLD = a_thing("ReplicaSet", "old", WEB, spec={"replicas": 2})
NEW = a_thing("ReplicaSet", "new", WEB, spec={"replicas": 2})
JOB = a_thing("Job", "job")
DAEMONS = a_thing("DaemonSet", "ds")


def pod(name: str, owner: Document, phase: str = "Running", *, index: int = 0) -> Document:
    term = {"matchFields": [{"values": ["node-1"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    spec = {"affinity": {"nodeAffinity": required}}
    return a_thing("Pod", name, owner, spec=spec, status={"phase": phase}, annotations={INDEX: str(index)})


MADE = [("ADDED", one) for one in (WEB, OLD, NEW, JOB, DAEMONS)]


@pytest.mark.parametrize(
    ("owners", "wrong"),
    [
        ([OLD, OLD], []),
        ([OLD, OLD, OLD], ["p2"]),
        ([OLD, OLD, NEW], []),
        ([OLD, OLD, NEW, NEW], ["p3"]),
        ([DAEMONS], []),
        ([DAEMONS, DAEMONS], ["p1"]),
        ([JOB, JOB], ["p1"]),
    ],
)
def test_one_too_many_is_seen(owners: list[Document], wrong: list[str]) -> None:
    events = MADE + [("ADDED", pod(f"p{number}", owner)) for number, owner in enumerate(owners)]
    assert [one.partition(":")[0] for one in wrongly_created(events)] == wrong


@pytest.mark.parametrize(("end", "wrong"), [("Succeeded", ["b"]), ("Failed", [])])
def test_an_index_that_has_succeeded_needs_no_other_pod(end: str, wrong: list[str]) -> None:
    events = [*MADE, ("ADDED", pod("a", JOB)), ("MODIFIED", pod("a", JOB, end)), ("ADDED", pod("b", JOB))]
    assert [one.partition(":")[0] for one in wrongly_created(events)] == wrong
    assert wrongly_created([*MADE, ("ADDED", pod("a", JOB)), ("ADDED", pod("b", JOB, index=1))]) == []


def test_a_pod_that_is_going_leaves_room_for_another() -> None:
    going = pod("a", DAEMONS)
    going["metadata"]["deletionTimestamp"] = "now"
    assert (
        wrongly_created([*MADE, ("ADDED", pod("a", DAEMONS)), ("MODIFIED", going), ("ADDED", pod("b", DAEMONS))]) == []
    )
    gone = [*MADE, ("ADDED", pod("a", DAEMONS)), ("DELETED", pod("a", DAEMONS)), ("ADDED", pod("b", DAEMONS))]
    assert wrongly_created(gone) == []
