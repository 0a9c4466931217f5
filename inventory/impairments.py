"""What kept claims away from devices, and when: recorded with the writes that say so, in their transaction.

    a driver taints a device in its ResourceSlice, or takes the taint away   -> record_taints, by pool
    a DeviceTaintRule comes, changes or goes                                 -> record_rules
    a node's agent reports with a pod that its device is Unhealthy           -> record_reports
    time passes, and nothing is heard of a node                              -> record_unreachable
    a pool stays without all of its slices                                   -> record_incomplete
    claims of a copied cluster hold one device, each as a whole              -> record_held_twice
    writes there would have given a device twice (the guard)                 -> record_contested

An `Impairment` is one device with one taint (or one report) from when to when. A rule is one row, whatever it selects:
its selector stands in it, so a rule for all devices costs what a rule for one does; so is a node, or a pool. What
stands is compared with what there should be, never edge with edge: a write that is seen twice, a restart and `reindex`
change nothing. A write costs a query where nothing is impaired, and a few in bulk where thousands are.

Only taints that keep claims away are recorded, and only while their gates are on. While a pool is incomplete nobody
knows of the devices that it lacks: what was said of them last stands.

An `Incident` is what happened together: impairments with one cause (the taint's key and value) of one pool, or of
several rules, of which each came within `TOGETHER` of another; what comes back so soon belongs to it too. Equally named
pools of two nodes are two pools. What is found on a device that is impaired alike already joins that device's incident.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple

from inventory.kinds import gates
from inventory.kinds.devices import HARD_EFFECTS, DeviceTaint, DeviceTaintRule, is_unhealthy
from inventory.kinds.nodes import UNREACHABLE
from inventory.kinds.pools import PoolKey
from inventory.kinds.taint_rules import GATE as RULES_GATE
from inventory.kinds.taint_rules import place_of
from inventory.models import Device, Impairment, Incident, Pool, PublishedSlice
from manciple.store import sql
from manciple.store.records import Change
from manciple.wire import codec

TAINTS_GATE = "DRADeviceTaints"
DRIVER, RULE, REPORT = Impairment.Source.DRIVER.value, Impairment.Source.RULE.value, Impairment.Source.REPORT.value
NODE, POOL, CLAIM = Impairment.Source.NODE.value, Impairment.Source.POOL.value, Impairment.Source.CLAIM.value
GUARD = Impairment.Source.GUARD.value
#: What stands for a taint in the incident of a pool without all of its slices.
INCOMPLETE = "manciple.dev/pool-incomplete"
#: The same, in that of a device that several claims hold.
HELD_TWICE = "manciple.dev/held-twice"
#: The same, in that of a device that writes would have given twice.
CONTESTED = "manciple.dev/contested"
#: What comes so soon after the last of an incident belongs to it.
TOGETHER = timedelta(minutes=10)
#: How long what has ended is kept.
KEPT_FOR = timedelta(days=90)


class ImpairmentCause(NamedTuple):
    """What impairs which device. The columns are those of `Impairment`."""

    source: str
    reporter: str
    driver: str
    pool: str
    device: str
    node: str
    key: str
    value: str
    effect: str

    @property
    def unhealthy(self) -> bool:
        return self.source == REPORT or is_unhealthy(self.key)

    @property
    def identity(self) -> ImpairmentCause:
        """Rules name no node: which one a rule's pool is on may become known later."""
        return self._replace(node="") if self.source == RULE else self

    def group(self, pools: Collection[PoolKey]) -> IncidentGroup:
        """What it has in common with the others of its incident. pools: of a single node; others have the node ""."""
        if self.source == RULE and not self.unhealthy:  # rules that taint devices of many pools are one action
            return IncidentGroup("", "", "", self.key, self.value)
        if self.source == NODE:
            return IncidentGroup("", "", self.node, self.key, self.value)
        pool = PoolKey(self.driver, self.pool, self.node)
        return IncidentGroup(*pool[:2], pool.node if pool in pools else "", self.key, self.value)

    @property
    def subjects(self) -> Iterable[tuple[object, ...]]:
        """What it is about: of two that are about the same, the second joins the first one's incident."""
        if self.device and self.pool and self.driver:
            yield self.driver, self.pool, self.device, self.node, self.unhealthy
        if self.source == RULE:
            yield self.reporter, self.unhealthy


class IncidentGroup(NamedTuple):
    """Causes of one incident are equal in these. node: of the pool; "" if it is not on a single node."""

    driver: str
    pool: str
    node: str
    key: str
    value: str


class Found(NamedTuple):
    """An impairment that there should be."""

    cause: ImpairmentCause
    began_at: datetime
    message: str = ""


class StandingImpairment(NamedTuple):
    """One that has not ended."""

    id: int
    incident: str
    cause: ImpairmentCause


