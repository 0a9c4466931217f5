"""Index rows of ResourceClaims, their templates, Pods and ResourceQuotas.

A device that another claim holds is refused here.

A claim has a row of its own, one per reservation and one per allocated device. Unchanged rows are not written (when a
driver reports `status.devices`, say). Before devices are written, their holders are looked up (`holders_of`): writers
are serialized, so the answer is final, and the refusal names device and holder. A unique constraint backs it. Several
claims of one driver's controller may hold the same device.

The history of a device (`PastAllocation`) outlives the claim. Its rows are written in the transaction that frees the
devices, so it costs nothing while pods are being placed.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from typing import Any, NamedTuple, cast

from django.db.models import Max, Model, Q

from claims import endings
from claims.kinds.pods import Pod as PodObject
from claims.kinds.pods import volume_claim_of
from claims.kinds.quotas import ResourceQuota
from claims.kinds.resource_claims import (
    DELETE_PROTECTION,
    EXTENDED_CLAIM_ANNOTATION,
    POD_CLAIM_ANNOTATION,
    DeviceRequest,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceClaimTemplate,
    class_of,
    is_allocated_by_controller,
    node_of,
    pools_allocated_from,
    pools_in_use,
    wants_admin_access,
)
from claims.models import (
    AllocatedDevice,
    Claim,
    DeviceKey,
    EphemeralVolume,
    PastAllocation,
    Pod,
    PodClaim,
    Quota,
    QuotaLimit,
    Reservation,
    Template,
)
from claims.pod_claims import claim_names, references, requested_classes, stays_allocated
from claims.pod_troubles import trouble_of
from claims.uses import prune_uses, record_uses
from inventory import impairments
from inventory.kinds.pools import PoolKey
from inventory.models import UID, PublishedSlice
from manciple.store import hooks, sql
from manciple.store.records import Change
from manciple.wire.errors import Conflict
from manciple.wire.quantity import Quantity
from manciple.wire.resources import CLAIMS, NEW_PHASES, PODS, QUOTAS, TEMPLATES

# History --------------------------------------------------------------------------------------------------------------


#: How long history is kept.
KEPT_FOR = timedelta(days=90)
#: The maximum of rows: users can create pods, and so rows, as fast as the scheduler places them.
KEPT_ROWS = 1_000_000
#: Pods that a row of a shared claim names.
MOST_PODS = 64

_COLUMNS = (
    "driver", "pool", "device", "node", "device_class", "claim_uid", "namespace", "claim", "pods", "admin_access",
    "share_id", "consumed_capacity", "asked_at", "began_at", "ended_at",
)  # fmt: skip


def keep_history(changes: Sequence[Change], rows_of: Callable[[Any], Sequence[Any]]) -> None:
    """Record the devices that `changes` free. rows_of: a claim -> the rows of its allocated devices."""
    rows = [row for change in changes for row in _freed(change, rows_of)]
    if rows:
        sql.insert(PastAllocation, _COLUMNS, rows)


def prune_history(now: datetime) -> int:
    """Delete rows older than `KEPT_FOR`, and the oldest beyond `KEPT_ROWS`. Returns how many."""
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
    """The pods that the claim was reserved for, or else the pod that it was generated for."""
    reserved = [consumer.name for consumer in claim.status.reserved_for if consumer.is_pod]
    return reserved or [owner.name for owner in claim.metadata.owner_references if owner.kind == "Pod"]


# Rows -----------------------------------------------------------------------------------------------------------------


class DeviceTaken(Conflict):
    """A device would belong to two claims. The transaction is rolled back; the scheduler allocates again."""

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
    deleted_at: datetime | None
    held_back: bool
    kept: str
    classes: str


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
    claim_names: tuple[str, ...]  # stored as JSON
    deleted_at: datetime | None
    controller_uid: str
    started_at: datetime | None
    time_limit: int | None
    trouble: str


class EphemeralVolumeRow(NamedTuple):
    pod_id: str
    namespace: str
    name: str
    claim: str


class TemplateRow(NamedTuple):
    uid: str
    namespace: str
    name: str
    created_at: datetime
    requests: str


class QuotaRow(NamedTuple):
    uid: str
    namespace: str
    name: str


class QuotaLimitRow(NamedTuple):
    quota_id: str
    resource: str
    hard: str
    used: str
    fraction: float | None


def register() -> None:
    hooks.register_projector(CLAIMS, project_claims, clear=partial(_clear, AllocatedDevice, Reservation, Claim))
    hooks.register_projector(PODS, project_pods, clear=partial(_clear, EphemeralVolume, PodClaim, Pod))
    hooks.register_projector(TEMPLATES, project_templates, clear=partial(_clear, Template))
    hooks.register_projector(QUOTAS, project_quotas, clear=partial(_clear, QuotaLimit, Quota))


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
        datetime.fromisoformat(meta.deletion_timestamp) if meta.deletion_timestamp else None,
        any(name != DELETE_PROTECTION for name in meta.finalizers),
        _kept(obj),
        f" {' '.join(dict.fromkeys(name for _, name in requested_classes(obj)))} ",
    )


def _kept(obj: ResourceClaim) -> Claim.Kept:
    """Why its devices stay allocated while nobody uses them."""
    of_driver = is_allocated_by_controller(obj)
    if of_driver and obj.status.deallocation_requested:
        return Claim.Kept.REQUESTED
    return Claim.Kept.ALWAYS if of_driver or stays_allocated(obj) else Claim.Kept.NOT


def _source(obj: ResourceClaim) -> str:
    """What created the claim, as in the metrics of kube-controller-manager."""
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
        claim_names(obj),
        datetime.fromisoformat(meta.deletion_timestamp) if meta.deletion_timestamp else None,
        next((one.uid[:UID] for one in meta.owner_references if one.controller), ""),
        datetime.fromisoformat(obj.status.start_time) if obj.status.start_time else None,
        obj.spec.active_deadline_seconds,
        "" if _is_well(obj) else trouble_of(obj),
    )


def _is_well(obj: PodObject) -> bool:
    """Whether nothing is said of any container that could be a trouble."""
    statuses = (*obj.status.init_container_statuses, *obj.status.container_statuses)
    return not obj.spec.readiness_gates and all(one.ready for one in statuses)


def ephemeral_volume_rows(obj: PodObject) -> tuple[EphemeralVolumeRow, ...]:
    """While the pod may lack their claims."""
    meta, declared = obj.metadata, cast("tuple[Any, ...]", obj.spec.volumes)
    volumes = [volume for volume in declared if volume.ephemeral is not None]
    if not volumes or meta.deletion_timestamp is not None or obj.status.phase not in NEW_PHASES:
        return ()
    claims = (volume_claim_of(obj, volume) for volume in volumes)
    return tuple(EphemeralVolumeRow(meta.uid, meta.namespace, meta.name, claim) for claim in claims)


def pod_claims(obj: PodObject) -> Iterator[tuple[str, str]]:
    """(claim, template): ("", template) once for each template that its entries need, then every claim by its name.

    A claim that is made adds a row and changes none, so a pod that an older version indexed gets its row all the same:
    what a bound pod names is not released.
    """
    if not (names := claim_names(obj)) and not obj.spec.resource_claims:
        return
    templates = {entry.name: entry.resource_claim_template_name or "" for entry in obj.spec.resource_claims}
    needed = [(one.claim or "", templates[one.entry]) for one in references(obj) if one.needed]
    named = {claim for claim, _ in needed}
    yield from sorted({("", template) for _, template in needed if template})
    yield from sorted({(claim, template) for claim, template in needed if claim})
    yield from ((name, "") for name in names if name not in named)


def template_row(obj: ResourceClaimTemplate) -> TemplateRow:
    meta, requests = obj.metadata, obj.spec.spec.devices.requests
    created = datetime.fromisoformat(meta.creation_timestamp or "")
    return TemplateRow(meta.uid, meta.namespace, meta.name, created, ", ".join(map(_request_text, requests)))


def _request_text(request: DeviceRequest) -> str:
    exactly = request.exactly
    if exactly is None:
        return f"one of {len(request.first_available)} alternatives"
    return f"{'all' if exactly.allocation_mode == 'All' else exactly.count} of {exactly.device_class_name}"


def project_templates(changes: Sequence[Change]) -> None:
    sync_rows(Template, TemplateRow._fields, *hooks.differences(changes, template_row))


#: Of a limit, used: a million times the limit is written down where more is used.
MOST_THOUSANDTHS = 10**9


def quota_row(obj: ResourceQuota) -> QuotaRow:
    return QuotaRow(obj.metadata.uid, obj.metadata.namespace, obj.metadata.name)


def quota_limit_rows(obj: ResourceQuota) -> tuple[QuotaLimitRow, ...]:
    used = obj.status.used
    return tuple(
        QuotaLimitRow(obj.metadata.uid, key, str(hard), str(used.get(key, "")), _fraction(used.get(key), hard))
        for key, hard in obj.spec.hard.items()
    )


def _fraction(used: str | None, hard: str) -> float | None:
    """In thousandths, since the amounts may be larger than floats are."""
    if used is None:
        return None
    limit = Quantity.parse(hard).nanos
    return min(Quantity.parse(used).nanos * 1000 // limit, MOST_THOUSANDTHS) / 1000 if limit else 1.0


def project_quotas(changes: Sequence[Change]) -> None:
    sync_rows(Quota, QuotaRow._fields, *hooks.differences(changes, quota_row))
    stale, fresh = _row_changes(changes, quota_limit_rows)
    sql.delete(QuotaLimit, ["quota_id"], stale)
    sql.insert(QuotaLimit, QuotaLimitRow._fields, fresh)


def project_pods(changes: Sequence[Change]) -> None:
    removed, written = hooks.differences(changes, pod_row)
    as_stored = [row._replace(claim_names=sql.as_json(row.claim_names)) for row in written]
    sync_rows(Pod, PodRow._fields, removed, as_stored)
    _sync_pod_claims(changes)
    stale, fresh = _row_changes(changes, ephemeral_volume_rows)
    sql.delete(EphemeralVolume, ["pod_id"], stale)
    sql.insert(EphemeralVolume, EphemeralVolumeRow._fields, fresh)
    _record_endings(changes)
    if reported := {change.object.metadata.uid: change for change in changes if _health_changed(change)}:
        unwell = [change.object for change in reported.values()]
        deleted = {uid for uid, change in reported.items() if change.type == "DELETED"}
        _record_reports(unwell, deleted=deleted, at=changes[0].at)


def _record_endings(changes: Sequence[Change]) -> None:
    if gone := [change for change in changes if change.type == "DELETED"]:
        endings.record(gone)


def _sync_pod_claims(changes: Sequence[Change]) -> None:
    """Rows are added; only where some have to go are all of the pod's written again."""
    stale: list[tuple[str]] = []
    fresh: list[tuple[str, str, str, str]] = []
    for change in changes:
        pod: Any = change.object
        previous: Any = change.previous
        deleted = change.type == "DELETED"
        if previous is not None and not deleted and claim_names(previous) == claim_names(pod):
            continue
        before = set(pod_claims(previous) if previous is not None else ())
        after = list(() if deleted else pod_claims(pod))
        if not before <= set(after):
            stale.append((pod.metadata.uid,))
            before = set()
        fresh.extend((pod.metadata.uid, pod.metadata.namespace, *row) for row in after if row not in before)
    if stale:
        sql.delete(PodClaim, ["pod_id"], stale)
    if fresh:
        sql.insert(PodClaim, ["pod_id", "namespace", "claim", "template"], fresh)


