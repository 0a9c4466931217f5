"""Records of what ended: a row for each pod and claim that is deleted, with why, and by whom.

The row is written by the projector, in the transaction of the deletion (`record`). Why comes from the last document:

    condition DisruptionTarget               -> its reason: preemption, eviction, taints, a lost node
    all containers ended before the deletion -> finished, or failed
    neither                                  -> deleted, until the author is known

The author is whoever began the deletion, as the audit trail says: the agent that ends a pod only carries it out. It is
filled in later, by whoever reads the records and by the controller `prune` (`note_authors`), so a deletion costs one
insert. The log then still knows whether the pod had ended before its deletion began. An author that is a controller
says why: the garbage collector deletes what lost its owner.

Rows are kept for `KEPT_FOR`, and of each namespace the newest `MOST`: a tenant that makes pods without end shortens its
own history only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db.models import Count, Q

from claims import evictions
from claims.kinds.disruption_budgets import DISRUPTION_TARGET
from claims.kinds.pods import ContainerStateTerminated, Pod
from claims.kinds.resource_claims import ResourceClaim, node_of
from claims.models import Ending
from claims.pod_claims import claim_names
from manciple.audit import recording
from manciple.audit.models import Entry
from manciple.audit.retention import DELETIONS
from manciple.store import history, sql
from manciple.store.records import Change
from manciple.wire.base import condition_of
from manciple.wire.identity import controller
from manciple.wire.resources import CLAIMS, FINISHED_PHASES, PODS

#: How long records are kept, and how many of a namespace.
KEPT_FOR, MOST = timedelta(days=30), 20_000
#: Names of claims or pods, and characters of a message, in a record.
MOST_OTHERS, LONGEST = 64, 1000
#: Records whose authors are looked up at a time, and at one reading.
BATCH, MOST_AT_ONCE = 500, 5000

Reason = Ending.Reason
#: The reasons of the condition DisruptionTarget.
_DISRUPTIONS = {
    evictions.preemption_by("").reason: Reason.PREEMPTED,
    evictions.EVICTION_API.reason: Reason.EVICTED,
    evictions.DEFRAGMENTATION.reason: Reason.MOVED,
    evictions.NODE_TAINT.reason: Reason.NODE_TAINT,
    evictions.DEVICE_TAINT.reason: Reason.DEVICE_TAINT,
    evictions.NODE_LOST.reason: Reason.NODE_LOST,
    "TerminationByKubelet": Reason.NODE_PRESSURE,
}
#: Phases of pods that have ended by themselves.
_ENDS = {"Succeeded": Reason.SUCCEEDED, "Failed": Reason.FAILED}
#: Controllers -> why they delete.
_CONTROLLERS = {
    controller("generic-garbage-collector").name: Reason.OWNER,
    controller("namespace-controller").name: Reason.NAMESPACE,
    controller("pod-garbage-collector").name: Reason.CLEANED_UP,
    controller("resource-claim-controller").name: Reason.OWNER,  # claims that were made for a pod that has ended
}


class EndingRow(NamedTuple):
    """The columns of `Ending` that are known at once."""

    resource: str
    uid: str
    namespace: str
    name: str
    node: str
    reason: str
    message: str
    owner: str
    others: str  # JSON
    created_at: datetime
    asked_at: datetime | None
    ended_at: datetime
    revision: int


def record(deletions: Sequence[Change]) -> None:
    """In the transaction that deletes them."""
    sql.insert(Ending, EndingRow._fields, [_row(change) for change in deletions])


def _row(change: Change) -> EndingRow:
    obj: Any = change.object
    meta = obj.metadata
    asked_at = _asked_at(obj)
    if isinstance(obj, Pod):
        resource, node, others = PODS, obj.spec.node_name, claim_names(obj)
        reason, message = _why(obj, change.previous, asked_at)
    else:
        resource, others = CLAIMS, tuple(_pods_of(obj))
        # A claim is released before it goes.
        held = [one.status.allocation for one in (obj, change.previous) if isinstance(one, ResourceClaim)]
        node = next((node_of(allocation) for allocation in held if allocation is not None), "")
        reason, message = Reason.DELETED, ""
    return EndingRow(
        resource=resource,
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        node=node,
        reason=reason.value,
        message=message[:LONGEST],
        owner=next((f"{one.kind} {one.name}" for one in meta.owner_references if one.controller), ""),
        others=sql.as_json(list(others)[:MOST_OTHERS]),
        created_at=datetime.fromisoformat(meta.creation_timestamp or ""),
        asked_at=asked_at,
        ended_at=change.at,
        revision=int(meta.resource_version),
    )


def _asked_at(obj: Any) -> datetime | None:
    meta = obj.metadata
    if meta.deletion_timestamp is None:
        return None
    return datetime.fromisoformat(meta.deletion_timestamp) - timedelta(seconds=meta.deletion_grace_period_seconds or 0)


def _pods_of(claim: ResourceClaim) -> list[str]:
    reserved = [one.name for one in claim.status.reserved_for if one.is_pod]
    return reserved or [owner.name for owner in claim.metadata.owner_references if owner.kind == "Pod"]


def _why(pod: Pod, before: Any, asked_at: datetime | None) -> tuple[Ending.Reason, str]:
    """What the pod itself says. before: its document as it was before the transaction that deleted it."""
    disrupted = condition_of(pod.status.conditions, DISRUPTION_TARGET)
    if disrupted is not None and disrupted.status == "True":
        return _DISRUPTIONS.get(disrupted.reason or "", Reason.EVICTED), disrupted.message or ""
    details = failure_of(pod)
    if not _ended_by_itself(pod, before, asked_at):
        return Reason.DELETED, details
    if pod.status.phase == "Failed" and pod.status.reason == "Evicted":
        return Reason.NODE_PRESSURE, details
    return _ENDS[pod.status.phase], details


def _ended_by_itself(pod: Pod, before: Any, asked_at: datetime | None) -> bool:
    """Whether it had ended before its deletion began: a deletion ends the containers, too, and so the phase.

    A guess by the clocks of agent and server where it took a while; `note_authors` knows better.
    """
    if not isinstance(before, Pod) or before.status.phase not in FINISHED_PHASES:
        return False
    if before.metadata.deletion_timestamp is None or asked_at is None:
        return True
    ended = [one.finished_at for _, one in _terminated(pod)]
    return bool(ended) and all(at and datetime.fromisoformat(at) < asked_at for at in ended)


def _terminated(pod: Pod) -> list[tuple[str, ContainerStateTerminated]]:
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    return [(one.name, one.state.terminated) for one in statuses if one.state.terminated is not None]


def failure_of(pod: Pod) -> str:
    """Why it failed, as its status says: a message of its node, or `container main: OOMKilled, exit code 137`."""
    failed = [(name, one) for name, one in _terminated(pod) if one.exit_code]
    return pod.status.message or "; ".join(
        f"container {name}: {f'{one.reason}, ' if one.reason else ''}exit code {one.exit_code}" for name, one in failed
    )


# Who ------------------------------------------------------------------------------------------------------------------


class Beginning(NamedTuple):
    """Who began a deletion, and the pod's phase at that time: "" where the log does not know any more."""

    author: str = ""
    phase: str = ""