class ReportedDevice(NamedTuple):
    """A device that a node's agent calls Unhealthy."""

    driver: str
    pool: str
    device: str
    node: str
    message: str


# What says so ---------------------------------------------------------------------------------------------------------


def record_taints(pools: Collection[PoolKey], *, complete: Collection[PoolKey], tainted: bool, at: datetime) -> None:
    """The devices of these pools were published anew, as the index has them.

    complete: those of the pools of which everything is known; one that nobody publishes is. tainted: whether any of the
    devices that were written has a taint; where none has, and none had, nothing is asked.
    """
    if not tainted and not any(one.cause.source == DRIVER for one in _of_pools(pools)):
        return
    pools = _with_namesakes(pools)
    standing = _of_pools(pools)
    own = [one for one in standing if one.cause.source == DRIVER]
    found: list[Found] = []
    known: set[tuple[str, str, str, str]] = set()
    effective = gates.enabled(TAINTS_GATE)
    for driver, pool, device, node, taints in _published(pools):
        known.add((driver, pool, device, node))
        for taint in _keeping_away(taints) if effective else ():
            cause = ImpairmentCause(DRIVER, "", driver, pool, device, node, taint.key, taint.value, taint.effect)
            found.append(Found(cause, _since(taint, at)))
    certain = [one for one in own if _is_certain(one.cause, complete, known)]
    _bring_in_line(certain, found, standing, at)


def _is_certain(
    cause: ImpairmentCause, complete: Collection[PoolKey], known: Collection[tuple[str, str, str, str]]
) -> bool:
    """Whether everything is known of its device; the devices of a pool of no single node may each name theirs."""
    pools = (PoolKey(cause.driver, cause.pool, node) for node in (cause.node, ""))
    return cause[2:6] in known or any(pool in complete for pool in pools)


def record_rules(changes: Sequence[Change]) -> None:
    """DeviceTaintRules were written."""
    news = {change.object.metadata.name: change for change in changes if _says_something_new(change)}
    if not news:
        return
    rules = [change.object for change in news.values() if change.type != "DELETED"]
    found = _found_in([rule for rule in rules if isinstance(rule, DeviceTaintRule)], at=changes[0].at)
    _bring_in_line(_of_reporters(RULE, news), found, _of_pools(_pools_of(found)), changes[0].at)


def record_reports(reports: Mapping[str, Sequence[ReportedDevice]], *, at: datetime) -> None:
    """reports: uid of a pod -> what its node's agent calls Unhealthy of its devices now, which may be nothing."""
    found = [
        Found(ImpairmentCause(REPORT, uid, one.driver, one.pool, one.device, one.node, "", "", ""), at, one.message)
        for uid, devices in reports.items()
        for one in devices
    ]
    _bring_in_line(_of_reporters(REPORT, reports), found, _of_pools(_pools_of(found)), at)


def record_unreachable(nodes: Mapping[str, datetime], *, at: datetime) -> None:
    """nodes: every one that is unreachable now -> since when."""
    found = [
        Found(ImpairmentCause(NODE, node, "", "", "", node, UNREACHABLE, "", ""), since, "its agent does not report")
        for node, since in nodes.items()
    ]
    _bring_in_line(_of_source(NODE), found, (), at)


def record_incomplete(pools: Mapping[PoolKey, tuple[datetime, str]], *, at: datetime) -> None:
    """pools: every one that has not got all of its slices -> (since when, what is missing)."""
    found = [
        Found(ImpairmentCause(POOL, "", pool.driver, pool.name, "", pool.node, INCOMPLETE, "", ""), since, message)
        for pool, (since, message) in pools.items()
    ]
    _bring_in_line(_of_source(POOL), found, (), at)


def record_held_twice(devices: Mapping[tuple[str, str, str, str], str], *, at: datetime) -> None:
    """devices: (driver, pool, device, node) of every one that several claims hold as a whole -> what is said of it."""
    _record_given(CLAIM, HELD_TWICE, devices, at)


def record_contested(devices: Mapping[tuple[str, str, str, str], str], *, at: datetime) -> None:
    """devices: likewise, of every one that writes would have given twice lately."""
    _record_given(GUARD, CONTESTED, devices, at)


def _record_given(source: str, key: str, devices: Mapping[tuple[str, str, str, str], str], at: datetime) -> None:
    found = [
        Found(ImpairmentCause(source, "", driver, pool, device, node, key, "", ""), at, message)
        for (driver, pool, device, node), message in devices.items()
    ]
    _bring_in_line(_of_source(source), found, (), at)


def prune(now: datetime) -> int:
    """Forget what ended too long ago. Returns how many rows went."""
    old = now - KEPT_FOR
    return sum(model._default_manager.filter(ended_at__lt=old).delete()[0] for model in (Impairment, Incident))


