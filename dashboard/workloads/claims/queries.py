"""Claims as the pages show them: the one state of each, what is to be said of it in half a line, and its users.

The database decides the state, so lists filter, count and sort by it without reading more claims than they show.

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
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.core.exceptions import EmptyResultSet
from django.db import connection
from django.db.models import Case, Count, Exists, F, Max, OuterRef, Q, QuerySet, Subquery, TextField, Value, When
from django.db.models.functions import Coalesce, Concat

from claims.causes.causes import AnyCause, claim_of, decode
from claims.causes.messages import brief
from claims.controllers.reservations import FINALIZER
from claims.kinds.resource_claims import ResourceClaim, is_allocated_by_controller, pools_in_use
from claims.models import AllocatedDevice, Claim, Pod, PodClaim, Reservation
from claims.pod_claims import stays_allocated
from dashboard.kit.lists import Natural
from inventory.models import Node, Pool
from inventory.reachability import lost_nodes, unreachable_nodes
from manciple.gaps import lacking, lacking_in
from manciple.people import Person
from manciple.store import objects, sql
from manciple.store.history import written_since
from manciple.store.objects import decoded
from manciple.wire.resources import CLAIMS, FINISHED_PHASES, NODES, PODS, Key, kind
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
#: Causes of the states that have several, as `_CAUSE` decides them; the others are called as their state.
STATE_OF = {
    **dict.fromkeys(
        ("node-gone", "pod-stays", "pod-gone", "finalizer", "controller", "node-silent", "driver", "leaked"), "stuck"
    ),
    **dict.fromkeys(("pod-ended", "driver-asked"), "releasing"),
}

#: What a claim that was made by hand waits for first.
NO_POD_YET = "No pod uses it yet"

#: How long after its end a pod may still be written as a holder, and a deleted claim be there, before that is strange.
MOMENT = timedelta(seconds=10)
#: How long after its grace period a pod may take to end.
PATIENCE = timedelta(seconds=30)
#: An allocation that nobody reserved is taken back after a minute; this much later it is strange.
FORGOTTEN = timedelta(minutes=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """One entry of status.reservedFor, and what became of it.

    fate: preparing, running, unreachable (its node is), ended, ending (being deleted, in time), overdue (should have
    ended by now), gone (no such pod), replaced (another pod has the name now) or other (no pod, so only its own
    controller knows).
    """

    resource: str
    name: str
    uid: str
    fate: str
    node: str = ""
    ends_at: datetime | None = None  # when the pod's grace period is over

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
class ClaimRow:
    """One claim, as lists and its own page show it. cause: of its state; waits: why the first pod that names it waits.

    gone_nodes, silent_nodes: of `nodes`, those without a Node, and those that are not ready; unreachable: of these,
    those of which nothing is heard. driver: whose controller allocated it. finalizers: read only of claims that are
    deleted, or held by nobody.
    """

    uid: str
    namespace: str
    name: str
    cause: str
    created_at: datetime
    allocated_at: datetime
    deleted_at: datetime | None
    devices: int
    users: tuple[User, ...] = ()
    wanted_by: tuple[str, ...] = ()  # pods without a node that name it
    nodes: tuple[str, ...] = ()
    gone_nodes: tuple[str, ...] = ()
    silent_nodes: tuple[str, ...] = ()
    unreachable: tuple[str, ...] = ()
    finalizers: tuple[str, ...] = ()
    driver: str = ""
    immediate: bool = False
    waits: AnyCause | None = None

    @property
    def state(self) -> str:
        return STATE_OF.get(self.cause, self.cause)

    @property
    def label(self) -> str:
        return STATES[self.state]

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def pods(self) -> tuple[str, ...]:
        """The pods that it is for; other users with what they are."""
        return tuple(user.title for user in self.users) or self.wanted_by

    @property
    def is_unused(self) -> bool:
        """Whether it waits for a pod, as far as the pods are known."""
        return self.cause == "pending" and not (self.wanted_by or lacking_in(self.namespace, PODS))

    @property
    def foreign_finalizers(self) -> tuple[str, ...]:
        return tuple(name for name in self.finalizers if name != FINALIZER)

    @property
    def note(self) -> str:
        """What is said of it in half a line; "" of most that are in use.

        Names are empty where the object went while the claim was read.
        """
        if self.cause == "pending":
            unused = NO_POD_YET if self.is_unused else ""
            return brief(self.waits, names_claim=claim_of(self.waits) != self.key) or unused
        over = next((user for user in self.users if user.is_over), None)
        overdue = next((user.name for user in self.users if user.fate == "overdue"), "")
        living = [f"pod {user.name}" if user.is_pod else user.title for user in self.users if not user.is_over]
        others = f"and {len(living) - 1} more have" if len(living) > 1 else "has"
        return {
            "node-gone": f"Node {next(iter(self.gone_nodes), '')} no longer exists",
            "node-silent": self._silence,
            "pod-stays": f"Pod {overdue} does not end",
            "pod-ended": f"Pod {over.name if over else ''} has ended",
            "pod-gone": f"Pod {over.name} {'has ended' if over.fate == 'ended' else 'no longer exists'}"
            if over
            else "",
            "finalizer": f"Finalizer {next(iter(self.foreign_finalizers), '')} holds it",
            "controller": "No controller removes it",
            "driver-asked": f"Driver {self.driver} deallocates it",
            "driver": f"Driver {self.driver} does not deallocate it",
            "leaked": "Nobody uses it, and nobody releases it",
            "deleting": f"Waits until {living[0]} {others} ended" if living else "",
            "unused": f"No pod is reserved for it{'; allocated until it is deleted' if self.immediate else ''}",
        }.get(self.cause, "")

    @property
    def _silence(self) -> str:
        if self.unreachable:
            return f"Node {self.unreachable[0]} is unreachable"
        return f"Node {next(iter(self.silent_nodes), '')} is not ready"


#: What became of a user of a claim. The claim is judged by the greatest number among its users.
_OVER, _JUST_OVER, _PREPARING, _BUSY, _OVERDUE = range(5)
#: What a node is that a claim's devices are on; likewise.
_READY, _SILENT, _GONE = range(3)
#: Why a claim is in its state, from its columns and what `_facts` adds: the first that holds.
_CAUSE = f"""CASE
    WHEN allocated AND node_state = {_GONE} THEN 'node-gone'
    WHEN user_state = {_OVERDUE} THEN 'pod-stays'
    WHEN user_state = {_JUST_OVER} THEN 'pod-ended'
    WHEN user_state = {_OVER} THEN 'pod-gone'
    WHEN deleting AND user_state IS NULL AND held_back THEN 'finalizer'
    WHEN deleting AND user_state IS NULL AND overstays THEN 'controller'
    WHEN allocated AND node_state = {_SILENT} THEN 'node-silent'
    WHEN allocated AND user_state IS NULL AND forgotten AND keeps = 'asked' THEN 'driver-asked'
    WHEN allocated AND user_state IS NULL AND forgotten AND keeps = '{Claim.Kept.REQUESTED.value}' THEN 'driver'
    WHEN allocated AND user_state IS NULL AND forgotten AND keeps = '{Claim.Kept.NOT.value}' THEN 'leaked'
    WHEN deleting THEN 'deleting'
    WHEN NOT allocated THEN 'pending'
    WHEN user_state IS NULL THEN 'unused'
    WHEN user_state = {_PREPARING} THEN 'preparing'
    ELSE 'allocated'
