"""Evictions: `disrupt` deletes a pod for a `Disruption`, whatever decided so; `post` serves `pods/NAME/eviction`, and
`evict` is the same for pages.

An eviction that respects disruption budgets needs a free disruption of every budget that covers the pod. The budget's
status counts it in the transaction that deletes the pod, so concurrent evictions never exceed the budget. Taints,
preemption and lost nodes delete pods without it, as in Kubernetes. Source: pkg/registry/core/pod/storage/eviction.go of
Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import structs

from claims import event_recorder
from claims.event_recorder import EventNote
from claims.kinds import disruption_budgets
from claims.kinds.disruption_budgets import POD_DISRUPTION_BUDGET, PodDisruptionBudget
from claims.kinds.pods import Pod
from manciple.api import verbs
from manciple.api.answers import success
from manciple.api.auditing import page_write
from manciple.api.requests import ResourcePath, WriteOptions, checked_deletion, propagation_of
from manciple.api.subresources import Connected, admit_body, decoded_body
from manciple.store import objects
from manciple.store.objects import Writer
from manciple.wire.base import timestamp
from manciple.wire.errors import ApiError, BadRequest, Conflict, NotFound
from manciple.wire.identity import Identity, controller
from manciple.wire.limits import check_time
from manciple.wire.machinery import DeleteOptions, Eviction, Preconditions
from manciple.wire.registry import Kind
from manciple.wire.resources import FINISHED_PHASES, PODS, kind

#: The writer of the status of budgets (upstream: the service account of that name in kube-controller-manager).
IDENTITY = controller("disruption-controller")


@dataclass(frozen=True, slots=True)
class Disruption:
    """Why a pod is deleted: the reason and the message of its condition DisruptionTarget, as Kubernetes has them."""

    reason: str
    message: str


EVICTION_API = Disruption("EvictionByEvictionAPI", "Eviction API: evicting")
NODE_TAINT = Disruption("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint")
DEVICE_TAINT = Disruption("DeletionByDeviceTaintManager", "Device Taint manager: deleting due to NoExecute taint")
NODE_LOST = Disruption("DeletionByPodGC", "PodGC: node no longer exists")
#: Ours: Kubernetes moves no pods.
DEFRAGMENTATION = Disruption(
    "EvictionByDefragmentation", "evicted so that pods that wait can start; one like it fits elsewhere"
)


def preemption_by(scheduler: str) -> Disruption:
    message = f"{scheduler}: preempting to accommodate a higher priority pod"
    return Disruption("PreemptionByScheduler", message)


def disrupt(
    writer: Writer,
    pod: Pod,
    why: Disruption,
    *,
    now: datetime,
    note: EventNote | None = None,
    requested: DeleteOptions | None = None,
) -> None:
    """Delete `pod`, in the writer's transaction: its event, the condition DisruptionTarget, the deletion.

    The condition and the deletion are one change, with two exceptions. A pod of a lost node first becomes Failed, and
    is deleted without grace. The clients of the eviction API may not write a pod's status, so the disruption controller
    does; a precondition on the old revision is then applied to the revision of that status write.

    requested: by a client of the eviction API.
    Raises: NotFound; Conflict if the pod is another one by now, or has changed.
    """
    if note is not None:
        event_recorder.record(writer, note, now=now)
    disrupted = disruption_budgets.disrupted(pod, reason=why.reason, message=why.message, now=timestamp(now))
    pods = kind(PODS)
    if why is NODE_LOST:
        if pod.status.phase not in FINISHED_PHASES:
            failed = structs.replace(disrupted.status, phase="Failed", reason="NodeLost")
            writer.update(pods, structs.replace(disrupted, status=failed), subresource="status")
        writer.delete(pods, *pod.key, uid=pod.metadata.uid, grace_seconds=0)
    elif requested is not None:
        with writer.savepoint(identity=IDENTITY):
            marked = writer.update(pods, disrupted, subresource="status")
        wanted = requested.preconditions or Preconditions()
        revision = wanted.resource_version or ""
        if revision == pod.metadata.resource_version:
            revision = marked.metadata.resource_version
        writer.delete(
            pods,
            *pod.key,
            uid=wanted.uid or "",
            resource_version=revision,
            grace_seconds=requested.grace_period_seconds,
            propagation=propagation_of(requested),
        )
    else:
        writer.delete(pods, *pod.key, uid=pod.metadata.uid, last_status=disrupted)


# The eviction API -----------------------------------------------------------------------------------------------------


def post(
    pods: Kind, where: ResourcePath, body: bytes, *, content_type: str, identity: Identity, options: WriteOptions
) -> dict[str, Any]:
    """Evict a pod. Raises: TooManyRequests if its budget refuses; BadRequest, NotFound, Conflict, Forbidden."""
    eviction = decoded_body(Eviction, "policy", body, content_type=content_type, options=options)
    admitted = admit_body(pods, where, eviction, identity=identity, options=options)
    if eviction.metadata.name != where.name:
        raise BadRequest("name in URL does not match name in Eviction object")
    requested = checked_deletion(admitted.delete_options or DeleteOptions())

    stored = objects.get(pods, where.namespace, where.name)
    if stored is None:
        raise NotFound.of(pods.resource, where.name)
    covered_by = covering(objects.decoded(stored, Pod))

    def work(writer: Writer) -> None:
        pod = writer.get(pods, where.namespace, where.name)
        if not isinstance(pod, Pod):
            raise NotFound.of(pods.resource, where.name)
        now = datetime.now(UTC)
        admit(writer, pod, covered_by, now)
        disrupt(writer, pod, EVICTION_API, now=now, requested=requested)

    reads = [objects.Read(pods, where.namespace, where.name)]
    reads += [objects.Read(POD_DISRUPTION_BUDGET, *key) for key in covered_by.budgets]
    objects.write(work, identity=identity, reads=reads, dry_run=options.dry_run or bool(requested.dry_run))
    return success(code=201)


def evict(pod: Pod, *, identity: Identity) -> None:
    """Evict this pod, not another one of its name, from wherever pages write (`manciple.api.destination`).

    Raises: as `post`.
    """
    (namespace, name), uid, pods = pod.key, pod.metadata.uid, kind(PODS)
    there = verbs.destination()
    with page_write("create", pods, identity=identity, namespace=namespace, name=name, subresource="eviction"):
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        if there is not None:
            there.evict(pod, eviction, identity=identity)
            return
        where = ResourcePath(
            group="", version="v1", plural="pods", namespace=namespace, name=name, subresource="eviction"
        )
        body, json = msgspec.json.encode(eviction), "application/json"
        post(pods, where, body, content_type=json, identity=identity, options=WriteOptions())


@dataclass(frozen=True, slots=True)
class CoveringBudgets:
    """The keys of the budgets that cover pods with these labels."""

    labels: Mapping[str, str]
    budgets: Sequence[tuple[str, str]]


def covering(pod: Pod) -> CoveringBudgets:
    """The budgets that cover the pod. Called before the transaction, which would block all writers while it reads."""
    budgets: list[tuple[str, str]] = []
    _, portions = objects.list_in_portions(POD_DISRUPTION_BUDGET, namespace=pod.metadata.namespace)
    for portion in portions:
        check_time()
        found = (objects.decoded(stored, PodDisruptionBudget) for stored in portion)
        budgets += [one.key for one in disruption_budgets.covering(pod, found)]
    return CoveringBudgets(pod.metadata.labels, budgets)


def admit(writer: Writer, pod: Pod, known: CoveringBudgets, now: datetime) -> None:
    """Check the pod's budgets and count the eviction, in the transaction that deletes the pod.

    Raises: TooManyRequests, Forbidden, Conflict, SeveralBudgets.
    """
    if disruption_budgets.asks_no_budget(pod):
        return
    if pod.metadata.labels != known.labels:
        raise Conflict.of("pods", pod.metadata.name)
    stored = (writer.get(POD_DISRUPTION_BUDGET, *key) for key in known.budgets)
    budgets = disruption_budgets.covering(pod, [one for one in stored if isinstance(one, PodDisruptionBudget)])
    if (refused := disruption_budgets.why_kept(pod, budgets)) is not None:
        raise refused
    for budget in budgets:
        if not disruption_budgets.goes_unready(pod, budget):
            with writer.savepoint(identity=IDENTITY):
                granted = disruption_budgets.granted(budget, pod.metadata.name, now)
                writer.update(POD_DISRUPTION_BUDGET, granted, subresource="status")


def said(refusal: ApiError) -> str:
    """The refusal's message and causes as text for users."""
    causes = [cause["message"] for cause in (refusal.details or {}).get("causes", ()) if cause.get("message")]
    return " ".join([refusal.message, *causes])


EVICTION = Connected(name="eviction", kind="Eviction", type=Eviction, group="policy", version="v1", post=post)
