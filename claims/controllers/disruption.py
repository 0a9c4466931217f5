"""Counts what disruption budgets allow, and says so in their status (upstream: pkg/controller/disruption).

A budget is counted when it changes, and when pods of its namespace do; one whose granted evictions nobody carries out
is looked at again when they expire. It is read without a lock and written on condition that nobody has written since:
who did wakes the controller again. Budgets in percent, and those with maxUnavailable, are counted from what the pods'
controllers scale to: Deployments, ReplicaSets, StatefulSets, custom resources with a scale. Where that is not known
nobody may be evicted, and events say why.

Counting takes time in proportion to the budgets and the pods of a namespace. Each namespace has `PATIENCE` seconds in a
run; the rest of its budgets are counted in later runs, after those of other namespaces.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import ClassVar

from claims import event_recorder
from claims.event_recorder import EventNote
from claims.evictions import IDENTITY
from claims.kinds import disruption_budgets
from claims.kinds.disruption_budgets import PodDisruptionBudget
from claims.kinds.pods import Pod, outline
from manciple.controllers.coordination import CursorFollower, utc_now
from manciple.controllers.declaration import DELETING, Controller
from manciple.controllers.models import Cursor
from manciple.per_process import PerProcess
from manciple.store import objects
from manciple.store.event_log import Follower, View
from manciple.store.objects import Writer, decoded
from manciple.store.records import EventRecord, Written
from manciple.wire.base import ApiObject, OwnerReference
from manciple.wire.errors import ApiError, Conflict, NotFound
from manciple.wire.registry import registry
from manciple.wire.resources import ADDED, BUDGETS, MODIFIED, PODS, Key, kind

#: The source of the controller's events, as upstream names it.
COMPONENT = "controllermanager"
CURSOR = "disruption budgets"
#: Seconds in which budgets of one namespace are counted in one run.
PATIENCE = 0.5
#: Namespaces whose budgets are counted each minute, whatever the log said.
IN_TURN = 50

#: Something to tell about an object: its type, reason and message.
Remark = tuple[ApiObject, str, str, str]


class NotCountable(Exception):
    """Why it is not known how many pods there should be."""


class BudgetExpiries(View):
    """The budgets of each namespace, and when the evictions that were granted expire, of those that granted any."""

    resources: ClassVar[Sequence[str]] = (BUDGETS,)

    def __init__(self) -> None:
        self.names: dict[str, set[str]] = {}  # by namespace
        self.expiring: dict[Key, datetime] = {}

    def fill(self, resource: str, objects: Iterable[ApiObject]) -> None:  # noqa: ARG002 - of one resource
        for obj in objects:
            self._put(obj)

    def apply(self, changes: Sequence[Written]) -> None:
        for change in changes:
            namespace, name = change.object.key
            self.expiring.pop((namespace, name), None)
            of_namespace = self.names.get(namespace, set())
            of_namespace.discard(name)
            if not of_namespace:
                self.names.pop(namespace, None)
            if change.type != "DELETED":
                self._put(change.object)

    def _put(self, obj: ApiObject) -> None:
        if isinstance(obj, PodDisruptionBudget):
            self.names.setdefault(obj.metadata.namespace, set()).add(obj.metadata.name)
            if (due := disruption_budgets.next_change(obj)) is not None:
                self.expiring[obj.key] = due


class BudgetCounter:
    """Counts the budgets of namespaces. Of one process: another one counts what this leaves with its next sweep."""

    def __init__(self) -> None:
        self._known = Follower(BudgetExpiries)
        #: namespace -> how many of its budgets are left, and the name of the first
        self._left: dict[str, tuple[int, str]] = {}
        #: the last namespace that was counted in turn
        self._last = ""

    def any(self) -> bool:
        with self._known.view() as view:
            return bool(view.names)

    def count_in_turn(self, now: datetime) -> int:
        """Count the budgets of the next `IN_TURN` namespaces. Returns how many changed."""
        with self._known.view() as view:
            ordered = sorted(view.names)
        at = bisect_right(ordered, self._last)
        chosen = [*ordered[at:], *ordered[:at]][:IN_TURN]
        self._last = chosen[-1] if chosen else ""
        return self.count(chosen, now)

    def count(self, namespaces: Collection[str] | None, now: datetime) -> int:
        """Count all budgets of these namespaces, or of all, as far as there is time. Returns how many changed."""
        with self._known.view() as view:
            wanted = view.names.keys() if namespaces is None else view.names.keys() & set(namespaces)
            touched = {one: sorted(view.names[one]) for one in wanted}
        later = self._left.keys()
        return sum(
            self._count(one, names, now) for one, names in sorted(touched.items(), key=lambda item: item[0] in later)
        )

    def go_on(self, now: datetime) -> int:
        """Count what earlier runs have left, and those that wait for pods that nobody has deleted in time."""
        with self._known.view() as view:
            left = {one: (sorted(view.names.get(one, ())), *self._left[one]) for one in self._left}
            expired: dict[str, list[str]] = {}
            for (namespace, name), due in view.expiring.items():
                if due < now:
                    expired.setdefault(namespace, []).append(name)
        changed = sum(self._count(namespace, names, now) for namespace, names in expired.items())
        for namespace, (names, number, first) in left.items():
            at = bisect_left(names, first)
            changed += self._count(namespace, [*names[at:], *names[:at]][:number], now)
        return changed

    def _count(self, namespace: str, names: Sequence[str], now: datetime) -> int:
        """Count these budgets, the first left over first."""
        known = self._left.pop(namespace, None)
        if not names:
            return 0
        if known is not None:
            at = next((number for number, name in enumerate(names) if name >= known[1]), 0)
            names = [*names[at:], *names[:at]]
        changed, end, pods = 0, time.monotonic() + PATIENCE, _pods_in(namespace)
        for number, name in enumerate(names):
            if number and time.monotonic() > end:
                self._left[namespace] = (len(names) - number, name)
                break
            stored = objects.get(kind(BUDGETS), namespace, name)
            if stored is not None:
                changed += _sync_one(decoded(stored, PodDisruptionBudget), pods, now)
        return changed


counter = PerProcess(BudgetCounter)


def reconcile(now: datetime) -> int:
    """Returns how many budgets said something else before."""
    if not counter.value.any():
        place = Cursor.objects.filter(name=CURSOR)
        if place.exists():  # the first budget that comes begins with a look at everything
            place.delete()
        return 0
    return FOLLOWER.follow(lambda: now) + counter.value.go_on(now)


def handle(records: Sequence[EventRecord]) -> int:
    """Count the budgets of the namespaces in which any of this happened."""
    return counter.value.count({record.namespace for record in records}, utc_now())


def sweep(now: datetime) -> int:
    """Count every budget."""
    return counter.value.count(None, now)


def sweep_in_turn(now: datetime) -> int:
    return counter.value.count_in_turn(now)


def _pods_in(namespace: str) -> list[Pod]:
    """Their outlines."""
    _, portions = objects.list_in_portions(kind(PODS), namespace=namespace)
    return [outline(decoded(stored, Pod)) for portion in portions for stored in portion]


def _sync_one(budget: PodDisruptionBudget, namespace_pods: Iterable[Pod], now: datetime) -> bool:
    selected = disruption_budgets.selected(budget)
    pods = [pod for pod in namespace_pods if selected.matches(pod.metadata.labels)]
    remarks: list[Remark] = []
    if not pods:
        remarks.append((budget, "Normal", "NoPods", "No matching pods found"))
    try:
        scale = 0
        if disruption_budgets.needs_scale(budget.spec):
            scale, unmanaged = scale_of(pods)
            remarks += [(budget, "Warning", "UnmanagedPods", _unmanaged(budget))] if unmanaged else []
        following = disruption_budgets.counted(budget, pods, scale=scale, now=now)
    except (NotCountable, ValueError) as error:
        why = f"Failed to calculate the number of expected pods: {error}"
        remarks.append((budget, "Warning", "CalculateExpectedPodCountFailed", why))
        following = disruption_budgets.failed(budget, str(error), now)
    meta = budget.metadata
    late = f"Pod was expected by PDB {meta.namespace}/{meta.name} to be deleted but it wasn't"
    remarks += [(pod, "Warning", "NotDeleted", late) for pod in disruption_budgets.expired(budget, pods, now)]
    return following != budget and _store(following, remarks, now)


def _store(budget: PodDisruptionBudget, remarks: Sequence[Remark], now: datetime) -> bool:
    """False where somebody has written meanwhile, or it is gone: the log says so, too."""
    try:
        with objects.writing(identity=IDENTITY) as writer:
            writer.update(kind(BUDGETS), budget, subresource="status")
            for remark in remarks:
                _tell(writer, remark, now)
    except (Conflict, NotFound):
        return False
    return True


def _tell(writer: Writer, remark: Remark, now: datetime) -> None:
    about, type_, reason, message = remark
    note = EventNote(
        regarding=about,
        type="Warning" if type_ == "Warning" else "Normal",
        reason=reason,
        message=message,
        component=COMPONENT,
    )
    event_recorder.record(writer, note, now=now)


def _unmanaged(budget: PodDisruptionBudget) -> str:
    return (
        f"Pods selected by this PodDisruptionBudget (selector: {_shown(budget)}) were found to be unmanaged. As a "
        "result, the status of the PDB cannot be calculated correctly, which may result in undefined behavior. To "
        'account for these pods please set ".spec.minAvailable" field of the PDB to an integer value.'
    )


def _shown(budget: PodDisruptionBudget) -> str:
    selector = budget.spec.selector
    return "" if selector is None else ",".join(f"{key}={value}" for key, value in selector.match_labels.items())


# The pods, and who controls them --------------------------------------------------------------------------------------


def pods_of(budget: PodDisruptionBudget) -> list[Pod]:
    """The pods that the budget is about."""
    wanted = disruption_budgets.selected(budget)
    if wanted.nothing:
        return []
    page = objects.list(kind(PODS), namespace=budget.metadata.namespace, labels=None if wanted.empty else wanted)
    return [decoded(stored, Pod) for stored in page.items]


def scale_of(pods: Iterable[Pod]) -> tuple[int, bool]:
    """(what the controllers of the pods scale to, all together; whether some pods have none). Raises: NotCountable."""
    scales: dict[str, int] = {}  # uid of what is scaled -> its replicas
    seen: set[str] = set()
    unmanaged = False
    for pod in pods:
        owner = _controller_of(pod)
        if owner is None:
            unmanaged = True
        elif owner.uid not in seen:
            seen.add(owner.uid)
            found = _scale(owner, pod.metadata.namespace)
            if found is None:
                raise NotCountable(f'found no controllers for pod "{pod.metadata.name}"')
            scales[found[0]] = found[1]
    return sum(scales.values()), unmanaged


def _controller_of(obj: ApiObject) -> OwnerReference | None:
    return next((one for one in obj.metadata.owner_references if one.controller), None)


def _scale(owner: OwnerReference, namespace: str) -> tuple[str, int] | None:
    """(the uid of what is scaled, the replicas that its scale asks for); None where there is no such object any more.

    A ReplicaSet of a Deployment counts as that: while it is rolled out, several ReplicaSets share its pods.
    Raises: NotCountable.
    """
    group, _, version = owner.api_version.rpartition("/")
    of = registry.of_kind(group, version, owner.kind)
    if of is None:
        raise NotCountable(f'no matches for kind "{owner.kind}" in version "{owner.api_version}"')
    scale = of.projections.get("scale")
    if scale is None:
        raise NotCountable(f"{of.resource} does not implement the scale subresource")
    stored = objects.get(of, namespace if of.namespaced else "", owner.name)
    if stored is None or stored.uid != owner.uid:
        return None
    found = objects.decode(of, stored.text)
    above = _controller_of(found) if of.resource == "replicasets.apps" else None
    if above is not None and (rolled_out := _scale(above, namespace)) is not None:
        return rolled_out
    try:
        return owner.uid, int(scale.read(found)["spec"].get("replicas", 0))
    except ApiError as error:
        raise NotCountable(error.message) from error


FOLLOWER = CursorFollower(
    name=CURSOR,
    resources=frozenset({BUDGETS, PODS}),
    handle=handle,
    sweep=sweep,
)

CONTROLLER = Controller(
    name="count_disruptions",
    does="counts how many pods disruption budgets allow to be evicted",
    reconcile=reconcile,
    # Pods that become ready do not wake it: pods change all the time, and who is refused an eviction tries again.
    every=2,
    wakes_on=frozenset({(BUDGETS, ADDED), (BUDGETS, MODIFIED), (PODS, DELETING)}),
    queue_name="disruption",
)

RESYNC = Controller(
    name="recount_disruptions",
    does="counts disruption budgets in turn, whatever the log said",
    reconcile=sweep_in_turn,
    every=60,
)
