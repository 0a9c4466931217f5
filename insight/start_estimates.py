"""The queue as its users see it: which place a waiting pod has, and when it will probably start.

An estimate, never a promise. Devices are given back when the pods that hold them end; when that is, is known from their
time limits (`activeDeadlineSeconds` of the pod or its Job) and guessed from how long earlier pods held devices: those
of the same workload, or of its namespace, that lasted longer than this one has by now. Of one pod it is their median;
several pods are spread over their durations (`share`): the first of many ends long before the median. What is given
back goes to the first in the queue that it is enough for, on one node that it may use, as the scheduler would do it;
those that start hold it in turn. Those whose Job's time limit is over by then do not. Pods of Deployments and the like
end when somebody wants it, so nothing is expected of them.

A pod's own time limit counts from its start, a Job's from the Job's, so also while its pods wait: `latest_end` alone
says when a pod ends at the latest, and `never_started` which Jobs' limits ran out in the queue.

`estimate_starts` and `time_left` are PURE. `bench/start_estimates.py` replays a trace against them. `read_queue` reads
what they need.
"""

from __future__ import annotations

import heapq
import time
from bisect import bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from itertools import count
from typing import Any, Protocol

import msgspec

from claims.devices.cache import DeviceSnapshot, PoolState, read_devices
from claims.devices.states import DeviceState
from claims.kinds.pods import Pod as PodObject
from claims.kinds.resource_claims import ResourceClaim
from claims.models import Ending, PastAllocation, Pod, Reservation
from insight.capacity import expressions_of
from insight.selector_matches import passing
from inventory.kinds import devices as device_kinds
from inventory.kinds import gates
from inventory.kinds.nodes import Node
from inventory.models import DeviceClass
from manciple.durations import duration
from manciple.gaps import lacking
from manciple.per_process import PerProcess
from manciple.store import objects
from manciple.store.event_log import latest_revision
from manciple.store.objects import decoded, listed
from manciple.wire.limits import TimeLimitExceeded
from manciple.wire.resources import CLAIMS, CLASSES, NODES, PODS, Key, kind
from scheduling.cel import CompileError, compile_selector
from scheduling.judgement import TO_REHEARSE
from scheduling.models import QueuedPod
from scheduling.state.node_fit import ServingClasses, is_selected, is_tolerated, needs_of
from workloads.kinds.jobs import JOB
from workloads.kinds.summaries import DEADLINE_EXCEEDED, State
from workloads.models import Workload

# The estimate (PURE) -------------------------------------------------------------------------------------------------


#: What one may ask for: a class, or a class with selectors of a request.
Asked = str
#: Devices that the same things ask for.
Alike = frozenset[Asked]
#: A node; "" for devices that several nodes see.
Place = str


@dataclass(frozen=True, slots=True)
class WaitingEntry:
    """A pod of the queue. wants: how many of what, on one node. lasts: seconds that it will hold them, None unknown.
    places: the nodes that it may use, None for all. until: seconds after which it ends even if it never starts.
    """

    uid: str
    wants: tuple[tuple[Asked, int], ...]
    lasts: float | None
    places: frozenset[Place] | None = None
    until: float | None = None

    def may_use(self, place: Place) -> bool:
        return self.places is None or not place or place in self.places


@dataclass(frozen=True, slots=True)
class HeldDevices:
    """What one pod holds at one place. left: seconds until it gives them back, None where nobody knows."""

    place: Place
    devices: Mapping[Alike, int]
    left: float | None


#: Ends of pods that are looked at.
MOST_STEPS = 20_000