def note_authors() -> int:
    """Fill in who deleted what, the newest first. Returns how many records were filled in."""
    done = 0
    while done < MOST_AT_ONCE:
        rows = list(Ending.objects.filter(author=None).order_by("-id").only("id", "uid", "reason", "asked_at")[:BATCH])
        if not rows:
            break
        if not done:
            recording.catch_up()
        began = _beginnings([row.uid for row in rows])
        for row in rows:
            beginning = began.get(row.uid, Beginning())
            row.author, row.reason = beginning.author, _reason_with(beginning, row)
        Ending.objects.bulk_update(rows, ["author", "reason"])
        done += len(rows)
    return done


def _beginnings(uids: Iterable[str]) -> Mapping[str, Beginning]:
    """By uid."""
    entries = Entry.objects.filter(uid__in=list(uids), revision__isnull=False, resource__in=(PODS, CLAIMS))
    asked = entries.filter(Q(verb__in=DELETIONS) | Q(subresource="eviction"))
    # The oldest comes last, and stays.
    first = {uid: (author, revision) for uid, author, revision in asked.order_by("-id").values_list(*_OF_ENTRY)}
    fields = history.fields_at(revision for _, revision in first.values())
    return {
        uid: Beginning(author, fields.get(revision, {}).get("status.phase", ""))
        for uid, (author, revision) in first.items()
    }


_OF_ENTRY = ("uid", "username", "revision")


def _reason_with(beginning: Beginning, row: Ending) -> str:
    by_itself = (*_ENDS.values(), Reason.DELETED)
    if row.reason not in by_itself:
        return row.reason
    if beginning.phase and row.asked_at is not None:  # else it is certain already
        reason = _ENDS.get(beginning.phase, Reason.DELETED)
    else:
        reason = Ending.Reason(row.reason)
    return _CONTROLLERS.get(beginning.author, reason).value if reason == Reason.DELETED else reason.value


def prune(now: datetime) -> int:
    """Forget what is too old or too much. Returns how many records went."""
    gone = Ending.objects.filter(ended_at__lt=now - KEPT_FOR).delete()[0]
    counts = Ending.objects.values("namespace").annotate(rows=Count("id")).order_by()
    for namespace in counts.filter(rows__gt=MOST).values_list("namespace", flat=True):
        newest = Ending.objects.filter(namespace=namespace).order_by("-id").values_list("id", flat=True)
        gone += Ending.objects.filter(namespace=namespace, id__lte=newest[MOST]).delete()[0]
    return gone