# Device health that node agents report ----------------------------------------------------------------------------


def _health_changed(change: Change) -> bool:
    before = _unhealthy(change.previous) if isinstance(change.previous, PodObject) else {}
    return before != ({} if change.type == "DELETED" else _unhealthy(change.object))


def _unhealthy(pod: Any) -> dict[str, str]:
    """Resource id -> message of the devices that the node agent reports as Unhealthy."""
    status = pod.status
    return {
        one.resource_id: one.message or ""
        for container in (*status.init_container_statuses, *status.container_statuses)
        for resource in container.allocated_resources_status
        for one in resource.resources
        if one.health == "Unhealthy"
    }


def _record_reports(pods: Sequence[Any], *, deleted: Collection[str], at: datetime) -> None:
    """Resource ids name a device as `driver/pool/device`, or by a CDI id that ends in `CLAIM_UID-DEVICE`."""
    unhealthy = {pod.metadata.uid: {} if pod.metadata.uid in deleted else _unhealthy(pod) for pod in pods}
    affected = [pod for pod in pods if unhealthy[pod.metadata.uid]]
    held = _devices_of(affected)
    reports = {
        pod.metadata.uid: [
            impairments.ReportedDevice(driver, pool, device, pod.spec.node_name, message)
            for claim, driver, pool, device in held[pod.metadata.uid]
            for resource, message in unhealthy[pod.metadata.uid].items()
            if resource == f"{driver}/{pool}/{device}" or f"={claim}-{device}" in resource
        ]
        for pod in affected
    }
    impairments.record_reports({uid: reports.get(uid, []) for uid in unhealthy}, at=at)