END"""


def _choice(column: str, values: Mapping[str, Any], otherwise: str) -> str:
    """SQL for the value of a key."""
    whens = " ".join(f"WHEN {key!r} THEN {value!r}" for key, value in values.items())
    return f"CASE {column} {whens} ELSE {otherwise} END"


def _tables() -> dict[str, str]:
    models = (AllocatedDevice, Pod, Reservation, Node, Pool)
    return {model.__name__: model._meta.db_table for model in models}


def _node_state(name: str) -> str:
    """Of the node of this name."""
    ready = "n.ready AND n.name NOT IN (SELECT name FROM unreachable)"
    state = f"CASE WHEN {ready} THEN {_READY} ELSE {_SILENT} END"
    states = f"SELECT {state} FROM {{Node}} n WHERE n.name = {name}"  # noqa: S608 - our own names
    return f"COALESCE(({states}), t.unseen_node)"


#: What decides the state of each claim. Written out: composing it for each request would take longer than the answer.
#: A device is on a node as `claims.kinds.resource_claims.pools_in_use` says.
_FACTS = f"""SELECT c.uid, c.namespace, c.name, c.allocated, c.deleting, c.held_back, c.created_at, c.sorting,
    c.deleted_at < t.moment AS overstays,
    COALESCE(c.allocated_at, c.created_at) < t.forgotten AS forgotten,
    CASE WHEN c.kept = '{Claim.Kept.REQUESTED.value}' AND {written_since("c.uid", "t.forgotten")}
        THEN 'asked' ELSE c.kept END AS keeps,
    (
        SELECT MAX(COALESCE(
            (
                SELECT CASE WHEN p.deleting AND p.deleted_at < t.patience THEN {_OVERDUE}
                    WHEN p.deleting OR p.phase = 'Running' THEN {_BUSY} ELSE {_PREPARING} END
                FROM {{Pod}} p WHERE p.uid = r.uid AND p.phase NOT IN ({", ".join(map(repr, sorted(FINISHED_PHASES)))})
                    AND NOT (p.deleting AND p.node_name = '')
            ),
            CASE WHEN (r.resource <> '{PODS}' OR t.unseen_pod = {_BUSY})
                    AND NOT EXISTS (SELECT 1 FROM {{Pod}} p WHERE p.uid = r.uid) THEN {_BUSY}
                WHEN {written_since("r.uid", "t.moment")} THEN {_JUST_OVER} ELSE {_OVER} END
        )) FROM {{Reservation}} r WHERE r.claim_id = c.uid
    ) AS user_state,
    COALESCE(
        (
            SELECT MAX({_node_state("p.node_name")}) FROM {{Reservation}} r
            JOIN {{Pod}} p ON p.uid = r.uid AND p.node_name <> '' WHERE r.claim_id = c.uid
        ),
        (
            SELECT MAX(CASE
                WHEN d.node = '' THEN (
                    SELECT CASE WHEN COUNT(DISTINCT q.node_name) = 1 AND MAX(q.node_name) <> ''
                        THEN MAX({_node_state("q.node_name")}) END
                    FROM {{Pool}} q WHERE q.driver = d.driver AND q.name = d.pool
                )
                WHEN EXISTS (
                    SELECT 1 FROM {{Pool}} q WHERE q.driver = d.driver AND q.name = d.pool AND q.node_name = ''
                ) THEN NULL
                ELSE {_node_state("d.node")}
            END) FROM {{AllocatedDevice}} d WHERE d.claim_id = c.uid
        )
    ) AS node_state
