"""Repairs that would let waiting pods start (pools, taints, cordons, forgotten claims): each one is rehearsed.

    mended = read_mendings()
    mended.mendings   # those that let pods start: the one that lets most start first
    mended.rest       # uid of a pod that would wait even then -> its cause

A pool that is short of a slice is named by every pod that could use its devices, however few devices there are. So a
repair is shown only with the pods that it starts: each is made alone on a copy of the state, and the code that
schedules tries the waiting pods, in the order of the queue. Then they are made one after the other, those that help
most first, so that each is shown with the pods that it adds. Of pods that request the same one is tried after one of
them was refused.

`RehearsedFindings` caches the results of such long rehearsals, also partial ones, as long as the cluster does not
change; moves use it, too (`move_proposals`). A page waits for `BUDGET` seconds at most, and the next one continues from
there. Results are dropped after an event that could change a decision; in a busy cluster an older result is served for
a while.
"""

from __future__ import annotations

import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Generic, Literal, Self, TypeVar

from django.db import connections
from django.db.models import Q
from msgspec import structs

from claims.causes.causes import AnyCause
from claims.devices.cache import read_devices
from claims.devices.published import DevicePool
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import ResourceClaim
from claims.models import Claim, Reservation
from claims.models import Pod as PodRow
from claims.pod_claims import has_group, keeps_unused
from inventory.kinds.devices import HARD_EFFECTS, DeviceTaint, DeviceTaintRule, ResourceSlice, is_unhealthy
from inventory.kinds.nodes import Node
from inventory.kinds.pools import PoolKey
from inventory.models import Node as NodeRow
from manciple.controllers.coordination import utc_now
from manciple.gaps import lacking
from manciple.per_process import PerProcess
from manciple.store import objects
from manciple.store.objects import decoded
from manciple.wire.resources import CLAIMS, FINISHED_PHASES, NODES, PODS, SLICES, TAINT_RULES, kind
from scheduling.allocator import Deadline
from scheduling.claims.readiness import request_of
from scheduling.cycle import post_filter
from scheduling.cycle.post_filter import gist_of
from scheduling.cycle.scheduler import decide
from scheduling.judgement import TO_REHEARSE
from scheduling.metrics import imagined
from scheduling.queue.reasons import Hold
from scheduling.queue.verdicts import Placement, Wait
from scheduling.rehearsal.decisions import WaitingPods
from scheduling.rehearsal.departures import queue_order
from scheduling.rehearsal.explanations import Apart, apart_within, cluster, is_known
from scheduling.rehearsal.rehearsal import CONDITION_TAINTS
from scheduling.state.cluster import ClusterState, Overlay

#: Seconds that a page waits for what is found anew.
BUDGET = 0.25
#: Seconds for which an older answer does where things happen all the time, in multiples of what it took.
REST, REST_AT_LEAST = 10, 3.0
#: Seconds for which it is trusted that nothing happened of which no announcement told.
ANNOUNCED = 1.0
#: Devices of a cluster whose state is read for this while a page waits; that of more is read in the background.
SMALL = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """complete: everything was rehearsed; otherwise there may be more when somebody asks again. outdated: something has
    happened since. It may have been the last thing to happen, so whoever shows these findings asks again.
    """

    complete: bool = True
    outdated: bool = False


_FoundT = TypeVar("_FoundT", bound=Findings)


@dataclass(slots=True, kw_only=True)
class FindingsProgress(ABC, Generic[_FoundT]):
    """What is found out about one state of the cluster. found: of the state before, until there is something new."""

    #: the state itself: where another one is followed by now, nothing of it counts
    of: weakref.ref[ClusterState]
    revision: int
    began: float
    found: _FoundT
    found_all: bool = False
    cost: float = field(default=0.0)

    @abstractmethod
    def go_on(self, copy: Apart, deadline: Deadline) -> None:
        """Find out more, on a copy of the state."""

    @property
    def is_young(self) -> bool:
        return time.monotonic() - self.began < max(REST * self.cost, REST_AT_LEAST)

    @classmethod
    def about(cls, state: ClusterState, found: _FoundT) -> Self:
        return cls(of=weakref.ref(state), revision=state.revision, began=time.monotonic(), found=found)


