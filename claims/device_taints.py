"""Whom NoExecute taints of devices concern: the pods that have to leave, and when (KEP-5055).

Taints come from drivers, in slices, and from DeviceTaintRules. What is asked is asked of the index, for all taints
together: the allocated devices among the tainted ones, the claims that hold them, the pods for which these are
reserved. A claim's document is read once, for what it tolerates.

A toleration without an effect tolerates NoExecute as it tolerates NoSchedule. (Upstream's scheduler says so too, but
its eviction controller does not, so that such a pod is placed and evicted, over and over.)
Upstream: pkg/controller/devicetainteviction/device_taint_eviction.go.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple, cast

from msgspec import structs

from claims.kinds.pod_groups import CLAIMS_GATE, group_name
from claims.kinds.pods import Pod as PodObject
from claims.kinds.resource_claims import ResourceClaim
from claims.models import AllocatedDevice, Claim, DeviceKey, Pod, Reservation
from inventory.kinds import gates
from inventory.kinds.devices import DeviceTaint, DeviceTaintRule, DeviceToleration
from inventory.kinds.taint_rules import GATE, TaintRules, place_of, tolerates
from inventory.models import Device
from manciple.controllers.coordination import looked_after
from manciple.store import event_log, objects, sql
from manciple.store.event_log import Follower, View
from manciple.store.objects import decoded
from manciple.store.records import Written
from manciple.wire import codec
from manciple.wire.base import ApiObject
from manciple.wire.errors import Expired
from manciple.wire.resources import CLAIMS, DELETED, FINISHED_PHASES, PODS, SLICES, TAINT_RULES, Key, kind

NO_EXECUTE = "NoExecute"
#: The controller that evicts. What it tells in a rule's status is no news to it.
EVICTING = "evict_from_devices"

# Taints ---------------------------------------------------------------------------------------------------------------


class TaintRuleView(View):
    """The taint rules, as this process follows them."""

    resources: ClassVar[Sequence[str]] = (TAINT_RULES,)

    def __init__(self) -> None:
        self._rules = TaintRules()
        #: kept up rule by rule: a fault makes thousands, and each of the batches that evict asks for them
        self._evicting = TaintRules()

    def fill(self, resource: str, objects: Iterable[ApiObject]) -> None:  # noqa: ARG002 - there is one
        for rule in objects:
            self._put(cast("DeviceTaintRule", rule))

    def apply(self, changes: Sequence[Written]) -> None:
        for change in changes:
            rule = cast("DeviceTaintRule", change.object)
            if change.type == DELETED:
                self._rules.remove(rule.metadata.name)
                self._evicting.remove(rule.metadata.name)
            else:
                self._put(rule)

    def _put(self, rule: DeviceTaintRule) -> None:
        self._rules.put(rule)
        if rule.spec.taint.effect == NO_EXECUTE:
            self._evicting.put(rule)
        else:
            self._evicting.remove(rule.metadata.name)

    def now(self) -> KnownRules:
        """None while rules have no effect."""
        if not gates.enabled(GATE):
            return KnownRules((), TaintRules(), self.revision)
        return KnownRules(tuple(self._rules), self._evicting, self.revision)


class KnownRules(NamedTuple):
    """all: every rule as it is at `revision`, with its status. evicting: those of effect NoExecute, for as long as
    nobody asks the view again."""

    all: tuple[DeviceTaintRule, ...]
    evicting: TaintRules
    revision: int


following = Follower(TaintRuleView)


def end_of_patience(taint: DeviceTaint, tolerations: Iterable[DeviceToleration], now: datetime) -> datetime | None:
    """When the taint drives away who has these tolerations; None for never. Seconds count for effect NoExecute only."""
    since = datetime.fromisoformat(taint.time_added) if taint.time_added else now
    granted: list[int] = []
    for toleration in tolerations:
        if not tolerates(toleration, taint):
            continue
        if toleration.toleration_seconds is None or not toleration.effect:
            return None
        granted.append(max(toleration.toleration_seconds, 0))
    # Nobody waits longer than a century: more seconds than a date can hold are no error.
    return since + timedelta(seconds=min(min(granted, default=0), 100 * 365 * 86400))


# Who is affected ------------------------------------------------------------------------------------------------------


class DeviceUse(NamedTuple):
    """A pod's use of a device: by a claim that holds it and is reserved for the pod.

    hold: the id of the hold's row; the same hold keeps its row. taints: as published, where any of them evicts.
    """

    hold: int
    claim: str
    driver: str
    pool: str
    device: str
    node: str
    taints: str | None
    uid: str
    namespace: str
    name: str

    @property
    def key(self) -> DeviceKey:
        return (self.driver, self.pool, self.device, self.node)


@dataclass(slots=True)
class Threat:
    """until: when the pod has to go. rules: the uids of those because of which it does."""

    until: datetime
    rules: set[str] = field(default_factory=set)

    def join(self, other: Threat) -> None:
        self.until = min(self.until, other.until)
        self.rules |= other.rules


class ThreatenedPod(NamedTuple):
    """A pod that is on a node and has to leave, now or later."""

    uid: str
    namespace: str
    name: str
    threat: Threat

    @property
    def key(self) -> Key:
        return (self.namespace, self.name)


#: Pods that stay on tainted devices for which a second passes before all are asked about again, while no taint is
#: changed (1,000 of them take some 12 ms); and how many seconds that is at most.
ASKED_ABOUT_A_SECOND = 1000
LONGEST_REST = 10
#: Changes of slices and rules that are looked at one by one.
MOST_CHANGES = 100


class _Answer(NamedTuple):
    """Whom taints concerned at `revision`, and when it is out of date whatever happens."""

    pods: list[ThreatenedPod]
    revision: int
    until: datetime


class Survey:
    """Asks the index whom taints concern. Remembers what the holds it has seen last tolerate.

    Thousands who tolerate their taints are asked about less often while none is changed: the last answer does so long.
    Where somebody left it is harmless, as every eviction asks about its own pods again; who came late because of a
    taint that stands is found some seconds later.
    """

    def __init__(self) -> None:
        self._tolerations: dict[int, tuple[DeviceToleration, ...]] = {}
        self._answer: _Answer | None = None

    def threatened(self, rules: KnownRules, now: datetime) -> list[ThreatenedPod]:
        """All pods that NoExecute taints concern."""
        if self._answer is None or now >= self._answer.until or _taints_changed_after(self._answer.revision):
            pods = self._all_threatened(rules.evicting, now)
            rest = min(len(self._tolerations) // ASKED_ABOUT_A_SECOND, LONGEST_REST)
            self._answer = _Answer(pods, rules.revision, now + timedelta(seconds=rest))
        return self._answer.pods

    def ask_again(self) -> None:
        """What was answered last is out of date."""
        self._answer = None

    def _all_threatened(self, rules: TaintRules, now: datetime) -> list[ThreatenedPod]:
        uses = {*map(_use, sql.fetch(_OF_EVICTING_DEVICES)), *uses_selected(rules), *_uses_by_groups(rules)}
        known = {use.hold for use in uses} & self._tolerations.keys()
        self._tolerations = {hold: self._tolerations[hold] for hold in known}
        return self._threatened(uses, rules, now)

    def still_threatened(self, pods: Collection[str], rules: TaintRules, now: datetime) -> dict[str, Threat]:
        """Of these pods (uids) those that taints concern as things are in this transaction."""
        found = self._threatened({*_uses_by(pods), *_uses_by_groups(rules, pods)}, rules, now)
        return {one.uid: one.threat for one in found}

    def would_evict(self, rule: DeviceTaintRule, now: datetime) -> list[ThreatenedPod]:
        """The pods that `rule` would evict if its effect were NoExecute."""
        return self.evicted_by([rule], now, as_if=NO_EXECUTE)

    def evicted_by(self, rules: Iterable[DeviceTaintRule], now: datetime, *, as_if: str = "") -> list[ThreatenedPod]:
        """The pods that these rules would evict, whatever else threatens them. as_if: as if that were their effect."""
        harsh = TaintRules(_with_effect(rule, as_if) if as_if else rule for rule in rules)
        uses = {use._replace(taints=None) for use in (*uses_selected(harsh), *_uses_by_groups(harsh))}
        return self._threatened(uses, harsh, now)

    def _threatened(self, uses: Iterable[DeviceUse], rules: TaintRules, now: datetime) -> list[ThreatenedPod]:
        known = list(uses)
        self._read([use for use in known if use.hold not in self._tolerations])
        threats: dict[tuple[int, str | None], Threat | None] = {}
        found: dict[str, ThreatenedPod] = {}
        for use in known:
            key = (use.hold, use.taints)  # those who share a claim are threatened alike
            if key not in threats:
                threats[key] = _threat_to(use, self._tolerations.get(use.hold, ()), rules, now)
            if (threat := threats[key]) is not None:
                pod = ThreatenedPod(use.uid, use.namespace, use.name, Threat(threat.until))
                found.setdefault(use.uid, pod).threat.join(threat)
        return list(found.values())

    def _read(self, uses: Sequence[DeviceUse]) -> None:
        """What claims tolerate on these devices."""
        uids = {(use.claim,) for use in uses}
        keys = [tuple(key) for key in sql.select(Claim, ["namespace", "name"], ["uid"], uids)]
        claims = {stored.uid: decoded(stored, ResourceClaim) for stored in objects.get_many(kind(CLAIMS), keys)}
        for use in uses:
            claim = claims.get(use.claim)
            allocation = claim.status.allocation if claim is not None else None
            for result in allocation.devices.results if allocation is not None else ():
                if (result.driver, result.pool, result.device) == use.key[:3]:
                    self._tolerations[use.hold] = result.tolerations


def _with_effect(rule: DeviceTaintRule, effect: str) -> DeviceTaintRule:
    taint = structs.replace(rule.spec.taint, effect=effect)
    return structs.replace(rule, spec=structs.replace(rule.spec, taint=taint))


def _threat_to(
    use: DeviceUse, tolerations: Iterable[DeviceToleration], rules: TaintRules, now: datetime
) -> Threat | None:
    """How taints of the device threaten who uses it with these tolerations."""
    found: Threat | None = None
    published = ((taint, "") for taint in _evicting(use.taints)) if use.taints else ()
    for taint, rule in (*published, *((one.spec.taint, one.metadata.uid) for one in rules.of(*use.key[:3]))):
        until = end_of_patience(taint, tolerations, now)
        if until is not None:
            found = found or Threat(until)
            found.join(Threat(until, {rule} - {""}))
    return found


def _taints_changed_after(revision: int) -> bool:
    """Whether anything since may have made a NoExecute taint; that one went is no news to whoever stays."""
    try:
        news = event_log.stretch_after(revision, resources={SLICES, TAINT_RULES}, limit=MOST_CHANGES)
    except Expired:
        return True
    slices = {change.name for change in news.changes if change.resource == SLICES}
    rules = (change for change in news.changes if change.resource == TAINT_RULES)
    return (
        news.more
        or any(EVICTING not in looked_after.value.by(change.revision) for change in rules)
        or (bool(slices) and Device.objects.filter(evicting=True, slice_name__in=slices).exists())
    )


# What the index says --------------------------------------------------------------------------------------------------


_PLACE = ("driver", "pool", "device")
_ALLOCATED, _RESERVED, _PODS, _CLAIMS = (model._meta.db_table for model in (AllocatedDevice, Reservation, Pod, Claim))
_DEVICES = Device._meta.db_table
_TAINTS = "CASE WHEN d.evicting THEN d.taints END"
_USE = f"a.id, a.claim_id, a.driver, a.pool, a.device, a.node, {_TAINTS}, p.uid, p.namespace, p.name"
#: A pod that uses a device of its claim: on a node, neither ended nor on its way out. Most of those whom a fault has
#: struck are that soon.
_USING = (
    "r.claim_id = a.claim_id AND p.uid = r.uid AND NOT p.deleting AND p.node_name <> '' "
    f"AND p.phase NOT IN ({', '.join(repr(phase) for phase in sorted(FINISHED_PHASES))})"
)
#: Not by `evicting`: a fault changes it of thousands at once, and PostgreSQL takes it for rare until it has counted.
#: An allocation that names no node may be of any.
_OF_DEVICE = (
    "d.driver = a.driver AND d.pool = a.pool AND d.name = a.device "
    "AND (d.node_name = a.node OR d.node_name = '' OR a.node = '')"
)
_OF_EVICTING_DEVICES = (
    f"SELECT {_USE} FROM {_DEVICES} d CROSS JOIN {_ALLOCATED} a CROSS JOIN {_RESERVED} r CROSS JOIN {_PODS} p "  # noqa: S608 - our names
    f"WHERE d.evicting AND {_OF_DEVICE} AND {_USING}"
)
_WITH_POD_AND_DEVICE = f"CROSS JOIN {_PODS} p LEFT JOIN {_DEVICES} d ON {_OF_DEVICE}"
_BY_DEVICE = f"{_ALLOCATED} a CROSS JOIN {_RESERVED} r {_WITH_POD_AND_DEVICE}"
_BY_POD = f"{_RESERVED} r CROSS JOIN {_ALLOCATED} a {_WITH_POD_AND_DEVICE}"


def _uses_by(pods: Iterable[str]) -> Iterator[DeviceUse]:
    statement = sql.for_each_given(_USE, _BY_POD, f"r.uid = given.uid AND {_USING}")
    for given, parameters in sql.given_tables(("uid",), ((uid,) for uid in pods)):
        yield from map(_use, sql.fetch(f"{given} {statement}", parameters))


def uses_selected(rules: Iterable[DeviceTaintRule]) -> Iterator[DeviceUse]:
    """Of the devices that any of `rules` selects. One query for all rules that name the same of a device."""
    by_columns: dict[tuple[str, ...], list[tuple[str, ...]]] = defaultdict(list)
    for rule in rules:
        if (named := _named(rule, _PLACE)) is not None:
            by_columns[tuple(named)].append(tuple(named.values()))
    for columns, values in by_columns.items():
        yield from _uses_of(columns, values)


def _uses_of(columns: Sequence[str], values: Iterable[Sequence[str]]) -> Iterator[DeviceUse]:
    """Of the devices whose `columns` are one of `values`; without columns all."""
    if not columns:
        yield from map(_use, sql.fetch(f"SELECT {_USE} FROM {_BY_DEVICE} WHERE {_USING}"))  # noqa: S608 - our names
        return
    matching = " AND ".join(f"a.{column} = given.{column}" for column in columns)
    if tuple(columns) == _PLACE[: len(columns)]:
        statement = sql.for_each_given(_USE, _BY_DEVICE, f"{matching} AND {_USING}")
    else:  # no index begins with these columns: one pass over the table for all rules
        statement = f"SELECT {_USE} FROM given CROSS JOIN {_BY_DEVICE} WHERE {matching} AND {_USING}"  # noqa: S608
    for given, parameters in sql.given_tables(columns, values):
        yield from map(_use, sql.fetch(f"{given} {statement}", parameters))


_OF_GROUPS = (
    f"SELECT a.id, a.claim_id, a.driver, a.pool, a.device, a.node, {_TAINTS}, r.name, c.namespace, c.name "  # noqa: S608
    f"FROM {_RESERVED} r CROSS JOIN {_ALLOCATED} a CROSS JOIN {_CLAIMS} c LEFT JOIN {_DEVICES} d ON {_OF_DEVICE} "
    "WHERE r.resource = 'podgroups.scheduling.k8s.io' AND a.claim_id = r.claim_id AND c.uid = r.claim_id"
)


def _uses_by_groups(rules: TaintRules, pods: Collection[str] | None = None) -> Iterator[DeviceUse]:
    """By the pods of groups for which a claim is reserved as a whole (KEP-5729), of devices that may evict them.

    pods: uids of those that are asked about; None for all. The pods are read once for all of these claims.
    """
    uses: list[tuple[DeviceUse, str, str]] = []
    for *columns, group, namespace, claim in sql.fetch(_OF_GROUPS) if gates.enabled(CLAIMS_GATE) else ():
        use = _use((*columns, "", namespace, ""))
        if use.taints is not None or rules.of(*use.key[:3]):
            uses.append((use, group, claim))
    members = _members({(use.namespace, claim) for use, _, claim in uses}, pods) if uses else {}
    for use, group, claim in uses:
        for pod in members.get((use.namespace, group, claim), ()):
            yield use._replace(uid=pod.metadata.uid, name=pod.metadata.name)


def _members(claims: Collection[Key], pods: Collection[str] | None) -> dict[tuple[str, str, str], list[PodObject]]:
    """(namespace, group, claim) -> the pods on nodes that use the claim and name the group; the index knows the claims
    alone."""
    placed = Pod.objects.filter(namespace__in={namespace for namespace, _ in claims}, deleting=False)
    placed = placed.exclude(node_name="").exclude(phase__in=FINISHED_PHASES)
    known = placed if pods is None else placed.filter(uid__in=pods)
    used = {
        (namespace, name): [one for one in names if (namespace, one) in claims]
        for namespace, name, names in known.values_list("namespace", "name", "claim_names")
    }
    found: dict[tuple[str, str, str], list[PodObject]] = defaultdict(list)
    for stored in objects.get_many(kind(PODS), [key for key, names in used.items() if names]):
        pod = decoded(stored, PodObject)
        for claim in used.get(pod.key, ()):
            found[pod.metadata.namespace, group_name(pod), claim].append(pod)
    return found


def _use(values: Sequence[Any]) -> DeviceUse:
    use = DeviceUse(*values)
    return use if use.taints is None or isinstance(use.taints, str) else use._replace(taints=json.dumps(use.taints))


@lru_cache(maxsize=1024)
def _evicting(taints: str) -> list[DeviceTaint]:
    """Those of effect NoExecute. A fault taints thousands of devices alike; nobody changes the list."""
    read = [codec.decode_value(DeviceTaint, one) for one in json.loads(taints)]
    return [one for one in read if one.effect == NO_EXECUTE]


def count_published(rule: DeviceTaintRule) -> int:
    """How many published devices `rule` selects."""
    named = _named(rule, ("driver", "pool", "name"))
    return 0 if named is None else Device.objects.filter(**named).count()


def count_allocated(rule: DeviceTaintRule) -> int:
    """How many times a claim holds a device that `rule` selects."""
    named = _named(rule, _PLACE)
    return 0 if named is None else AllocatedDevice.objects.filter(**named).count()


def _named(rule: DeviceTaintRule, columns: Sequence[str]) -> dict[str, str] | None:
    """column -> what the rule wants there; None for a rule that selects nothing. columns: of driver, pool, device."""
    place = place_of(rule)
    return (
        None if place is None else {column: one for column, one in zip(columns, place, strict=True) if one is not None}
    )