def _says_something_new(change: Change) -> bool:
    before, now = change.previous, change.object
    same = isinstance(before, DeviceTaintRule) and isinstance(now, DeviceTaintRule) and before.spec == now.spec
    return change.type != "MODIFIED" or not same


def _found_in(rules: Iterable[DeviceTaintRule], *, at: datetime) -> list[Found]:
    if not gates.enabled(RULES_GATE):
        return []
    found = []
    for rule in rules:
        taint, place = rule.spec.taint, place_of(rule)
        if place is not None and taint.effect in HARD_EFFECTS:
            driver, pool, device = (one or "" for one in place)
            cause = ImpairmentCause(
                RULE, rule.metadata.name, driver, pool, device, "", taint.key, taint.value, taint.effect
            )
            found.append(Found(cause, _since(taint, at)))
    nodes = _nodes_of({pool[:2] for pool in _pools_of(found)})
    return [one._replace(cause=one.cause._replace(node=nodes.get(one.cause[2:4], ""))) for one in found]


def _pools_of(found: Iterable[Found]) -> set[PoolKey]:
    return {PoolKey(*one.cause[2:4], one.cause.node) for one in found if one.cause.driver and one.cause.pool}


def _since(taint: DeviceTaint, at: datetime) -> datetime:
    """When the taint was added; a driver's clock may be ahead."""
    return min(datetime.fromisoformat(taint.time_added), at) if taint.time_added else at


@lru_cache(maxsize=1024)
def _keeping_away(taints: str) -> tuple[DeviceTaint, ...]:
    """taints: as the index has them. A fault taints thousands of devices alike."""
    read = (codec.decode_value(DeviceTaint, one) for one in json.loads(taints))
    return tuple(taint for taint in read if taint.effect in HARD_EFFECTS)


# Rows -----------------------------------------------------------------------------------------------------------------


_INCIDENT = ("id", "unhealthy", *IncidentGroup._fields, "began_at", "touched_at", "acknowledged_by", "note")
_IMPAIRMENT = ("incident_id", *ImpairmentCause._fields, "message", "unhealthy", "began_at")


def _bring_in_line(
    standing: Sequence[StandingImpairment], found: Iterable[Found], beside: Iterable[StandingImpairment], at: datetime
) -> None:
    """End those of `standing` that are not found any more, begin what is found and does not stand.

    beside: what else stands, of the same devices.
    """
    wanted = {one.cause.identity: one for one in found}
    known = {one.cause.identity for one in standing}
    if begun := [one for cause, one in wanted.items() if cause not in known]:
        _begin(begun, (*beside, *standing), at)
    if over := [one for one in standing if one.cause.identity not in wanted]:
        _end(over, at)


def _begin(begun: Sequence[Found], beside: Iterable[StandingImpairment], at: datetime) -> None:
    of_subject = {subject: one.incident for one in beside for subject in one.cause.subjects}
    incident_of: dict[ImpairmentCause, str] = {}
    grouped: dict[tuple[IncidentGroup, bool], list[Found]] = {}
    columns = ["driver", "pool", "node_name"]
    rows = sql.select(PublishedSlice, columns, columns, {pool for pool in _pools_of(begun) if pool.node})
    pools = {PoolKey(*row) for row in rows}
    for one in begun:
        joined = next((of_subject[subject] for subject in one.cause.subjects if subject in of_subject), None)
        if joined is None:
            grouped.setdefault((one.cause.group(pools), one.cause.unhealthy), []).append(one)
        else:
            incident_of[one.cause] = joined
    recent = _recent({group for group, _ in grouped}, at)
    made = []
    for (group, unhealthy), members in grouped.items():
        content = "\0".join((*group, at.isoformat()))
        name = recent.get(group) or hashlib.sha256(content.encode()).hexdigest()[:16]
        incident_of |= {one.cause: name for one in members}
        if group not in recent:
            made.append((name, unhealthy, *group, min(one.began_at for one in members), at, "", ""))
    going_on = set(incident_of.values()) - {row[0] for row in made}
    sql.update(Incident, "id", ["touched_at", "ended_at"], [(name, at, None) for name in sorted(going_on)])
    sql.insert(Incident, _INCIDENT, made)
    sql.insert(
        Impairment,
        _IMPAIRMENT,
        [(incident_of[one.cause], *one.cause, one.message, one.cause.unhealthy, one.began_at) for one in begun],
    )


def _end(over: Sequence[StandingImpairment], at: datetime) -> None:
    sql.update(Impairment, "id", ["ended_at"], [(one.id, at) for one in over])
    for chunk in sql.chunks(sorted({one.incident for one in over}), sql.PARAMETERS):
        places = ", ".join(["%s"] * len(chunk))
        sql.execute(f"{_CLOSE} AND id IN ({places})", [sql.adapted(at), sql.adapted(at), *chunk])