def _devices_of(pods: Sequence[Any]) -> dict[str, list[tuple[str, str, str, str]]]:
    """Pod uid -> (claim uid, driver, pool, device) of each device that its claims hold. Two queries."""
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
    sync_rows(Claim, ClaimIndexRow._fields, *hooks.differences(changes, claim_row))
    released, reserved = _row_changes(changes, reservation_rows)
    if released:
        sql.delete(Reservation, ["claim_id"], released)
    if reserved:
        sql.insert(Reservation, ReservationRow._fields, reserved)
    _record_endings(changes)
    freed, given = _row_changes(changes, device_rows)
    if freed:
        sql.delete(AllocatedDevice, ["claim_id"], freed)
        keep_history(changes, device_rows)
    reported = [
        change
        for change in changes
        if any(isinstance(claim, ResourceClaim) and claim.status.devices for claim in (change.previous, change.object))
    ]
    if reported:
        record_uses(reported)
    if given:
        copied = frozenset(change.object.metadata.uid for change in changes if change.copied)
        names = {change.object.metadata.uid: change.object.metadata for change in changes}
        _insert_devices(given, names=names, freed={uid for (uid,) in freed}, copied=copied)


def sync_rows(
    model: type[Model],
    columns: Sequence[str],
    removed: Sequence[Any],
    written: Sequence[Any],
) -> None:
    """Insert, update and delete rows that begin with uid, namespace and name; those three never change."""
    before, after = {row.uid for row in removed}, {row.uid for row in written}
    if gone := before - after:
        sql.delete(model, ["uid"], [(uid,) for uid in gone])
    if new := [row for row in written if row.uid not in before]:
        sql.insert(model, columns, new)
    if changed := [(row.uid, *row[3:]) for row in written if row.uid in before]:
        sql.update(model, "uid", columns[3:], changed)