FROM claims c, times t""".format(**_tables())  # noqa: S608 - names of our own
#: The facts stand in a table of their own: else the database would find them again wherever the cause mentions one.
_JUDGED = (
    "WITH times AS (SELECT %s AS moment, %s AS patience, %s AS forgotten, %s AS unseen_pod, %s AS unseen_node), "  # noqa: S608
    f"claims AS ({{claims}}), "
    f"unreachable AS MATERIALIZED (SELECT n.name FROM {Node._meta.db_table} n WHERE {{unreachable}}), "
    f"facts AS MATERIALIZED ({_FACTS}), caused AS MATERIALIZED (SELECT facts.*, {_CAUSE} AS cause FROM facts), "
    f"stated AS (SELECT caused.*, {_choice('cause', STATE_OF, 'cause')} AS state FROM caused), "
    f"judged AS (SELECT stated.*, {_choice('state', URGENCY, '0')} AS urgency FROM stated) "
)
#: Stuck first, then what waits longest; what is in use, the newest first.
_BY_URGENCY = (
    "urgency {up}, CASE state WHEN 'allocated' THEN NULL ELSE created_at END {up}, created_at {down}, namespace {up}, "
    "name {up}"
)


def _devices() -> QuerySet[AllocatedDevice]:
    return AllocatedDevice.objects.filter(claim=OuterRef("uid"))


def _pools() -> QuerySet[Pool]:
    """Those that a device may be of."""
    return Pool.objects.filter(driver=OuterRef("driver"), name=OuterRef("pool")).order_by()


def _one_pools(value: Any) -> Subquery:
    """`value` of the pools that a device may be of, if they are all on one node."""
    on_one = _pools().values("driver").annotate(nodes=Count("node_name", distinct=True), value=Max(value))
    return Subquery(on_one.filter(nodes=1).values("value"))


def _devices_place() -> Case:
    """The node that an allocated device is certainly on, "" where that is not known; as `_FACTS` has it."""
    return Case(
        When(node="", then=Coalesce(_one_pools("node_name"), Value(""))),
        When(Exists(_pools().filter(node_name="")), then=Value("")),
        default=F("node"),
    )


def _places() -> tuple[QuerySet[Any], QuerySet[Any]]:
    """A claim's users and its devices, with the node of each as `place`."""
    node = Subquery(Pod.objects.filter(uid=OuterRef("uid")).values("node_name"))
    users = Reservation.objects.filter(claim=OuterRef("uid")).annotate(place=node).filter(place__gt="")
    return users, _devices().annotate(place=_devices_place()).filter(place__gt="")