class RehearsedFindings(Generic[_FoundT]):
    """What is known in this process. One thread at a time finds out more; the others get what is known."""

    #: how it is found out
    progress: ClassVar[type[FindingsProgress]]  # type: ignore[type-arg]  # of this class's own type

    def __init__(self, unknown: _FoundT) -> None:
        """unknown: for as long as nobody knows better."""
        self._working = threading.Lock()
        self._unknown = unknown
        self._progress: FindingsProgress[_FoundT] | None = None

    def read(self, budget: float = BUDGET) -> _FoundT:
        """What is known now; for as long as `budget` seconds more is found out, where that is not all."""
        if lacking(*TO_REHEARSE):
            return replace(self._unknown, complete=True)  # nor will it ever be
        is_current = False
        if not is_known() and len(read_devices().candidates) > SMALL:
            self._in_background()
        elif self._working.acquire(blocking=False):
            try:
                is_current = self._go_on(budget)
            finally:
                self._working.release()
        known = self._progress
        found = self._unknown if known is None else known.found
        return found if is_current else replace(found, outdated=True)

    @property
    def known(self) -> _FoundT:
        """What was found so far; nothing is asked for that, so nobody waits."""
        return self._unknown if self._progress is None else self._progress.found

    def _in_background(self) -> None:
        """The state is read first, which takes long where the cluster is large."""
        if self._working.acquire(blocking=False):
            threading.Thread(target=self._finish, name=type(self).__name__.lower(), daemon=True).start()

    def _finish(self) -> None:
        try:
            with cluster():
                pass
        finally:
            self._working.release()
            connections.close_all()

    def _go_on(self, budget: float) -> bool:
        """Whether the results are complete and current now."""
        began, deadline = time.monotonic(), Deadline.after(budget)
        with cluster(within=ANNOUNCED) as state:
            known = self._progress
            if known is None or known.of() is not state:
                known, is_current = self.progress.about(state, self._unknown), True
            elif not (is_current := _is_current(known, state)) and not known.is_young:
                known, is_current = self.progress.about(state, known.found), True
            if known.found_all:
                return is_current
        with apart_within(budget) as copy, imagined():
            if copy is None:
                return False  # the next call goes on from here
            known.go_on(copy, deadline)
        known.cost += time.monotonic() - began
        self._progress = known
        return is_current and self._progress.found_all


def _is_current(known: FindingsProgress[_FoundT], state: ClusterState) -> bool:
    return state.news_after(known.revision) == []


#: Troubles that are rehearsed, and slices that one of them may concern.
MOST, SLICES_OF_ONE = 32, 64
#: Pods that are tried, the first in the queue, and seconds of work for one round of them.
TRIED, ATTEMPT_SECONDS = 2_000, 0.5
#: Seconds after which an allocation that nobody uses is forgotten: its controller takes others back after one minute.
FORGOTTEN = 180


# What can be mended --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class IncompletePool:
    """A pool that lacks slices, or has too many. devices: those that would count again."""

    driver: str
    pool: str
    node: str
    seen: int
    expected: int
    devices: int

    @property
    def key(self) -> str:
        name = f"pool/{self.driver}/{self.pool}"
        return name if self.node in ("", self.pool) else f"{name}?node={self.node}"

    def mend(self, overlay: Overlay) -> None:
        """What it has is all of it: what a missing slice would add is not known."""
        for one in _slices([PoolKey(self.driver, self.pool, self.node)]):
            whole = structs.replace(one.spec.pool, resource_slice_count=self.seen)
            _republish(overlay, one, structs.replace(one.spec, pool=whole))


