"""The one state that a claim is shown in, and what is to be said of it in half a line. PURE.

stuck       it should end or change by itself and does not: somebody has to look
pending     it has no devices yet
preparing   it has devices, and a pod on its node waits until they are prepared
allocated   it has devices, and a pod uses them: "Reserved", as its devices are
unused      it has devices that nobody reserved: "Allocated", as its devices are
deleting    it goes when the pods that use it have ended
releasing   its last pod ended a moment ago; its devices are being taken back
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from claims.causes.causes import AnyCause, claim_of, decode
from claims.causes.messages import brief
from claims.controllers.reservations import FINALIZER
from claims.kinds.pods import Pod as PodObject
from claims.kinds.resource_claims import ResourceClaim, is_allocated_by_controller, pools_in_use
from claims.models import AllocatedDevice, Claim, Pod, Reservation
from claims.pod_claims import requested_classes, stays_allocated
from dashboard.kit.lists import giving_way
from inventory.models import Node, Pool
from manciple.durations import moment
from manciple.people import Person
from manciple.store import history, objects
from manciple.store.objects import decoded
from manciple.wire.resources import CLAIMS, FINISHED_PHASES, PODS, Key, kind
from scheduling.models import QueuedPod

#: state -> what it is called, in the order in which the list shows them
STATES = {
    "stuck": "Stuck",
    "pending": "Pending",
    "preparing": "Preparing",
    "allocated": "Reserved",
    "unused": "Allocated",
    "deleting": "Deleting",
    "releasing": "Releasing",
}
#: What comes first in the list: what needs somebody, then what waits, then what changes.
URGENCY = {state: rank for rank, state in enumerate(
    ("stuck", "pending", "unused", "preparing", "deleting", "releasing", "allocated")
)}  # fmt: skip

#: How long after its end a pod may still be written as a holder, and a deleted claim be there, before that is strange.
MOMENT = timedelta(seconds=10)
#: How long after its grace period a pod may take to end.
PATIENCE = timedelta(seconds=30)
#: An allocation that nobody reserved is taken back after a minute; this much later it is strange.
FORGOTTEN = timedelta(minutes=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """One entry of status.reservedFor, and what became of it.

    fate: preparing, running, ended, ending (being deleted, in time), overdue (should have ended by now), gone (no such
    pod), replaced (another pod has the name now) or other (no pod, so only its own controller knows).
    """

    resource: str
    name: str
    uid: str
    fate: str
    node: str = ""
    phase: str = ""
    ends_at: datetime | None = None  # when the pod's grace period is over
    lately: bool = False  # something happened to it in the last moments

    @property
    def is_pod(self) -> bool:
        return self.resource == PODS

    @property
    def is_linked(self) -> bool:
        """Whether it has a page."""
        return self.is_pod and not self.is_over

    @property
    def title(self) -> str:
        """A pod by its name, anything else with what it is."""
        return self.name if self.is_pod else f"{self.resource} {self.name}"

    @property
    def is_over(self) -> bool:
        return self.fate in ("ended", "gone", "replaced")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimFacts:
    """What decides a claim's state."""

    allocated: bool
    allocated_at: datetime | None = None
    users: tuple[User, ...] = ()
    nodes: tuple[str, ...] = ()
    gone_nodes: tuple[str, ...] = ()  # of `nodes`, those without a Node
    silent_nodes: tuple[str, ...] = ()  # of `nodes`, those that are not ready
    deleted_at: datetime | None = None
    finalizers: tuple[str, ...] = field(default=())
    immediate: bool = False  # allocated without a pod, and kept until it is deleted (allocationMode Immediate)
    driver: str = ""  # whose controller allocated it, and alone takes it back (KEP-3063)
    deallocation_requested: bool = False  # of that driver
    lately: bool = False  # that was requested in the last minutes

    @property
    def foreign_finalizers(self) -> tuple[str, ...]:
        return tuple(name for name in self.finalizers if name != FINALIZER)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimVerdict:
    """cause: why a claim is stuck, as one word for the advice; "" otherwise."""

    state: str
    note: str = ""
    cause: str = ""

    @property
    def label(self) -> str:
        return STATES[self.state]


def fate_of(phase: str, *, node: str, ends_at: datetime | None, deleting: bool, now: datetime) -> str:
    """What became of a pod that still exists."""
    if phase in FINISHED_PHASES or (deleting and not node):
        return "ended"
    if deleting:
        return "overdue" if ends_at is not None and now > ends_at + PATIENCE else "ending"
    return "running" if phase == "Running" else "preparing"


