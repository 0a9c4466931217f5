"""What a pod that waits could ask for instead, so that it would start now. Each offer was rehearsed.

    offers(workload, cause)   # those that start it, the smallest change first

Fewer devices, without one constraint or with the attribute that was meant, without one selector, of another class
whose devices are of the same kind, tolerating the taints that keep it away, without what keeps it from nodes: each is
tried by the code that schedules, on one copy of the state. What does not start it is not offered, nor what a quota
would refuse.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from claims.causes.causes import AnyCause, NoCommonValue, NodeRefusal, NoNodeFits, Tainted, TooFewValues
from claims.devices.cache import read_devices
from claims.kinds.resource_claims import DeviceSubRequest, ExactDeviceRequest
from claims.models import Quota
from insight.capacity import expressions_of
from insight.selector_matches import passing
from inventory.kinds.devices import is_unhealthy
from inventory.models import DeviceClass
from inventory.reachability import nodes_with_leases, unreachable
from manciple.wire.limits import TimeLimitExceeded
from scheduling.allocator import Deadline
from scheduling.allocator.problem import MAX_RESULTS
from scheduling.cel import CompileError, compile_selector
from scheduling.metrics import imagined
from scheduling.queue.verdicts import Placement
from scheduling.rehearsal.explanations import Apart, apart_within
from scheduling.rehearsal.quota_refusals import refused
from scheduling.rehearsal.rehearsal import Rehearsal
from scheduling.rehearsal.workload import Changes, Workload, asked_of, known_claim

#: Seconds of processor time for all offers of one pod: they are kept, so a busy machine must not cut them short.
BUDGET = 0.4
#: Seconds that somebody else's rehearsal is waited for.
WAIT = 1.0
#: How many like it are counted; classes and selectors that are tried.
COUNTED, CLASSES, SELECTORS = 20, 12, 6


class Busy(Exception):
    """Others rehearse something for longer than a page may wait; it is asked again later."""


@contextmanager
def rehearsing() -> Iterator[Apart]:
    """Raises: Busy."""
    with apart_within(WAIT) as copy, imagined():
        if copy is None:
            raise Busy
        yield copy


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """With these changes it would start on `node`. fits: as many like it would, counted up to `COUNTED`."""

    changes: Changes
    node: str
    fits: int


def offers(workload: Workload, cause: AnyCause | None) -> tuple[Offer, ...]:
    return tuple(_rehearsed(workload, cause, Deadline.after_work(BUDGET)))


def _rehearsed(workload: Workload, cause: AnyCause | None, deadline: Deadline) -> Iterator[Offer]:
    """The smallest change first; of several classes those that fit most."""
    with suppress(TimeLimitExceeded), rehearsing() as copy:
        limited = Quota.objects.filter(namespace=workload.pod.metadata.namespace).exists()

        def tried(changes: Changes, most: int = COUNTED) -> Offer | None:
            asking = workload.changed(changes)
            most = 1 if asking.shared else most  # others like it would share the same devices
            rehearsal = Rehearsal(copy, asking)
            rehearsal.share(known_claim)
            node, fits = "", 0
            while fits < most and (not fits or not deadline.has_passed):
                verdict = rehearsal.place_next(briefly=True)
                if not isinstance(verdict, Placement):
                    break
                node, fits = node or verdict.node, fits + 1
            rehearsal.overlay.undo()
            if not node or (limited and refused(asking, instead=changes) is not None):
                return None
            return Offer(changes=changes, node=node, fits=fits)

        for key, exactly in _requests(workload):
            if changes := _most(key, exactly, lambda one: tried(one, most=1) is not None, deadline):
                yield from filter(None, [tried(changes)])
        classes: list[Offer] = []
        for changes in candidates(workload, cause):
            if deadline.has_passed:
                break
            offer = tried(changes)
            if offer is None or ((changes.tolerate_nodes or changes.anywhere) and not _is_open(offer.node)):
                continue
            if changes.classes:
                classes.append(offer)
            else:
                yield offer
        yield from sorted(classes, key=lambda one: -one.fits)


def _is_open(node: str) -> bool:
    """Whether it reports and is not cordoned: a pod that tolerates every taint would also go where nothing runs."""
    nodes = nodes_with_leases().exclude(unreachable(datetime.now(UTC)))
    return bool(nodes.filter(name=node, ready=True, unschedulable=False).exists())


# What is tried -------------------------------------------------------------------------------------------------------


def _most(
    key: str, exactly: ExactDeviceRequest | DeviceSubRequest, starts: Callable[[Changes], bool], deadline: Deadline
) -> Changes | None:
    """The most devices, fewer than the request wants, with which it starts."""
    low, high = 1, (exactly.count if exactly.allocation_mode == "ExactCount" else MAX_RESULTS + 1) - 1
    found: Changes | None = None
    while low <= min(high, MAX_RESULTS) and not deadline.has_passed:
        count = (low + min(high, MAX_RESULTS) + 1) // 2
        changes = Changes(counts={key: count})
        if starts(changes):
            found, low = changes, count + 1
        else:
            high = count - 1
    return found


def candidates(workload: Workload, cause: AnyCause | None) -> Iterator[Changes]:
    """Besides fewer devices. The smallest change first."""
    requests = dict(_requests(workload))
    because = cause.because if isinstance(cause, NoNodeFits) and cause.because is not None else cause
    for entry, claim in workload.claims.items():
        constraints = claim.spec.devices.constraints[:SELECTORS] if claim.status.allocation is None else ()
        for index, one in enumerate(constraints):
            name = one.match_attribute or one.distinct_attribute or ""
            if isinstance(because, NoCommonValue | TooFewValues) and because.meant and because.attribute == name:
                yield Changes(attributes={(entry, index): because.meant})
        for index in range(len(constraints)):
            yield Changes(unconstrained=frozenset({(entry, index)}))
    for key, exactly in requests.items():
        for index in range(min(len(exactly.selectors), SELECTORS)):
            yield Changes(without=frozenset({(key, index)}))
    if isinstance(because, Tainted) and not any(is_unhealthy(key) for key, _, _ in because.taints):
        yield Changes(tolerate_devices=True)
    refused = {one.plugin for one, _ in cause.refused if isinstance(one, NodeRefusal)} if (
        isinstance(cause, NoNodeFits)
    ) else set()  # fmt: skip
    if "NodeAffinity" in refused:
        yield Changes(anywhere=True)
    if "TaintToleration" in refused:
        yield Changes(tolerate_nodes=True)
    kinds = _kinds_of_classes() if requests else {}
    for key, exactly in requests.items():
        for name in _similar(exactly.device_class_name, kinds):
            yield Changes(classes={key: name})


def _requests(workload: Workload) -> Iterator[tuple[str, ExactDeviceRequest | DeviceSubRequest]]:
    """What the claims ask for that have no devices yet."""
    for entry, claim in workload.claims.items():
        if claim.status.allocation is None:
            yield from asked_of(claim, entry)


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
