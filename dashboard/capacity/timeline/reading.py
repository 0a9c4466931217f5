"""Reads who held what in a window of time, and what was out of order: what is now, and what was given back or is over.

What is held now is never more than there are devices. The past may be hundreds of thousands of rows: the database
groups and counts them, and only those that are drawn come out, at most `BARS`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

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

from claims.devices.published import MODEL_ATTRIBUTES, DeviceKey
from claims.kinds.resource_claims import pools_in_use
from claims.models import AllocatedDevice, PastAllocation, Reservation, UseSpell
from dashboard.capacity.timeline.query import TimelineQuery
from dashboard.inventory.incidents import ImpairedSpan, between, spans
from dashboard.kit.windows import Window
from insight.waiting_times import Epoch, Wait, waits_of
from inventory.models import Device, Impairment, Pool
from manciple.people import Person
from manciple.wire.resources import PODS

#: Bars on one page; of more, the latest.
BARS = 1500
#: Rows of devices that the bars of classes and namespaces are put together from.
ROWS = 4 * BARS
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
        self._person = person
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
        columns = ("driver", "pool", "device", "node")
        rows = {*self._past.values_list(*columns).distinct(), *self._now.values_list(*columns).distinct()}
        held = {self.key_of(*row) for row in rows}
        if self._query.namespace or self._query.device_class:
            return list(held)
        named = [span for span in self.impaired if span.place[1]]
        return list(held.union(*(self._concerned_by(span) for span in named)))

    @cached_property
    def impaired(self) -> list[ImpairedSpan]:
        """What was out of order in the window, of the driver and the node that are asked for."""
        rows = between(self._window.begin, self._window.end)
        if self._query.driver:
            rows = rows.filter(driver__in=("", self._query.driver))
        if self._pools is not None:
            rows = rows.filter(pool__in=("", *self._pools)).filter(
                Q(source=Impairment.Source.RULE) | Q(node__in=("", self._query.node))
            )
        return spans(rows)

    def _concerned_by(self, span: ImpairedSpan) -> Iterable[DeviceKey]:
        """The devices that a rule names, as far as they are published and asked for."""
        exact = {self.key_of(*span.place, span.node)} if span.exact else set()
        if exact and span.source != Impairment.Source.RULE:
            return exact
        named = zip(("driver", "pool", "name"), span.place, strict=True)
        rows = Device.objects.filter(**{column: value for column, value in named if value})
        if self._pools is not None:
            rows = rows.filter(pool__in=self._pools, node_name__in=("", self._query.node))
        if self._query.driver:
            rows = rows.filter(driver=self._query.driver)
        return {self.key_of(*row) for row in rows.values_list("driver", "pool", "name", "node_name")} or exact

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
            :ROWS
        ]:
            one = HeldSpan(
                group=self._group_of(column), namespace=namespace, claim=claim, claim_uid=uid, pods=tuple(pods),
                began=began, ended=ended,
            )  # fmt: skip
            one = self._seen(one)
            if one.group in wanted:
                together[one] += 1
        return [HeldSpan(**{**_fields(one), "devices": number}) for one, number in together.items()]

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
        person = self._person
        found = waits_of(now.restrict(person), past.restrict(person), column=self._column)
        return [Wait(self._group_of(one.group), one.at, one.seconds) for one in found]

    # One row -------------------------------------------------------------------------------------------------------

    @property
    def _column(self) -> str:
        return {"namespace": "namespace", "model": "model"}.get(self._query.by, "device_class")

    def _group_of(self, value: str) -> str:
        """The group of a row by its class, model or namespace."""
        return value if self._query.by != "namespace" or self._person.sees(value) else ""

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
        if self._person.sees(holding.namespace):
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
        for span in self.impaired:
            for device in sorted(self._concerned_by(span)):
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
    published = [Subquery(device.values(text=KT(f"attributes__{name}__string"))[:1]) for name in MODEL_ATTRIBUTES]
    return Coalesce(*published, "driver", output_field=TextField())


def _fields(one: HeldSpan) -> dict[str, Any]:
    return {name: getattr(one, name) for name in HeldSpan.__dataclass_fields__}


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