def judge(facts: ClaimFacts, *, now: datetime) -> ClaimVerdict:
    """The state of a claim."""
    return _stuck(facts, now) or _settled(facts)


def _stuck(facts: ClaimFacts, now: datetime) -> ClaimVerdict | None:
    """The first of the things that should not be; a claim that is being released is on its way."""
    checks = (_node_gone, _pod_stays, _pod_over, _held_back, _node_silent, _leaked)
    return next((found for check in checks if (found := check(facts, now)) is not None), None)


def _node_gone(facts: ClaimFacts, _now: datetime) -> ClaimVerdict | None:
    if not (facts.allocated and facts.gone_nodes):
        return None
    return _is_stuck("node-gone", f"Node {facts.gone_nodes[0]} no longer exists")


def _pod_stays(facts: ClaimFacts, _now: datetime) -> ClaimVerdict | None:
    overdue = next((user for user in facts.users if user.fate == "overdue"), None)
    return _is_stuck("pod-stays", f"Pod {overdue.name} does not end") if overdue else None


def _pod_over(facts: ClaimFacts, _now: datetime) -> ClaimVerdict | None:
    over = [user for user in facts.users if user.is_over]
    if not over or len(over) < len(facts.users):
        return None
    if any(user.lately for user in over):
        return ClaimVerdict(state="releasing", note=f"Pod {over[0].name} has ended")
    what = "has ended" if over[0].fate == "ended" else "no longer exists"
    return _is_stuck("pod-gone", f"Pod {over[0].name} {what}")


def _held_back(facts: ClaimFacts, now: datetime) -> ClaimVerdict | None:
    """A deleted claim that nobody uses."""
    if facts.deleted_at is None or facts.users:
        return None
    if facts.foreign_finalizers:
        return _is_stuck("finalizer", f"Finalizer {facts.foreign_finalizers[0]} holds it")
    return _is_stuck("controller", "No controller removes it") if now > facts.deleted_at + MOMENT else None


def _node_silent(facts: ClaimFacts, _now: datetime) -> ClaimVerdict | None:
    if not (facts.allocated and facts.silent_nodes):
        return None
    return _is_stuck("node-silent", f"Node {facts.silent_nodes[0]} is not ready")


def _leaked(facts: ClaimFacts, now: datetime) -> ClaimVerdict | None:
    if not facts.allocated or facts.users or facts.allocated_at is None or now <= facts.allocated_at + FORGOTTEN:
        return None
    if facts.driver and facts.deallocation_requested and facts.lately:
        return ClaimVerdict(state="releasing", note=f"Driver {facts.driver} deallocates it")
    if facts.driver and facts.deallocation_requested:
        return _is_stuck("driver", f"Driver {facts.driver} does not deallocate it")
    if facts.immediate or facts.driver:
        return None
    return _is_stuck("leaked", "Nobody uses it, and nobody releases it")


def _is_stuck(cause: str, note: str) -> ClaimVerdict:
    return ClaimVerdict(state="stuck", note=note, cause=cause)


def _settled(facts: ClaimFacts) -> ClaimVerdict:
    if facts.deleted_at is not None:
        living = [user for user in facts.users if not user.is_over]
        return ClaimVerdict(state="deleting", note=f"Waits until {_living(living)} ended" if living else "")
    if not facts.allocated:
        return ClaimVerdict(state="pending")
    if not facts.users:
        kept = "; allocated until it is deleted" if facts.immediate else ""
        return ClaimVerdict(state="unused", note=f"No pod is reserved for it{kept}")
    if all(user.fate == "preparing" or user.is_over for user in facts.users):
        return ClaimVerdict(state="preparing")
    return ClaimVerdict(state="allocated")


def _living(users: Iterable[User]) -> str:
    first, *others = users
    who = f"pod {first.name}" if first.is_pod else first.title
    return f"{who} and {len(others)} more have" if others else f"{who} has"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRow:
    """One claim of the list."""

    uid: str
    namespace: str
    name: str
    verdict: ClaimVerdict
    note: str
    facts: ClaimFacts
    devices: int
    wanted_by: tuple[str, ...]  # pods without a node that name it
    classes: frozenset[str]
    created_at: datetime

    @property
    def state(self) -> str:
        return self.verdict.state

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def nodes(self) -> tuple[str, ...]:
        return self.facts.nodes

    @property
    def users(self) -> tuple[User, ...]:
        return self.facts.users

    @property
    def pods(self) -> tuple[str, ...]:
        """For whom it is: pods by name, others with what they are."""
        return tuple(user.title for user in self.users) or self.wanted_by