_TITLE = Case(
    When(resource=PODS, then=F("name")), default=Concat("resource", Value(" "), "name", output_field=TextField())
)


def _wanting() -> QuerySet[PodClaim, Any]:
    """The pods without a node that name a claim."""
    return PodClaim.objects.filter(
        namespace=OuterRef("namespace"), claim=OuterRef("name"), pod__node_name="", pod__deleting=False
    )


def _first(rows: QuerySet[Any, Any], column: Any) -> Subquery:
    return Subquery(rows.order_by(column).values_list(column)[:1])


def _sorting(column: str) -> Any:
    """By what the list is sorted where its address names the column."""
    match column:
        case "name":
            return Natural("name")
        case "ns":
            return Concat("namespace", Value(" "), Natural("name"), output_field=TextField())
        case "pods":
            waiting = Case(When(allocated=False, then=_first(_wanting(), "pod__name")))
            users = Reservation.objects.filter(claim=OuterRef("uid"))
            first = Subquery(users.order_by("name").values_list(_TITLE)[:1])
            return Coalesce(first, waiting, Value(""), output_field=TextField())
        case "devices":
            held = _devices().filter(admin_access=False).order_by().values("claim").values(number=Count("pk"))
            return Coalesce(Subquery(held), Value(0))
        case "node":
            users_, devices = _places()
            place = Coalesce(_first(users_, "place"), _first(devices, "place"), Value(""), output_field=TextField())
            return Natural(place)
    return None


def with_class(claims: QuerySet[Claim], name: str) -> QuerySet[Claim]:
    """Those that hold devices of the class, or ask for it while they hold none."""
    asks = Q(classes__contains=f" {name} ") & ~Exists(_devices())
    return claims.filter(Exists(_devices().filter(device_class=name)) | asks)


