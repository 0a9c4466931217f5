"""How ResourceClaims and Pods become index rows, and how a device's second exclusive owner is refused.

A claim is its own row, one row a reservation and one row an allocated device. Rows that a transaction would leave as
they are (a driver reporting `status.devices`, say) are not touched. Before allocated devices are written, those that
somebody else holds exclusively are looked up: writers come one after the other, so the answer is final, and the
refusal can name device and holder. The unique constraint stands behind it. Several claims that one driver's controller
allocated may hold one device.

Who had which device, from when to when, is kept (`PastAllocation`) after the claim has given it back or is gone: the
rows are written with the change that frees the devices, in its transaction. So the history costs nothing while pods are
being placed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

from django.db import IntegrityError
from django.db.models import Max, Q

from claims.kinds.pods import Pod as PodObject
from claims.kinds.resource_claims import (
    EXTENDED_CLAIM_ANNOTATION,
    POD_CLAIM_ANNOTATION,
    DeviceRequestAllocationResult,
    ResourceClaim,
    class_of,
    node_of,
    pools_allocated_from,
    wants_admin_access,
)
from claims.models import (
    AllocatedDevice,
    Claim,
    DeviceHolder,
    DeviceKey,
    PastAllocation,
    Pod,
    PodClaim,
    Reservation,
    pools_by_device,
)
from claims.uses import prune_uses, record_uses
from inventory import impairments
from inventory.kinds.pools import PoolKey
from manciple.store import hooks, sql
from manciple.store.records import Change
from manciple.wire.errors import Conflict

# History --------------------------------------------------------------------------------------------------------------


#: How long it is kept.
KEPT_FOR = timedelta(days=90)
#: Rows that are kept at most: whoever may create pods makes as many as the scheduler can place.
KEPT_ROWS = 1_000_000
#: Pods of a shared claim that are named.
MOST_PODS = 64

_COLUMNS = (
    "driver", "pool", "device", "node", "device_class", "claim_uid", "namespace", "claim", "pods", "admin_access",
    "share_id", "consumed_capacity", "asked_at", "began_at", "ended_at",
)  # fmt: skip


def keep_history(changes: Sequence[Change], rows_of: Callable[[Any], Sequence[Any]]) -> None:
    """Note the devices that `changes` to claims free. rows_of: a claim -> the rows of its allocated devices."""
    rows = [row for change in changes for row in _freed(change, rows_of)]
    if rows:
        sql.insert(PastAllocation, _COLUMNS, rows)


def prune_history(now: datetime) -> int:
    """Forget what ended too long ago, and the oldest rows beyond `KEPT_ROWS`. Returns how many rows went."""
    newest = PastAllocation.objects.aggregate(newest=Max("id"))["newest"] or 0
    old = PastAllocation.objects.filter(Q(ended_at__lt=now - KEPT_FOR) | Q(id__lte=newest - KEPT_ROWS))
    return old.delete()[0] + prune_uses(now, kept_for=KEPT_FOR)


def _freed(change: Change, rows_of: Callable[[Any], Sequence[Any]]) -> Iterator[tuple[Any, ...]]:
    before = change.previous
    if not isinstance(before, ResourceClaim) or before.status.allocation is None:
        return
    kept = set() if change.type == "DELETED" else set(rows_of(change.object))
    freed = [row for row in rows_of(before) if row not in kept]
    if not freed:
        return
    ended = datetime.now(UTC)
    created = before.metadata.creation_timestamp
    asked_at = datetime.fromisoformat(created) if created and _source(before) else None
    began = before.status.allocation.allocation_timestamp or created
    began_at = min(datetime.fromisoformat(began), ended) if began else ended
    pods = sql.as_json(_pods(before)[:MOST_PODS])
    meta = before.metadata
    for row in freed:
        yield (
            row.driver, row.pool, row.device, row.node, row.device_class, meta.uid, meta.namespace, meta.name, pods,
            row.admin_access, row.share_id, row.consumed_capacity, asked_at, began_at, ended,
        )  # fmt: skip


def _pods(claim: ResourceClaim) -> list[str]:
    """The pods that the claim was reserved for; where nobody is any more, the pod that it was made for."""
    reserved = [consumer.name for consumer in claim.status.reserved_for if consumer.is_pod]
    return reserved or [owner.name for owner in claim.metadata.owner_references if owner.kind == "Pod"]


# Rows -----------------------------------------------------------------------------------------------------------------


CLAIMS = "resourceclaims.resource.k8s.io"
PODS = "pods"


class DeviceTaken(Conflict):
    """A device would belong to two claims. The transaction that tried is undone; allocate anew from what is there."""

    @classmethod
    def by(cls, holder: str, *, claim: str, device: DeviceKey) -> DeviceTaken:
        conflict = Conflict.of(CLAIMS, claim, f"device {'/'.join(device[:3])} is allocated to claim {holder} already")
        return cls(conflict.message, details=conflict.details)


class ClaimIndexRow(NamedTuple):
    uid: str
    namespace: str
    name: str
    allocated: bool
    deleting: bool
    created_at: datetime
    allocated_at: datetime | None
    admin_access: bool
    source: str


class ReservationRow(NamedTuple):
    claim_id: str
    resource: str
    name: str
    uid: str


class AllocatedDeviceRow(NamedTuple):
    claim_id: str
    request: str
    driver: str
    pool: str
    device: str
    node: str
    admin_access: bool
    share_id: str
    consumed_capacity: str
    exclusive: bool
    controller: str
    device_class: str

    @property
    def key(self) -> DeviceKey:
        return (self.driver, self.pool, self.device, self.node)


class PodRow(NamedTuple):
    uid: str
    namespace: str
    name: str
    node_name: str
    phase: str
    deleting: bool
    claim_names: str


class PodClaimRow(NamedTuple):
    pod_id: str
    namespace: str
    claim: str


def register() -> None:
    hooks.register_projector(CLAIMS, project_claims, clear=partial(_clear, AllocatedDevice, Reservation, Claim))
    hooks.register_projector(PODS, project_pods, clear=partial(_clear, PodClaim, Pod))


def claim_row(obj: ResourceClaim) -> ClaimIndexRow:
    meta, allocation = obj.metadata, obj.status.allocation
    allocated_at = allocation.allocation_timestamp if allocation is not None else None
    return ClaimIndexRow(
        meta.uid,
        meta.namespace,
        meta.name,
        allocation is not None,
        meta.deletion_timestamp is not None,
        datetime.fromisoformat(meta.creation_timestamp or ""),
        datetime.fromisoformat(allocated_at) if allocated_at else None,
        wants_admin_access(obj),
        _source(obj),
    )


def _source(obj: ResourceClaim) -> str:
    """What the claim was made from, as kube-controller-manager's metrics call it."""
    annotations = obj.metadata.annotations
    if annotations.get(EXTENDED_CLAIM_ANNOTATION) == "true":
        return "extended_resource"
    return "resource_claim_template" if POD_CLAIM_ANNOTATION in annotations else ""