@dataclass(frozen=True, slots=True)
class _Held:
    """What is allocated to one claim. devices: without those that it only looks at, by admin access."""

    devices: int = 0
    nodes: frozenset[str] = frozenset()
    classes: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """Everything that the lines are made of."""

    users: Mapping[str, tuple[User, ...]]
    held: Mapping[str, _Held]
    nodes: Mapping[str, bool]  # name -> ready
    documents: Mapping[Key, ResourceClaim]  # of those being deleted, held by nobody, or asked for their classes
    waiting: Mapping[Key, list[tuple[str, AnyCause | None]]]  # claim -> (pod, why it waits)
    lately: Collection[str]  # uids of claims that their drivers were asked lately to deallocate


def read_claims(
    person: Person, *, uid: str = "", with_classes: bool = False, now: datetime | None = None
) -> list[ClaimRow]:
    """The claims that `person` sees, or the one with `uid`. with_classes: tell also what pending ones ask for."""
    now = now or datetime.now(UTC)
    found = Claim.objects.restrict(person)
    if uid:
        found = found.filter(uid=uid)
    columns = ("uid", "namespace", "name", "allocated", "deleting", "created_at", "allocated_at")
    rows = list(found.values_list(*columns))
    users = read_users(uid, now=now)
    read = {
        (namespace, name)
        for uid, namespace, name, allocated, deleting, *_ in rows
        if deleting or (uid not in users if allocated else with_classes)
    }
    documents = _documents(read)
    asked = {one.metadata.uid for one in documents.values() if one.status.deallocation_requested}
    known = _Known(
        users=users,
        held=_held(uid),
        nodes=dict(Node.objects.values_list("name", "ready")),
        documents=documents,
        waiting=_waiting({(ns, name) for _, ns, name, allocated, *_ in rows if not allocated}),
        lately=history.touched_lately(asked, within=FORGOTTEN),
    )
    return [_line(row, known, now) for row in giving_way(rows)]


def _line(row: tuple[Any, ...], known: _Known, now: datetime) -> ClaimRow:
    uid, namespace, name, allocated, _deleting, created_at, allocated_at = row
    users = known.users.get(uid, ())
    held = known.held.get(uid, _Held())
    nodes = tuple(sorted({user.node for user in users if user.node} or held.nodes))
    document = known.documents.get((namespace, name))
    facts = ClaimFacts(
        allocated=allocated,
        allocated_at=allocated_at or created_at,
        users=users,
        nodes=nodes,
        gone_nodes=tuple(node for node in nodes if node not in known.nodes),
        silent_nodes=tuple(node for node in nodes if known.nodes.get(node) is False),
        deleted_at=moment(document.metadata.deletion_timestamp) if document else None,
        finalizers=document.metadata.finalizers if document else (),
        **(_when_unused(document, known.lately) if document else {}),
    )
    verdict = judge(facts, now=now)
    waiting = known.waiting.get((namespace, name), [])
    cause = next((cause for _, cause in waiting if cause), None) if verdict.state == "pending" else None
    why = brief(cause, names_claim=claim_of(cause) != f"{namespace}/{name}")
    return ClaimRow(
        uid=uid,
        namespace=namespace,
        name=name,
        verdict=verdict,
        note=verdict.note or why or ("" if allocated or waiting else "No pod uses it yet"),
        facts=facts,
        devices=held.devices,
        wanted_by=tuple(pod for pod, _ in waiting),
        classes=held.classes or (frozenset(one for _, one in requested_classes(document)) if document else frozenset()),
        created_at=created_at,
    )


def _when_unused(claim: ResourceClaim, lately: Collection[str]) -> dict[str, Any]:
    """What decides whether an allocation stays that nobody uses."""
    allocation = claim.status.allocation
    return {
        "immediate": stays_allocated(claim),
        "driver": allocation.controller_name if allocation is not None and is_allocated_by_controller(claim) else "",
        "deallocation_requested": claim.status.deallocation_requested,
        "lately": claim.metadata.uid in lately,
    }


def _held(uid: str) -> dict[str, _Held]:
    columns = ("claim_id", "driver", "pool", "node", "device_class", "admin_access")
    held = AllocatedDevice.objects.filter(claim=uid) if uid else AllocatedDevice.objects.all()
    rows = list(held.values_list(*columns))
    nodes = Pool.publishing_nodes({pool for _, _, pool, *_ in rows})
    count: Counter[str] = Counter()
    places: dict[str, set[str]] = defaultdict(set)
    classes: dict[str, set[str]] = defaultdict(set)
    for claim, driver, pool, on, device_class, looks_on in rows:
        count[claim] += not looks_on
        possible = pools_in_use(driver, pool, on, nodes.get((driver, pool), ()))
        if len(possible) == 1 and possible[0].node:
            places[claim].add(possible[0].node)
        classes[claim].add(device_class)
    return {claim: _Held(count[claim], frozenset(places[claim]), frozenset(classes[claim])) for claim in count}