def estimate_starts(
    waiting: Iterable[WaitingEntry], held: Iterable[HeldDevices], free: Mapping[Place, Mapping[Alike, int]]
) -> dict[str, float]:
    """uid of a waiting pod -> seconds until it starts; without those of which nothing can be said.

    waiting: in the order of the queue. What would fit already waits for something else than devices, so nothing is said
    of it, and it takes nothing.
    """
    room = {place: Counter(devices) for place, devices in free.items()}
    queues: _Queues = {}
    fits: dict[tuple[Any, Any], bool] = {}
    for rank, one in enumerate(waiting):
        key = (one.wants, one.places)
        if key not in fits:
            usable = (devices for place, devices in room.items() if one.may_use(place))
            fits[key] = any(_taken(one.wants, devices) is not None for devices in usable)
        if one.wants and not fits[key]:
            queues.setdefault(key, deque()).append((rank, one))
    order = count()  # of two that end at the same time, the first known
    ends = [(one.left, next(order), one.place, one.devices) for one in held if one.left is not None]
    heapq.heapify(ends)
    starts: dict[str, float] = {}
    for _ in range(MOST_STEPS):
        if not ends or not any(queues.values()):
            break
        now, _, place, given_back = heapq.heappop(ends)
        here = room.setdefault(place, Counter())
        here.update(given_back)
        for one, taken in _started(queues, place, here, now):
            starts[one.uid] = now
            stays = [left for left in (one.lasts, None if one.until is None else one.until - now) if left is not None]
            if taken and stays:
                heapq.heappush(ends, (now + min(stays), next(order), place, taken))
    return starts


#: Those that want the same and may use the same nodes, with their ranks in the queue.
_Queues = dict[tuple[tuple[tuple[Asked, int], ...], frozenset[Place] | None], deque[tuple[int, WaitingEntry]]]


def _started(
    queues: _Queues, place: Place, here: Counter[Alike], now: float
) -> Iterator[tuple[WaitingEntry, Mapping[Alike, int]]]:
    """Those that start with what is free at one place, the first in the queue first; takes it from there. Those that
    have ended by then would have started: they take nothing.
    """
    while True:
        fitting = [
            (queue[0][0], key, taken)
            for key, queue in queues.items()
            if queue and queue[0][1].may_use(place) and (taken := _taken(key[0], here)) is not None
        ]
        if not fitting:
            return
        _, key, taken = min(fitting, key=lambda one: one[0])
        entry = queues[key].popleft()[1]
        if entry.until is not None and entry.until <= now:
            yield entry, {}
        else:
            here.subtract(taken)
            yield entry, taken


def _taken(wants: Sequence[tuple[Asked, int]], here: Mapping[Alike, int]) -> Counter[Alike] | None:
    """Which devices would be taken: those first that the fewest others could use. None where there are too few."""
    taken: Counter[Alike] = Counter()
    for asked, number in wants:
        missing = number
        for alike in sorted((alike for alike in here if asked in alike), key=len):
            got = min(missing, here[alike] - taken[alike])
            if got > 0:
                taken[alike] += got
                missing -= got
        if missing:
            return None
    return taken


def share(number: int) -> float:
    """Of the `number`th of several pods that are alike: which part of them is expected to end before it, from 0 to 1.

    The first has the median; whatever follows lies evenly between the others, by the golden ratio.
    """
    return (0.5 + number * 0.618033988749895) % 1.0


def time_left(elapsed: float, past: Sequence[float], limit: float | None, before: float = 0.5) -> float | None:
    """Seconds that a pod goes on for; None where nothing is known.

    elapsed: since it began; past: how long others held devices, sorted; before: the part of those that lasted longer
    that this one is expected to outlast. What has outlasted all of them is expected to last as long again.
    """
    longer = past[bisect_right(past, elapsed) :]
    left = longer[int((len(longer) - 1) * before)] - elapsed if longer else elapsed if past else None
    if limit is None:
        return left
    return max(0.0, limit - elapsed) if left is None else max(0.0, min(left, limit - elapsed))


# Time limits ---------------------------------------------------------------------------------------------------------


#: Seconds. A longer limit is none: the API takes numbers that no calendar has.
LONGEST_LIMIT = 100 * 365 * 86_400


class Limited(Protocol):
    """An index row of a pod, or of the workload that controls it. time_limit: seconds."""

    @property
    def started_at(self) -> datetime | None: ...
    @property
    def time_limit(self) -> int | None: ...


def end_of(started_at: datetime | None, time_limit: int | None) -> datetime | None:
    """None where no limit runs."""
    if started_at is None or time_limit is None or time_limit > LONGEST_LIMIT:
        return None
    return started_at + timedelta(seconds=time_limit)