@dataclass(frozen=True, slots=True, kw_only=True)
class TaintedDevices:
    """Devices that their driver taints with the same key and value."""

    driver: str
    taint: str
    value: str
    pools: tuple[PoolKey, ...]
    devices: int
    unhealthy: bool

    @property
    def key(self) -> str:
        return f"taint/{self.driver}/{self.taint}={self.value}"

    def mend(self, overlay: Overlay) -> None:
        for one in _slices(self.pools):
            devices = tuple(
                structs.replace(device, taints=tuple(taint for taint in device.taints if not self._is(taint)))
                for device in one.spec.devices
            )
            if devices != one.spec.devices:
                _republish(overlay, one, structs.replace(one.spec, devices=devices))

    def _is(self, taint: DeviceTaint) -> bool:
        return (taint.key, taint.value or "") == (self.taint, self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaintingRule:
    """A DeviceTaintRule that keeps claims away."""

    name: str
    taint: str

    @property
    def key(self) -> str:
        return f"rule/{self.name}"

    def mend(self, overlay: Overlay) -> None:
        if (stored := objects.get(kind(TAINT_RULES), "", self.name)) is not None:
            overlay.leave_out(TAINT_RULES, decoded(stored, DeviceTaintRule))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedNode:
    """A node that is cordoned, or that does not report."""

    node: str
    cordoned: bool

    @property
    def key(self) -> str:
        return f"node/{self.node}"

    def mend(self, overlay: Overlay) -> None:
        if (stored := objects.get(kind(NODES), "", self.node)) is None:
            return
        known = decoded(stored, Node)
        taints = tuple(one for one in known.spec.taints if not one.key.startswith(CONDITION_TAINTS))
        opened = structs.replace(known, spec=structs.replace(known.spec, unschedulable=False, taints=taints))
        overlay.imagine(NODES, opened, instead_of=known)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgottenClaim:
    """A claim that holds devices although nobody uses it."""

    namespace: str
    claim: str
    devices: int

    @property
    def key(self) -> str:
        return f"claim/{self.namespace}/{self.claim}"

    def mend(self, overlay: Overlay) -> None:
        if (stored := objects.get(kind(CLAIMS), self.namespace, self.claim)) is not None:
            overlay.leave_out(CLAIMS, decoded(stored, ResourceClaim))


Trouble = IncompletePool | TaintedDevices | TaintingRule | ClosedNode | ForgottenClaim


def _slices(pools: Iterable[PoolKey]) -> list[ResourceSlice]:
    """As their driver publishes them: without what rules add, of the newest generation of each pool."""
    known = read_devices().pools
    names = [one.name for pool in pools if pool in known for one in known[pool].pool.slices]
    return [decoded(one, ResourceSlice) for one in objects.get_many(kind(SLICES), [("", name) for name in names])]


def _republish(overlay: Overlay, published: ResourceSlice, spec: object) -> None:
    overlay.imagine(SLICES, structs.replace(published, spec=spec), instead_of=published)


def troubles() -> list[Trouble]:
    """What could be mended now: those that concern most devices first, `MOST` at most. A bounded number of queries."""
    found: list[tuple[int, Trouble]] = []
    pools = list(read_devices().published_pools)
    for pool in pools:
        if not pool.complete:
            devices = sum(len(one.candidates) for one in pool.slices)
            driver, name, _ = pool.key
            short = IncompletePool(
                driver=driver, pool=name, node=pool.node, seen=len(pool.slices), expected=pool.expected, devices=devices
            )
            found.append((devices, short))
    found += [(one.devices, one) for one in _tainted(pools)]
    found += [(len(rule.taint), rule) for rule in _rules()]
    found += [(1, node) for node in _closed_nodes()]
    found += [(one.devices, one) for one in _forgotten()]
    return [one for _, one in sorted(found, key=lambda pair: (-pair[0], pair[1].key))[:MOST]]


def _tainted(pools: Iterable[DevicePool]) -> Iterator[TaintedDevices]:
    """By driver, key and value; left out where so many slices would have to be thought otherwise that it takes long."""
    counts: dict[tuple[str, str, str], dict[PoolKey, int]] = {}
    unhealthy: set[tuple[str, str, str]] = set()
    for pool in pools:
        for candidate in pool.candidates:
            for taint in candidate.device.taints if candidate.fence is not None else ():
                if taint.effect in HARD_EFFECTS:
                    key = (pool.key.driver, taint.key, taint.value or "")
                    where = counts.setdefault(key, {})
                    where[pool.key] = where.get(pool.key, 0) + 1
                    if is_unhealthy(taint.key):
                        unhealthy.add(key)
    for key, where in counts.items():
        if len(where) <= SLICES_OF_ONE:
            driver, taint_key, value = key
            yield TaintedDevices(
                driver=driver,
                taint=taint_key,
                value=value,
                pools=tuple(sorted(where)),
                devices=sum(where.values()),
                unhealthy=key in unhealthy,
            )


def _rules() -> Iterator[TaintingRule]:
    _, rules = objects.listed(TAINT_RULES, DeviceTaintRule)
    for rule in rules:
        if rule.spec.taint.effect in HARD_EFFECTS:
            yield TaintingRule(name=rule.metadata.name, taint=rule.spec.taint.key)


def _closed_nodes() -> Iterator[ClosedNode]:
    closed = NodeRow.objects.filter(Q(unschedulable=True) | Q(ready=False)).order_by("name")
    for name, unschedulable in closed.values_list("name", "unschedulable")[:MOST]:
        yield ClosedNode(node=name, cordoned=unschedulable)


def _forgotten() -> Iterator[ForgottenClaim]:
    before = utc_now().timestamp() - FORGOTTEN
    living = PodRow.objects.exclude(phase__in=FINISHED_PHASES).values("uid")
    used = Reservation.objects.filter(Q(uid__in=living) | ~Q(resource=PODS)).values("claim_id")
    idle = Claim.objects.filter(allocated=True).exclude(uid__in=used).order_by("namespace", "name")
    found = list(idle.prefetch_related("devices")[:MOST])
    documents = objects.get_many(kind(CLAIMS), {(claim.namespace, claim.name) for claim in found}) if found else ()
    kept = {stored.uid for stored in documents if keeps_unused(decoded(stored, ResourceClaim))}
    for claim in found:
        devices = [one for one in claim.devices.all() if not one.admin_access]
        late = (claim.allocated_at or claim.created_at).timestamp() < before
        if devices and late and claim.uid not in kept:
            yield ForgottenClaim(namespace=claim.namespace, claim=claim.name, devices=len(devices))


# What follows --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Mending:
    """What is mended, and the pods (by uid) that start then, besides those that start by the mendings before it."""

    trouble: Trouble
    starts: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mended(Findings):
    """waiting: pods that were tried. rest: uid -> why it waits when all of `mendings` are done."""

    waiting: int = 0
    mendings: tuple[Mending, ...] = ()
    rest: Mapping[str, AnyCause | None] = field(default_factory=dict)

    def of(self, uid: str) -> Mending | None:
        """The mending that starts the pod."""
        return next((one for one in self.mendings if uid in one.starts), None)


#: For as long as nobody knows better.
UNKNOWN = Mended(complete=False)


@dataclass(frozen=True, slots=True)
class _Attempt:
    """What became of the pods that wait, each tried once, in the order of the queue."""

    started: frozenset[str]
    causes: Mapping[str, AnyCause | None]


@dataclass(slots=True, kw_only=True)
class _Progress(FindingsProgress[Mended]):
    """See `scheduling.rehearsal.repairs`."""

    troubles: Sequence[Trouble] = ()
    #: by the key of a trouble: who starts if it alone is mended
    alone: dict[str, frozenset[str]] = field(default_factory=dict)
    before: _Attempt | None = None

    def go_on(self, copy: Apart, deadline: Deadline) -> None:
        _Rehearsing(copy, self, deadline).go_on()


class Mendings(RehearsedFindings[Mended]):
    """What is known in this process."""

    progress = _Progress


class _Rehearsing:
    """Goes on with what is known of a state, on a copy of it."""

    def __init__(self, copy: Apart, known: _Progress, deadline: Deadline) -> None:
        self._state, self._give_way = copy.state, copy.give_way
        self._overlay = copy.state.overlay
        self._known, self._deadline = known, deadline
        self._pods = sorted(self._state.pending.values(), key=queue_order)[:TRIED]

    def go_on(self) -> None:
        known = self._known
        if known.before is None:
            known.before = self._attempt()
            still_waiting = any(uid not in known.before.started for uid in known.before.causes)
            known.troubles = troubles() if still_waiting else ()
        for trouble in [one for one in known.troubles if one.key not in known.alone]:
            with self._overlay.undone():
                trouble.mend(self._overlay)
                known.alone[trouble.key] = self._attempt().started - known.before.started
            if self._deadline.has_passed:
                return  # the next call goes on from here
        known.found, known.found_all = self._one_after_the_other(known.before), True

    def _one_after_the_other(self, before: _Attempt) -> Mended:
        known, found, last = self._known, list[Mending](), before
        by_number = sorted(known.troubles, key=lambda one: (-len(known.alone[one.key]), one.key))
        with self._overlay.undone():
            for trouble in by_number:
                trouble.mend(self._overlay)
                if known.alone[trouble.key]:
                    now = self._attempt()
                    if starts := now.started - last.started:
                        found.append(Mending(trouble=trouble, starts=starts))
                        last = now
            # What nobody starts by is no cause either: with all of it mended, the others say what they really lack.
            at_last = self._attempt() if known.troubles else before
        rest = {uid: at_last.causes.get(uid, cause) for uid, cause in last.causes.items() if uid not in before.started}
        return Mended(waiting=len(before.causes), mendings=tuple(found), rest=rest)

    def _attempt(self) -> _Attempt:
        """Try every pod that waits; what is given out for that is taken back."""
        started, waiting, alike = set[str](), dict[str, AnyCause | None](), dict[Hashable, AnyCause | None]()
        self._tries = WaitingPods(state=self._state, give_way=self._give_way)
        deadline = Deadline.after_work(ATTEMPT_SECONDS)
        with self._overlay.undone():
            for pod in self._pods:
                self._give_way()
                if deadline.has_passed:
                    break
                found = self._tried(pod, alike)
                if found is True:
                    started.add(pod.metadata.uid)
                else:
                    waiting[pod.metadata.uid] = found
        post_filter.settle(self._state, utc_now())  # who was nominated has its room again, for the next round
        return _Attempt(frozenset(started), waiting)

    def _tried(self, pod: Pod, alike: dict[Hashable, AnyCause | None]) -> AnyCause | Literal[True] | None:
        """True where it is placed; else why not. alike: what was said of pods that ask for the same."""
        state = self._state
        if has_group(pod):  # it starts with the others of its gang or not at all
            found = self._tries.decide(pod)
            return True if isinstance(found, Placement) else found.hold.cause if isinstance(found, Wait) else None
        with state.overlay.trying(pod):
            request = request_of(state, pod)
            if isinstance(request, Hold):
                return request.cause
            gist = gist_of(state, request)
            if gist not in alike:
                verdict = decide(state, pod)
                if isinstance(verdict, Placement):
                    return True
                alike[gist] = verdict.hold.cause
            return alike[gist]


_mendings = PerProcess(lambda: Mendings(UNKNOWN))


def known_mendings() -> Mended:
    """The repairs that were found so far."""
    return _mendings.value.known


def read_mendings(budget: float = BUDGET) -> Mended:
    """The repairs that are known now; for up to `budget` seconds more are looked for, where that is not all."""
    return _mendings.value.read(budget)