def _row_changes(changes: Sequence[Change], rows_of: Any) -> tuple[list[tuple[str]], list[Any]]:
    """(uids whose rows to delete, rows to insert), for tables with several rows per object."""
    stale: list[tuple[str]] = []
    fresh: list[Any] = []
    for change in changes:
        old = () if change.previous is None else rows_of(change.previous)
        new = () if change.type == "DELETED" else rows_of(change.object)
        if old != new:
            stale.extend([(change.object.metadata.uid,)] if old else [])
            fresh.extend(new)
    return stale, fresh


def _insert_devices(
    rows: Sequence[AllocatedDeviceRow],
    *,
    names: dict[str, Any],
    freed: Collection[str],
    copied: Collection[str],
) -> None:
    """Write allocated devices. freed: uids of the claims whose devices were deleted before. copied: those of claims of
    another cluster, where nothing prevents that a device is given twice: their rows are not exclusive.
    Raises: DeviceTaken.
    """
    rows = [row._replace(exclusive=False) if row.claim_id in copied else row for row in rows]
    whole = [row for row in rows if not row.admin_access and not row.share_id and row.claim_id not in copied]
    holders = holders_of((row.key for row in whole), freed=freed) if whole else {}
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
    sql.insert(AllocatedDevice, AllocatedDeviceRow._fields, rows)


def _clear(*tables: sql.ModelClass) -> None:
    for model in tables:
        sql.clear(model)


# The holders of devices -----------------------------------------------------------------------------------------------


class DeviceHolder(NamedTuple):
    """The claim that holds a device. controller: as in `AllocatedDevice`."""

    namespace: str
    name: str
    controller: str