def latest_end(pod: Limited, controller: Limited | None) -> datetime | None:
    """When a pod ends at the latest; None where nothing says so."""
    ends = [end_of(one.started_at, one.time_limit) for one in (pod, controller) if one is not None]
    return min((one for one in ends if one is not None), default=None)


def latest_ends(pods: Collection[Key]) -> Mapping[Key, datetime | None]:
    """Of each pod that is there, by (namespace, name): see `latest_end`. Two queries."""
    if not pods:
        return {}
    namespaces, names = map(set, zip(*pods, strict=True))
    rows = list(Pod.objects.filter(namespace__in=namespaces, name__in=names))
    controllers = Workload.objects.in_bulk({row.controller_uid for row in rows} - {""})
    return {(row.namespace, row.name): latest_end(row, controllers.get(row.controller_uid)) for row in rows}


def never_started(rows: Iterable[Workload]) -> Mapping[str, str]:
    """uid of each Job among them whose limit ran out before any of its pods had a node -> that, as a sentence.

    No query where no limit ran out, else two.
    """
    jobs = {
        (row.namespace, f"Job {row.name}"): row
        for row in rows
        if (row.resource, row.state, row.reason, row.ready) == (JOB.resource, State.FAILED, DEADLINE_EXCEEDED, 0)
        and row.started_at
        and row.finished_at
        and row.time_limit
    }
    if not jobs:
        return {}
    of_jobs = Pod.objects.filter(controller_uid__in=[row.uid for row in jobs.values()])
    began = set(of_jobs.exclude(node_name="").values_list("controller_uid", flat=True))
    namespaces, owners = map(set, zip(*jobs, strict=True))
    ended = Ending.objects.filter(resource=PODS, namespace__in=namespaces, owner__in=owners).exclude(node="")
    for namespace, owner, ended_at in ended.values_list("namespace", "owner", "ended_at"):
        job = jobs.get((namespace, owner))
        if job is not None and ended_at >= job.created_at:
            began.add(job.uid)
    return {job.uid: _waited(job) for job in jobs.values() if job.uid not in began}


def _waited(job: Workload) -> str:
    assert job.started_at is not None and job.finished_at is not None  # noqa: PT018, S101 - for the type checker
    waited, limit = (job.finished_at - job.started_at).total_seconds(), job.time_limit or 0
    return f"It waited {duration(min(waited, limit))} of its time limit of {duration(limit)} and never started."


# What there is to estimate from --------------------------------------------------------------------------------------


#: Waiting pods that are looked at, the first in the queue; past allocations of a namespace, the latest; different
#: things that are asked for.
LOOKED_AT, LATEST, MOST_ASKED = 500, 500, 32
#: Past durations of the same workload from which these alone count.
ENOUGH = 3
#: How long an estimate is kept while nothing changes.
KEPT_SECONDS = 20.0
#: Different choices of nodes (selectors, affinities, tolerations) that are looked at.
MOST_CHOICES = 32
#: What controls pods of different nodes.
_OF_NODES = "daemonsets.apps"
#: Of a time limit less than this share must be left at the start for a warning.
ENOUGH_LEFT = 0.5
#: What controls pods that end when somebody wants it.
_ENDLESS = frozenset({"daemonsets.apps", "replicasets.apps", "statefulsets.apps"})


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePlace:
    """A waiting pod's. position: among the `of` pods that wait for one of the same classes, from 1. starts_at: None
    where nothing can be said; told_at: when it was estimated. ends_at: when the time limit of its Job ends, which
    counts while it waits; limit: the whole of it, in seconds.
    """

    namespace: str
    name: str
    position: int
    of: int
    classes: tuple[str, ...]
    starts_at: datetime | None
    told_at: datetime
    ends_at: datetime | None = None
    limit: int | None = None

    @property
    def warning(self) -> str:
        """That too little of its Job's time limit will be left; "" where enough is."""
        return limit_warning(self.limit, self.ends_at, self.starts_at, self.told_at)

    @property
    def asks_for(self) -> str:
        return ", ".join(f"`{name}`" for name in self.classes)

    @property
    def sentence(self) -> str:
        wait = f"Estimated start: {self.wait}" if self.starts_at else "Its start cannot be estimated"
        return f"Place {self.position:,} of {self.of:,} in the queue for {self.asks_for}. {wait}"

    @property
    def wait(self) -> str:
        """`in about 2 h`; "" where nothing can be said."""
        if self.starts_at is None:
            return ""
        left = (self.starts_at - self.told_at).total_seconds()
        return f"in about {duration(left)}" if left >= 1 else "any moment"


