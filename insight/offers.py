"""What a pod that waits could ask for instead, so that it would start now. Each offer was rehearsed.

    offers(workload, report, cause)   # those that start it, the smallest change first

Fewer devices, without one selector, of another class whose devices are of the same kind, tolerating the taints that
keep it away: each is tried by the code that schedules, on one copy of the state. What does not start it is not offered.
"""

from __future__ import annotations

import difflib
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from claims.causes.causes import AnyCause, NoNodeFits, Tainted
from claims.devices.cache import read_devices
from claims.kinds.resource_claims import ExactDeviceRequest
from claims.pod_claims import has_group
from insight.capacity import expressions_of
from insight.selector_matches import passing
from inventory.models import DeviceClass
from manciple.per_process import PerProcess
from manciple.wire.limits import TimeLimitExceeded
from scheduling.allocator import Deadline
from scheduling.cel import CompileError, compile_selector
from scheduling.cycle.gangs import need_of
from scheduling.metrics import imagined
from scheduling.queue.verdicts import Placement
from scheduling.rehearsal.explanations import Report, apart, cluster
from scheduling.rehearsal.rehearsal import Rehearsal
from scheduling.rehearsal.workload import Changes, Workload, known_claim
from scheduling.state.cluster import ClusterState

#: Seconds of processor time for all offers of one pod: they are kept, so a busy machine must not cut them short.
BUDGET = 0.4
#: How many like it are counted; classes and selectors that are tried.
COUNTED, CLASSES, SELECTORS = 20, 12, 6
#: Pods whose offers are kept.
REMEMBERED = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """With these changes it would start on `node`. fits: as many like it would, counted up to `COUNTED`."""

    changes: Changes
    node: str
    fits: int


def offers(workload: Workload, report: Report | None, cause: AnyCause | None) -> tuple[Offer, ...]:
    """Of nothing where the cause is none of devices or classes: what a pod asks for does not matter then."""
    meta = workload.pod.metadata
    key = (meta.uid, meta.resource_version, *(one.metadata.resource_version for one in workload.claims.values()))
    with cluster() as state:
        if has_group(workload.pod) and need_of(state, workload.pod) is not None:
            return ()  # it starts with the others of its gang, who ask for the same or for something else
        known = _known.value.get(key)
        if known is not None and known.of() is state and state.news_after(known.revision) == []:
            return known.found
        revision, of = state.revision, weakref.ref(state)
    found = tuple(_rehearsed(workload, candidates(workload, report, cause), Deadline.after_work(BUDGET)))
    cache = _known.value
    cache[key] = _Known(of, revision, found)
    while len(cache) > REMEMBERED:
        cache.popitem(last=False)
    return found


@dataclass(frozen=True, slots=True)
class _Known:
    of: weakref.ref[ClusterState]
    revision: int
    found: tuple[Offer, ...]


_known = PerProcess(OrderedDict[tuple[str, ...], _Known])


def _rehearsed(workload: Workload, wanted: Iterable[Changes], deadline: Deadline) -> Iterator[Offer]:
    """One offer of each sort: of several counts the largest, of several classes those that fit most."""
    found: list[Offer] = []
    with suppress(TimeLimitExceeded), apart() as copy, imagined():
        for changes in wanted:
            if deadline.has_passed:
                break
            if changes.counts and any(one.changes.counts.keys() == changes.counts.keys() for one in found):
                continue  # more than that was found to start it
            rehearsal = Rehearsal(copy, workload.changed(changes))
            rehearsal.share(known_claim)
            node, fits = "", 0
            while fits < COUNTED and (not fits or not deadline.has_passed):
                verdict = rehearsal.place_next()
                if not isinstance(verdict, Placement):
                    break
                node, fits = node or verdict.node, fits + 1
            rehearsal.overlay.undo()
            if fits:
                found.append(Offer(changes=changes, node=node, fits=fits))
    yield from (one for one in found if not one.changes.classes)
    yield from sorted((one for one in found if one.changes.classes), key=lambda one: -one.fits)


# What is tried -------------------------------------------------------------------------------------------------------


def candidates(workload: Workload, report: Report | None, cause: AnyCause | None) -> Iterator[Changes]:
    """The smallest change first."""
    requests = dict(_requests(workload))
    for key, exactly in requests.items():
        yield from _fewer(key, exactly, report)
    for key, exactly in requests.items():
        for index in range(min(len(exactly.selectors), SELECTORS)):
            yield Changes(without=frozenset({(key, index)}))
    if isinstance(cause.because if isinstance(cause, NoNodeFits) else cause, Tainted):
        yield Changes(tolerate_devices=True)
    kinds = _kinds_of_classes()
    for key, exactly in requests.items():
        for name in _similar(exactly.device_class_name, kinds):
            yield Changes(classes={key: name})


def _requests(workload: Workload) -> Iterator[tuple[str, ExactDeviceRequest]]:
    """`entry/request` -> what it asks for, of the claims that have no devices yet."""
    for entry, claim in workload.claims.items():
        if claim.status.allocation is None:
            for request in claim.spec.devices.requests:
                if request.exactly is not None:
                    yield f"{entry}/{request.name}", request.exactly


def _fewer(key: str, exactly: ExactDeviceRequest, report: Report | None) -> Iterator[Changes]:
    """The most that one node has free, and half of it, until one."""
    wanted = exactly.count if exactly.allocation_mode == "ExactCount" else 0
    most = max(
        (one.most[-1] for one in report.requests if one.plan.full_name == key.partition("/")[2]), default=0
    ) if report else 0  # fmt: skip
    count = min(most or wanted // 2, wanted - 1)
    while count > 0:
        yield Changes(counts={key: count})
        count //= 2


#: (driver, whether it is a network interface)
_Kind = tuple[str, bool]


def _kinds_of_classes() -> dict[str, frozenset[_Kind]]:
    """class -> what its devices are; classes that select nothing are left out."""
    found = {}
    pools = [state.pool for state in read_devices().pools.values()]
    for name, stored in DeviceClass.objects.order_by("name").values_list("name", "selectors"):
        try:
            selectors = [compile_selector(one) for one in expressions_of(stored)]
        except CompileError:
            continue
        kinds = set()
        for pool in pools:
            match = passing(pool, selectors).match
            for place, candidate in enumerate(pool.candidates if match else ()):
                if match >> place & 1:
                    kinds.add((candidate.driver, candidate.gauge))
                    break
        if kinds:
            found[name] = frozenset(kinds)
    return found


def _similar(name: str, kinds: Mapping[str, frozenset[_Kind]]) -> list[str]:
    """Classes with devices of the same kind; of a class that does not exist, those whose names are near."""
    known = kinds.get(name)
    if known is None:
        return difflib.get_close_matches(name, kinds, n=3)
    gauges = {gauge for _, gauge in known}
    alike = [one for one, has in kinds.items() if one != name and gauges & {gauge for _, gauge in has}]
    return sorted(alike, key=lambda one: not kinds[one] & known)[:CLASSES]
