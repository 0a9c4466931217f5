"""What namespaces' devices do over time, and which held devices do nothing.

Both exist only where drivers report: readings of meters (`inventory.meters`), or the condition `manciple.dev/Idle`
(`claims.uses`). A held device is idle when its utilization has been below `IDLE_PERCENT`, or its driver has called it
idle, for `IDLE_MINUTES`, all of that time held by the same claim. Nothing is ever released because of it: pages offer
to end the pods.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Case, Exists, F, OuterRef, Q, QuerySet, Subquery, Value, When
from django.db.models.functions import Coalesce, Greatest
from django.db.models.lookups import Exact
from prometheus_client.core import Metric

from claims.models import AllocatedDevice, Reservation, UseSpell
from inventory import meters
from inventory.kinds.device_readings import Meters
from inventory.models import DeviceMeter, MeterBlock, device_url
from inventory.reachability import unreachable_nodes
from manciple.controllers.coordination import utc_now
from manciple.controllers.declaration import Controller, Queue
from manciple.people import Person
from manciple.telemetry import metrics
from manciple.wire.resources import PODS

# Idle devices ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleClaim:
    """A claim that holds idle devices. since: from when on all of these did nothing; held: all its devices."""

    namespace: str
    claim: str
    pods: tuple[str, ...]
    devices: tuple[tuple[str, str], ...]  # (name, address)
    held: int
    since: datetime


def idle_devices(now: datetime) -> QuerySet[AllocatedDevice]:
    """The held devices that are idle, with `idle_since`. Of an unreachable node nobody knows what its devices do."""
    metered = DeviceMeter.objects.filter(
        Q(node=OuterRef("node")) | Q(Exact(OuterRef("node"), Value(""))),
        driver=OuterRef("driver"),
        pool=OuterRef("pool"),
        device=OuterRef("device"),
        at__gte=now - meters.FRESH,
        utilization__isnull=False,
    )
    called_idle = UseSpell.objects.filter(
        claim_uid=OuterRef("claim_id"),
        driver=OuterRef("driver"),
        pool=OuterRef("pool"),
        device=OuterRef("device"),
        ended_at__isnull=True,
        idle=True,
    )
    quiet = Case(
        When(Exists(metered), then=Subquery(metered.values("quiet_since")[:1])),
        default=Subquery(called_idle.values("began_at")[:1]),
    )
    held_since = Coalesce(F("claim__allocated_at"), F("claim__created_at"))
    return (
        AllocatedDevice.objects.filter(admin_access=False)
        .exclude(node__in=unreachable_nodes(now))
        .annotate(quiet=quiet)
        .filter(quiet__isnull=False)
        .annotate(idle_since=Greatest(F("quiet"), held_since))
        .filter(idle_since__lte=now - timedelta(minutes=settings.IDLE_MINUTES))
    )


def reported() -> bool:
    """Whether any driver tells what its devices do."""
    return DeviceMeter.objects.exists() or UseSpell.objects.filter(ended_at__isnull=True).exists()


def idle_claims(person: Person, now: datetime, **where: str) -> Sequence[IdleClaim]:
    """Of those whose namespaces the person sees, idle for longest first. where: columns that narrow the devices."""
    if not reported():
        return ()
    seen = AllocatedDevice.readable.restrict(idle_devices(now), person).filter(**where)
    return _by_claim(seen.select_related("claim").order_by("driver", "pool", "device"))


def _by_claim(rows: Iterable[AllocatedDevice]) -> Sequence[IdleClaim]:
    found: defaultdict[str, list[AllocatedDevice]] = defaultdict(list)
    for row in rows:
        found[row.claim_id].append(row)
    pods: defaultdict[str, list[str]] = defaultdict(list)
    held: defaultdict[str, int] = defaultdict(int)
    if found:
        users = Reservation.objects.filter(claim__in=found, resource=PODS).order_by("name")
        for uid, name in users.values_list("claim_id", "name"):
            pods[uid].append(name)
        for uid in AllocatedDevice.objects.filter(claim__in=found).values_list("claim_id", flat=True):
            held[uid] += 1
    claims = [
        IdleClaim(
            namespace=devices[0].claim.namespace,
            claim=devices[0].claim.name,
            pods=tuple(pods[uid]),
            devices=tuple((one.device, device_url(one.driver, one.pool, one.device, one.node)) for one in devices),
            held=held[uid],
            since=max(one.idle_since for one in devices),  # type: ignore[attr-defined]
        )
        for uid, devices in found.items()
    ]
    return sorted(claims, key=lambda one: (one.since, one.namespace, one.claim))


@metrics.describe_cluster
def of_idle_devices() -> Iterator[Metric]:
    if reported():
        yield metrics.gauges(
            "manciple_idle_devices",
            "Held devices that have done nothing for MANCIPLE_IDLE_MINUTES, as far as drivers report it.",
            (),
            [((), idle_devices(utc_now()).count())],
        )


# Namespaces over time -------------------------------------------------------------------------------------------------

#: The key of a namespace's only series.
HELD = ""


def reconcile(now: datetime) -> int:
    """Note what the devices of each namespace do now, and forget what is old. Returns how many rows were changed."""
    read = defaultdict(list)
    for one in DeviceMeter.objects.filter(at__gte=now - meters.FRESH):
        read[one.driver, one.pool, one.device].append(one)
    held: defaultdict[str, dict[int, DeviceMeter]] = defaultdict(dict)
    if read:
        rows = AllocatedDevice.objects.filter(admin_access=False)
        for driver, pool, device, node, namespace in rows.values_list(
            "driver", "pool", "device", "node", "claim__namespace"
        ):
            held[namespace] |= {one.pk: one for one in read.get((driver, pool, device), ()) if node in ("", one.node)}
    for namespace, devices in held.items():
        if devices:
            meters.put(MeterBlock.Owner.NAMESPACE, namespace, now, {HELD: meters.slot_of(_together(devices.values()))})
    return len(held) + meters.prune(now)


def _together(devices: Iterable[DeviceMeter]) -> Meters:
    """The mean utilization, the highest temperature; memory and power in all."""
    listed = list(devices)

    def known(field: str) -> list[int]:
        return [value for one in listed if (value := getattr(one, field)) is not None]

    utilization, temperature, power = known("utilization"), known("temperature"), known("power")
    with_memory = [one for one in listed if one.memory_used is not None and one.memory_total]
    return Meters(
        utilization=round(sum(utilization) / len(utilization)) if utilization else None,
        memory_used=sum(one.memory_used or 0 for one in with_memory) if with_memory else None,
        memory_total=sum(one.memory_total or 0 for one in with_memory) if with_memory else None,
        temperature=max(temperature) if temperature else None,
        power=sum(power) if power else None,
    )


CONTROLLER = Controller(
    name="sample_meters",
    does="notes every three minutes what the devices of each namespace do; deletes readings after 8 days",
    in_mirror=True,
    reconcile=reconcile,
    every=int(meters.SLOT.total_seconds()),
    queue=Queue.SWEEPS,
    singleton=True,
)
