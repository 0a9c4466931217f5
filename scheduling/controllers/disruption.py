"""Counts what disruption budgets allow, and says so in their status (upstream: pkg/controller/disruption).

A budget is counted when it changes, and when pods of its namespace do; one whose granted evictions nobody carries out
is looked at again when they expire. It is read without a lock and written on condition that nobody has written since:
who did wakes the controller again. Budgets in percent, and those with maxUnavailable, are counted from what the pods'
controllers scale to: custom resources with a scale. Where that is not known nobody may be evicted, and events say why.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from claims.evictions import IDENTITY
from claims.kinds import disruptions
from claims.kinds.disruption_budgets import PodDisruptionBudget
from claims.kinds.pods import Pod
from manciple.store import objects, sql
from manciple.store.objects import Writer, decoded
from manciple.store.records import EventRecord
from manciple.wire.base import ApiObject, OwnerReference
from manciple.wire.errors import ApiError, Conflict, NotFound
from manciple.wire.registry import registry
from scheduling import event_recorder
from scheduling.controllers.declaration import ADDED, DELETING, MODIFIED, Controller
from scheduling.coordination import CursorFollower, utc_now
from scheduling.event_recorder import EventNote
from scheduling.models import Cursor
from scheduling.resources import BUDGETS, PODS, kind

#: The source of the controller's events, as upstream names it.
COMPONENT = "controllermanager"
CURSOR = "disruption budgets"

#: Something to tell about an object: its type, reason and message.
Remark = tuple[ApiObject, str, str, str]


class NotCountable(Exception):
    """Why it is not known how many pods there should be."""


def reconcile(now: datetime) -> int:
    """Returns how many budgets said something else before."""
    if not sql.count(BUDGETS, namespace=""):
        place = Cursor.objects.filter(name=CURSOR)
        if place.exists():  # the first budget that comes begins with a look at everything
            place.delete()
        return 0
    return FOLLOWER.follow(lambda: now) + _sync(_expiring(now), now)


def handle(records: Sequence[EventRecord]) -> int:
    """Count the budgets of the namespaces in which any of this happened."""
    touched = {record.namespace for record in records}
    return _sync((one for one in _budgets() if one.metadata.namespace in touched), utc_now())


def sweep(now: datetime) -> int:
    """Count every budget."""
    return _sync(_budgets(), now)


def _budgets() -> Iterator[PodDisruptionBudget]:
    return iter(objects.listed(BUDGETS, PodDisruptionBudget)[1])


def _expiring(now: datetime) -> Iterator[PodDisruptionBudget]:
    """Those that wait for pods that nobody has deleted in time."""
    for one in _budgets():
        due = disruptions.next_change(one)
        if due is not None and due < now:
            yield one


def _sync(budgets: Iterable[PodDisruptionBudget], now: datetime) -> int:
    return sum(_sync_one(one, now) for one in budgets)


def _sync_one(budget: PodDisruptionBudget, now: datetime) -> bool:
    pods = pods_of(budget)
    remarks: list[Remark] = []
    if not pods:
        remarks.append((budget, "Normal", "NoPods", "No matching pods found"))
    try:
        scale = 0
        if disruptions.needs_scale(budget.spec):
            scale, unmanaged = scale_of(pods)
            remarks += [(budget, "Warning", "UnmanagedPods", _unmanaged(budget))] if unmanaged else []
        following = disruptions.counted(budget, pods, scale=scale, now=now)
    except (NotCountable, ValueError) as error:
        why = f"Failed to calculate the number of expected pods: {error}"
        remarks.append((budget, "Warning", "CalculateExpectedPodCountFailed", why))
        following = disruptions.failed(budget, str(error), now)
    meta = budget.metadata
    late = f"Pod was expected by PDB {meta.namespace}/{meta.name} to be deleted but it wasn't"
    remarks += [(pod, "Warning", "NotDeleted", late) for pod in disruptions.expired(budget, pods, now)]
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
    wanted = disruptions.selected(budget)
    if wanted.nothing:
        return []
    page = objects.list(kind(PODS), namespace=budget.metadata.namespace, labels=None if wanted.empty else wanted)
    return [decoded(stored, Pod) for stored in page.items]


def scale_of(pods: Iterable[Pod]) -> tuple[int, bool]:
    """(what the controllers of the pods scale to, all together; whether some pods have none). Raises: NotCountable."""
    scales: dict[str, int] = {}
    unmanaged = False
    for pod in pods:
        owner = next((one for one in pod.metadata.owner_references if one.controller), None)
        if owner is None:
            unmanaged = True
        elif owner.uid not in scales:
            found = _scale(owner, pod.metadata.namespace)
            if found is None:
                raise NotCountable(f'found no controllers for pod "{pod.metadata.name}"')
            scales[owner.uid] = found
    return sum(scales.values()), unmanaged


def _scale(owner: OwnerReference, namespace: str) -> int | None:
    """The replicas that its scale asks for; None where there is no such object any more. Raises: NotCountable."""
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
    try:
        return int(scale.read(objects.decode(of, stored.text))["spec"].get("replicas", 0))
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
    known_as="disruption",
)

RESYNC = Controller(
    name="recount_disruptions",
    does="counts all disruption budgets, whatever the log said",
    reconcile=sweep,
    every=60,
)