class _Asked(threading.local):
    """What was asked of the database under the lock of this thread's transaction (`holders_asked`)."""

    devices: Collection[DeviceKey] = ()
    rows: Sequence[Sequence[Any]] = ()


_asked = _Asked()


def asking_for_holders(devices: Collection[DeviceKey]) -> list[sql.Query]:
    """What finds the allocations that may be of these devices."""
    tables = sql.given_tables(("driver", "pool", "device", "node"), devices)
    return [(f"{given} {_held_as_a_whole()}", parameters) for given, parameters in tables]


@contextmanager
def holders_asked(devices: Collection[DeviceKey]) -> Iterator[Callable[[Iterable[Iterable[Sequence[Any]]]], None]]:
    """Around a transaction that takes what `asking_for_holders` has found under its lock; they are not asked again."""

    def answered(answers: Iterable[Iterable[Sequence[Any]]]) -> None:
        _asked.devices, _asked.rows = devices, [row for answer in answers for row in answer]

    try:
        yield answered
    finally:
        _asked.devices, _asked.rows = (), ()


def holders_of(devices: Iterable[DeviceKey], *, freed: Collection[str] = ()) -> dict[DeviceKey, DeviceHolder]:
    """The claim that holds each of `devices` as a whole, neither with admin access nor as a share.

    devices: those to allocate. freed: uids of claims that hold none any more. One query if none of them is held; none
    where that was asked before (`holders_asked`).
    """
    wanted = set(devices)
    held: dict[DeviceKey, tuple[str, str]] = {}
    if wanted.issubset(_asked.devices):
        rows = _asked.rows
    else:
        rows = [row for answer in sql.fetch_together(asking_for_holders(wanted)) for row in answer]
    for driver, pool, device, node, uid, controller in rows:
        if uid not in freed:
            held[driver, pool, device, node] = uid, controller
    if not held:
        return {}
    uids = [(uid,) for uid in sorted({uid for uid, _ in held.values()})]
    claims = {
        uid: (namespace, name)
        for uid, namespace, name in sql.select(Claim, ["uid", "namespace", "name"], ["uid"], uids)
    }
    in_use = pools_by_device(held, pools_in_use)
    by_place = {
        (*key[:3], pool): DeviceHolder(*claims[uid], controller)
        for key, (uid, controller) in held.items()
        for pool in in_use[key]
    }
    places = pools_by_device(wanted, pools_allocated_from)
    found = ((key, by_place.get((*key[:3], pool))) for key in wanted for pool in places[key])
    return {key: holder for key, holder in found if holder is not None}


@cache
def _held_as_a_whole() -> str:
    """Allocations that may be of the `given` devices: on their node or no node; on any if the pool may be of none."""
    allocated, published = AllocatedDevice._meta.db_table, PublishedSlice._meta.db_table
    same = (
        "a.driver = given.driver AND a.pool = given.pool AND a.device = given.device "
        "AND NOT a.admin_access AND a.share_id = ''"
    )
    of_no_node = (
        f"SELECT 1 FROM {published} s "  # noqa: S608 - the names of our models
        "WHERE s.driver = given.driver AND s.pool = given.pool AND s.node_name = ''"
    )
    columns = "a.driver, a.pool, a.device, a.node, a.claim_id, a.controller"

    nodes = ("a.node = given.node", "a.node = ''", f"(given.node = '' OR EXISTS ({of_no_node}))")
    return " UNION ".join(sql.for_each_given(columns, f"{allocated} a", f"{same} AND {node}") for node in nodes)


def pools_by_device(
    devices: Iterable[DeviceKey], find: Callable[[str, str, str, Collection[str]], tuple[PoolKey, ...]]
) -> dict[DeviceKey, tuple[PoolKey, ...]]:
    """The pools that `find` (of `claims.kinds.resource_claims`) returns for each device. One query."""
    wanted = set(devices)
    columns = ["driver", "pool", "node_name"]
    published: dict[tuple[str, str], set[str]] = {}
    for driver, pool, node in sql.select(PublishedSlice, columns, columns[:2], {key[:2] for key in wanted}):
        published.setdefault((driver, pool), set()).add(node)
    return {key: find(key[0], key[1], key[3], published.get(key[:2], ())) for key in wanted}
