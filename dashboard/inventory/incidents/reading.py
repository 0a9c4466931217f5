"""Reads incidents and what belongs to them: spans of devices, who holds or held these meanwhile.

A rule concerns every device that its selector names; which these are is looked up among what is published now. Who held
a device is told as far as the person sees the namespace.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db.models import F, Min, Q, QuerySet

from claims.devices.pools import DeviceSnapshot
from claims.devices.published import DeviceKey, Keyed
from claims.devices.states import DeviceState
from claims.models import PastAllocation
from dashboard.inventory.devices.sight import ELSEWHERE
from dashboard.inventory.devices.words import STATES
from dashboard.kit import links
from inventory.models import Impairment, Incident
from manciple.people import Person
from manciple.wire.validation import natural

#: Incidents that are looked through.
LOOKED_AT = 5000
#: Devices of one incident that are described, and rows of the past that are read for them.
DESCRIBED, PAST = 500, 4000

SOURCES = Impairment.Source


@dataclass(frozen=True, slots=True, kw_only=True)
class ImpairedSpan:
    """One device, or all that a rule selects, from when to when. place: (driver, pool, device), "" for any.

    node: "" for any, or if it is not known.
    """

    incident: str
    place: tuple[str, str, str]
    node: str
    source: str
    reporter: str
    state: DeviceState
    key: str
    value: str
    effect: str
    message: str
    began: datetime
    ended: datetime | None

    def concerns(self, device: DeviceKey) -> bool:
        """A rule names no node, and a device of a pool of no single node may be impaired on one."""
        same_node = self.source == SOURCES.RULE or "" in (self.node, device[3]) or self.node == device[3]
        return same_node and all(wanted in ("", found) for wanted, found in zip(self.place, device[:3], strict=True))

    @property
    def exact(self) -> bool:
        """Whether it names one device."""
        return all(self.place)

    @property
    def state_name(self) -> str:
        return STATES[self.state]

    @property
    def taint(self) -> str:
        """As kubectl writes it; of a report nothing."""
        return taint_text(self.key, self.value, self.effect)

    @property
    def cause(self) -> str:
        """What it says for itself: the taint without its effect, or the agent's words."""
        return taint_text(self.key, self.value) or self.message or "reported Unhealthy"

    @property
    def said_by(self) -> str:
        match self.source:
            case SOURCES.RULE:
                return f"DeviceTaintRule {self.reporter}"
            case SOURCES.REPORT:
                return "the node's agent, with a pod that uses it"
        return f"driver {self.place[0]}"


def taint_text(key: str, value: str, effect: str = "") -> str:
    return f"{key}{f'={value}' if value else ''}{f':{effect}' if effect else ''}" if key else ""


def spans(rows: QuerySet[Impairment]) -> list[ImpairedSpan]:
    """The oldest first."""
    return [
        ImpairedSpan(
            incident=row.incident_id,
            place=(row.driver, row.pool, row.device),
            node=row.node,
            source=row.source,
            reporter=row.reporter,
            state=DeviceState.UNHEALTHY if row.unhealthy else DeviceState.TAINTED,
            key=row.key,
            value=row.value,
            effect=row.effect,
            message=row.message,
            began=row.began_at,
            ended=row.ended_at,
        )
        for row in rows.order_by("began_at", "pk")
    ]


def between(begin: datetime, end: datetime) -> QuerySet[Impairment]:
    """Those of a window of time."""
    return Impairment.objects.filter(Q(ended_at=None) | Q(ended_at__gt=begin), began_at__lt=end)


def of_device(device: DeviceKey, begin: datetime, end: datetime) -> list[ImpairedSpan]:
    """What impaired one device in a window of time. One query."""
    driver, pool, name, _ = device
    rows = between(begin, end).filter(driver__in=("", driver), pool__in=("", pool), device__in=("", name))
    return [span for span in spans(rows) if span.concerns(device)]


