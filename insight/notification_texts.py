"""Notification texts: what happened, from the log, the impairments and the queue; and what is wrong now.

Each happening has one text for all recipients, which `insight.notifications` chooses. A text about an object of a
namespace carries that namespace, so that only people who may see it are notified.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby

from django.conf import settings
from django.db.models import Count, Exists, OuterRef, Q
from django.urls import reverse

from claims.causes.causes import decode
from claims.causes.messages import clause
from claims.endings import failure_of
from claims.kinds.pods import Pod
from claims.models import AllocatedDevice, Ending, QuotaLimit
from claims.models import Pod as PodRow
from insight.start_estimates import never_started
from inventory.models import Impairment, Incident, Pool
from inventory.reachability import nodes_with_leases, renewed_at, unreachable
from manciple.audit import searching
from manciple.durations import duration
from manciple.gaps import lacking
from manciple.notifications.models import Happening
from manciple.notifications.recording import NewsItem
from manciple.store import objects
from manciple.store.objects import decoded
from manciple.store.records import EventRecord
from manciple.wire.resources import DELETED, FINISHED_PHASES, PODS, SLICES, kind
from scheduling.models import QueuedPod
from workloads.kinds.jobs import JOB
from workloads.kinds.summaries import State
from workloads.models import Workload

#: Pods of the queue that are looked at: those that wait longest.
LOOKED_AT = 2_000
#: Devices that are named in one line.
NAMED = 4
_BEFORE_STARTING = (None, "", "Pending")


def of_pods(records: Sequence[EventRecord], *, authors: bool) -> list[NewsItem]:
    """Pods that began to run, failed, or were evicted. authors: whether it is asked who created them."""
    gone = [record.uid for record in records if record.type == DELETED]
    ended = {one.uid: one for one in Ending.objects.filter(uid__in=gone)} if gone else {}
    evicted = {uid: one.reason for uid, one in ended.items() if one.reason in EVICTED}
    changed = [(record, happening) for record in records if (happening := _became(record, evicted))]
    created = searching.creators([record.uid for record, _ in changed]) if authors and changed else {}
    failed = [record for record, happening in changed if happening == Happening.POD_FAILED]
    failures = {uid: one.message for uid, one in ended.items()} | _failures(failed[:NAMED_FAILURES])
    return [
        NewsItem(
            happening=happening,
            subject=f"{happening}:{record.uid}",
            line=_said(record, happening, evicted.get(record.uid, "")),
            detail=_sentence(failures.get(record.uid, "")) if happening == Happening.POD_FAILED else "",
            # Of an evicted pod's name there may be another one by now.
            path=_pod_path(record, ended=record.uid in evicted),
            among=reverse("ended") if record.uid in evicted else "",
            namespace=record.namespace,
            author=created.get(record.uid, ""),
        )
        for record, happening in changed
    ]


#: Pods of which it is looked up why they failed; a text names fewer.
NAMED_FAILURES = 50


def _failures(records: Sequence[EventRecord]) -> dict[str, str]:
    """uid -> why it failed, of those that are not deleted yet."""
    keys = {(record.namespace, record.name) for record in records if record.type != DELETED}
    pods = [decoded(stored, Pod) for stored in objects.get_many(kind(PODS), keys)] if keys else []
    return {pod.metadata.uid: failure_of(pod) for pod in pods}


def _pod_path(record: EventRecord, *, ended: bool) -> str:
    return reverse("ending", args=(record.uid,)) if ended else reverse("pod", args=(record.namespace, record.name))


def _sentence(text: str) -> str:
    """`text` with a full stop; "" of nothing."""
    return f"{text[0].upper()}{text[1:].rstrip('.')}." if text else ""


#: Why pods end that nobody wanted to end.
EVICTED = (
    *(Ending.Reason.PREEMPTED, Ending.Reason.EVICTED, Ending.Reason.MOVED, Ending.Reason.NODE_TAINT),
    *(Ending.Reason.DEVICE_TAINT, Ending.Reason.NODE_PRESSURE, Ending.Reason.NODE_LOST),
)


def _became(record: EventRecord, evicted: Container[str]) -> Happening | None:
    """evicted: uids of pods that were."""
    phase, before = record.fields.get("status.phase", ""), (record.previous_fields or {}).get("status.phase")
    if record.type == DELETED:
        return Happening.POD_FAILED if record.uid in evicted else None
    if before == phase:
        return None
    if phase == "Failed":
        return Happening.POD_FAILED
    # A pod may end before its agent has reported that it runs.
    return Happening.POD_STARTED if phase in ("Running", "Succeeded") and before in _BEFORE_STARTING else None


def _said(record: EventRecord, happening: Happening, reason: str) -> str:
    """reason: why it ended, of one that was evicted."""
    pod, node = f"{record.namespace}/{record.name}", record.fields.get("spec.nodeName", "")
    where = f" on {node}" if node else ""
    if reason:
        why = str(Ending.Reason(reason).label)
        return f"Pod {pod} ended{where}: {why[0].lower()}{why[1:]}"
    return f"Pod {pod} {'started' if happening == Happening.POD_STARTED else 'failed'}{where}"


def of_jobs(records: Sequence[EventRecord], *, authors: bool) -> list[NewsItem]:
    """Jobs that have ended, among those that were written. authors: whether it is asked who created them."""
    uids = {record.uid for record in records if record.type != DELETED}
    rows = Workload.objects.filter(uid__in=uids, resource=JOB.resource, finished_at__isnull=False)
    ended = list(rows) if uids else []
    created = searching.creators([job.uid for job in ended]) if authors and ended else {}
    waited = never_started(ended)
    return [
        NewsItem(
            happening=Happening.JOB_ENDED,
            subject=f"{Happening.JOB_ENDED}:{job.uid}",
            line=_ended(job, waited.get(job.uid, job.reason)),
            path=job.get_absolute_url(),
            namespace=job.namespace,
            author=created.get(job.uid, ""),
            at=job.finished_at,
        )
        for job in ended
    ]


def _ended(job: Workload, reason: str) -> str:
    """`Job vision/train completed after 2 h: 50 of 50`, `Job vision/train failed after 2 h: Its time limit ran out`."""
    after = ""
    if job.started_at and job.finished_at:
        after = f" after {duration((job.finished_at - job.started_at).total_seconds())}"
    if job.state == State.FAILED:
        return f"Job {job.namespace}/{job.name} failed{after}: {reason.rstrip('.')}"
    return f"Job {job.namespace}/{job.name} completed{after}: {job.ready:,} of {job.wanted:,}"


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
    incident: str, rows: Sequence[Impairment], claims: Mapping[int, Collection[Holder]]
) -> Iterator[NewsItem]:
    subject = f"{Happening.DEVICE_FAILS}:{incident}"
    line, path = _unhealthy(rows), reverse("incident", args=(incident,))
    yield NewsItem(happening=Happening.DEVICE_FAILS, subject=subject, line=line, path=path)
    held: dict[Holder, list[Impairment]] = defaultdict(list)
    for one in rows:
        for claim in claims.get(one.pk, ()):
            held[claim].append(one)
    for (uid, namespace, name), devices in held.items():
        yield NewsItem(
            happening=Happening.DEVICE_FAILS,
            subject=f"{subject}:{uid}",
            line=_unhealthy(devices),
            detail=f"Claim {namespace}/{name} holds {'it' if len(devices) == 1 else 'them'}.",
            path=reverse("claim", args=(namespace, name)),
            namespace=namespace,
        )


def _holders(impairments: Sequence[Impairment]) -> Mapping[int, Collection[Holder]]:
    """number of an impairment -> who holds something of what it concerns now. One query."""
    concerning: dict[tuple[str, str, str], list[Impairment]] = defaultdict(list)
    wanted = Q(pk__in=())
    for one in impairments:
        concerning[one.driver, one.pool, one.device].append(one)
    for column, names in _narrowest(impairments).items():
        wanted |= Q(**{f"{column}__in": names}) if column else ~Q(pk__in=())
    found: dict[int, dict[Holder, None]] = defaultdict(dict)
    named = {(bool(driver), bool(pool), bool(device)) for driver, pool, device in concerning}
    rows = AllocatedDevice.objects.filter(wanted, admin_access=False).order_by("claim__namespace", "claim__name")
    columns = ("driver", "pool", "device", "node", "claim_id", "claim__namespace", "claim__name")
    for driver, pool, device, node, *holder in rows.values_list(*columns) if impairments else ():
        uid, namespace, claim = holder
        for by_driver, by_pool, by_device in named:
            for one in concerning.get((driver * by_driver, pool * by_pool, device * by_device), ()):
                on_node = node == one.node or (one.source != Impairment.Source.NODE and "" in (node, one.node))
                if on_node:
                    found[one.pk][uid, namespace, claim] = None
    return found


def _narrowest(impairments: Iterable[Impairment]) -> Mapping[str, set[str]]:
    """column -> its values, by which the devices are found: "" where some impairment concerns all there are."""
    found: dict[str, set[str]] = defaultdict(set)
    for one in impairments:
        columns = {"pool": one.pool, "device": one.device, "driver": one.driver, "node": one.node}
        column = next((column for column, name in columns.items() if name), "")
        found[column].add(columns.get(column, ""))
    return found


def _unhealthy(rows: Sequence[Impairment]) -> str:
    names = sorted({one.device or "all devices" for one in rows})
    where = rows[0].node or rows[0].pool or rows[0].driver
    why = rows[0].message or (f"{rows[0].key}={rows[0].value}" if rows[0].value else rows[0].key)
    are = "is" if len(names) == 1 and rows[0].device else "are"
    return f"{_listed(names)}{f' on {where}' if where else ''} {are} unhealthy ({why})"


# What is wrong now ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrong:
    """Something that is wrong. key: the same for as long as it is, and of nothing else of the happening.

    item: what people are told of it; its subject is the alarm's.
    """

    key: str
    item: NewsItem


def silent_nodes(now: datetime) -> Iterator[Wrong]:
    """Nodes that are unreachable, as every page has it. In a mirror, not all Leases are known."""
    renewed, never = (renewed_at(now), "") if settings.MIRROR else ({}, "It never reported.")
    nodes = list(nodes_with_leases().filter(unreachable(now)).order_by("position", "name"))
    pods = PodRow.objects.filter(node_name__in=[node.name for node in nodes]).exclude(phase__in=FINISHED_PHASES)
    there = dict(pods.order_by().values_list("node_name").annotate(Count("pk"))) if nodes else {}
    for node in nodes:
        at = node.renewed_at or renewed.get(node.name)
        heard = never if at is None else f"Last heard of {duration((now - at).total_seconds())} ago."
        here = there.get(node.name, 0)
        on_it = f"{here:,} {'pod' if here == 1 else 'pods'} on it may still run." if here else "No pod runs there."
        detail = " ".join(filter(None, (heard, on_it)))
        line = f"Node {node.name} is unreachable"
        yield _wrong(Happening.NODE_SILENT, node.name, line, node.get_absolute_url(), detail=detail)


def incomplete_pools(_now: datetime) -> Iterator[Wrong]:
    """Pools with too few or too many slices, and pools that claims hold devices of and nobody publishes any more."""
    if lacking(SLICES):
        return
    for pool in Pool.objects.filter(complete=False).order_by("driver", "name", "node_name"):
        where = f" on {pool.node_name}" if pool.node_name else ""
        line = (
            f"Pool {pool.driver}/{pool.name}{where} is incomplete: {pool.slices_seen} of {pool.slices_expected} slices"
        )
        detail = "Its devices are not allocated meanwhile. If it stays so, restart its driver."
        path, key = _driver_path(pool.driver), f"{pool.driver}/{pool.name}/{pool.node_name}"
        yield _wrong(Happening.POOL_INCOMPLETE, key, line, path, detail=detail)
    published = Pool.objects.filter(driver=OuterRef("driver"), name=OuterRef("pool"))
    held = AllocatedDevice.objects.filter(~Exists(published), admin_access=False).order_by("driver", "pool")
    for driver, name in held.values_list("driver", "pool").distinct():
        line = f"Driver {driver} no longer publishes pool {name}, whose devices are held"
        yield _wrong(Happening.POOL_INCOMPLETE, f"{driver}/{name}", line, _driver_path(driver))


def _driver_path(driver: str) -> str:
    return reverse("driver", args=(driver,))


#: Open incidents of which people are told; more are too many to read.
MOST_INCIDENTS = 500


def open_incidents(_now: datetime) -> Iterator[Wrong]:
    """Each incident for whoever sees all devices, and for each namespace whose claims hold some of its devices."""
    incidents = {one.id: one for one in Incident.objects.filter(ended_at=None).order_by("-began_at")[:MOST_INCIDENTS]}
    rows = Impairment.objects.filter(incident__in=incidents, ended_at=None).order_by("incident_id", "pk")
    standing = {number: list(some) for number, some in groupby(rows, key=lambda one: one.incident_id)}
    claims = _holders([one for some in standing.values() for one in some])
    for number, incident in incidents.items():
        impaired = standing.get(number, [])
        line, path = f"Incident: {_impaired(incident, impaired)}", incident.get_absolute_url()
        held = {claim[1:] for one in impaired for claim in claims.get(one.pk, ())}
        count = "1 claim holds" if len(held) == 1 else f"{len(held):,} claims hold"
        detail = f"{count} devices of it." if held else ""
        yield _wrong(Happening.INCIDENT, number, line, path, detail=detail)
        for namespace, found in groupby(sorted(held), key=lambda claim: claim[0]):
            names = [f"{namespace}/{name}" for _, name in found]
            held_by = f"Held by claim{'' if len(names) == 1 else 's'} {_listed(names)}."
            key = f"{number}/{namespace}"
            yield _wrong(Happening.INCIDENT, key, line, path, detail=held_by, namespace=namespace)


def _impaired(incident: Incident, rows: Sequence[Impairment]) -> str:
    """`gpu-0 on node-1: gpu.example.com/xid=79`, `node node-1 is unreachable`."""
    sources = {one.source for one in rows}
    if sources == {Impairment.Source.NODE}:
        return f"node {incident.node} is unreachable"
    if sources == {Impairment.Source.POOL}:
        return f"pool {incident.driver}/{incident.pool}{f' on {incident.node}' if incident.node else ''} is incomplete"
    cause = f"{incident.key}={incident.value}" if incident.value else incident.key
    if sources == {Impairment.Source.RULE}:
        rules = sorted({one.reporter for one in rows})
        cause += f" by rule{'' if len(rules) == 1 else 's'} {_listed(rules)}"
    why = cause or next((one.message for one in rows if one.message), "") or "reported unhealthy"
    named = sorted({one.device for one in rows if one.device})
    where = incident.node or incident.pool or incident.driver
    what = _listed(named) if named else "devices"
    return f"{what} on {where}: {why}" if where else f"{what}: {why}"


#: The part of a limit above which a quota is nearly full.
NEARLY_FULL = 0.9


def full_quotas(_now: datetime) -> Iterator[Wrong]:
    """Limits of which nearly everything is used. A limit of 0 allows nothing, and is nobody's news."""
    rows = QuotaLimit.objects.filter(fraction__gte=NEARLY_FULL).exclude(hard="0").select_related("quota")
    for limit in rows.order_by("quota__namespace", "quota__name", "resource"):
        quota = limit.quota
        state = "full" if (limit.fraction or 0) >= 1 else "nearly full"
        line = f"Quota {quota.namespace}/{quota.name} is {state}: {limit.used} of {limit.hard} {limit.resource}"
        key = f"{limit.quota_id}:{limit.resource}"
        detail = "More is refused until some of it ends or the limit is raised." if state == "full" else ""
        path = quota.get_absolute_url()
        yield _wrong(Happening.QUOTA_FULL, key, line, path, detail=detail, namespace=quota.namespace)


def _wrong(happening: Happening, key: str, line: str, path: str, *, detail: str = "", namespace: str = "") -> Wrong:
    item = NewsItem(happening=happening, subject="", line=line, path=path, detail=detail, namespace=namespace)
    return Wrong(key=key, item=item)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
