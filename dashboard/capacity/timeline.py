"""The timeline: who held which device when, now included, and when devices were out of order.

- `/timeline`: `?by=device|class|model|namespace`, `?range=` or `?from=&to=` (`dashboard.kit.charts`), `?ns=`,
  `?class=`, `?driver=`, `?node=` and `?page=`; `?view=table` shows the same as a table.
- `/timeline.csv`: what the same address shows, with the allocations that its page left out.

What is held now is never more than there are devices. The past may be hundreds of thousands of rows: the database
groups and counts them, and only those that are drawn come out, at most `BARS`. Places in the drawing are percent of the
window, times in Django's current zone, the reader's.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from itertools import chain, product
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Self
from urllib.parse import urlencode

from asgiref.sync import sync_to_async
from django.db.models import (
    Count,
    ExpressionWrapper,
    F,
    FloatField,
    Func,
    IntegerField,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Sum,
    TextField,
    Value,
)
from django.db.models.expressions import CombinedExpression
from django.db.models.fields.json import KT
from django.db.models.functions import Coalesce, Greatest, Least
from django.db.models.lookups import Exact
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.shortcuts import redirect
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe
from django.views.decorators.http import require_safe

from claims.devices.published import MODEL_ATTRIBUTES, DeviceKey
from claims.kinds.resource_claims import pools_in_use
from claims.models import AllocatedDevice, Claim, PastAllocation, Reservation, UseSpell
from dashboard.inventory.incidents import ImpairedSpan, between
from dashboard.kit import charts
from dashboard.kit.charts import RANGES, USUAL, ChosenTime, Tick, Window, axis
from dashboard.kit.guards import begin_costly, listing
from dashboard.kit.lists import CONTENT_TYPE, PageOfRows, csv_cell, csv_lines
from dashboard.kit.rendering import PageContext, render_page
from dashboard.templatetags.kit import claim_url, class_url, clock, device_url, incident_url, namespace_url, page_url
from dashboard.workloads.owners import Owner, owners_of_claims
from insight.waiting_times import Epoch, Wait, waits_of
from inventory.models import Device, Impairment, Node, Pool
from manciple.durations import duration
from manciple.people import Person, person_of
from manciple.store import objects, sql
from manciple.store.event_log import latest_revision
from manciple.wire.quantity import whole
from manciple.wire.resources import CLASSES, NAMESPACES, PODS, SLICES, kind
from manciple.wire.validation import natural


class ChartLink(NamedTuple):
    """One choice of a grouping or a range."""

    label: str
    url: str
    current: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartQuery:
    """What an address asks of a chart over time. by: one of `groupings`, whose first is the usual one."""

    route: ClassVar[str]
    groupings: ClassVar[Mapping[str, str]]
    usual: ClassVar[str]

    by: str
    time: ChosenTime = field(default_factory=ChosenTime)
    namespace: str = ""
    device_class: str = ""

    @classmethod
    def from_query(cls, query: Mapping[str, str], **more: Any) -> Self:
        """What is not understood is left out. more: fields of a subclass."""
        by = query.get("by", "")
        return cls(
            by=by if by in cls.groupings else cls.usual,
            time=ChosenTime.read(query),
            namespace=query.get("ns", "").strip(),
            device_class=query.get("class", "").strip(),
            **more,
        )

    @property
    def parameters(self) -> dict[str, str | int]:
        """All of the address's query, the usual values too."""
        return {"by": self.by, **self.time.parameters, "ns": self.namespace, "class": self.device_class}

    def url(self, route: str = "", **changes: str | int) -> str:
        """The address with some of it changed."""
        usual = {("by", self.usual), ("range", USUAL), ("page", 1)}
        parts = self.parameters | changes
        kept = {name: value for name, value in parts.items() if value and (name, value) not in usual}
        path = page_url(route or self.route)
        return f"{path}?{urlencode(kept)}" if kept else path

    @property
    def narrows(self) -> bool:
        return bool(self.namespace or self.device_class)

    @property
    def stacks(self) -> list[ChartLink]:
        """The groupings to choose from."""
        return [ChartLink(label, self.url(by=name), name == self.by) for name, label in self.groupings.items()]

    @property
    def ranges(self) -> list[ChartLink]:
        """The times to choose from."""
        return [
            ChartLink(label, self.url(range=name, to="", **{"from": ""}), name == self.time.range)
            for name, (label, _) in RANGES.items()
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineQuery(ChartQuery):
    route = "timeline"
    groupings = MappingProxyType(
        {"device": "Devices", "class": "Classes", "model": "Models", "namespace": "Namespaces"}
    )
    usual = "device"

    by: str = usual
    driver: str = ""
    node: str = ""
    page: int = 1
    table: bool = False

    @classmethod
    def from_query(cls, query: Mapping[str, str], **more: Any) -> Self:
        return super(TimelineQuery, cls).from_query(
            query,
            driver=query.get("driver", "").strip(),
            node=query.get("node", "").strip(),
            page=max(1, whole(query.get("page", ""), digits=7) or 1),
            table=query.get("view") == "table",
            **more,
        )

    @property
    def parameters(self) -> dict[str, str | int]:
        own: dict[str, Any] = {
            "driver": self.driver,
            "node": self.node,
            "page": self.page,
            "view": "table" if self.table else "",
        }
        return super(TimelineQuery, self).parameters | own

    def url(self, route: str = "", **changes: str | int) -> str:
        """The first page again unless only the page or the view is another."""
        first = {"page": 1} if changes.keys() - {"page", "view"} else {}
        return super(TimelineQuery, self).url(route, **first | changes)

    @property
    def narrows(self) -> bool:
        return bool(self.namespace or self.device_class or self.driver or self.node)


#: Bars on one page; of more, the latest.
BARS = 1500
#: Rows of devices that the bars of classes and namespaces are put together from.
MOST_READ = 4 * BARS
#: Steps of an area chart.
STEPS = 240


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldSpan:
    """Devices that one claim held together. namespace "": somebody whose namespace the person does not see."""

    group: str | DeviceKey
    began: datetime
    ended: datetime | None  # None while it is held
    namespace: str = ""
    claim: str = ""
    claim_uid: str = ""
    pods: tuple[str, ...] = ()
    devices: int = 1

    @property
    def known(self) -> bool:
        return bool(self.namespace)


class ImpairedPlace(NamedTuple):
    """Where an impairment is; of a rule, "" for any."""

    source: str
    driver: str
    pool: str
    device: str
    node: str


class StepOf(Func):
    """The number of the step of a chart that a moment falls into; below 0 before the first."""

    output_field = IntegerField()

    def __init__(self, expression: Any, *, begin: datetime, step: float) -> None:
        super().__init__(Epoch(expression))
        self._begin, self._step = begin.timestamp(), step

    def as_sql(self, compiler: Any, connection: Any, **_extra: Any) -> tuple[str, Any]:  # type: ignore[override]
        seconds, parameters = compiler.compile(self.source_expressions[0])
        if connection.vendor == "postgresql":
            # A cast to INTEGER would round.
            return f"CAST(FLOOR(({seconds} - {self._begin!r}) / {self._step!r}) AS INTEGER)", parameters
        # A cast to INTEGER cuts off; with enough steps added nothing is below 0, so that it always rounds down.
        return (
            f"CAST(({seconds} - {self._begin!r} + 1e9 * {self._step!r}) / {self._step!r} AS INTEGER) - 1000000000",
            parameters,
        )


class Timeline:
    """What one person may see of the holdings that a query asks for."""

    def __init__(self, person: Person, query: TimelineQuery, window: Window) -> None:
        self.person = person
        self._query = query
        self._window = window
        pools = _pools_of(query.node) if query.node else None
        exact = {"device_class": query.device_class, "driver": query.driver}
        # Admin access looks on and holds nothing.
        filters: dict[str, Any] = {"admin_access": False} | {name: value for name, value in exact.items() if value}
        if pools is not None:
            filters["pool__in"] = pools
        past: Any = PastAllocation.objects.filter(ended_at__gt=window.begin, began_at__lt=window.end, **filters)
        now: Any = AllocatedDevice.objects.annotate(
            began_at=Coalesce("claim__allocated_at", "claim__created_at"), namespace=F("claim__namespace")
        ).filter(began_at__lt=window.end, **filters)
        told: Any = UseSpell.objects.filter(
            Q(ended_at__gt=window.begin) | Q(ended_at__isnull=True),
            began_at__lt=window.end,
            **{name: value for name, value in filters.items() if name != "admin_access"},
        )
        if query.node:
            past, now, told = (rows.filter(node__in=("", query.node)) for rows in (past, now, told))
        if query.namespace:
            past, now, told = (rows.filter(namespace=query.namespace).restrict(person) for rows in (past, now, told))
        if query.by == "model":
            past, now, told = (rows.annotate(model=_model()) for rows in (past, now, told))
        self._past, self._now, self._told = past, now, told
        self._pools = pools

    @cached_property
    def _nodes_of(self) -> Mapping[tuple[str, str], set[str]]:
        return Pool.publishing_nodes()

    def key_of(self, driver: str, pool: str, device: str, node: str) -> DeviceKey:
        """node: of the allocation, or of the impairment. Where several pools are possible, the key names no node."""
        possible = pools_in_use(driver, pool, node, self._nodes_of.get((driver, pool), ()))
        return (driver, pool, device, possible[0].node if len(possible) == 1 else "")

    # How much there is ---------------------------------------------------------------------------------------------

    def count(self) -> int:
        """Rows of devices held, now and in the past."""
        return int(self._past.count() + self._now.count())

    def devices(self) -> list[DeviceKey]:
        """Those that were held at all, or out of order; not for a rule that names no pool."""
        rules_for_any = Q(source=Impairment.Source.RULE, pool="")
        columns = ("driver", "pool", "device", "node")
        rows = {*self._past.values_list(*columns).distinct(), *self._now.values_list(*columns).distinct()}
        held = {self.key_of(*row) for row in rows}
        if self._query.namespace or self._query.device_class:
            return list(held)
        return list(held.union(*self._devices_at(self.impaired.exclude(rules_for_any)).values()))

    @property
    def impaired(self) -> QuerySet[Impairment]:
        """Impairments in the window, of the driver and the node that are asked for."""
        rows = between(self._window.begin, self._window.end)
        if self._query.driver:
            rows = rows.filter(driver__in=("", self._query.driver))
        if self._pools is not None:
            rows = rows.filter(pool__in=("", *self._pools)).filter(
                Q(source=Impairment.Source.RULE) | Q(node__in=("", self._query.node))
            )
        return rows

    def _devices_at(self, rows: QuerySet[Impairment]) -> Mapping[ImpairedPlace, set[DeviceKey]]:
        """The devices that these impairments concern, by place. Those that a rule concerns are the published ones, as
        far as they are asked for. A query for the places, and one for each set of columns that rules name.
        """
        devices: dict[ImpairedPlace, set[DeviceKey]] = {}
        ruled: dict[tuple[str, ...], dict[tuple[str, ...], list[ImpairedPlace]]] = {}
        for row in rows.order_by().values_list(*ImpairedPlace._fields).distinct():
            place = ImpairedPlace(*row)
            named = {"driver": place.driver, "pool": place.pool, "name": place.device}
            is_exact = all(named.values())
            devices[place] = {self.key_of(place.driver, place.pool, place.device, place.node)} if is_exact else set()
            if not is_exact or place.source == Impairment.Source.RULE:
                columns = tuple(column for column, value in named.items() if value)
                ruled.setdefault(columns, {}).setdefault(tuple(filter(None, named.values())), []).append(place)
        for columns, places in ruled.items():
            published: dict[tuple[str, ...], set[tuple[DeviceKey, str]]] = defaultdict(set)
            for driver, pool, name, node in self._published(columns, places):
                values = tuple({"driver": driver, "pool": pool, "name": name}[column] for column in columns)
                published[values].add((self.key_of(driver, pool, name, node), node))
            for values, alike in places.items():
                for place in alike if published[values] else ():
                    # A rule names no node.
                    on = "" if place.source == Impairment.Source.RULE else place.node
                    devices[place] = {key for key, node in published[values] if on in ("", node)}
        return devices

    def _published(
        self, columns: Sequence[str], values: Collection[Sequence[str]]
    ) -> Iterator[tuple[str, str, str, str]]:
        """(driver, pool, name, node) of the devices whose columns have one of these values, as far as asked for."""
        identity = ("driver", "pool", "name", "node_name")
        rows = sql.select(Device, identity, columns, values) if columns else Device.objects.values_list(*identity)
        for driver, pool, name, node in rows:
            is_of_driver = self._query.driver in ("", driver)
            if is_of_driver and (self._pools is None or (pool in self._pools and node in ("", self._query.node))):
                yield driver, pool, name, node

    def groups(self) -> Counter[str]:
        """Classes, models or namespaces, with the rows of each; "" for the namespaces that the person does not see."""
        found: Counter[str] = Counter()
        for rows in (self._past, self._now):
            for name, number in rows.values_list(self._column).annotate(number=Count("pk")).order_by():
                found[self._group_of(name)] += number
        return found

    # What is drawn -------------------------------------------------------------------------------------------------

    def of_devices(self, keys: Collection[DeviceKey]) -> list[HeldSpan]:
        """The latest holdings of those devices."""
        wanted = set(keys)
        names = {"pool__in": {key[1] for key in wanted}, "device__in": {key[2] for key in wanted}}
        found = [one for one in self._held_now(self._now.filter(**names)) if one.group in wanted]
        rows = self._past.filter(driver__in={key[0] for key in wanted}, **names).order_by("-ended_at")
        if all(key[3] for key in wanted):
            rows = rows.filter(node__in={"", *(key[3] for key in wanted)})
        for *key, namespace, claim, uid, pods, began, ended in rows.values_list(*_PAST)[: BARS + 1]:
            one = HeldSpan(
                group=self.key_of(*key), namespace=namespace, claim=claim, claim_uid=uid, pods=tuple(pods),
                began=began, ended=ended,
            )  # fmt: skip
            if one.group in wanted:
                found.append(self._seen(one))
        return found

    def impaired_of(self, keys: Collection[DeviceKey]) -> list[ImpairedSpan]:
        """The latest impairments that may concern those devices, the oldest first."""
        driver, pool, device = ({"", *(key[column] for key in keys)} for column in range(3))
        rows = self.impaired.filter(driver__in=driver, pool__in=pool, device__in=device).order_by("-began_at", "-pk")
        rows = rows.exclude(Q(source=Impairment.Source.NODE) & ~Q(node__in={key[3] for key in keys}))
        return [ImpairedSpan(row) for row in rows[: BARS + 1]][::-1]

    def of_groups(self, names: Collection[str]) -> list[HeldSpan]:
        """The latest holdings of those groups; what a claim held together is one."""
        wanted = set(names)
        together: Counter[HeldSpan] = Counter()
        for one in self._held_now(self._now):
            if one.group in wanted:
                together[one] += 1
        rows = self._past
        if "" not in wanted:
            rows = rows.filter(**{f"{self._column}__in": wanted})
        columns = (self._column, "namespace", "claim", "claim_uid", "pods", "began_at", "ended_at")
        # Cut before they are put together: the index gives the latest rows, and only those are read.
        for column, namespace, claim, uid, pods, began, ended in rows.order_by("-ended_at").values_list(*columns)[
            :MOST_READ
        ]:
            one = HeldSpan(
                group=self._group_of(column), namespace=namespace, claim=claim, claim_uid=uid, pods=tuple(pods),
                began=began, ended=ended,
            )  # fmt: skip
            one = self._seen(one)
            if one.group in wanted:
                together[one] += 1
        return [replace(one, devices=number) for one, number in together.items()]

    def levels(self, names: Collection[str]) -> dict[str, list[int]]:
        """For each group how many devices were held at the end of each of the STEPS steps of the window."""
        changes: dict[str, Counter[int]] = defaultdict(Counter)
        for rows, column, sign in (
            (self._past, "began_at", 1), (self._past, "ended_at", -1), (self._now, "began_at", 1)
        ):  # fmt: skip
            for name, step, number in self._by_step(rows, column):
                changes[self._group_of(name)][step] += sign * number
        return {name: list(_running(changes[name])) for name in names}

    def _by_step(self, rows: QuerySet[Any], column: str) -> Iterator[tuple[str, int, int]]:
        """(class, model or namespace, step, how many rows have their `column` in it)"""
        at = StepOf(F(column), begin=self._window.begin, step=self._window.seconds / STEPS)
        counted = rows.annotate(step=at).values_list(self._column, "step").annotate(number=Count("pk")).order_by()
        for name, step, number in counted:
            yield name, max(step, 0), number

    def hours(self) -> dict[str, float]:
        """For each group how many device-hours were held in the window."""
        found: Counter[str] = Counter()
        for rows, until in ((self._past, Epoch("ended_at")), (self._now, self._end)):
            for name, seconds in rows.values_list(self._column).annotate(lasted=Sum(self._lasted(until))).order_by():
                found[self._group_of(name)] += seconds / 3600
        return dict(found)

    def _lasted(self, until: Any) -> ExpressionWrapper[CombinedExpression]:
        """The seconds of a row that lie in the window. until: when it ended, in seconds."""
        lasted = Least(until, self._end) - Greatest(Epoch("began_at"), Value(self._window.begin.timestamp()))
        return ExpressionWrapper(lasted, output_field=FloatField())

    @property
    def _end(self) -> Value:
        return Value(self._window.end.timestamp(), output_field=FloatField())

    def idle_hours(self) -> dict[str, float]:
        """The device-hours that were held idle, of each group of which a driver tells it."""
        found: dict[str, float] = defaultdict(float)
        lasted = Sum(self._lasted(Coalesce(Epoch("ended_at"), self._end)))
        for name, idle, seconds in self._told.values_list(self._column, "idle").annotate(lasted=lasted).order_by():
            found[self._group_of(name)] += seconds / 3600 if idle else 0.0
        return dict(found)

    def idle_levels(self) -> list[int]:
        """How many devices were held idle at the end of each of the STEPS steps of the window."""
        idle, changes = self._told.filter(idle=True), Counter[int]()
        for rows, column, sign in ((idle, "began_at", 1), (idle.filter(ended_at__isnull=False), "ended_at", -1)):
            for _, step, number in self._by_step(rows, column):
                changes[step] += sign * number
        return list(_running(changes))

    def waits(self) -> list[Wait]:
        """How long the claims waited that were allocated in the window, as far as the person sees their namespaces."""
        begin, end = self._window.begin, self._window.end
        now, past = self._now.filter(began_at__gte=begin), self._past.filter(began_at__gte=begin, began_at__lt=end)
        person = self.person
        found = waits_of(now.restrict(person), past.restrict(person), column=self._column)
        return [Wait(self._group_of(one.group), one.at, one.seconds) for one in found]

    # One row -------------------------------------------------------------------------------------------------------

    @property
    def _column(self) -> str:
        return {"namespace": "namespace", "model": "model"}.get(self._query.by, "device_class")

    def _group_of(self, value: str) -> str:
        """The group of a row by its class, model or namespace."""
        return value if self._query.by != "namespace" or self.person.sees(value) else ""

    def _held_now(self, rows: QuerySet[Any]) -> Iterator[HeldSpan]:
        pods = _reserved_for()
        columns = ("driver", "pool", "device", "node", self._column, "namespace", "claim__name", "claim_id", "began_at")
        for *key, column, namespace, claim, uid, began in rows.values_list(*columns):
            group = self.key_of(*key) if self._query.by == "device" else self._group_of(column)
            one = HeldSpan(
                group=group, namespace=namespace, claim=claim, claim_uid=uid, pods=tuple(pods.get(uid, ())),
                began=began, ended=None,
            )  # fmt: skip
            yield self._seen(one)

    def _seen(self, holding: HeldSpan) -> HeldSpan:
        """Without names where the person does not see the namespace."""
        if self.person.sees(holding.namespace):
            return holding
        return HeldSpan(group=holding.group, began=holding.began, ended=holding.ended)

    # For the export --------------------------------------------------------------------------------------------------

    def rows_now(self) -> Iterable[tuple[Any, ...]]:
        """Every device that is held: the columns of `EXPORTED`, `ended_at` None."""
        pods = _reserved_for()
        columns = ("driver", "pool", "device", "node", "device_class", "namespace", "claim__name", "claim_id")
        more = ("share_id", "consumed_capacity", "began_at")
        ordered = self._now.order_by("began_at", "pk").values_list(*columns, *more)
        return [(*self.key_of(*row[:4]), *row[4:8], pods.get(row[7], []), *row[8:], None) for row in ordered]

    def rows_impaired(self) -> Iterator[tuple[DeviceKey, ImpairedSpan]]:
        """What was out of order, device by device. Nothing where only some holders are asked for."""
        if self._query.namespace or self._query.device_class:
            return
        devices, last = self._devices_at(self.impaired), 0
        while rows := self.impaired.filter(pk__gt=last).order_by("pk")[:BATCH]:
            for span in map(ImpairedSpan, rows):
                last = span.row.pk
                for device in sorted(devices.get(ImpairedPlace(span.row.source, *span.place, span.row.node), ())):
                    yield device, span

    def rows_past(self, *, after: int, limit: int) -> list[tuple[int, tuple[Any, ...]]]:
        """The next rows in the order in which they were given back: (number to go on after, columns of `EXPORTED`)."""
        rows = self._past.filter(pk__gt=after).order_by("pk").values_list("pk", *EXPORTED)[:limit]
        return [(number, (*self.key_of(*row[:4]), *row[4:])) for number, *row in rows]


#: The columns of the export as they are stored.
EXPORTED = (
    "driver", "pool", "device", "node", "device_class", "namespace", "claim", "claim_uid", "pods", "share_id",
    "consumed_capacity", "began_at", "ended_at",
)  # fmt: skip
_PAST = ("driver", "pool", "device", "node", "namespace", "claim", "claim_uid", "pods", "began_at", "ended_at")


def _model() -> Coalesce:
    """The model of a row's device, as it is published now; of one that says none, or is gone, its driver."""
    same_node = Q(node_name=OuterRef("node")) | Q(node_name="") | Q(Exact(OuterRef("node"), Value("")))
    device = Device.objects.filter(same_node, driver=OuterRef("driver"), pool=OuterRef("pool"), name=OuterRef("device"))
    device = device.order_by("-node_name")
    named = Coalesce(*(KT(f"attributes__{name}__string") for name in MODEL_ATTRIBUTES), output_field=TextField())
    return Coalesce(Subquery(device.values(text=named)[:1]), "driver", output_field=TextField())


def _running(changes: Counter[int]) -> Iterator[int]:
    level = 0
    for number in range(STEPS):
        level += changes[number]
        yield level


def _pools_of(node: str) -> set[str]:
    """The names of the node's pools; a pool that is gone by now was named after its node, as drivers do."""
    return {node, *Pool.objects.filter(node_name=node).values_list("name", flat=True)}


def _reserved_for() -> dict[str, list[str]]:
    """claim -> the pods that it is reserved for."""
    found: dict[str, list[str]] = defaultdict(list)
    for claim, name in Reservation.objects.filter(resource=PODS).order_by("name").values_list("claim_id", "name"):
        found[claim].append(name)
    return found


#: The narrowest that a bar is drawn, in percent.
NARROWEST = 0.15
#: Rows of bars under one area.
ROWS = 8
#: The height of an area, in units of its drawing.
HEIGHT = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineBar:
    """Devices that one claim held, as it is drawn."""

    left: float
    width: float
    holding: HeldSpan
    url: str  # "" where nothing is left to lead to
    label: str
    seconds: float
    row: int = 0
    owner: Owner | None = None  # the workload of its pods, while it is held

    @property
    def style(self) -> str:
        return f"--l:{self.left:.3f};--w:{self.width:.3f};--r:{self.row}"

    @property
    def word(self) -> str:
        return self.holding.namespace


@dataclass(frozen=True, slots=True, kw_only=True)
class ImpairedStretch:
    """A time in which a device was out of order, as it is drawn under the bars."""

    left: float
    width: float
    span: ImpairedSpan
    label: str
    seconds: float

    @property
    def style(self) -> str:
        return f"--l:{self.left:.3f};--w:{self.width:.3f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One device with who held it, or a class or namespace with how many it held."""

    name: str
    note: str
    url: str
    bars: tuple[TimelineBar, ...]
    impaired: tuple[ImpairedStretch, ...] = ()
    rows: int = 1
    hidden: int = 0  # holdings that found no row
    area: str = ""  # an SVG path
    now: int = 0
    most: int = 0
    mean: float = 0.0
    hours: float = 0.0  # device-hours
    drawn: str = ""  # HTML: the bars and what lies under them
    levels: str = ""  # of each step, for the readout: "12x30 13x5" is 30 steps with 12, then 5 with 13


#: uid of a claim that still exists, which a bar can lead to -> the workload of its pods
Living = Mapping[str, Owner | None]


def bar(one: HeldSpan, window: Window, *, living: Living, what: str) -> TimelineBar:
    """what: whose lane it is in."""
    left = window.place(one.began)
    right = window.place(one.ended or window.end)
    width = max(right - left, NARROWEST)
    return TimelineBar(
        left=min(left, 100 - width),
        width=width,
        holding=one,
        url=claim_url(one.namespace, one.claim) if one.claim_uid in living else "",
        label=describe(one, window, what=what),
        seconds=((one.ended or window.now) - one.began).total_seconds(),
        owner=living.get(one.claim_uid) if one.ended is None else None,
    )


def describe(one: HeldSpan, window: Window, *, what: str) -> str:
    """What a screen reader says of a bar, and a tip shows."""
    who = f"{one.namespace}/{', '.join(one.pods) or one.claim}" if one.known else "another namespace"
    some = f"{one.devices} devices" if one.devices > 1 else what
    since = clock(one.began, now=window.now)
    if one.ended is None:
        return f"{who} holds {some} since {since}, for {duration((window.now - one.began).total_seconds())}"
    long = duration((one.ended - one.began).total_seconds())
    return f"{who} held {some} from {since} to {clock(one.ended, now=window.now)}, {long}"


def stretch(one: ImpairedSpan, window: Window) -> ImpairedStretch:
    left, right = window.place(one.began), window.place(one.ended or window.end)
    width = max(right - left, NARROWEST)
    since, seconds = clock(one.began, now=window.now), ((one.ended or window.now) - one.began).total_seconds()
    until = (
        f"from {since} to {clock(one.ended, now=window.now)}, {duration(seconds)}" if one.ended else f"since {since}"
    )
    return ImpairedStretch(
        left=min(left, 100 - width),
        width=width,
        span=one,
        label=f"{one.state_name} {until}: {one.cause}",
        seconds=seconds,
    )


def device_lanes(
    keys: Sequence[DeviceKey],
    holdings: Iterable[HeldSpan],
    window: Window,
    *,
    living: Living,
    impaired: Sequence[ImpairedSpan] = (),
) -> list[Lane]:
    """A lane for each device, in the order of `keys`. Shares of one device lie in rows under each other."""
    found: dict[str | DeviceKey, list[HeldSpan]] = defaultdict(list)
    for one in holdings:
        found[one.group].append(one)
    impaired_at: dict[tuple[str, str, str], list[ImpairedSpan]] = defaultdict(list)
    for span in impaired:
        impaired_at[span.place].append(span)
    lanes = []
    for key in keys:
        driver, pool, device, node = key
        bars = [bar(one, window, living=living, what=device) for one in found[key]]
        packed, rows, hidden = pack(bars, most=ROWS)
        places = product(("", driver), ("", pool), ("", device))
        concerning = (one for place in places for one in impaired_at.get(place, ()) if one.concerns(key))
        out_of_order = tuple(stretch(one, window) for one in sorted(concerning, key=lambda one: one.began))
        lanes.append(
            Lane(
                name=device, note=node or pool, url=device_url(*key), bars=packed, rows=rows,
                hidden=hidden, now=sum(one.ended is None for one in found[key]),
                impaired=out_of_order,
                drawn=draw_bars(packed, out_of_order, live=window.live),
            )
        )  # fmt: skip
    return lanes


def group_lanes(
    names: Sequence[str],
    holdings: Iterable[HeldSpan],
    levels: Mapping[str, Sequence[int]],
    window: Window,
    *,
    by: str,
    living: Living,
    hours: Mapping[str, float] = MappingProxyType({}),
) -> list[Lane]:
    """A lane for each class or namespace: how many devices were held, and the holdings under it."""
    found: dict[str | DeviceKey, list[HeldSpan]] = defaultdict(list)
    for one in holdings:
        found[one.group].append(one)
    lanes = []
    for name in names:
        level = levels[name]
        packed, rows, hidden = pack(
            [bar(one, window, living=living, what="1 device") for one in found[name]], most=ROWS
        )
        lanes.append(
            Lane(
                name=called(name, by), note="", url=page_of(name, by), bars=packed, rows=rows, hidden=hidden,
                drawn=draw_bars(packed, (), live=window.live),
                area=area(level), now=level[-1], most=max(level), mean=sum(level) / len(level),
                hours=hours.get(name, 0.0), levels=charts.levels(level),
            )
        )  # fmt: skip
    return lanes


def called(name: str, by: str) -> str:
    """What a group of the timeline is called."""
    return name or ("Other namespaces" if by == "namespace" else f"No {by}")


def page_of(name: str, by: str) -> str:
    """The page of a group; "" where there is none."""
    pages = {"class": class_url, "namespace": namespace_url}
    return pages[by](name) if name and by in pages else ""


def draw_bars(bars: Iterable[TimelineBar], impaired: Iterable[ImpairedStretch], *, live: bool) -> SafeString:
    """All bars of a lane, without a template: a page may hold fifteen hundred of them. They are no tab stops: the table
    has the same links.
    """
    drawn = []
    for one in bars:
        holding, words = one.holding, escape(one.label)
        classes = "b" + (" on" if holding.ended is None and live else "") + ("" if holding.known else " hidden-holder")
        attributes = f'class="{classes}" style="{one.style}" title="{words}"'
        if holding.claim_uid:
            attributes += f' data-c="{escape(holding.claim_uid)}"'
        text = f"<i>{escape(one.word)}</i>" if one.word else ""
        said = f'<span class="sr">{words}</span>'
        link = f'<a {attributes} href="{escape(one.url)}" tabindex="-1">{text}{said}</a>' if one.url else ""
        drawn.append(link or f"<span {attributes}>{text}{said}</span>")
    for out in impaired:
        words, url = escape(out.label), escape(incident_url(out.span.row.incident_id))
        attributes = f'class="out" data-s="{out.span.state}" style="{out.style}" title="{words}"'
        drawn.append(f'<a {attributes} href="{url}" tabindex="-1"><span class="sr">{words}</span></a>')
    return mark_safe("".join(drawn))  # noqa: S308 - every value is escaped above


def pack(bars: Iterable[TimelineBar], *, most: int) -> tuple[tuple[TimelineBar, ...], int, int]:
    """Bars in as few rows as they fit into without covering each other: (bars, rows, how many found no row)."""
    ends: list[float] = []
    placed, hidden = [], 0
    for one in sorted(bars, key=lambda bar: (bar.left, -bar.width)):
        row = next((index for index, end in enumerate(ends) if end <= one.left + 1e-9), len(ends))
        if row == most:
            hidden += 1
            continue
        if row == len(ends):
            ends.append(0.0)
        ends[row] = one.left + one.width
        placed.append(replace(one, row=row))
    return tuple(placed), max(len(ends), 1), hidden


def area(level: Sequence[int]) -> str:
    """A stepped area in a drawing of STEPS by HEIGHT units, as an SVG path."""
    top = max([*level, 1])
    parts = [f"M0 {HEIGHT}"]
    before: int | None = None
    for step, value in enumerate(level):
        if value != before:
            parts.append(f"H{step}V{HEIGHT - value * (HEIGHT - 2) / top:.1f}".replace(".0", ""))
            before = value
    parts.append(f"H{STEPS}V{HEIGHT}Z")
    return "".join(parts)


#: Lanes on one page.
DEVICES, GROUPS = 48, 12


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineContext(PageContext):
    """problem: what is wrong with the time that was asked for. count, impaired: allocations and impairments in it.

    bars: how many of each are drawn at most.
    """

    query: TimelineQuery
    window: Window
    problem: str
    axis: Sequence[Tick]
    usage_url: str  # of the same time and groups
    wider_url: str
    count: int
    impaired: int
    drawn: DrawnTimeline
    namespaces: Sequence[str]
    classes: Sequence[str]
    drivers: Sequence[str]
    nodes: Sequence[str]
    bars: int = BARS


@listing(SLICES)
@require_safe
def show_timeline(request: HttpRequest) -> HttpResponse:
    """The page."""
    revision = latest_revision()
    person, query = person_of(request), TimelineQuery.from_query(request.GET)
    if not query.time.is_said_by(request.GET):
        return redirect(query.url())
    window, problem = query.time.window(datetime.now(UTC))
    timeline = Timeline(person, query, window)
    drawn = _by_device(timeline, query, window) if query.by == "device" else _by_group(timeline, query, window)
    context = TimelineContext(
        place="timeline",
        revision=revision,
        query=query,
        window=window,
        problem=problem,
        axis=axis(window),
        usage_url=query.url("usage", by="" if query.by == "device" else query.by, driver="", node="", view=""),
        wider_url="" if query.time.range else query.url(**window.wider()),
        count=timeline.count(),
        impaired=timeline.impaired.count() if query.by == "device" else 0,
        drawn=drawn,
        namespaces=[one.name for one in objects.list(kind(NAMESPACES)).items if person.sees(one.name)],
        classes=[one.name for one in objects.list(kind(CLASSES)).items],
        drivers=list(Pool.objects.order_by("driver").values_list("driver", flat=True).distinct()),
        nodes=sorted(Node.objects.values_list("name", flat=True), key=natural),
    )
    return render_page(request, "capacity/timeline.html", context)


@listing(SLICES)
@require_safe
def export_timeline(request: HttpRequest) -> HttpResponseBase:
    """The file."""
    person, query = person_of(request), TimelineQuery.from_query(request.GET)
    window, _ = query.time.window(datetime.now(UTC))
    begin_costly(request, seconds=FILE_SECONDS)
    timeline = Timeline(person, query, window)
    impaired = (csv_lines([impaired_cells(*row, window.now)]) for row in timeline.rows_impaired())
    pieces = chain(parts(timeline, lambda row: cells(row, person, window.now)), impaired)
    answer = StreamingHttpResponse(streamed(pieces), content_type=CONTENT_TYPE)
    name = f"allocations-{window.begin:%Y%m%dT%H%M}Z-{window.end:%Y%m%dT%H%M}Z.csv"
    answer["Content-Disposition"] = f'attachment; filename="{name}"'
    return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnTimeline:
    """What stands on one page. capped: what only the latest are drawn of. never: devices that nobody held."""

    page: PageOfRows
    lanes: list[Lane]
    capped: Sequence[str]
    never: int = 0


def _by_device(timeline: Timeline, query: TimelineQuery, window: Window) -> DrawnTimeline:
    keys = sorted(timeline.devices(), key=lambda key: (natural(key[3] or key[1]), key[:2], natural(key[2])))
    page = PageOfRows(len(keys), DEVICES, query.page)
    shown = keys[page.rows]
    holdings = _latest(timeline.of_devices(shown)) if shown else []
    impaired = timeline.impaired_of(shown) if shown else []
    lanes = device_lanes(shown, holdings, window, living=_living(holdings, timeline.person), impaired=impaired)
    never = 0 if query.narrows else max(Device.objects.count() - len(keys), 0)
    capped = _capped(allocations=holdings, impairments=impaired)
    return DrawnTimeline(page=page, lanes=lanes, capped=capped, never=never)


def _by_group(timeline: Timeline, query: TimelineQuery, window: Window) -> DrawnTimeline:
    groups = timeline.groups()
    names = sorted(groups, key=lambda name: (not name, natural(name)))
    page = PageOfRows(len(names), GROUPS, query.page)
    shown = names[page.rows]
    holdings = _latest(timeline.of_groups(shown)) if shown else []
    levels = timeline.levels(shown) if shown else {}
    living, hours = _living(holdings, timeline.person), timeline.hours()
    lanes = group_lanes(shown, holdings, levels, window, by=query.by, living=living, hours=hours)
    return DrawnTimeline(page=page, lanes=lanes, capped=_capped(allocations=holdings))


def _capped(**drawn: Sequence[object]) -> list[str]:
    return [name for name, every in drawn.items() if len(every) > BARS]


def _latest(holdings: list[HeldSpan]) -> list[HeldSpan]:
    """What is held now, and the latest of the past, as many as are drawn."""
    return sorted(holdings, key=lambda one: (one.ended is None, one.ended or one.began), reverse=True)[: BARS + 1]


def _living(holdings: list[HeldSpan], person: Person) -> Living:
    uids = {one.claim_uid for one in holdings if one.claim_uid}
    if not uids:
        return {}
    owners = owners_of_claims({one.claim_uid for one in holdings if one.ended is None and one.claim_uid}, person)
    return {uid: owners.get(uid) for uid in Claim.objects.filter(uid__in=uids).values_list("uid", flat=True)}


# The export ----------------------------------------------------------------------------------------------------------


HEADER = (
    "driver", "pool", "device", "node", "class", "namespace", "claim", "claim_uid", "pods", "share_id",
    "consumed_capacity", "from", "to", "seconds", "state", "cause",
)  # fmt: skip
#: The state of a device in a line of somebody who has it; the others are those of devices that are out of order.
HELD = "held"
#: Rows of the past that are read at a time.
BATCH = 2000
#: Rows of the past in one file; it is made in memory, in some seconds of processor time.
LONGEST_FILE, FILE_SECONDS = 100_000, 10.0
#: Who holds a device whose namespace the person does not see.
HIDDEN = "another namespace"


def moment_text(at: datetime | None) -> str:
    """RFC 3339 in UTC; empty while it goes on."""
    return at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z") if at else ""


def cells(row: Sequence[Any], person: Person, now: datetime) -> list[str]:
    """One line of the file, from the columns of `EXPORTED`."""
    driver, pool, device, node, device_class, namespace, claim, uid, pods, share, consumed, began, ended = row
    if not person.sees(namespace):
        namespace, claim, uid, pods, share, consumed = HIDDEN, "", "", (), "", {}
    amounts = " ".join(f"{name}={amount}" for name, amount in consumed.items())
    lasted = int(((ended or now) - began).total_seconds())
    return [
        *map(csv_cell, (driver, pool, device, node, device_class, namespace, claim, uid)),
        csv_cell(" ".join(pods)), csv_cell(share), csv_cell(amounts),
        moment_text(began), moment_text(ended), str(max(lasted, 0)), HELD, "",
    ]  # fmt: skip


def impaired_cells(key: DeviceKey, span: ImpairedSpan, now: datetime) -> list[str]:
    """One line of the file: a device that was out of order, and why."""
    lasted = int(((span.ended or now) - span.began).total_seconds())
    return [
        *map(csv_cell, key), *[""] * 7,
        moment_text(span.began), moment_text(span.ended), str(max(lasted, 0)), span.state_name.lower(),
        csv_cell(span.taint or span.cause),
    ]  # fmt: skip


def parts(timeline: Timeline, drawn: Callable[[Sequence[Any]], list[str]]) -> Iterator[str]:
    """The file, piece by piece: header, what is held now, then the past in batches."""
    yield csv_lines([HEADER])
    yield csv_lines(drawn(row) for row in timeline.rows_now())
    after = written = 0
    while rows := timeline.rows_past(after=after, limit=BATCH):
        after = rows[-1][0]
        yield csv_lines(drawn(row) for _, row in rows)
        written += len(rows)
        if written >= LONGEST_FILE:
            yield csv_lines([["Incomplete: ask for a shorter time, or for one class, node or namespace."]])
            return


async def streamed(pieces: Iterator[str]) -> AsyncIterator[bytes]:
    """`pieces` without holding up the server: each is made in a thread, when the reader wants it."""
    following = sync_to_async(lambda: next(pieces, None))
    while (piece := await following()) is not None:
        yield piece.encode()