# Devices and who had them ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AffectedHolder:
    """A claim that held an impaired device. claim: "" where its namespace is not to be told. lasts: it has it still."""

    namespace: str
    claim: str = ""
    pods: tuple[str, ...] = ()
    lasts: bool = False

    @property
    def url(self) -> str:
        return links.claim_url(self.namespace, self.claim) if self.lasts and self.claim else ""

    @property
    def pod_urls(self) -> list[tuple[str, str]]:
        """(pod, its address, "" where it is gone)."""
        return [(pod, links.pod_url(self.namespace, pod) if self.lasts else "") for pod in self.pods]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImpairedDevice(Keyed):
    """A device of an incident. span: the last one that concerns it."""

    key: DeviceKey = field()  # without it, the property that it stands for would count as its default
    node: str
    span: ImpairedSpan
    holders: tuple[AffectedHolder, ...] = ()

    @property
    def url(self) -> str:
        return links.device_url(*self.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentRow:
    """One incident as a page tells it. devices: at most DESCRIBED; of these `total` there are."""

    id: str
    state: DeviceState
    key: str
    value: str
    began: datetime
    ended: datetime | None
    acknowledged_by: str
    acknowledged_at: datetime | None
    note: str
    spans: tuple[ImpairedSpan, ...]
    devices: tuple[ImpairedDevice, ...]
    total: int

    @property
    def url(self) -> str:
        return links.incident_url(self.id)

    @property
    def state_name(self) -> str:
        return STATES[self.state]

    @property
    def standing(self) -> str:
        """One of `STANDINGS`."""
        return standing_of(self.ended, self.acknowledged_at)

    @property
    def standing_name(self) -> str:
        return STANDINGS[self.standing]

    @property
    def cause(self) -> str:
        return taint_text(self.key, self.value) or next((one.cause for one in self.spans), "")

    @property
    def said_by(self) -> list[str]:
        """Who says so, each once."""
        return list(dict.fromkeys(one.said_by for one in self.spans))

    @property
    def messages(self) -> list[str]:
        """What agents said with it, where that is not the cause itself."""
        return list(dict.fromkeys(one.message for one in self.spans if one.message and one.message != self.cause))

    @property
    def nodes(self) -> list[str]:
        return sorted({one.node for one in self.devices if one.node}, key=natural)

    @property
    def holders(self) -> list[AffectedHolder]:
        return list(dict.fromkeys(holder for one in self.devices for holder in one.holders))

    @property
    def pods(self) -> int:
        return len({(one.namespace, pod) for one in self.holders for pod in one.pods})

    @property
    def seconds(self) -> float:
        """Of one that is over."""
        return (self.ended - self.began).total_seconds() if self.ended else 0.0

    @property
    def what(self) -> str:
        """`gpu-a09 / gpu-5`, `8 devices of gpu-a09`, `20 devices on 5 nodes`."""
        if self.total == 1 and self.devices:
            one = self.devices[0]
            return f"{one.node or one.key[1]} / {one.name}"
        where = f" of {self.nodes[0]}" if len(self.nodes) == 1 else f" on {len(self.nodes)} nodes" if self.nodes else ""
        return f"{self.total:,} devices{where}" if self.total else "No published device"

    @property
    def title(self) -> str:
        """The same with what is the matter: `8 devices of gpu-a09 tainted`."""
        return f"{self.what} {self.state_name.lower()}"


#: Where an incident stands -> what that is called, in the order of what asks for somebody.
STANDINGS: Mapping[str, str] = {"open": "Open", "acknowledged": "Acknowledged", "closed": "Closed"}


def standing_of(ended: datetime | None, acknowledged: datetime | None) -> str:
    return "closed" if ended else "acknowledged" if acknowledged else "open"


def ordered(incidents: Iterable[Incident]) -> list[Incident]:
    """What asks for somebody first, the newest first."""
    places = list(STANDINGS)
    return sorted(
        incidents,
        key=lambda one: (
            places.index(standing_of(one.ended_at, one.acknowledged_at)),
            -(one.ended_at or one.began_at).timestamp(),
            one.id,
        ),
    )


def newest() -> list[Incident]:
    """Those that go on, then those that ended last."""
    return list(Incident.objects.order_by(F("ended_at").desc(nulls_first=True), "-began_at")[:LOOKED_AT])


def concerned(
    *,
    node: str = "",
    device: DeviceKey | None = None,
    chosen: Collection[DeviceKey] | None = None,
    snapshot: DeviceSnapshot,
) -> set[str]:
    """The incidents in which something of the node, the device, or one of the chosen devices is impaired."""
    rows = Impairment.objects.all()
    if node:
        rows = rows.filter(node__in=("", node))
    if device is not None:
        driver, pool, name, on = device
        rows = rows.filter(driver__in=("", driver), pool__in=("", pool), device__in=("", name))
        if on:
            rows = rows.filter(Q(source=SOURCES.RULE) | Q(node__in=("", on)))
    found = set()
    columns = ("incident_id", "source", "node", "driver", "pool", "device")
    for incident, source, at, *place in rows.values_list(*columns).distinct():
        named = _named(source, (place[0], place[1], place[2]), at, snapshot)
        if any((not node or where == node) and (chosen is None or one in chosen) for one, where in named):
            found.add(incident)
    return found


def _named(
    source: str, place: tuple[str, str, str], node: str, snapshot: DeviceSnapshot
) -> list[tuple[DeviceKey, str]]:
    """(device, node) of what is impaired. A rule names no node, so it may be several devices of one name."""
    driver, pool, name = place
    if not all(place) or source == SOURCES.RULE:
        found = [
            (one.key, one.node)
            for one in snapshot.candidates
            if driver in ("", one.driver) and pool in ("", one.pool) and name in ("", one.name)
        ]
        if found or not all(place):
            return found
    return [(snapshot.find(*place, node), node)]


def described(person: Person, incidents: Sequence[Incident], snapshot: DeviceSnapshot) -> list[IncidentRow]:
    """Two queries for all of them."""
    of: dict[str, list[ImpairedSpan]] = {one.id: [] for one in incidents}
    for span in spans(Impairment.objects.filter(incident__in=list(of))):
        of[span.incident].append(span)
    named = {one.id: _devices(of[one.id], snapshot) for one in incidents}
    shown = {name: found[:DESCRIBED] for name, found in named.items()}
    holders = _holders(person, [one for found in shown.values() for one in found], snapshot)
    return [
        IncidentRow(
            id=one.id,
            state=DeviceState.UNHEALTHY if one.unhealthy else DeviceState.TAINTED,
            key=one.key,
            value=one.value,
            began=one.began_at,
            ended=one.ended_at,
            acknowledged_by=one.acknowledged_by,
            acknowledged_at=one.acknowledged_at,
            note=one.note,
            spans=tuple(of[one.id]),
            devices=tuple(
                ImpairedDevice(key=key, node=node, span=span, holders=tuple(holders(key, span)))
                for key, node, span in shown[one.id]
            ),
            total=len(named[one.id]),
        )
        for one in incidents
    ]


Named = tuple[DeviceKey, str, ImpairedSpan]  # device, node, the span that lasted longest


def _devices(found: Iterable[ImpairedSpan], snapshot: DeviceSnapshot) -> list[Named]:
    """Each device once, with the last of its spans that goes on, or the last one."""
    by_device: dict[DeviceKey, Named] = {}
    for span in sorted(found, key=lambda one: (one.ended is None, one.began)):
        for key, node in _named(span.source, span.place, span.node, snapshot):
            by_device[key] = (key, node, span)
    return sorted(by_device.values(), key=lambda one: (natural(one[1] or one[0][1]), natural(one[0][2])))


def _holders(
    person: Person, named: Collection[Named], snapshot: DeviceSnapshot
) -> Callable[[DeviceKey, ImpairedSpan], Iterator[AffectedHolder]]:
    """Who held a device during a span, told as the person may know it."""
    past: dict[tuple[str, str, str], list[Any]] = {}
    for row in _past(named):
        past.setdefault((row.driver, row.pool, row.device), []).append(row)

    def holders(key: DeviceKey, span: ImpairedSpan) -> Iterator[AffectedHolder]:
        for one in snapshot.held_by(key) if span.ended is None else ():
            seen = person.sees(one.namespace)
            yield AffectedHolder(one.namespace, one.claim, one.pods, True) if seen else AffectedHolder(ELSEWHERE)
        for row in past.get(key[:3], ()):
            same_node = "" in (key[3], row.node) or key[3] == row.node
            if same_node and row.ended_at > span.began and (span.ended is None or row.began_at < span.ended):
                seen = person.sees(row.namespace)
                yield AffectedHolder(row.namespace, row.claim, tuple(row.pods)) if seen else AffectedHolder(ELSEWHERE)

    return holders


def _past(named: Collection[Named]) -> Iterable[Any]:
    """What was given back while it was impaired, the latest."""
    if not named:
        return ()
    began = min(span.began for _, _, span in named)
    keys = {key for key, _, _ in named}
    rows = PastAllocation.objects.filter(
        ended_at__gt=began, admin_access=False, pool__in={key[1] for key in keys}, device__in={key[2] for key in keys}
    )
    return rows.order_by("-ended_at")[:PAST]


# In a few words -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OpenIncidents:
    """Those that go on. unseen: that nobody has acknowledged; since: when the first of these began."""

    total: int = 0
    unseen: int = 0
    since: datetime | None = None


def count_open() -> OpenIncidents:
    """Two queries."""
    going_on = Incident.objects.filter(ended_at=None)
    unseen = going_on.filter(acknowledged_at=None)
    first = unseen.aggregate(since=Min("began_at"))["since"]
    return OpenIncidents(total=going_on.count(), unseen=unseen.count(), since=first)
