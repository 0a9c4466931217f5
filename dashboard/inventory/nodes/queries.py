"""Reads nodes for their pages: states, pools, pods, and how much of their resources the pods request.

The list is filtered, counted, sorted and cut into pages in the database; documents and pods are read of the nodes that
are shown.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db.models import Case, Q, QuerySet, TextField, Value, When
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast

from claims.controllers.node_lifecycle import ready_condition
from claims.devices.cache import DeviceSnapshot
from claims.devices.published import DevicePool
from claims.devices.states import DeviceState
from claims.kinds.pods import Pod
from claims.kinds.resource_usage import node_requests_of
from claims.models import Pod as PodRow
from dashboard.inventory.devices.grid import DeviceTotals, line_named
from dashboard.inventory.devices.grid import lines_of as all_lines
from inventory.kinds.nodes import LIFECYCLE_TAINTS, Node, Taint, version_of
from inventory.models import Pool
from inventory.reachability import is_unreachable, nodes_with_leases, renewed_at, unreachable
from manciple.durations import moment
from manciple.store import history, objects
from manciple.store.objects import decoded
from manciple.wire.quantity import Quantity
from manciple.wire.resources import FINISHED_PHASES, NODES, PODS, SLICES, kind
from manciple.wire.selectors import ParsedLabelSelector
from manciple.wire.validation import natural

#: What a node's state is called -> how severe that is (the mark's class), what the mark shows.
STATES = {
    "Unreachable": ("err", "!"),
    "Not ready": ("err", "!"),
    "Starting": ("info", "…"),
    "Cordoned": ("closed", ""),
    "Ready": ("ok", "✓"),
}
#: The tabs of the list: the word in the address -> what the tab says.
TABS = {
    "": "All",
    "not-ready": "Not ready",
    "unreachable": "Unreachable",
    "cordoned": "Cordoned",
    "tainted": "Node tainted",
    "tainted-devices": "Devices tainted",
    "unhealthy-devices": "Devices unhealthy",
    "incomplete": "Pool incomplete",
}


@dataclass(frozen=True, slots=True)
class Known:
    """A node with what was heard of it."""

    node: Node
    renewed_at: datetime | None  # when the server last saw its lease renewed
    state: str

    @property
    def name(self) -> str:
        return self.node.metadata.name

    @property
    def version(self) -> str:
        return version_of(self.node)

    @property
    def mark(self) -> tuple[str, str]:
        return STATES[self.state]

    @property
    def addresses(self) -> list[str]:
        return [one.address for one in self.node.status.addresses]

    #: (key, value)
    @property
    def labels(self) -> list[tuple[str, str]]:
        return sorted(self.node.metadata.labels.items())

    @property
    def labelled(self) -> list[str]:
        return [f"{key}={value}" for key, value in self.labels]

    @property
    def unreachable_since(self) -> datetime | None:
        """When it was last heard of, where it is unreachable."""
        if self.state != "Unreachable":
            return None
        ready = ready_condition(self.node)
        return self.renewed_at or moment(ready.last_transition_time if ready else self.node.metadata.creation_timestamp)

    @property
    def fresh(self) -> bool:
        return self.renewed_at is not None and self.state != "Unreachable"

    @property
    def taints(self) -> tuple[Taint, ...]:
        """Taints set by people, and those for pressure; the state already shows NotReady and Unreachable."""
        return tuple(taint for taint in self.node.spec.taints if taint.key not in LIFECYCLE_TAINTS)


def with_lease(node: Node, now: datetime) -> Known:
    name = node.metadata.name
    heard = renewed_at(now, names=frozenset({name})).get(name)
    return Known(node, heard, state_of(node, heard, now))


def state_of(node: Node, heard: datetime | None, now: datetime) -> str:
    """One of `STATES`; what a person must know first wins. heard: when its Lease was renewed."""
    ready, created = ready_condition(node), moment(node.metadata.creation_timestamp)
    if is_unreachable(ready.status if ready is not None else "", created, heard, now):
        return "Unreachable"
    if ready is None:
        return "Starting"
    if ready.status != "True":
        return "Not ready"
    return "Cordoned" if node.spec.unschedulable else "Ready"


def nodes_by_state(now: datetime) -> QuerySet[Any]:
    """All nodes with `renewed_at` and `rank`: the place of `state_of` in `STATES`."""
    ranks = {"Unreachable": unreachable(now), "Starting": Q(condition=""), "Not ready": ~Q(condition="True")}
    ranks |= {"Cordoned": Q(unschedulable=True), "Ready": Q()}
    places = list(STATES)
    rank = Case(
        *(When(found, then=Value(places.index(state))) for state, found in ranks.items() if found),
        default=Value(places.index("Ready")),
    )
    ranked: QuerySet[Any] = nodes_with_leases().annotate(rank=rank)
    return ranked


def tab_filters(snapshot: DeviceSnapshot) -> dict[str, Q]:
    """tab -> the nodes under it. Only the snapshot has the states of devices, and keeps what is found there."""
    places, marked = list(STATES), snapshot.memo.get(tab_filters)
    if marked is None:
        lines = [line for line in all_lines(snapshot) if line.node]
        marked = snapshot.memo[tab_filters] = [
            {line.node for line in lines if line.counts[state]}
            for state in (DeviceState.TAINTED, DeviceState.UNHEALTHY)
        ]
    tainted, unhealthy = marked
    return {
        "": Q(),
        "not-ready": Q(rank__in=[places.index(state) for state in ("Not ready", "Unreachable", "Starting")]),
        "unreachable": Q(rank=places.index("Unreachable")),
        "cordoned": Q(unschedulable=True),
        "tainted": Q(tainted=True),
        "tainted-devices": Q(name__in=tainted),
        "unhealthy-devices": Q(name__in=unhealthy),
        "incomplete": Q(name__in=Pool.objects.filter(complete=False).values("node_name")),
    }


def labelled(nodes: QuerySet[Any], selector: ParsedLabelSelector) -> QuerySet[Any]:
    """The nodes whose labels match, as `ParsedLabelSelector.matches` says."""
    for place, one in enumerate(selector.requirements):
        label, there = f"label_{place}", Q(labels__has_key=one.key)
        nodes = nodes.annotate(**{label: Cast(KeyTextTransform(one.key, "labels"), TextField())})
        match one.operator:
            case "Exists":
                nodes = nodes.filter(there)
            case "DoesNotExist":
                nodes = nodes.exclude(there)
            case "!=" | "NotIn":
                nodes = nodes.exclude(there & Q(**{f"{label}__in": one.values}))
            case "Gt" | "Lt":
                # Compared in Python: neither database compares texts as numbers and skips the others.
                texts = nodes.filter(there).values_list(label, flat=True).distinct()
                nodes = nodes.filter(**{f"{label}__in": [text for text in texts if one.matches({one.key: text})]})
            case _:
                nodes = nodes.filter(there, **{f"{label}__in": one.values})
    return nodes.none() if selector.nothing else nodes


@dataclass(frozen=True, slots=True)
class PodsThere:
    """The pods of a node that are not over, and what they ask of it."""

    pods: tuple[Pod, ...]
    used: Mapping[str, int]  # resource -> nanos


def pods_on(names: Collection[str]) -> dict[str, PodsThere]:
    """node -> its pods. As many queries as hundreds of pods."""
    rows = PodRow.objects.filter(node_name__in=names).exclude(phase__in=FINISHED_PHASES)
    keys = list(rows.values_list("namespace", "name"))
    by_node: dict[str, list[Pod]] = defaultdict(list)
    for stored in objects.get_many(kind(PODS), keys):
        pod = decoded(stored, Pod)
        by_node[pod.spec.node_name].append(pod)
    found = {}
    for name in names:
        pods, used = by_node[name], Counter[str]()
        for pod in pods:
            used.update(node_requests_of(pod))
        pods.sort(key=lambda pod: (pod.metadata.namespace, natural(pod.metadata.name)))
        found[name] = PodsThere(tuple(pods), used)
    return found


def pools_on(snapshot: DeviceSnapshot) -> Mapping[str, list[DevicePool]]:
    """node -> the pools that are its own. Kept with the snapshot."""
    found: dict[str, list[DevicePool]] | None = snapshot.memo.get(pools_on)
    if found is None:
        found = defaultdict(list)
        for pool in snapshot.published_pools:
            if pool.node:
                found[pool.node].append(pool)
        snapshot.memo[pools_on] = found
    return found


@dataclass(frozen=True, slots=True)
class PoolLine:
    """A pool as a row. published_at: when the newest of its slices was written; None where that is not known."""

    pool: DevicePool
    published_at: datetime | None
    devices: int

    @property
    def what(self) -> str:
        """What is wrong with an incomplete pool."""
        there, expected = len(self.pool.slices), self.pool.expected
        if there < expected:
            return f"{there} of {expected} slices of generation {self.pool.generation_said} are there"
        if there == 1:
            return f"1 slice is published, but it announces {expected}"
        return f"{there} slices are there, and they say that there are {expected}"


def pool_lines(pools: Sequence[DevicePool]) -> list[PoolLine]:
    names = frozenset(one.name for pool in pools for one in pool.slices)
    written = history.last_written(kind(SLICES), names=names, seen=True) if names else {}
    at = [max((written[one.name] for one in pool.slices if one.name in written), default=None) for pool in pools]
    return [
        PoolLine(pool, at[index], sum(len(one.candidates) for one in pool.slices)) for index, pool in enumerate(pools)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """One row of the list."""

    known: Known
    pools: tuple[DevicePool, ...]
    devices: DeviceTotals
    pods: int
    amounts: tuple[AskedAmount, ...]

    def percent(self, resource: str) -> int:
        """How much of it is asked for."""
        return next((one.percent for one in self.amounts if one.resource == resource), 0)

    def amount(self, resource: str) -> str:
        """`12.5 of 64`."""
        return next((f"{one.used} of {one.whole}" for one in self.amounts if one.resource == resource), "")

    @property
    def incomplete(self) -> list[DevicePool]:
        return [pool for pool in self.pools if not pool.complete]

    @property
    def generations(self) -> str:
        """`generation 3`, or `generations 1 to 7`, of its complete pools."""
        found = [pool.generation_said for pool in sorted(self.pools, key=lambda pool: pool.generation)]
        return f"generation {found[0]}" if found[0] == found[-1] else f"generations {found[0]} to {found[-1]}"


def read_rows(nodes: QuerySet[Any], snapshot: DeviceSnapshot, now: datetime) -> list[NodeRow]:
    """nodes: those of `nodes_by_state` that are shown, in their order."""
    renewed = dict(nodes.values_list("name", "renewed_at"))
    if settings.MIRROR:
        renewed |= {name: at for name, at in renewed_at(now).items() if name in renewed}
    documents = {stored.name: stored for stored in objects.get_many(kind(NODES), [("", name) for name in renewed])}
    there, pools, rows = pods_on(renewed.keys()), pools_on(snapshot), []
    for name, heard in renewed.items():
        if name not in documents:  # deleted a moment ago
            continue
        node = decoded(documents[name], Node)
        line = line_named(snapshot, name)
        rows.append(
            NodeRow(
                known=Known(node, heard, state_of(node, heard, now)),
                pools=tuple(pools.get(name, ())),
                devices=DeviceTotals(line.counts if line else {}),
                pods=len(there[name].pods),
                amounts=allocated(node.status.allocatable, there[name].used),
            )
        )
    return rows


# Amounts as people read them: `12.5 of 64` CPUs, `96 of 512 GiB` -----------------------------------------------------


_NANOS = 10**9
#: Resources whose amounts are bytes.
_BYTES = ("memory", "ephemeral-storage")
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_KIBI = 1024
#: Shown first.
_FIRST = ("cpu", "memory")


@dataclass(frozen=True, slots=True)
class AskedAmount:
    """What the pods of a node ask of one resource, of what it has for them."""

    resource: str
    used: str
    whole: str
    percent: int

    @property
    def title(self) -> str:
        return {"cpu": "CPU", "memory": "Memory"}.get(self.resource, self.resource)

    @property
    def full(self) -> bool:
        return self.percent >= 100  # noqa: PLR2004 - percent


def allocated(allocatable: Mapping[str, str], used: Mapping[str, int]) -> tuple[AskedAmount, ...]:
    """CPU and memory first, then the others by name. used: nanos."""
    names = sorted((name for name in allocatable if name != PODS), key=lambda name: (name not in _FIRST, name))
    return tuple(_amount(name, used.get(name, 0), nanos(allocatable[name])) for name in names)


def _amount(resource: str, used: int, whole: int) -> AskedAmount:
    percent = 100 * used // whole if whole else (100 if used else 0)
    if resource in _BYTES or resource.startswith("hugepages-"):
        unit = _unit(whole)
        own = _unit(used) if used else unit
        told = _bytes(used, own) + ("" if own == unit else f" {_UNITS[own]}")
        return AskedAmount(resource, told, f"{_bytes(whole, unit)} {_UNITS[unit]}", percent)
    return AskedAmount(resource, _decimal(used / _NANOS), _decimal(whole / _NANOS), percent)


def nanos(text: str) -> int:
    """A quantity as a number; nothing where it cannot be read."""
    try:
        return Quantity.parse(text).nanos
    except ValueError:
        return 0


def _unit(amount: int) -> int:
    """The largest unit of which there is at least one."""
    size, unit = amount / _NANOS, 0
    while size >= _KIBI and unit < len(_UNITS) - 1:
        size, unit = size / _KIBI, unit + 1
    return unit


def _bytes(amount: int, unit: int) -> str:
    return _decimal(amount / _NANOS / _KIBI**unit)


def _decimal(value: float) -> str:
    """At most one digit after the point, and none that says nothing."""
    return f"{value:.1f}".removesuffix(".0")
