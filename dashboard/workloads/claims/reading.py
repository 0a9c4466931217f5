"""Reads claims as the pages list them, from the index tables: a bounded number of queries for any number of claims."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from claims.causes.causes import AnyCause, claim_of, decode
from claims.causes.messages import brief
from claims.kinds.pods import Pod as PodObject
from claims.kinds.resource_claims import ResourceClaim, is_allocated_by_controller, pools_in_use
from claims.models import AllocatedDevice, Claim, Pod, Reservation
from claims.pod_claims import requested_classes, stays_allocated
from dashboard.kit.lists import giving_way
from dashboard.workloads.claims.states import FORGOTTEN, MOMENT, ClaimFacts, ClaimVerdict, User, fate_of, judge
from inventory.models import Node, Pool
from manciple.durations import moment
from manciple.people import Person
from manciple.store import history, objects
from manciple.store.objects import decoded
from manciple.wire.resources import CLAIMS, FINISHED_PHASES, PODS, Key, kind
from scheduling.models import QueuedPod


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
            user = _living(resource, pod, ends_at=ends.get(key), lately=is_late, now=now)
        else:
            fate = "other" if resource != PODS else "replaced" if key in replaced else "gone"
            user = User(resource=resource, name=name, uid=pod_uid, fate=fate, lately=is_late)
        users[claim].append(user)
    return {claim: tuple(found) for claim, found in users.items()}


def _living(resource: str, pod: tuple[Any, ...], *, ends_at: datetime | None, lately: bool, now: datetime) -> User:
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
