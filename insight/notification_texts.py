"""Notification texts: what happened, from the log, the impairments and the queue.

Each happening has one text for all recipients, which `insight.notifications` chooses. A text about an object of a
namespace carries that namespace, so that only people who may see it are notified.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from django.urls import reverse

from claims.causes.causes import decode
from claims.causes.messages import clause
from claims.models import AllocatedDevice, DeviceKey
from inventory.models import Impairment
from manciple.audit import searching
from manciple.durations import duration
from manciple.notifications.models import Happening
from manciple.notifications.recording import NewsItem
from manciple.store.records import EventRecord
from scheduling.models import QueuedPod

#: Pods of the queue that are looked at: those that wait longest.
LOOKED_AT = 2_000
#: Devices that are named in one line.
NAMED = 4
_PHASES = {"Running": Happening.POD_STARTED, "Failed": Happening.POD_FAILED}


def of_pods(records: Iterable[EventRecord], *, authors: bool) -> list[NewsItem]:
    """Pods that began to run, or failed. authors: whether it is asked who created them."""
    changed = [(record, happening) for record in records if (happening := _became(record))]
    created = searching.creators([record.uid for record, _ in changed]) if authors and changed else {}
    return [
        NewsItem(
            happening=happening,
            subject=f"{happening}:{record.uid}",
            line=_said(record, happening),
            path=reverse("pod", args=(record.namespace, record.name)),
            namespace=record.namespace,
            author=created.get(record.uid, ""),
        )
        for record, happening in changed
    ]


def _became(record: EventRecord) -> Happening | None:
    phase = record.fields.get("status.phase", "")
    if record.type == "DELETED" or (record.previous_fields or {}).get("status.phase") == phase:
        return None
    return _PHASES.get(phase)


def _said(record: EventRecord, happening: Happening) -> str:
    pod, node = f"{record.namespace}/{record.name}", record.fields.get("spec.nodeName", "")
    where = f" on {node}" if node else ""
    return f"Pod {pod} {'started' if happening == Happening.POD_STARTED else 'failed'}{where}"


def of_waiting_pods(now: datetime, minutes: int, *, authors: bool) -> list[NewsItem]:
    """Pods that have waited for that long."""
    rows = list(
        QueuedPod.objects.filter(created_at__lte=now - timedelta(minutes=minutes))
        .order_by("created_at")
        .values_list("uid", "namespace", "name", "created_at", "cause")[:LOOKED_AT]
    )
    created = searching.creators([row[0] for row in rows]) if authors and rows else {}
    return [
        NewsItem(
            happening=Happening.POD_WAITS,
            subject=f"{Happening.POD_WAITS}:{uid}",
            line=_waits(f"{namespace}/{name}", duration((now - since).total_seconds()), cause),
            path=reverse("pod", args=(namespace, name)),
            namespace=namespace,
            author=created.get(uid, ""),
        )
        for uid, namespace, name, since, cause in rows
    ]


def _waits(pod: str, how_long: str, stored: str) -> str:
    cause = decode(stored)
    why = f": {clause(cause)}" if cause is not None else ""
    return f"Pod {pod} has waited for {how_long}{why}"


def of_devices(impairments: Sequence[Impairment]) -> list[NewsItem]:
    """Devices that turned unhealthy: an incident for whoever may see all devices, and for each namespace that holds
    some of them, those.
    """
    by_incident: dict[str, list[Impairment]] = defaultdict(list)
    for one in impairments:
        by_incident[one.incident_id].append(one)
    claims = _holders(impairments)
    return [news for incident, rows in by_incident.items() for news in _of_incident(incident, rows, claims)]


Holder = tuple[str, str, str]  # (uid, namespace, name) of a claim


def _of_incident(
    incident: str, rows: Sequence[Impairment], claims: Mapping[DeviceKey, Sequence[Holder]]
) -> Iterator[NewsItem]:
    subject = f"{Happening.DEVICE_FAILS}:{incident}"
    line, path = _unhealthy(rows), reverse("incident", args=(incident,))
    yield NewsItem(happening=Happening.DEVICE_FAILS, subject=subject, line=line, path=path)
    held: dict[Holder, list[Impairment]] = defaultdict(list)
    for one in rows:
        for claim in claims.get((one.driver, one.pool, one.device, one.node), ()):
            held[claim].append(one)
    for (uid, namespace, name), devices in held.items():
        yield NewsItem(
            happening=Happening.DEVICE_FAILS,
            subject=f"{subject}:{uid}",
            line=f"{_unhealthy(devices)}. Claim {namespace}/{name} holds {'it' if len(devices) == 1 else 'them'}",
            path=reverse("claim", args=(namespace, name)),
            namespace=namespace,
        )


def _holders(impairments: Sequence[Impairment]) -> Mapping[DeviceKey, Sequence[Holder]]:
    """Who holds devices of those pools now. One query."""
    found: dict[DeviceKey, list[Holder]] = defaultdict(list)
    rows = AllocatedDevice.objects.filter(pool__in={one.pool for one in impairments}, admin_access=False)
    nodes: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for one in impairments:
        nodes[one.driver, one.pool, one.device].add(one.node)
    columns = ("driver", "pool", "device", "node", "claim_id", "claim__namespace", "claim__name")
    for driver, pool, device, on, *holder in rows.values_list(*columns):
        uid, namespace, claim = holder
        for node in nodes.get((driver, pool, device), ()):
            if on == node or "" in (on, node):
                found[driver, pool, device, node].append((uid, namespace, claim))
    return found


def _unhealthy(rows: Sequence[Impairment]) -> str:
    names = sorted({one.device for one in rows})
    named = ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
    where = rows[0].node or rows[0].pool
    why = rows[0].message or (f"{rows[0].key}={rows[0].value}" if rows[0].value else rows[0].key)
    return f"{named} on {where} {'is' if len(names) == 1 else 'are'} unhealthy ({why})"