def limit_warning(limit: int | None, ends_at: datetime | None, starts_at: datetime | None, now: datetime) -> str:
    """See `QueuePlace.warning`. starts_at: None where nothing can be said; the limit still goes on."""
    if limit is None or ends_at is None:
        return ""
    left = (ends_at - (starts_at or now)).total_seconds()
    if left >= limit * ENOUGH_LEFT:
        return ""
    counts = f"The time limit of {duration(limit)} also counts while it waits"
    if starts_at is None:
        return f"{counts}: {duration(left)} left." if left > 0 else f"{counts}, and is over."
    if left < 1:
        return f"{counts}, and is over {f'about {duration(-left)} before' if left <= -1 else 'at'} the estimated start."
    return f"{counts}: about {duration(left)} would be left at the estimated start."


#: (class, CEL expressions of the request)
_Ask = tuple[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class _Waiting:
    """choice: of nodes, as a key of `_Nodes`."""

    uid: str
    namespace: str
    name: str
    wants: Mapping[_Ask, int]
    controller: str
    time_limit: int | None
    choice: bytes


@dataclass(frozen=True, slots=True)
class _Kept:
    """at: by the monotonic clock."""

    revision: int
    at: float
    places: Mapping[str, QueuePlace]


_last = PerProcess(lambda: _Kept(-1, 0.0, {}))


def read_queue(now: datetime) -> Mapping[str, QueuePlace]:
    """uid of a waiting pod that asks for devices -> its place. Of a long queue the first pods."""
    revision, kept = latest_revision(), _last.value
    if kept.revision == revision and time.monotonic() - kept.at < KEPT_SECONDS:
        return kept.places
    places = _places(now)
    _last.value = _Kept(revision, time.monotonic(), places)
    return places


def _places(now: datetime) -> Mapping[str, QueuePlace]:
    if lacking(PODS, CLAIMS):
        return {}
    nodes = _Nodes()
    waiting = [one for one in _waiting(nodes) if one.wants]
    if not waiting:
        return {}
    classes = [tuple(sorted({name for name, _ in one.wants})) for one in waiting]
    workloads = _workloads({one.controller for one in waiting})
    starts = _starts(waiting, workloads, nodes, now)
    of = Counter(name for names in classes for name in names)
    before: Counter[str] = Counter()
    places: dict[str, QueuePlace] = {}
    for one, names in zip(waiting, classes, strict=True):
        before.update(names)
        most = max(names, key=lambda name: of[name])
        seconds, workload = starts.get(one.uid), workloads.get(one.controller)
        places[one.uid] = QueuePlace(
            namespace=one.namespace,
            name=one.name,
            position=before[most],
            of=of[most],
            classes=names,
            starts_at=None if seconds is None else now + timedelta(seconds=seconds),
            told_at=now,
            ends_at=end_of(workload.started_at, workload.time_limit) if workload is not None else None,
            limit=workload.time_limit if workload is not None else None,
        )
    return places


def _starts(
    waiting: Sequence[_Waiting], workloads: Mapping[str, Any], nodes: _Nodes, now: datetime
) -> Mapping[str, float]:
    """uid -> seconds until it starts. workloads: those that control pods, by uid."""
    if lacking(*TO_REHEARSE):
        return {}
    asks = list(dict.fromkeys(ask for one in waiting for ask in one.wants))[:MOST_ASKED]
    free, held = _devices(read_devices(), asks)
    durations = _Durations(now)
    holding = list(_held(held, durations))
    entries = []
    for one in waiting:
        workload = workloads.get(one.controller)
        end = end_of(workload.started_at, workload.time_limit) if workload is not None else None
        entries.append(
            WaitingEntry(
                one.uid,
                tuple(sorted((_name(ask), number) for ask, number in one.wants.items())),
                durations.of_waiting(one, workload),
                nodes.chosen(one.choice),
                None if end is None else (end - now).total_seconds(),
            )
        )
    return estimate_starts(entries, holding, free)


def estimate_new(pod: PodObject, claims: Iterable[ResourceClaim], now: datetime) -> datetime | None:
    """When a pod that is not there yet would start, behind all that wait; None where nothing can be said."""
    nodes = _Nodes()
    waiting = [one for one in _waiting(nodes) if one.wants]
    wants: Counter[_Ask] = Counter(_ServedResources().asks_of(pod))
    for claim in claims:
        if claim.status.allocation is None:
            wants.update(_asks_of(claim))
    meta = pod.metadata
    new = _Waiting("", meta.namespace, meta.name, wants, "", pod.spec.active_deadline_seconds, nodes.choice_of(pod))
    workloads = _workloads({one.controller for one in waiting})
    seconds = _starts([*waiting, new], workloads, nodes, now).get("") if wants else None
    return None if seconds is None else now + timedelta(seconds=seconds)


class _Nodes:
    """Which nodes pods may use, by what they choose them with."""

    def __init__(self) -> None:
        self._pods: dict[bytes, PodObject] = {}
        self._chosen: dict[bytes, frozenset[Place] | None] = {}

    def choice_of(self, pod: PodObject) -> bytes:
        spec = pod.spec
        affinity = spec.affinity.node_affinity if spec.affinity else None
        required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
        choice = msgspec.json.encode((spec.node_selector, required, spec.tolerations), order="sorted")
        self._pods.setdefault(choice, pod)
        return choice

    def chosen(self, choice: bytes) -> frozenset[Place] | None:
        """None for all. Of more than `MOST_CHOICES` none: nothing is said of such pods."""
        if choice not in self._chosen:
            self._chosen[choice] = self._read(choice) if len(self._chosen) < MOST_CHOICES else frozenset()
        return self._chosen[choice]

    def _read(self, choice: bytes) -> frozenset[Place] | None:
        needs = needs_of(self._pods[choice], requests={})
        usable = [node.metadata.name for node in self._nodes if is_selected(needs, node) and is_tolerated(needs, node)]
        return None if len(usable) == len(self._nodes) else frozenset(usable)

    @cached_property
    def _nodes(self) -> Sequence[Node]:
        return listed(NODES, Node)[1]


def _name(ask: _Ask) -> Asked:
    return "\n".join((ask[0], *ask[1]))


def _waiting(nodes: _Nodes) -> list[_Waiting]:
    """The first pods of the queue, with what they ask for and do not have yet."""
    queue = QueuedPod.objects.waiting().order_by("-priority", "created_at", "revision")
    order = list(queue.values_list("uid", flat=True)[:LOOKED_AT])
    columns = ("uid", "namespace", "name", "claim_names", "controller_uid", "time_limit")
    rows = {row[0]: row for row in Pod.objects.filter(uid__in=order).values_list(*columns)}
    keys = {(row[1], claim) for row in rows.values() for claim in row[3]}
    claims = {(one.namespace, one.name): decoded(one, ResourceClaim) for one in objects.get_many(kind(CLAIMS), keys)}
    pods = _documents([rows[uid] for uid in order if uid in rows])
    served = _ServedResources()
    found = []
    for uid in order:
        if uid not in rows or (pod := pods.get(uid)) is None:
            continue
        _, namespace, name, names, controller, limit = rows[uid]
        wants: Counter[_Ask] = Counter() if names else served.asks_of(pod)
        for claim in (claims.get((namespace, claim)) for claim in names):
            if claim is not None and claim.status.allocation is None:
                wants.update(_asks_of(claim))
        found.append(_Waiting(uid, namespace, name, wants, controller, limit, nodes.choice_of(pod)))
    return found


def _documents(rows: Sequence[tuple[Any, ...]]) -> Mapping[str, PodObject]:
    """uid of each pod -> a pod with its spec: those of one workload are alike, so one of them is read for all."""
    controllers = {row[4] for row in rows}
    unlike = set(Workload.objects.filter(uid__in=controllers, resource=_OF_NODES).values_list("uid", flat=True))
    first: dict[str, tuple[str, str]] = {}
    for uid, namespace, name, _, controller, _ in rows:
        first.setdefault(uid if not controller or controller in unlike else controller, (namespace, name))
    read = {pod.key: pod for pod in (decoded(one, PodObject) for one in objects.get_many(kind(PODS), first.values()))}
    places = {uid: first.get(controller) or first.get(uid) for uid, _, _, _, controller, _ in rows}
    return {uid: read[key] for uid, key in places.items() if key in read}


def _asks_of(claim: ResourceClaim) -> Counter[_Ask]:
    """Of alternatives the first. Nothing where it asks for all devices: that is never enough by number."""
    asks: Counter[_Ask] = Counter()
    for request in claim.spec.devices.requests:
        one = request.exactly or next(iter(request.first_available), None)
        if one is None or one.allocation_mode == "All":
            return Counter()
        expressions = tuple(selector.cel.expression for selector in one.selectors if selector.cel)
        asks[one.device_class_name, expressions] += one.count or 1
    return asks


class _ServedResources:
    """What pods ask for by names of extended resources."""

    def asks_of(self, pod: PodObject) -> Counter[_Ask]:
        asks: Counter[_Ask] = Counter()
        for container in pod.spec.containers:
            for name, amount in container.resources.requests.items():
                if "/" in name and name in self._classes and str(amount).isdecimal():
                    asks[self._classes[name], ()] += int(amount)
        return asks

    @cached_property
    def _classes(self) -> Mapping[str, str]:
        serving = ServingClasses(enabled=gates.enabled("DRAExtendedResource"))
        for device_class in listed(CLASSES, device_kinds.DeviceClass)[1]:
            serving.put(device_class)
        return serving.by_resource


def _devices(
    snapshot: DeviceSnapshot, asks: Sequence[_Ask]
) -> tuple[dict[Place, Counter[Alike]], dict[str, dict[Place, Counter[Alike]]]]:
    """(what is free at each place, uid of a claim -> what it holds at each place), of what is asked for."""
    rows = dict(DeviceClass.objects.filter(name__in={name for name, _ in asks}).values_list("name", "selectors"))
    selectors = {}
    for name, expressions in asks:
        try:
            texts = (*expressions_of(rows[name]), *expressions)
            selectors[_name((name, expressions))] = [compile_selector(text) for text in texts]
        except (KeyError, CompileError, TimeLimitExceeded):
            continue
    free: dict[Place, Counter[Alike]] = defaultdict(Counter)
    held: dict[str, dict[Place, Counter[Alike]]] = defaultdict(lambda: defaultdict(Counter))
    for key, state in snapshot.pools.items():
        groups = _grouped({asked: passing(state.pool, chosen).match for asked, chosen in selectors.items()})
        is_free = state.masks.get(DeviceState.FREE, 0)
        for alike, devices in groups.items():
            if number := (devices & is_free).bit_count():
                free[key.node][alike] += number
        if groups and state.holders:
            _note_holders(state, groups, key.node, held)
    return free, held


def _grouped(matches: Mapping[Asked, int]) -> dict[Alike, int]:
    """Devices, a bit each, by what asks for them; those that nothing asks for are left out."""
    groups: dict[Alike, int] = {}
    for asked, match in matches.items():
        others = match
        for alike, devices in list(groups.items()):
            if both := devices & match:
                groups[alike] = devices & ~match
                groups[alike | {asked}] = groups.get(alike | {asked}, 0) | both
                others &= ~devices
        if others:
            groups[frozenset({asked})] = groups.get(frozenset({asked}), 0) | others
    return {alike: devices for alike, devices in groups.items() if devices}


def _note_holders(
    state: PoolState, groups: Mapping[Alike, int], node: str, held: Mapping[str, Mapping[Place, Counter[Alike]]]
) -> None:
    for index, candidate in enumerate(state.candidates):
        for holder in state.holders.get(candidate.key, ()):
            if holder.shared:
                continue
            for alike, devices in groups.items():
                if devices >> index & 1:
                    held[holder.claim_uid][node][alike] += 1


def _held(held: Mapping[str, Mapping[Place, Counter[Alike]]], durations: _Durations) -> Iterator[HeldDevices]:
    """With when their pods probably end: the last of each claim. What no pod uses is not expected back."""
    reserved: dict[str, list[str]] = defaultdict(list)
    for claim, uid in Reservation.objects.filter(claim__in=list(held)).values_list("claim_id", "uid"):
        reserved[claim].append(uid)
    users = {uid for uids in reserved.values() for uid in uids}
    columns = ("uid", "namespace", "started_at", "time_limit", "controller_uid")
    pods = {pod.uid: pod for pod in Pod.objects.filter(uid__in=users).only(*columns)}
    workloads = _workloads({pod.controller_uid for pod in pods.values()})
    for claim, places in held.items():
        ends = [durations.of_running(pods[uid], workloads) if uid in pods else None for uid in reserved.get(claim, ())]
        known = [one for one in ends if one is not None]
        left = max(known) if known and len(known) == len(ends) else None
        for place, devices in places.items():
            yield HeldDevices(place, devices, left)


def _workloads(uids: Iterable[str]) -> Mapping[str, Any]:
    columns = ("uid", "name", "resource", "started_at", "time_limit")
    rows = Workload.objects.filter(uid__in=set(uids) - {""}).values_list(*columns, named=True)
    return {row.uid: row for row in rows}


class _Durations:
    """How long pods hold their devices, by what is known of each."""

    def __init__(self, now: datetime) -> None:
        self._now = now
        #: namespace -> (the first pod's name, seconds) of its latest allocations
        self._past: dict[str, list[tuple[str, float]]] = {}
        self._sorted: dict[tuple[str, str], list[float]] = {}
        #: (namespace, workload, whether they wait) -> of how many such pods it was asked
        self._asked = Counter[tuple[str, str, bool]]()

    def of_running(self, pod: Pod, workloads: Mapping[str, Any]) -> float | None:
        """Seconds until a pod ends. workloads: those that control pods, by uid."""
        workload = workloads.get(pod.controller_uid)
        elapsed = max(0.0, (self._now - pod.started_at).total_seconds()) if pod.started_at else 0.0
        end = latest_end(pod, workload)
        limit = None if end is None else elapsed + max(0.0, (end - self._now).total_seconds())
        return self._left(elapsed, pod.namespace, limit, workload, waits=False)

    def of_waiting(self, one: _Waiting, workload: Any) -> float | None:
        """Seconds that it holds its devices once it has started; its Job's limit may end that before."""
        limit = one.time_limit if one.time_limit is None or one.time_limit <= LONGEST_LIMIT else None
        return self._left(0.0, one.namespace, limit, workload, waits=True)

    def _left(self, elapsed: float, namespace: str, limit: float | None, workload: Any, *, waits: bool) -> float | None:
        past = self._known(namespace, workload)
        alike = namespace, workload.name if workload is not None else "", waits
        before = share(self._asked[alike])
        self._asked[alike] += 1
        return time_left(elapsed, past, limit, before)

    def _known(self, namespace: str, workload: Any) -> Sequence[float]:
        """Of the same workload, where that is enough; else of the namespace; sorted."""
        if workload is not None and workload.resource in _ENDLESS:
            return ()
        name = workload.name if workload is not None else ""
        if (namespace, name) not in self._sorted:
            past = self._of_namespace(namespace)
            own = [seconds for pod, seconds in past if name and pod.startswith(f"{name}-")]
            chosen = own if len(own) >= ENOUGH else [seconds for _, seconds in past]
            self._sorted[namespace, name] = sorted(chosen)
        return self._sorted[namespace, name]

    def _of_namespace(self, namespace: str) -> list[tuple[str, float]]:
        if namespace not in self._past:
            rows = PastAllocation.objects.filter(namespace=namespace, admin_access=False).order_by("-ended_at")
            claims: dict[str, tuple[str, float]] = {}
            for claim, pods, began, ended in rows.values_list("claim_uid", "pods", "began_at", "ended_at")[:LATEST]:
                claims[claim] = (pods[0] if pods else "", max(0.0, (ended - began).total_seconds()))
            self._past[namespace] = list(claims.values())
        return self._past[namespace]