def with_text(claims: QuerySet[Claim], text: str) -> QuerySet[Claim]:
    """Those whose namespace and name, pods or nodes contain the text."""
    users, devices = _places()
    titled = Reservation.objects.filter(claim=OuterRef("uid")).annotate(title=_TITLE)
    unused = ~Exists(Reservation.objects.filter(claim=OuterRef("uid")))
    return claims.annotate(key=Concat("namespace", Value("/"), "name", output_field=TextField())).filter(
        Q(key__icontains=text)
        | Exists(titled.filter(title__icontains=text))
        | (Q(allocated=False) & unused & Exists(_wanting().filter(pod__name__icontains=text)))
        | Exists(users.filter(place__icontains=text))
        | (~Exists(users) & Exists(devices.filter(place__icontains=text)))
    )


def _judged(claims: QuerySet[Claim], wanted: str, now: datetime | None, sorting: Any = None) -> list[tuple[Any, ...]]:
    """wanted: the rest of a statement that selects from `judged`."""
    now = now or datetime.now(UTC)
    columns = ("uid", "namespace", "name", "allocated", "deleting", "held_back", "kept", "created_at", "allocated_at")
    listed = claims.order_by().values(*columns, "deleted_at", sorting=Value("") if sorting is None else sorting)
    try:
        statement, parameters = listed.query.sql_with_params()
    except EmptyResultSet:  # of somebody who sees no namespace
        return []
    lost, names = sql.is_one_of("n.name", unreachable_nodes(now))
    adapt = connection.ops.adapt_datetimefield_value
    times = [adapt(now - MOMENT), adapt(now - PATIENCE), adapt(now - FORGOTTEN)]
    # Of a mirror's objects that may not be read it is not concluded that they are gone.
    unseen = [_BUSY if lacking(PODS) else _OVER, _READY if lacking(NODES) else _GONE]
    values = [*times, *unseen, *parameters, *names]
    return sql.fetch(_JUDGED.format(claims=statement, unreachable=lost) + wanted, values)


def count_states(claims: QuerySet[Claim], *, now: datetime | None = None) -> Counter[str]:
    """State -> how many of `claims` are in it."""
    return Counter(dict(_judged(claims, "SELECT state, COUNT(*) FROM judged GROUP BY state", now)))


def count_states_by_namespace(claims: QuerySet[Claim], *, now: datetime) -> dict[str, Counter[str]]:
    """The same of each namespace that has some."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    wanted = "SELECT namespace, state, COUNT(*) FROM judged GROUP BY namespace, state"
    for namespace, state, count in _judged(claims, wanted, now):
        found[namespace][state] = count
    return found


def find_claims(
    claims: QuerySet[Claim], *, state: str = "", sort: str = "", rows: slice = slice(None), now: datetime | None = None
) -> list[tuple[str, str]]:
    """(uid, cause) of those in `state`, in the order that the list's address asks for. rows: which of them."""
    column = sort.removeprefix("-")
    down = sort.startswith("-")
    sorting = _sorting(column)
    order = _BY_URGENCY.format(up="ASC", down="DESC")
    if column == "state" and down:
        order = _BY_URGENCY.format(up="DESC", down="ASC")
    elif column == "age":
        order = f"created_at {'ASC' if down else 'DESC'}, {order}"
    elif sorting is not None:
        order = f"sorting {'DESC' if down else 'ASC'}, {order}"
    chosen = f" WHERE state = '{state}'" if state in STATES else ""
    part = "" if rows.stop is None else f" LIMIT {rows.stop - rows.start} OFFSET {rows.start}"
    wanted = f"SELECT uid, cause FROM judged{chosen} ORDER BY {order}{part}"  # noqa: S608 - words of our own
    return _judged(claims, wanted, now, sorting)


#: Claims whose users, devices and documents are read at once.
CHUNK = 500


