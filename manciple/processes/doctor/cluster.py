"""Examines the cluster: workers, nodes and their clocks, drivers, claims and pods that do not go on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from django.conf import settings
from django.contrib.auth import get_user_model
from django.db.models import Max, Min

from claims.devices.cache import DeviceSnapshot, read_devices
from claims.devices.published import DevicePool
from claims.kinds.resource_claims import ResourceClaim, is_allocated_by_controller
from claims.models import AllocatedDevice, Claim, DeviceKey, Pod, Reservation
from claims.pod_claims import keeps_unused
from inventory.kinds import gates
from inventory.kinds.pools import DRAFT_GENERATION
from inventory.models import Node
from inventory.reachability import LEASE_NAMESPACE
from manciple.controllers import coordination
from manciple.controllers.coordination import SILENT_AFTER
from manciple.controllers.models import Cursor, Heartbeat
from manciple.processes.accounts import ADMIN
from manciple.processes.doctor.diagnoses import Diagnosis, number_of, problem, warning
from manciple.store import history, objects, sql
from manciple.store.objects import decoded
from manciple.wire.machinery import Lease
from manciple.wire.resources import CLAIMS, LEASES, PODS, kind
from scheduling.models import QueuedPod

#: For how long something may stand still before it is told of.
STUCK: Final = timedelta(minutes=10)
#: For how long a pod that nothing holds back may wait.
OVERDUE: Final = timedelta(minutes=1)
#: Seconds by which a node's clock may differ from that of whoever wrote its Lease.
NODE_SKEW: Final = 2.0
#: Entries that a reader of the log may be behind.
BEHIND: Final = 10_000
#: Objects of one kind that are named; the others are counted.
NAMED: Final = 10
#: Objects that are looked at for having stood still.
LOOKED_AT: Final = 100_000


def examine_processes(now: datetime) -> Iterator[Diagnosis]:
    seen = Heartbeat.objects.aggregate(at=Max("seen_at"))["at"]
    if seen is None or now - seen > SILENT_AFTER:
        since = f"since {seen:%Y-%m-%d %H:%M:%S}" if seen else "so far"
        yield problem(
            "workers",
            f"none has given a sign of life {since}: no pod is placed and nothing is cleaned up",
            "start one: `manciple worker`, unit manciple-worker@1",
        )
    elif sql.on_postgresql() and not coordination.is_held(coordination.LEADERSHIP):
        yield problem(
            "dispatcher",
            "none leads, though workers run: commits wake no controller, and periodic runs do not happen",
            "start a worker of this version: `manciple worker`, unit manciple-worker@1; one that runs logs why it does "
            "not lead",
        )
    living = Heartbeat.objects.filter(seen_at__gt=now - SILENT_AFTER).values_list("kind", flat=True)
    if settings.PRODUCTION and not settings.REDIS_URL and list(living) not in ([], ["embedded"]):
        yield warning(
            "Redis",
            "MANCIPLE_REDIS_URL is not set: processes learn of each other's writes a second later, by reading the log",
            "set it, the same for all processes; or run only one, `manciple serve --with-worker`",
        )
    revision = sql.counter()[0]
    for cursor in Cursor.objects.filter(revision__lt=revision - BEHIND).order_by("name"):
        yield warning(
            f"cursor {cursor.name}",
            f"{revision - cursor.revision} entries of the log are not looked at yet",
            "start more workers, or see what keeps them busy (`manciple controllers`, /metrics)",
        )
    oldest = QueuedPod.objects.filter(state=QueuedPod.State.ACTIVE).aggregate(at=Min("created_at"))["at"]
    if oldest is not None and now - oldest > OVERDUE:
        yield warning(
            "queue", f"a pod that nothing holds back waits since {oldest:%H:%M:%S}", "is a worker alive? start more"
        )


def examine_people(_now: datetime) -> Iterator[Diagnosis]:
    known = get_user_model().objects.filter(username=ADMIN).first()
    if known is None:
        yield problem("administrator", "there is none", "run `manciple bootstrap --server URL`")
    elif not known.has_usable_password() and not known.last_login:
        yield warning("administrator", "nobody has set their password", f"`manciple invite {ADMIN}` prints a link")


# Nodes and drivers ----------------------------------------------------------------------------------------------------


def examine_nodes(now: datetime) -> Iterator[Diagnosis]:
    heard = history.last_written(kind(LEASES), LEASE_NAMESPACE)
    for name in Node.objects.filter(ready=False).order_by("name").values_list("name", flat=True):
        last = heard.get(name)
        since = f"since {last:%Y-%m-%d %H:%M:%S}" if last else "ever"
        yield problem(
            f"node {name}",
            f"it is not ready; its agent has given no sign of life {since}",
            f"start its agent (unit manciple-agent@{name}); where the machine is gone for good, delete the Node",
        )
    _, leases = objects.listed(LEASES, Lease, namespace=LEASE_NAMESPACE)
    for lease in leases:
        written, told = heard.get(lease.metadata.name), lease.spec.renew_time
        if written is None or not told:
            continue
        ahead = (datetime.fromisoformat(told) - written).total_seconds()
        if ahead > NODE_SKEW or (ahead < -NODE_SKEW and now - written < STUCK):
            direction = "ahead of" if ahead > 0 else "behind"
            yield warning(
                f"node {lease.metadata.name}",
                f"its clock is {abs(ahead):.1f} s {direction} the API server's",
                "synchronise the clocks with NTP",
            )


def examine_drivers(_now: datetime) -> Iterator[Diagnosis]:
    nodes = set(Node.objects.values_list("name", flat=True))
    silent = set(Node.objects.filter(ready=False).values_list("name", flat=True))
    left: dict[str, list[str]] = defaultdict(list)
    devices = read_devices()  # with what drivers publish as NodeResourceSlices
    for pool in sorted(devices.published_pools, key=lambda one: one.key):
        driver, name, node = pool.key
        if node and node not in nodes:
            yield problem(
                f"pool {name} of driver {driver}",
                f"it is of node {node}, which does not exist",
                f"kubectl delete {_slices_of(pool)} --field-selector=spec.nodeName={node}",
            )
        elif node in silent:
            left[driver].append(node)
        elif not pool.complete:
            yield problem(
                f"pool {name} of driver {driver}",
                f"{len(pool.slices)} of {pool.expected} ResourceSlices are there, so nobody gets its devices",
                f"see the log of the driver on node {node or '(any)'}; restart it where it does not publish",
            )
    for driver, of_pools in sorted(left.items()):
        names = sorted(set(of_pools))  # a driver may have several pools on one node
        yield warning(
            f"driver {driver}",
            f"it is stale on {number_of(len(names), 'silent node')} ({_some(names)}): what is published there may not "
            "be so",
            "see to that; their devices are not allocated until then",
        )
    yield from _unpublished(devices)


def _unpublished(devices: DeviceSnapshot) -> Iterator[Diagnosis]:
    held = {key for state in devices.pools.values() for key in state.holders}
    # What a driver's controller allocates need not be published: the scheduler does not choose it.
    controlled = AllocatedDevice.objects.exclude(controller="")
    held.difference_update(controlled.values_list("driver", "pool", "device", "node"))
    if not gates.enabled(gates.STRUCTURED_PARAMETERS_DRAFT):
        held -= _held_in_drafts()
    found = held.intersection(one.key for one in devices.candidates)
    # A device is held in each pool that it may be of: its node's, and one of no single node.
    elsewhere = {key[:3] for key in found}
    lost: dict[str, list[str]] = defaultdict(list)
    for driver, pool, device, node in sorted(held - found):
        if (driver, pool, device, "") not in found and (node or (driver, pool, device) not in elsewhere):
            lost[driver].append(f"{pool}/{device}")
    for driver, named in lost.items():
        yield problem(
            f"driver {driver}",
            f"claims hold {number_of(len(named), 'device')} that it does not publish any more: {_some(named)}",
            "restart the driver where it forgot them; where they are gone, end the pods that have them",
        )


def _held_in_drafts() -> set[DeviceKey]:
    """What claims of ResourceClasses hold: while the gate is off, their drivers' slices are not read."""
    rows = AllocatedDevice.objects.filter(device_class="").values_list(
        "driver", "pool", "device", "node", "claim__namespace", "claim__name"
    )
    keys = sorted({row[4:] for row in rows})
    claims = (decoded(one, ResourceClaim) for one in objects.get_many(kind(CLAIMS), keys))
    drafts = {claim.key for claim in claims if claim.spec.resource_class_name}
    return {row[:4] for row in rows if row[4:] in drafts}


