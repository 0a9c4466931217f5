"""Evictions (`pods/NAME/eviction`, and other deletions that respect disruption budgets).

An eviction needs a free disruption of every budget that covers the pod. The budget's status counts it in the
transaction that deletes the pod, so concurrent evictions never exceed the budget. Taints, preemption and lost nodes
delete pods without it, as in Kubernetes. Source: pkg/registry/core/pod/storage/eviction.go of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from claims.kinds import disruption_budgets
from claims.kinds.disruption_budgets import POD_DISRUPTION_BUDGET, PodDisruptionBudget
from claims.kinds.pods import Pod
from manciple.api.answers import success
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

#: The writer of the status of budgets (upstream: the service account of that name in kube-controller-manager).
IDENTITY = controller("disruption-controller")
#: The reason in the condition of an evicted pod.
REASON = "EvictionByEvictionAPI"


def post(
    kind: Kind, where: ResourcePath, body: bytes, *, content_type: str, identity: Identity, options: WriteOptions
) -> dict[str, Any]:
    """Evict a pod. Raises: TooManyRequests if its budget refuses; BadRequest, NotFound, Conflict, Forbidden."""
    eviction = decoded_body(Eviction, "policy", body, content_type=content_type, options=options)
    admit_body(kind, where, eviction, identity=identity, options=options)
    if eviction.metadata.name != where.name:
        raise BadRequest("name in URL does not match name in Eviction object")
    wanted = checked_deletion(eviction.delete_options or DeleteOptions())

    stored = objects.get(kind, where.namespace, where.name)
    if stored is None:
        raise NotFound.of(kind.resource, where.name)
    known = covering(objects.decoded(stored, Pod))

    def work(writer: Writer) -> None:
        pod = writer.get(kind, where.namespace, where.name)
        if not isinstance(pod, Pod):
            raise NotFound.of(kind.resource, where.name)
        now = datetime.now(UTC)
        admit(writer, pod, known, now)
        evicted = disruption_budgets.disrupted(pod, reason=REASON, message="Eviction API: evicting", now=timestamp(now))
        with writer.savepoint(identity=IDENTITY):
            last = writer.update(kind, evicted, subresource="status")
        _delete(writer, kind, pod, wanted, last=last.metadata.resource_version)

    reads = [objects.Read(kind, where.namespace, where.name)]
    reads += [objects.Read(POD_DISRUPTION_BUDGET, *key) for key in known.budgets]
    objects.write(work, identity=identity, reads=reads, dry_run=options.dry_run or bool(wanted.dry_run))
    return success(code=201)


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

    Raises: TooManyRequests, Forbidden, Conflict, disruptions.SeveralBudgets.
    """
    if disruption_budgets.asks_no_budget(pod):
        return
    if pod.metadata.labels != known.labels:
        raise Conflict.of("pods", pod.metadata.name)
    kind = POD_DISRUPTION_BUDGET
    stored = (writer.get(kind, *key) for key in known.budgets)
    budgets = disruption_budgets.covering(pod, [one for one in stored if isinstance(one, PodDisruptionBudget)])
    if (refused := disruption_budgets.why_kept(pod, budgets)) is not None:
        raise refused
    for budget in budgets:
        if not disruption_budgets.goes_unready(pod, budget):
            with writer.savepoint(identity=IDENTITY):
                writer.update(kind, disruption_budgets.granted(budget, pod.metadata.name, now), subresource="status")


def said(refusal: ApiError) -> str:
    """The refusal's message and causes as text for users."""
    causes = [cause["message"] for cause in (refusal.details or {}).get("causes", ()) if cause.get("message")]
    return " ".join([refusal.message, *causes])


def _delete(writer: Writer, kind: Kind, pod: Pod, options: DeleteOptions, *, last: str) -> None:
    """last: the pod's revision with its new condition; a client's precondition can only name the one before."""
    wanted = options.preconditions or Preconditions()
    asked = wanted.resource_version or ""
    writer.delete(
        kind,
        *pod.key,
        uid=wanted.uid or "",
        resource_version=last if asked == pod.metadata.resource_version else asked,
        grace_seconds=options.grace_period_seconds,
        propagation=propagation_of(options),
    )


EVICTION = Connected(name="eviction", kind="Eviction", group="policy", version="v1", post=post)