# What the index says --------------------------------------------------------------------------------------------------


_IMPAIRMENTS, _INCIDENTS, _DEVICES, _SLICES = (
    model._meta.db_table for model in (Impairment, Incident, Device, PublishedSlice)
)
_CLOSE = (
    f"UPDATE {_INCIDENTS} SET ended_at = %s, touched_at = %s WHERE NOT EXISTS (SELECT 1 FROM {_IMPAIRMENTS} i "  # noqa: S608 - our names
    f"WHERE i.incident_id = {_INCIDENTS}.id AND i.ended_at IS NULL)"
)
_STANDING = f"i.id, i.incident_id, {', '.join(f'i.{column}' for column in ImpairmentCause._fields)}"


def _of_pools(pools: Iterable[PoolKey]) -> list[StandingImpairment]:
    """Whatever says it; rules that leave the pool open are not among them."""
    matching = "i.driver = given.driver AND i.pool = given.pool AND (i.node IN (given.node, '') OR given.node = '')"
    return _standing(("driver", "pool", "node"), pools, matching)


def _of_reporters(source: str, names: Iterable[str]) -> list[StandingImpairment]:
    matching = "i.source = given.source AND i.reporter = given.reporter"
    return _standing(("source", "reporter"), [(source, name) for name in names], matching)


def _of_source(source: str) -> list[StandingImpairment]:
    return _standing(("source",), [(source,)], "i.source = given.source")


def _standing(columns: Sequence[str], values: Iterable[Sequence[str]], matching: str) -> list[StandingImpairment]:
    statement = sql.for_each_given(_STANDING, f"{_IMPAIRMENTS} i", f"i.ended_at IS NULL AND {matching}")
    found = {}
    for given, parameters in sql.given_tables(columns, values):
        for number, incident, *cause in sql.fetch(f"{given} {statement}", parameters):
            found[number] = StandingImpairment(number, incident, ImpairmentCause(*cause))
    return list(found.values())


def _with_namesakes(pools: Collection[PoolKey]) -> set[PoolKey]:
    """With all equally named pools, where one of them is of no single node: its devices may each name theirs."""
    floating = [(pool.driver, pool.name, "") for pool in pools]
    rows = sql.select(PublishedSlice, ["driver", "pool"], ["driver", "pool", "node_name"], floating)
    names = {*map(tuple, rows), *(pool[:2] for pool in pools if not pool.node)}
    found = sql.select(PublishedSlice, ["driver", "pool", "node_name"], ["driver", "pool"], names) if names else ()
    return {*pools, *(PoolKey(*values) for values in found)}


def _recent(groups: Iterable[IncidentGroup], at: datetime) -> dict[IncidentGroup, str]:
    """The incidents of these groups that something may still belong to; of several the last."""
    columns = ", ".join(f"i.{column}" for column in IncidentGroup._fields)
    matching = " AND ".join(f"i.{column} = given.{column}" for column in IncidentGroup._fields)
    statement = sql.for_each_given(
        f"i.touched_at, i.id, {columns}", f"{_INCIDENTS} i", f"{matching} AND i.touched_at >= %s"
    )
    found: dict[IncidentGroup, str] = {}
    for given, parameters in sql.given_tables(IncidentGroup._fields, groups):
        rows = sql.fetch(f"{given} {statement}", [*parameters, sql.adapted(at - TOGETHER)])
        for _, name, *group in sorted(rows):
            found[IncidentGroup(*group)] = name
    return found


def _published(pools: Iterable[PoolKey]) -> Iterable[tuple[str, str, str, str, str]]:
    """(driver, pool, device, node, taints as JSON) of every device that is published."""
    published = sql.for_each_given(
        "d.driver, d.pool, d.name, d.node_name, d.taints",
        f"{_SLICES} s CROSS JOIN {_DEVICES} d",
        "s.driver = given.driver AND s.pool = given.pool AND s.node_name = given.node AND d.slice_name = s.name",
    )
    for given, parameters in sql.given_tables(("driver", "pool", "node"), pools):
        for *place, taints in sql.fetch(f"{given} {published}", parameters):
            driver, pool, device, node = place
            yield driver, pool, device, node, taints if isinstance(taints, str) else json.dumps(taints)


def _nodes_of(names: Iterable[tuple[str, str]]) -> Mapping[Any, str]:
    """(driver, pool name) -> the node of the only pool of that name."""
    found: dict[tuple[str, str], set[str]] = {}
    for driver, pool, node in sql.select(Pool, ["driver", "name", "node_name"], ["driver", "name"], names):
        found.setdefault((driver, pool), set()).add(node)
    return {name: next(iter(nodes)) for name, nodes in found.items() if len(nodes) == 1}
