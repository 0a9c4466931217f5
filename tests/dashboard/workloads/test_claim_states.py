"""The one state that a claim is shown in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from claims.controllers.reservations import FINALIZER
from dashboard.workloads.claims.queries import PATIENCE, ClaimFacts, User, fate_of, judge

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
LONG_AGO = NOW - timedelta(hours=3)


def user(fate: str, **fields: Any) -> User:
    return User(resource="pods", name="web", uid="u-1", fate=fate, **fields)


def held(*users: User, **fields: Any) -> ClaimFacts:
    return ClaimFacts(allocated=True, allocated_at=fields.pop("since", NOW), users=users, nodes=("node-1",), **fields)


#: what is so -> (facts, state, why it is stuck)
CASES: dict[str, tuple[ClaimFacts, str, str]] = {
    "nothing was given yet": (ClaimFacts(allocated=False), "pending", ""),
    "its pod starts": (held(user("preparing")), "preparing", ""),
    "its pod runs": (held(user("running")), "allocated", ""),
    "one of its pods runs": (held(user("preparing"), user("running")), "allocated", ""),
    "something that is no pod uses it": (held(user("other"), since=LONG_AGO), "allocated", ""),
    "its pod is being deleted in time": (held(user("ending")), "allocated", ""),
    "it was given a moment ago and nobody took it": (held(), "unused", ""),
    "it was given long ago and nobody took it": (held(since=LONG_AGO), "stuck", "leaked"),
    "it was allocated immediately, long ago": (held(since=LONG_AGO, immediate=True), "unused", ""),
    "its driver keeps it": (held(since=LONG_AGO, driver="lamps.example.com"), "unused", ""),
    "its driver was asked a moment ago to deallocate it": (
        held(since=LONG_AGO, driver="lamps.example.com", deallocation_requested=True, lately=True), "releasing", "",
    ),
    "its driver was asked long ago to deallocate it": (
        held(since=LONG_AGO, driver="lamps.example.com", deallocation_requested=True), "stuck", "driver",
    ),
    "its pod ended a moment ago": (held(user("ended", lately=True)), "releasing", ""),
    "its pod ended long ago": (held(user("ended")), "stuck", "pod-gone"),
    "its pod is not there": (held(user("gone")), "stuck", "pod-gone"),
    "another pod has the name": (held(user("replaced")), "stuck", "pod-gone"),
    "one pod is gone and another runs": (held(user("gone"), user("running")), "allocated", ""),
    "its pod does not end": (held(user("overdue")), "stuck", "pod-stays"),
    "its node is gone": (held(user("running"), gone_nodes=("node-1",)), "stuck", "node-gone"),
    "its node is silent": (held(user("running"), silent_nodes=("node-1",)), "stuck", "node-silent"),
    "it is deleted while a pod runs": (held(user("running"), deleted_at=LONG_AGO), "deleting", ""),
    "it was deleted a moment ago": (held(deleted_at=NOW, finalizers=(FINALIZER,)), "deleting", ""),
    "it was deleted long ago": (held(deleted_at=LONG_AGO, finalizers=(FINALIZER,)), "stuck", "controller"),
    "somebody's finalizer holds it": (
        ClaimFacts(allocated=False, deleted_at=NOW, finalizers=("example.org/report",)), "stuck", "finalizer",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_state_of_a_claim(case: str) -> None:
    facts, state, cause = CASES[case]
    verdict = judge(facts, now=NOW)
    assert (verdict.state, verdict.cause) == (state, cause)
    assert verdict.note or state in ("pending", "preparing", "allocated", "deleting")


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