def _documents(keys: Collection[Key]) -> dict[Key, ResourceClaim]:
    found = objects.get_many(kind(CLAIMS), keys) if keys else ()
    return {(stored.namespace, stored.name): decoded(stored, ResourceClaim) for stored in found}


def _waiting(pending: Collection[Key]) -> dict[Key, list[tuple[str, AnyCause | None]]]:
    """Pending claim -> the pods without a node that name it, and what the scheduler found of each."""
    if not pending:
        return {}
    pods = Pod.objects.filter(node_name="", deleting=False, namespace__in={namespace for namespace, _ in pending})
    found: dict[Key, list[tuple[str, AnyCause | None]]] = defaultdict(list)
    rows = [
        (uid, namespace, name, [claim for claim in claims if (namespace, claim) in pending])
        for uid, namespace, name, claims in pods.order_by("name").values_list("uid", "namespace", "name", "claim_names")
    ]
    wanting = {uid for uid, *_, claims in rows if claims}
    told = dict(QueuedPod.objects.exclude(cause="").values_list("uid", "cause")) if wanting else {}
    for uid, namespace, name, claims in rows:
        for claim in claims:
            found[namespace, claim].append((name, decode(told.get(uid, ""))))
    return found


def pending_documents(person: Person, *, most: int) -> Iterable[ResourceClaim]:
    """Those of the first `most` pending claims, the oldest first, that `person` sees."""
    rows = Claim.objects.restrict(person).filter(allocated=False, deleting=False).order_by("created_at")
    return _documents(set(rows.values_list("namespace", "name")[:most])).values()


# Who claims are reserved for, and what became of each ----------------------------------------------------------------


_POD = ("uid", "namespace", "name", "node_name", "phase", "deleting")


def read_users(uid: str = "", *, now: datetime) -> dict[str, tuple[User, ...]]:
    """claim -> who it is reserved for; of the claim with `uid` alone, where one is given."""
    entries = Reservation.objects.order_by("name")
    if uid:
        entries = entries.filter(claim=uid)
    rows = list(entries.values_list("claim_id", "claim__namespace", "resource", "name", "uid"))
    wanted = Pod.objects.filter(uid__in=[row[4] for row in rows]) if uid else Pod.objects.all()
    pods = {pod[0]: pod for pod in wanted.values_list(*_POD)}
    ends = _ends({(pod[1], pod[2]) for pod in pods.values() if pod[5]})
    replaced = _keys_in_use({name for _, _, _, name, pod in rows if pod not in pods})
    over = {row[4] for row in rows if row[4] not in pods or pods[row[4]][4] in FINISHED_PHASES}
    lately = history.touched_lately(over, within=MOMENT)
    users: dict[str, list[User]] = defaultdict(list)
    for claim, namespace, resource, name, pod_uid in rows:
        key, is_late = (namespace, name), pod_uid in lately
        if (pod := pods.get(pod_uid)) is not None:
            user = _fate_of_living(resource, pod, ends_at=ends.get(key), lately=is_late, now=now)
        else:
            fate = "other" if resource != PODS else "replaced" if key in replaced else "gone"
            user = User(resource=resource, name=name, uid=pod_uid, fate=fate, lately=is_late)
        users[claim].append(user)
    return {claim: tuple(found) for claim, found in users.items()}


def _fate_of_living(
    resource: str, pod: tuple[Any, ...], *, ends_at: datetime | None, lately: bool, now: datetime
) -> User:
    """The user that is a pod which exists."""
    uid, _, name, node, phase, deleting = pod
    fate = fate_of(phase, node=node, ends_at=ends_at, deleting=deleting, now=now)
    return User(
        resource=resource, name=name, uid=uid, fate=fate, node=node, phase=phase, ends_at=ends_at, lately=lately
    )


def _keys_in_use(names: Collection[str]) -> set[Key]:
    """The pods that have one of `names` now."""
    return set(Pod.objects.filter(name__in=names).values_list("namespace", "name")) if names else set()


def _ends(keys: Collection[Key]) -> dict[Key, datetime]:
    """When the grace periods of pods that are being deleted are over."""
    found = {}
    for stored in objects.get_many(kind(PODS), keys) if keys else ():
        at = moment(decoded(stored, PodObject).metadata.deletion_timestamp)
        if at is not None:
            found[stored.namespace, stored.name] = at
    return found