def reservation_rows(obj: ResourceClaim) -> tuple[ReservationRow, ...]:
    return tuple(
        ReservationRow(obj.metadata.uid, consumer.full_resource, consumer.name, consumer.uid)
        for consumer in obj.status.reserved_for
    )


def device_rows(obj: ResourceClaim) -> tuple[AllocatedDeviceRow, ...]:
    allocation = obj.status.allocation
    if allocation is None:
        return ()
    node = node_of(allocation)
    return tuple(_device_row(obj, result, node, allocation.controller_name) for result in allocation.devices.results)


def _device_row(
    obj: ResourceClaim, result: DeviceRequestAllocationResult, node: str, controller: str
) -> AllocatedDeviceRow:
    admin_access, share_id = bool(result.admin_access), result.share_id or ""
    return AllocatedDeviceRow(
        obj.metadata.uid,
        result.request,
        result.driver,
        result.pool,
        result.device,
        node,
        admin_access,
        share_id,
        sql.as_json(result.consumed_capacity),
        not admin_access and not share_id and not controller,
        controller,
        class_of(obj.spec.devices.requests, result.request),
    )


def pod_row(obj: PodObject) -> PodRow:
    meta = obj.metadata
    return PodRow(
        meta.uid,
        meta.namespace,
        meta.name,
        obj.spec.node_name,
        obj.status.phase,
        meta.deletion_timestamp is not None,
        sql.as_json(claim_names(obj)),
    )