def read_claims(claims: QuerySet[Claim], *, now: datetime | None = None) -> list[ClaimRow]:
    """All of `claims`: a few named ones."""
    now = now or datetime.now(UTC)
    return list(claim_rows(find_claims(claims, now=now), now=now))


def claim_rows(found: Iterable[tuple[str, str]], *, now: datetime | None = None) -> Iterator[ClaimRow]:
    """What `find_claims` found, with everything that lists show, in the same order; without claims that have gone."""
    now = now or datetime.now(UTC)
    for chunk in sql.chunks(found, CHUNK):
        yield from _read_rows(dict(chunk), now)


def _read_rows(causes: Mapping[str, str], now: datetime) -> Iterator[ClaimRow]:
    """A bounded number of queries, for the rows of these claims alone."""
    columns = ("uid", "namespace", "name", "allocated", "deleting", "created_at", "allocated_at", "deleted_at")
    claims = Claim.objects.filter(uid__in=list(causes)).values_list(*columns, named=True)
    rows = {row.uid: row for row in claims}
    users, held = read_users({uid: row.namespace for uid, row in rows.items()}, now=now), read_held(causes)
    unsure = {
        (row.namespace, row.name) for uid, row in rows.items() if row.deleting or (row.allocated and uid not in users)
    }
    documents = _documents(unsure)
    waiting = waiting_pods({(row.namespace, row.name) for row in rows.values() if not row.allocated})
    places = {
        uid: tuple(sorted({user.node for user in users.get(uid, ()) if user.node} or held[uid].nodes)) for uid in rows
    }
    named = {name for nodes in places.values() for name in nodes}
    ready = dict(Node.objects.filter(name__in=named).values_list("name", "ready")) if named else {}
    lost = unreachable_nodes(now) if named else frozenset()
    for uid, cause in causes.items():
        if (row := rows.get(uid)) is None:
            continue
        document, wanting = documents.get((row.namespace, row.name)), waiting.get((row.namespace, row.name), [])
        allocation = document.status.allocation if document and is_allocated_by_controller(document) else None
        yield ClaimRow(
            uid=uid,
            namespace=row.namespace,
            name=row.name,
            cause=cause,
            created_at=row.created_at,
            allocated_at=row.allocated_at or row.created_at,
            deleted_at=row.deleted_at,
            devices=held[uid].devices,
            users=users.get(uid, ()),
            wanted_by=tuple(pod for pod, _ in wanting),
            nodes=places[uid],
            gone_nodes=tuple(name for name in places[uid] if name not in ready) if not lacking(NODES) else (),
            silent_nodes=tuple(name for name in places[uid] if ready.get(name) is False or name in lost),
            unreachable=tuple(name for name in places[uid] if name in lost),
            finalizers=document.metadata.finalizers if document else (),
            driver=allocation.controller_name if allocation else "",
            immediate=bool(document and stays_allocated(document)),
            waits=next((why for _, why in wanting if why), None),
        )


@dataclass(frozen=True, slots=True)
class HeldDevices:
    """What is allocated to one claim. devices: without those that it only looks at, by admin access."""

    devices: int = 0
    nodes: frozenset[str] = frozenset()


def read_held(claims: Collection[str]) -> Mapping[str, HeldDevices]:
    """Claim, by uid -> what is allocated to it."""
    columns = ("claim_id", "driver", "pool", "node", "admin_access")
    rows = sql.select(AllocatedDevice, columns, ["claim_id"], ((uid,) for uid in claims))
    nodes = Pool.publishing_nodes({pool for _, _, pool, *_ in rows}) if rows else {}
    count: Counter[str] = Counter()
    places: dict[str, set[str]] = defaultdict(set)
    for claim, driver, pool, on, looks_on in rows:
        count[claim] += not looks_on
        possible = pools_in_use(driver, pool, on, nodes.get((driver, pool), ()))
        if len(possible) == 1 and possible[0].node:
            places[claim].add(possible[0].node)
    return {claim: HeldDevices(count[claim], frozenset(places[claim])) for claim in claims}


