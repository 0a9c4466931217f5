"""What API processes tell of the state of the cluster: claims, queue, devices, nodes, the log and who reads it.

All of it is counted by the database or read from the model that the pages have, so it costs the same however much is
going on: a few queries for each time that somebody asks. Large clusters' devices are told as they were sampled last
(`insight.usage`), up to ten minutes before.
Sources of upstream's names: pkg/scheduler/metrics, pkg/controller/resourceclaim/metrics; KEP-4381 and KEP-5004,
"Monitoring Requirements".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import timedelta
from itertools import product

from django.db.models import Count, Min, Sum
from prometheus_client.core import Metric

from claims import models
from claims.devices.states import DeviceState
from insight import usage
from insight.capacity import read_census
from inventory.models import DeviceClass, Node, Pool
from manciple.audit import retention
from manciple.controllers.coordination import LEADERSHIP, SILENT_AFTER, is_held, utc_now
from manciple.controllers.models import Cursor, Heartbeat
from manciple.store import space, sql
from manciple.telemetry import metrics
from scheduling.metrics import PROFILE
from scheduling.models import QueuedPod, UsageSample
from scheduling.queue import queue
from scheduling.queue.reasons import Reason

# The queue ------------------------------------------------------------------------------------------------------------


#: Which of kube-scheduler's plugins says what holds a pod.
PLUGINS: Mapping[Reason, str] = {
    Reason.GATED: "SchedulingGates",
    Reason.CLAIM_MISSING: "DynamicResources",
    Reason.CLAIM_BUSY: "DynamicResources",
    Reason.CLAIM_ELSEWHERE: "DynamicResources",
    Reason.CLASS_MISSING: "DynamicResources",
    Reason.DEVICES: "DynamicResources",
    Reason.ERROR: "DynamicResources",
    Reason.BINDING: "DynamicResources",
    Reason.NODE: "NodeAffinity",
    Reason.RESOURCES: "NodeResourcesFit",
    Reason.NEIGHBOURS: "InterPodAffinity",
    Reason.VOLUME: "VolumeBinding",
    Reason.QUOTA: "DynamicResources",
    Reason.GROUP: "GangScheduling",
    Reason.GANG: "GangScheduling",
    Reason.NEGOTIATION: "DynamicResources",
    Reason.NOT_PLACED: "DefaultBinder",
}


@metrics.describe_cluster
def of_queue() -> Iterator[Metric]:
    rows = QueuedPod.objects.values("state", "held_by").annotate(pods=Count("uid"), since=Min("created_at"))
    pending = dict.fromkeys(("active", "backoff", "unschedulable", "gated"), 0)
    held: Counter[str] = Counter(dict.fromkeys(PLUGINS.values(), 0))
    oldest = None
    for row in rows.order_by():
        reasons, pods = Reason(row["held_by"]), row["pods"]
        pending["gated" if row["held_by"] & queue.GATED else row["state"]] += pods
        for plugin in {PLUGINS[reason] for reason in reasons}:
            held[plugin] += pods
        if not row["held_by"]:
            oldest = min(filter(None, (oldest, row["since"])))
    yield metrics.gauges(
        "scheduler_pending_pods", "Pods without a node, by the part of the queue.", ("queue",), metrics.by_one(pending)
    )
    yield metrics.gauges(
        "scheduler_unschedulable_pods",
        "Pods held back by a plugin; a pod held back by several counts for each.",
        ("plugin", "profile"),
        (((plugin, PROFILE), pods) for plugin, pods in held.items()),
    )
    waited = 0.0 if oldest is None else max(0.0, (utc_now() - oldest).total_seconds())
    yield metrics.gauges(
        "manciple_oldest_ready_pod_seconds",
        "Age of the oldest pod without a node that nothing holds back.",
        (),
        [((), waited)],
    )


# Claims ---------------------------------------------------------------------------------------------------------------


#: What claims are made from; "" is by hand.
SOURCES = ("", "resource_claim_template", "extended_resource")


@metrics.describe_cluster
def of_claims() -> Iterator[Metric]:
    found = dict.fromkeys(product((False, True), (False, True), SOURCES), 0)
    rows = models.Claim.objects.values_list("admin_access", "allocated", "source").annotate(Count("uid"))
    found |= {(admin, given, source): count for admin, given, source, count in rows.order_by()}
    yield metrics.gauges(
        "resourceclaim_controller_resource_claims",
        "ResourceClaims, by what they ask for, whether they are allocated, and what they were made from.",
        ("admin_access", "allocated", "source"),
        (((str(admin).lower(), str(given).lower(), source), count) for (admin, given, source), count in found.items()),
    )
    yield metrics.gauges(
        "resourceclaim_controller_allocated_resource_claims",
        "ResourceClaims that are allocated (KEP-4381's name).",
        (),
        [((), sum(count for (_, given, _), count in found.items() if given))],
    )


# Devices and nodes ----------------------------------------------------------------------------------------------------


@metrics.describe_cluster
def of_devices() -> Iterator[Metric]:
    total: int = Pool.objects.aggregate(total=Sum("device_count"))["total"] or 0
    states, by_class, waiting = _sampled() if total >= usage.LARGE else _counted()
    yield metrics.gauges(
        "manciple_devices",
        "Devices by state; a card that is cut up counts once.",
        ("state",),
        metrics.by_one(_by_state(states)),
    )
    yield metrics.gauges(
        "manciple_class_devices",
        "Devices that a class matches, by state; a device counts in each of its classes.",
        ("device_class", "state"),
        (((name, state), count) for name, counts in by_class.items() for state, count in _by_state(counts).items()),
    )
    yield metrics.gauges(
        "manciple_class_waiting_pods",
        "Pods without a node that ask for a class.",
        ("device_class",),
        metrics.by_one(waiting),
    )
    pools = Counter({True: 0, False: 0})
    pools.update(dict(Pool.objects.values_list("complete").annotate(Count("pk")).order_by()))
    yield metrics.gauges(
        "manciple_pools",
        "Pools of devices, by whether all their ResourceSlices are there.",
        ("complete",),
        ((("true" if complete else "false",), count) for complete, count in pools.items()),
    )


def _by_state(counts: Mapping[str, float]) -> Mapping[str, float]:
    """By the names of states rather than by the letters that pages have for them; each is told, if only as 0."""
    return {state.name.lower(): counts.get(state, 0) for state in DeviceState}


Counted = tuple[Mapping[str, float], Mapping[str, Mapping[str, float]], Mapping[str, float]]


def _counted() -> Counted:
    """(devices by state, by class and state; waiting pods by class), as it is now."""
    census = read_census()
    by_class = {one.name: one.counts for one in census.classes}
    return dict(census.totals), by_class, {one.name: one.waiting for one in census.classes}


def _sampled() -> Counted:
    """The same, as it was sampled last; nothing where that was never done."""
    last = UsageSample.objects.order_by("-at").values_list("at", flat=True).first()
    samples = {one.device_class: one for one in UsageSample.objects.filter(at=last)} if last else {}
    everything = samples.pop(usage.ALL, None)
    by_class = {name: one.counts for name, one in samples.items()}
    return (everything.counts if everything else {}), by_class, {name: one.waiting for name, one in samples.items()}


@metrics.describe_cluster
def of_nodes() -> Iterator[Metric]:
    nodes = Counter({True: 0, False: 0})
    nodes.update(dict(Node.objects.values_list("ready").annotate(Count("pk")).order_by()))
    yield metrics.gauges(
        "manciple_nodes",
        "Nodes, by whether they are ready.",
        ("ready",),
        ((("true" if ready else "false",), count) for ready, count in nodes.items()),
    )
    phases = models.Pod.objects.values_list("phase").annotate(Count("uid")).order_by()
    yield metrics.gauges(
        "manciple_cluster_pods",
        "Pods by phase.",
        ("phase",),
        (((phase or "Pending",), count) for phase, count in phases),
    )
    yield metrics.gauges("manciple_device_classes", "DeviceClasses.", (), [((), DeviceClass.objects.count())])


# The log and its readers ----------------------------------------------------------------------------------------------


#: Rows beside the readers' own: the gates that are on, and what dispatchers of v0.2.0-rc.1 left.
NO_READERS = (queue.GATES, "dispatch")


@metrics.describe_cluster
def of_log() -> Iterator[Metric]:
    counter, room = sql.counter(), space.measure()
    latest = counter.current
    yield metrics.gauges("manciple_log_revision", "The newest entry of the log.", (), [((), latest)])
    yield metrics.gauges("manciple_log_floor", "The entry below which the log is pruned.", (), [((), counter.floor)])
    yield metrics.gauges("manciple_log_bytes", "Bytes of the log that are kept.", (), [((), counter.log_bytes)])
    yield metrics.gauges("manciple_database_bytes", "Bytes of the database that are in use.", (), [((), room.used)])
    if room.limit is not None:
        yield metrics.gauges(
            "manciple_database_limit_bytes",
            "Bytes of the database from which creations and updates are refused.",
            (),
            [((), room.limit)],
        )
    cursors = dict(Cursor.objects.exclude(name__in=NO_READERS).values_list("name", "revision"))
    yield metrics.gauges(
        "manciple_cursor_lag",
        "Log entries that a reader shared by all workers has not processed yet.",
        ("cursor",),
        metrics.by_one({name: max(0, latest - revision) for name, revision in cursors.items()}),
    )


@metrics.describe_cluster
def of_workers() -> Iterator[Metric]:
    now, lately = utc_now(), Counter(dict.fromkeys(("worker",), 0))
    for kind, seen in Heartbeat.objects.values_list("kind", "seen_at"):
        lately[kind] += now - seen < SILENT_AFTER
    yield metrics.gauges(
        "manciple_live_workers",
        "Processes that run tasks, with a recent heartbeat.",
        ("kind",),
        metrics.by_one(lately),
    )
    last = max(Heartbeat.objects.values_list("seen_at", flat=True), default=None)
    silence = (now - last if last else timedelta(days=365)).total_seconds()
    yield metrics.gauges(
        "manciple_worker_silence_seconds", "Time since the last heartbeat of any worker.", (), [((), max(0.0, silence))]
    )
    leads = float(is_held(LEADERSHIP))
    yield metrics.gauges("manciple_dispatcher_leads", "Whether a worker's dispatcher leads.", (), [((), leads)])


# The audit trail ------------------------------------------------------------------------------------------------------


@metrics.describe_cluster
def of_audit() -> Iterator[Metric]:
    missing = {"writes": 0.0, "refusals": 0.0}
    now = utc_now()
    for shortfall in retention.shortfalls():
        entries = "writes" if shortfall.wrote else "refusals"
        missing[entries] = max(missing[entries], retention.missing_days(shortfall, now))
    yield metrics.gauges(
        "manciple_audit_missing_days",
        "Promised days of the audit trail that are incomplete because a limit was reached.",
        ("entries",),
        metrics.by_one(missing),
    )
