"""The one state that a claim is shown in, as the database decides it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from claims.models import AllocatedDevice, Claim, Pod, Reservation
from dashboard.workloads.claims.queries import PATIENCE, STATE_OF, count_states, fate_of, find_claims
from inventory.models import Node, Pool
from manciple.store import sql
from manciple.store.models import Event

NOW = datetime.now(UTC)
LONG_AGO = NOW - timedelta(hours=3)
RUNNING: dict[str, Any] = {"phase": "Running"}
STARTING: dict[str, Any] = {"phase": "Pending"}
ENDING: dict[str, Any] = {"phase": "Running", "deleting": True}
ENDED: dict[str, Any] = {"phase": "Succeeded"}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A claim, the pods that it is reserved for (None for one that is not there), and why it is in which state.

    node: whether node-1 is ready, None where it is gone. lately: uids of objects that were written a moment ago.
    """

    cause: str
    claim: dict[str, Any]
    pods: Sequence[dict[str, Any] | None] = ()
    resource: str = "pods"
    node: bool | None = True
    device: dict[str, Any] | None = None
    lately: Sequence[str] = ()


def held(cause: str, *pods: dict[str, Any] | None, since: datetime | None = NOW, **given: Any) -> Case:
    of_case = {name: given.pop(name) for name in ("resource", "node", "device", "lately") if name in given}
    return Case(cause=cause, claim={"allocated": True, "allocated_at": since, **given}, pods=pods, **of_case)


DELETED: dict[str, Any] = {"deleting": True, "deleted_at": LONG_AGO}
CASES = {
    "nothing was given yet": Case(cause="pending", claim={}),
    "its pod starts": held("preparing", STARTING),
    "its pod runs": held("allocated", RUNNING),
    "one of its pods runs": held("allocated", STARTING, RUNNING),
    "something that is no pod uses it": held("allocated", None, resource="jobs.batch", since=LONG_AGO),
    "its pod is being deleted in time": held("allocated", {**ENDING, "deleted_at": NOW}),
    "it was given a moment ago and nobody took it": held("unused"),
    "it was given long ago and nobody took it": held("leaked", since=LONG_AGO),
    "it was given long ago, and its allocation has no time": held("leaked", since=None, created_at=LONG_AGO),
    "it is kept, and was given long ago": held("unused", since=LONG_AGO, kept="always"),
    "its driver was asked a moment ago to deallocate it": held(
        "driver-asked", since=LONG_AGO, kept="requested", lately=["claim"]
    ),
    "its driver was asked long ago to deallocate it": held("driver", since=LONG_AGO, kept="requested"),
    "its pod ended a moment ago": held("pod-ended", ENDED, lately=["pod-0"]),
    "one of its pods ended a moment ago, another long ago": held("pod-ended", ENDED, ENDED, lately=["pod-1"]),
    "its pod ended long ago": held("pod-gone", ENDED),
    "its pod was deleted before it had a node": held("pod-gone", {**ENDING, "node_name": ""}),
    "its pod is not there": held("pod-gone", None),
    "one pod is gone and another runs": held("allocated", None, RUNNING),
    "one pod is gone and another starts": held("preparing", None, STARTING),
    "its pod does not end": held("pod-stays", {**ENDING, "deleted_at": LONG_AGO}),
    "its node is gone": held("node-gone", RUNNING, node=None),
    "its node is silent": held("node-silent", RUNNING, node=False),
    "its device is on a node that is gone": held("node-gone", node=None, device={"node": "node-1"}),
    "its device is on a node that is silent": held("node-silent", node=False, device={"node": "node-1"}),
    "its device is of the one pool of that name": held("node-silent", node=False, device={"pool": "of-node-1"}),
    "its device may be of two pools": held("unused", node=False, device={"pool": "of-two"}),
    "its device may be of a pool of no node": held("unused", node=False, device={"pool": "net", "node": "node-1"}),
    "it is deleted while a pod runs": held("deleting", RUNNING, **DELETED),
    "it was deleted a moment ago": held("deleting", deleting=True, deleted_at=NOW),
    "it was deleted long ago": held("controller", **DELETED),
    "somebody's finalizer holds it": Case(cause="finalizer", claim={**DELETED, "deleted_at": NOW, "held_back": True}),
}


def write(case: Case) -> None:
    columns = {"namespace": "default", "name": "claim", "allocated": False, "deleting": False, "created_at": NOW}
    Claim.objects.create(uid="claim", **columns | case.claim)
    for number, pod in enumerate(case.pods):
        uid = f"pod-{number}"
        Reservation.objects.create(claim_id="claim", resource=case.resource, name=uid, uid=uid)
        if pod is not None:
            known = {"namespace": "default", "name": uid, "node_name": "node-1", "deleting": False, "claim_names": []}
            Pod.objects.create(uid=uid, **known | pod)
    if case.node is not None:
        lists: dict[str, Any] = {name: {} for name in ("labels", "taints", "capacity", "allocatable")}
        Node.objects.create(uid="node-1", name="node-1", ready=case.node, unschedulable=False, **lists)
    for pool, node in (("of-node-1", "node-1"), ("of-two", "node-1"), ("of-two", "node-2"), ("net", "")):
        numbers = dict.fromkeys(("generation", "slices_expected", "slices_seen", "device_count"), 1)
        Pool.objects.create(driver="d", name=pool, node_name=node, complete=True, **numbers)
    if case.device is not None:
        given = {"driver": "d", "pool": "node-1", "device": "gpu-0", "admin_access": False, "consumed_capacity": {}}
        taken = {"request": "gpu", "share_id": "", "exclusive": True}
        AllocatedDevice.objects.create(claim_id="claim", **taken | given | case.device)
    for revision, uid in enumerate(case.lately, sql.counter()[0] + 1):
        texts = dict.fromkeys(("labels", "fields", "document"), "")
        about = {"resource": "pods", "namespace": "default", "name": uid, "uid": uid, "deleting": False}
        Event.objects.create(revision=revision, type="MODIFIED", created_at=datetime.now(UTC), **about | texts)


@pytest.mark.django_db
@pytest.mark.parametrize("case", CASES)
def test_the_state_of_a_claim(case: str) -> None:
    write(CASES[case])
    cause = CASES[case].cause
    assert find_claims(Claim.objects.all(), now=NOW) == [("claim", cause)]
    assert count_states(Claim.objects.all(), now=NOW) == {STATE_OF.get(cause, cause): 1}


FATES: dict[str, tuple[dict[str, Any], str]] = {
    "bound and not started": ({"phase": "Pending", "node": "node-1"}, "preparing"),
    "running": ({"phase": "Running", "node": "node-1"}, "running"),
    "failed": ({"phase": "Failed", "node": "node-1"}, "ended"),
    "deleted before it had a node": ({"phase": "Pending", "node": "", "deleting": True}, "ended"),
    "deleted, its grace period not over": (
        {"phase": "Running", "node": "node-1", "deleting": True, "ends_at": NOW + timedelta(seconds=5)}, "ending",
    ),
    "deleted, just over its grace period": (
        {"phase": "Running", "node": "node-1", "deleting": True, "ends_at": NOW - PATIENCE}, "ending",
    ),
    "deleted, long over its grace period": (
        {"phase": "Running", "node": "node-1", "deleting": True, "ends_at": LONG_AGO}, "overdue",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", FATES)
def test_what_became_of_a_pod(case: str) -> None:
    given, fate = FATES[case]
    given = {"deleting": False, "ends_at": None} | given
    assert fate_of(given.pop("phase"), now=NOW, **given) == fate