def _slices_of(pool: DevicePool) -> str:
    """The resource that the pool is published as."""
    return "noderesourceslices" if pool.generation == DRAFT_GENERATION else "resourceslices"


# What does not go on --------------------------------------------------------------------------------------------------


def examine_claims(now: datetime) -> Iterator[Diagnosis]:
    still = set(history.written_before(kind(CLAIMS), now - STUCK, limit=LOOKED_AT))
    pods = set(Pod.objects.values_list("uid", flat=True))
    used: dict[str, list[tuple[str, str, str]]] = defaultdict(list)
    for holder, *user in Reservation.objects.values_list("claim_id", "resource", "name", "uid"):
        used[holder].append((user[0], user[1], user[2]))
    allocated = [
        claim
        for claim in Claim.objects.filter(allocated=True).order_by("namespace", "name")
        if (claim.namespace, claim.name) in still
    ]
    unused = {(claim.namespace, claim.name) for claim in allocated if not used[claim.uid]}
    documents = {one.uid: decoded(one, ResourceClaim) for one in objects.get_many(kind(CLAIMS), unused)}
    for claim in allocated:
        about, users = f"claim {claim.namespace}/{claim.name}", used[claim.uid]
        gone = [name for resource, name, uid in users if resource == PODS and uid not in pods]
        if gone:
            yield problem(
                about,
                f"it is reserved for pods that are gone: {_some(gone)}",
                "a worker takes such reservations away within a minute: start one, or see its log",
            )
        elif claim.deleting and users:
            yield warning(
                about,
                f"somebody deleted it, and it waits for the pods that use it: {_some([name for _, name, _ in users])}",
                "delete these pods, or leave it: it goes with the last of them",
            )
        elif (document := documents.get(claim.uid)) is None or keeps_unused(document):
            continue
        elif (allocation := document.status.allocation) is not None and is_allocated_by_controller(document):
            driver = allocation.controller_name
            yield problem(
                about,
                f"it holds devices, nobody uses it, and driver {driver} does not deallocate it",
                f"see the log of the controller of driver {driver}",
            )
        else:
            yield problem(
                about,
                "it holds devices, and nobody uses it",
                "a worker frees such claims within a minute: start one, or see what finalizers it has",
            )


def examine_pods(now: datetime) -> Iterator[Diagnosis]:
    still = set(history.written_before(kind(PODS), now - STUCK, limit=LOOKED_AT))
    ready = dict(Node.objects.values_list("name", "ready"))
    for pod in Pod.objects.exclude(node_name="").order_by("namespace", "name"):
        if (pod.namespace, pod.name) not in still:
            continue
        about, there = f"pod {pod.namespace}/{pod.name}", ready.get(pod.node_name)
        state = "is ready" if there else "is not ready" if there is not None else "does not exist"
        if pod.deleting:
            yield problem(
                about,
                f"it is being deleted, and its node {pod.node_name}, which {state}, has not let it go",
                "see the events of pod and node; where the machine is gone, delete the Node",
            )
        elif pod.phase == "Pending":
            yield problem(
                about,
                f"it was bound to node {pod.node_name}, which {state}, and has not started",
                f"kubectl describe pod -n {pod.namespace} {pod.name}: its events say what the agent waits for",
            )


def _some(names: Sequence[str] | Iterable[str]) -> str:
    given = list(names)
    more = len(given) - NAMED
    return ", ".join(given[:NAMED]) + (f" and {more} more" if more > 0 else "")