def claim_names(pod: PodObject) -> tuple[str, ...]:
    """The claims that the pod names itself, those made for it so far, and the one for its extended resources."""
    names = [claim.resource_claim_name for claim in pod.spec.resource_claims]
    names += [status.resource_claim_name for status in pod.status.resource_claim_statuses]
    if pod.status.extended_resource_claim_status is not None:
        names.append(pod.status.extended_resource_claim_status.resource_claim_name)
    return tuple(dict.fromkeys(name for name in names if name))


def pod_claim_rows(obj: PodObject) -> tuple[PodClaimRow, ...]:
    return tuple(PodClaimRow(obj.metadata.uid, obj.metadata.namespace, name) for name in claim_names(obj))


def project_pods(changes: Sequence[Change]) -> None:
    _bring_in_line(Pod, PodRow._fields, *hooks.differences(changes, pod_row))
    stale, fresh = _several(changes, pod_claim_rows)
    sql.delete(PodClaim, ["pod_id"], stale)
    sql.insert(PodClaim, PodClaimRow._fields, fresh)
    if told := {change.object.metadata.uid: change for change in changes if _tells_other_health(change)}:
        _record_reports([change.object for change in told.values()], gone=_gone(told.values()), at=changes[0].at)


# What agents report of their pods' devices ----------------------------------------------------------------------------


def _tells_other_health(change: Change) -> bool:
    before = _unhealthy(change.previous) if isinstance(change.previous, PodObject) else {}
    return before != ({} if change.type == "DELETED" else _unhealthy(change.object))


def _gone(changes: Iterable[Change]) -> set[str]:
    return {change.object.metadata.uid for change in changes if change.type == "DELETED"}


def _unhealthy(pod: Any) -> dict[str, str]:
    """What the node's agent calls Unhealthy with the pod: resource id -> message."""
    status = pod.status
    return {
        one.resource_id: one.message or ""
        for container in (*status.init_container_statuses, *status.container_statuses)
        for resource in container.allocated_resources_status
        for one in resource.resources
        if one.health == "Unhealthy"
    }


def _record_reports(pods: Sequence[Any], *, gone: Collection[str], at: datetime) -> None:
    """Resource ids name a device as `driver/pool/device`, or by a CDI id that ends in `CLAIM_UID-DEVICE`."""
    told = {pod.metadata.uid: {} if pod.metadata.uid in gone else _unhealthy(pod) for pod in pods}
    telling = [pod for pod in pods if told[pod.metadata.uid]]
    held = _devices_of(telling)
    reports = {
        pod.metadata.uid: [
            impairments.ReportedDevice(driver, pool, device, pod.spec.node_name, message)
            for claim, driver, pool, device in held[pod.metadata.uid]
            for resource, message in told[pod.metadata.uid].items()
            if resource == f"{driver}/{pool}/{device}" or f"={claim}-{device}" in resource
        ]
        for pod in telling
    }
    impairments.record_reports({uid: reports.get(uid, []) for uid in told}, at=at)


def _devices_of(pods: Sequence[Any]) -> dict[str, list[tuple[str, str, str, str]]]:
    """uid of each pod -> (uid of the claim, driver, pool, device) of what its claims hold. Two queries."""
    wanted = {(pod.metadata.namespace, name) for pod in pods for name in claim_names(pod)}
    claims = {
        (namespace, name): uid
        for uid, namespace, name in sql.select(Claim, ["uid", "namespace", "name"], ["namespace", "name"], wanted)
    }
    columns = ["claim_id", "driver", "pool", "device"]
    rows = sql.select(AllocatedDevice, columns, ["claim_id"], [(uid,) for uid in claims.values()])
    return {
        pod.metadata.uid: [
            (claim, driver, pool, device)
            for claim, driver, pool, device in rows
            if claim in {claims.get((pod.metadata.namespace, name)) for name in claim_names(pod)}
        ]
        for pod in pods
    }