def _documents(keys: Collection[Key]) -> dict[Key, ResourceClaim]:
    found = objects.get_many(kind(CLAIMS), keys) if keys else ()
    return {(stored.namespace, stored.name): decoded(stored, ResourceClaim) for stored in found}


def waiting_pods(pending: Collection[Key]) -> Mapping[Key, Sequence[tuple[str, AnyCause | None]]]:
    """Pending claim -> the pods without a node that name it, and what the scheduler found of each."""
    rows = sql.select(PodClaim, ["pod_id", "namespace", "claim"], ["namespace", "claim"], pending) if pending else []
    pods = sql.select(Pod, ["uid", "name", "node_name", "deleting"], ["uid"], ((uid,) for uid, *_ in rows))
    names = {uid: name for uid, name, node, deleting in pods if not node and not deleting}
    causes = dict(sql.select(QueuedPod, ["uid", "cause"], ["uid"], ((uid,) for uid in names)))
    found: dict[Key, list[tuple[str, AnyCause | None]]] = defaultdict(list)
    for uid, namespace, claim in sorted((row for row in rows if row[0] in names), key=lambda row: names[row[0]]):
        found[namespace, claim].append((names[uid], decode(causes.get(uid, ""))))
    return found


def pending_documents(person: Person, *, most: int) -> Iterable[ResourceClaim]:
    """Those of the first `most` pending claims, the oldest first, that `person` sees."""
    rows = Claim.objects.restrict(person).filter(allocated=False, deleting=False).order_by("created_at")
    return _documents(set(rows.values_list("namespace", "name")[:most])).values()


def read_users(namespaces: Mapping[str, str], *, now: datetime) -> Mapping[str, tuple[User, ...]]:
    """Claim, by uid -> the entries of its status.reservedFor. namespaces: of the claims that are asked for."""
    entries = sql.select(
        Reservation, ["claim_id", "resource", "name", "uid"], ["claim_id"], ((uid,) for uid in namespaces)
    )
    rows = sorted(entries, key=lambda row: row[2])
    found = Pod.objects.filter(uid__in=[row[3] for row in rows])
    columns = ("uid", "name", "node_name", "phase", "deleting", "deleted_at")
    pods = {pod.uid: pod for pod in found.values_list(*columns, named=True)} if rows else {}
    lost = lost_nodes(now) if pods else frozenset()
    gone = {name for _, _, name, pod in rows if pod not in pods}
    in_use = set(Pod.objects.filter(name__in=gone).values_list("namespace", "name")) if gone else set()
    users: dict[str, list[User]] = defaultdict(list)
    for claim, resource, name, uid in rows:
        pod = pods.get(uid)
        if pod is not None:
            fate = fate_of(pod.phase, node=pod.node_name, ends_at=pod.deleted_at, deleting=pod.deleting, now=now)
            if fate in ("running", "preparing") and pod.node_name in lost:
                fate = "unreachable"
            user = User(
                resource=resource, name=pod.name, uid=uid, fate=fate, node=pod.node_name, ends_at=pod.deleted_at
            )
        else:
            fate = "other" if resource != PODS else "replaced" if (namespaces[claim], name) in in_use else "gone"
            fate = "unseen" if fate == "gone" and lacking(PODS) else fate
            user = User(resource=resource, name=name, uid=uid, fate=fate)
        users[claim].append(user)
    return {claim: tuple(of_claim) for claim, of_claim in users.items()}


def fate_of(phase: str, *, node: str, ends_at: datetime | None, deleting: bool, now: datetime) -> str:
    """What became of a pod that still exists."""
    if phase in FINISHED_PHASES or (deleting and not node):
        return "ended"
    if deleting:
        return "overdue" if ends_at is not None and now > ends_at + PATIENCE else "ending"
    return "running" if phase == "Running" else "preparing"