# Claims ---------------------------------------------------------------------------------------------------------------


def project_claims(changes: Sequence[Change]) -> None:
    _bring_in_line(Claim, ClaimIndexRow._fields, *hooks.differences(changes, claim_row))
    released, reserved = _several(changes, reservation_rows)
    sql.delete(Reservation, ["claim_id"], released)
    sql.insert(Reservation, ReservationRow._fields, reserved)
    freed, given = _several(changes, device_rows)
    sql.delete(AllocatedDevice, ["claim_id"], freed)
    keep_history(changes, device_rows)
    if reported := [change for change in changes if _has_reports(change)]:
        record_uses(reported)
    _give(given, names={change.object.metadata.uid: change.object.metadata for change in changes})


def _has_reports(change: Change) -> bool:
    """Whether drivers report on the claim's devices, or did."""
    return any(one.status.devices for one in (change.previous, change.object) if isinstance(one, ResourceClaim))


def _bring_in_line(
    model: type[Pod] | type[Claim], columns: Sequence[str], removed: Sequence[Any], written: Sequence[Any]
) -> None:
    """Write rows that begin with uid, namespace and name. One that comes again has changed in the other columns."""
    before, after = {row.uid for row in removed}, {row.uid for row in written}
    sql.delete(model, ["uid"], [(uid,) for uid in before - after])
    sql.insert(model, columns, [row for row in written if row.uid not in before])
    sql.update(model, "uid", columns[3:], [(row.uid, *row[3:]) for row in written if row.uid in before])


def _several(changes: Sequence[Change], rows_of: Any) -> tuple[list[tuple[str]], list[Any]]:
    """(uids whose rows to remove, rows to write) of kinds with several rows an object."""
    stale: list[tuple[str]] = []
    fresh: list[Any] = []
    for change in changes:
        old = () if change.previous is None else rows_of(change.previous)
        new = () if change.type == "DELETED" else rows_of(change.object)
        if old != new:
            stale.extend([(change.object.metadata.uid,)] if old else [])
            fresh.extend(new)
    return stale, fresh


def _give(rows: Sequence[AllocatedDeviceRow], *, names: dict[str, Any]) -> None:
    """Write allocated devices. Raises: DeviceTaken."""
    whole = [row for row in rows if not row.admin_access and not row.share_id]
    holders = AllocatedDevice.objects.holders_of(row.key for row in whole) if whole else {}
    # Only in equally named pools can two of these rows be of one device.
    named = Counter(row.key[:3] for row in whole)
    pools = pools_by_device((row.key for row in whole if named[row.key[:3]] > 1), pools_allocated_from)
    given: dict[tuple[str, PoolKey], DeviceHolder] = {}
    for row in whole:
        meta = names[row.claim_id]
        places = [(row.device, pool) for pool in pools.get(row.key, ())]
        for holder in (holders.get(row.key), *(given.get(place) for place in places)):
            # One driver's controller knows which of its claims may share a device.
            if holder is not None and not (row.controller and row.controller == holder.controller):
                raise DeviceTaken.by(f"{holder.namespace}/{holder.name}", claim=meta.name, device=row.key)
        given.update((place, DeviceHolder(meta.namespace, meta.name, row.controller)) for place in places)
    try:
        sql.insert(AllocatedDevice, AllocatedDeviceRow._fields, rows)
        if whole:
            sql.await_answers()
    except IntegrityError as error:
        raise DeviceTaken(_refusal(row.key for row in whole)) from error


def _refusal(devices: Iterable[DeviceKey]) -> str:
    return f"one of these devices is allocated already: {', '.join('/'.join(device[:3]) for device in devices)}"


def _clear(*tables: sql.ModelClass) -> None:
    for model in tables:
        sql.clear(model)
