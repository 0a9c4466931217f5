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
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple, cast

from msgspec import structs

from claims.kinds.resource_claims import ResourceClaim
from claims.models import AllocatedDevice, Claim, DeviceKey, Pod, Reservation
from inventory.kinds import gates
from inventory.kinds.devices import DeviceTaint, DeviceTaintRule, DeviceToleration
from inventory.kinds.taint_rules import GATE, TaintRules, place_of, tolerates
from inventory.models import Device
from manciple.store import objects, sql
from manciple.store.follower import Follower, View
from manciple.store.objects import decoded
from manciple.store.records import Written
from manciple.wire import codec
from manciple.wire.base import ApiObject
from scheduling.hints import DELETED, FINISHED_PHASES
from scheduling.resources import CLAIMS, TAINT_RULES, Key, kind

NO_EXECUTE = "NoExecute"

# Taints ---------------------------------------------------------------------------------------------------------------


class TaintRuleView(View):
    """The taint rules, as this process follows them."""

    resources: ClassVar[Sequence[str]] = (TAINT_RULES,)

    def __init__(self) -> None:
        self._rules = TaintRules()
        self._evicting: TaintRules | None = None

    def fill(self, resource: str, objects: Iterable[ApiObject]) -> None:  # noqa: ARG002 - there is one
        for rule in objects:
            self._rules.put(cast("DeviceTaintRule", rule))

    def apply(self, changes: Sequence[Written]) -> None:
        for change in changes:
            rule = cast("DeviceTaintRule", change.object)
            touched = self._rules.remove(rule.metadata.name) if change.type == DELETED else self._rules.put(rule)
            if touched:
                self._evicting = None

    def now(self) -> KnownRules:
        """None while rules have no effect."""
        if not gates.enabled(GATE):
            return KnownRules((), TaintRules())
        if self._evicting is None:
            self._evicting = TaintRules(one for one in self._rules if one.spec.taint.effect == NO_EXECUTE)
        return KnownRules(tuple(self._rules), self._evicting)


class KnownRules(NamedTuple):
    """all: every rule as it is, with its status. evicting: those of effect NoExecute."""

    all: tuple[DeviceTaintRule, ...]
    evicting: TaintRules


following = Follower(TaintRuleView)


class EvictingTaint(NamedTuple):
    """A NoExecute taint on a device; rule: the uid of the rule that puts it there, "" where the driver does."""

    taint: DeviceTaint
    rule: str = ""


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


class DeviceHold(NamedTuple):
    """A claim's hold on a device. id: of its row; the same hold keeps its row."""

    id: int
    claim: str
    driver: str
    pool: str
    device: str

    @property
    def key(self) -> DeviceKey:
        return (self.driver, self.pool, self.device)


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


_HOLD = ("id", "claim_id", "driver", "pool", "device")
_PLACE = ("driver", "pool", "device")


class Survey:
    """Asks the index whom taints concern. Remembers what the holds it has seen last tolerate."""

    def __init__(self) -> None:
        self._tolerations: dict[int, tuple[DeviceToleration, ...]] = {}

    def threatened(self, rules: TaintRules, now: datetime) -> list[ThreatenedPod]:
        """All pods that NoExecute taints concern."""
        published = _published_taints(evicting_devices())
        holds = _holds(_PLACE, published) | holds_selected(rules)
        self._tolerations = {hold.id: self._tolerations[hold.id] for hold in holds if hold.id in self._tolerations}
        users = _users({hold.claim for hold in holds})
        used = [hold for hold in holds if hold.claim in users]
        return _threatened(self._threats(used, published, rules, now), users)

    def still_threatened(self, pods: Collection[str], rules: TaintRules, now: datetime) -> dict[str, Threat]:
        """Of these pods (uids) those that taints concern as things are in this transaction."""
        reservations = sql.select(Reservation, ["claim_id", "uid"], ["uid"], [(uid,) for uid in pods])
        claims = {(claim,) for claim, _ in reservations}
        holds = {DeviceHold(*values) for values in sql.select(AllocatedDevice, _HOLD, ["claim_id"], claims)}
        columns = ["driver", "pool", "name", "taints"]
        published = _published_taints(sql.select(Device, columns, columns[:3], {hold.key for hold in holds}))
        threats = self._threats(holds, published, rules, now)
        return _by_pod(threats, reservations)

    def would_evict(self, rule: DeviceTaintRule, now: datetime) -> tuple[int, list[ThreatenedPod]]:
        """(allocated devices that `rule` selects, the pods that it would evict if its effect were NoExecute)."""
        taint = structs.replace(rule.spec.taint, effect=NO_EXECUTE)
        harsh = TaintRules([structs.replace(rule, spec=structs.replace(rule.spec, taint=taint))])
        holds = holds_selected(harsh)
        users = _users({hold.claim for hold in holds})
        return len(holds), _threatened(self._threats(holds, {}, harsh, now), users)

    def _threats(
        self,
        holds: Collection[DeviceHold],
        published: Mapping[DeviceKey, Sequence[EvictingTaint]],
        rules: TaintRules,
        now: datetime,
    ) -> dict[str, Threat]:
        """claim uid -> how taints of its devices threaten who uses it; those that are not threatened are left out."""
        self._read([hold for hold in holds if hold.id not in self._tolerations])
        found: dict[str, Threat] = {}
        for hold in holds:
            added = (EvictingTaint(rule.spec.taint, rule.metadata.uid) for rule in rules.of(*hold.key))
            for taint, rule in (*published.get(hold.key, ()), *added):
                until = end_of_patience(taint, self._tolerations.get(hold.id, ()), now)
                if until is not None:
                    threat = Threat(until, {rule} - {""})
                    found.setdefault(hold.claim, threat).join(threat)
        return found

    def _read(self, holds: Sequence[DeviceHold]) -> None:
        """What claims tolerate on these devices."""
        uids = {(hold.claim,) for hold in holds}
        keys = [tuple(key) for key in sql.select(Claim, ["namespace", "name"], ["uid"], uids)]
        claims = {stored.uid: decoded(stored, ResourceClaim) for stored in objects.get_many(kind(CLAIMS), keys)}
        for hold in holds:
            claim = claims.get(hold.claim)
            allocation = claim.status.allocation if claim is not None else None
            for result in allocation.devices.results if allocation is not None else ():
                if (result.driver, result.pool, result.device) == hold.key:
                    self._tolerations[hold.id] = result.tolerations


def _users(claims: Iterable[str]) -> dict[str, list[Sequence[str]]]:
    """claim uid -> (uid, namespace, name) of the pods that use it: those on a node that neither have ended nor are on
    their way out. Most of those whom a fault has struck are soon.
    """
    found: dict[str, list[Sequence[str]]] = defaultdict(list)
    for chunk in sql.chunks(((claim,) for claim in claims), sql.PARAMETERS):
        given, parameters = sql.given_table(("claim_id",), chunk)
        for claim, *pod in sql.fetch(f"{given} {_USING}", parameters):
            found[claim].append(pod)
    return found


_USING = (
    "SELECT r.claim_id, p.uid, p.namespace, p.name "  # noqa: S608 - our names
    f"FROM given CROSS JOIN {Reservation._meta.db_table} r CROSS JOIN {Pod._meta.db_table} p "
    "WHERE r.claim_id = given.claim_id AND p.uid = r.uid AND NOT p.deleting AND p.node_name <> '' "
    f"AND p.phase NOT IN ({', '.join(repr(phase) for phase in sorted(FINISHED_PHASES))})"
)


def _threatened(threats: Mapping[str, Threat], users: Mapping[str, Iterable[Sequence[str]]]) -> list[ThreatenedPod]:
    found: dict[str, ThreatenedPod] = {}
    for claim, threat in threats.items():
        for uid, namespace, name in users.get(claim, ()):
            pod = found.setdefault(uid, ThreatenedPod(uid, namespace, name, Threat(threat.until)))
            pod.threat.join(threat)
    return list(found.values())


def _by_pod(threats: Mapping[str, Threat], reservations: Iterable[Sequence[Any]]) -> dict[str, Threat]:
    found: dict[str, Threat] = {}
    for claim, pod in reservations:
        if (threat := threats.get(claim)) is not None:
            found.setdefault(pod, Threat(threat.until)).join(threat)
    return found


def evicting_devices() -> list[Sequence[Any]]:
    """(driver, pool, name, taints) of the devices that drivers taint NoExecute and that some claim holds."""
    statement = (
        "SELECT d.driver, d.pool, d.name, d.taints FROM inventory_device d WHERE d.evicting AND EXISTS "
        "(SELECT 1 FROM claims_allocateddevice a WHERE a.driver = d.driver AND a.pool = d.pool AND a.device = d.name)"
    )
    return list(sql.fetch(statement))


def _published_taints(rows: Iterable[Sequence[Any]]) -> dict[DeviceKey, list[EvictingTaint]]:
    found: dict[DeviceKey, list[EvictingTaint]] = {}
    for driver, pool, name, taints in rows:
        text = taints if isinstance(taints, str) else json.dumps(taints)
        found[(driver, pool, name)] = _evicting(text)
    return found


@lru_cache(maxsize=1024)
def _evicting(taints: str) -> list[EvictingTaint]:
    """Those of effect NoExecute. A fault taints thousands of devices alike; nobody changes the list."""
    read = [EvictingTaint(codec.decode_value(DeviceTaint, one)) for one in json.loads(taints)]
    return [one for one in read if one.taint.effect == NO_EXECUTE]


def holds_selected(rules: Iterable[DeviceTaintRule]) -> set[DeviceHold]:
    """The holds on devices that any of `rules` selects. One query for all rules that name the same of a device."""
    by_columns: dict[tuple[str, ...], list[tuple[str, ...]]] = defaultdict(list)
    for rule in rules:
        if (place := place_of(rule)) is not None:
            named = {column: value for column, value in zip(_PLACE, place, strict=True) if value is not None}
            by_columns[tuple(named)].append(tuple(named.values()))
    return {hold for columns, values in by_columns.items() for hold in _holds(columns, values)}


def _holds(columns: Sequence[str], values: Iterable[Sequence[str]]) -> set[DeviceHold]:
    """Those on the devices whose `columns` are one of `values`; without columns all."""
    if not columns:
        return {DeviceHold(*found) for found in AllocatedDevice.objects.values_list(*_HOLD)}
    return {DeviceHold(*found) for found in sql.select(AllocatedDevice, _HOLD, columns, values)}


def count_published(rule: DeviceTaintRule) -> int:
    """How many published devices `rule` selects."""
    if (place := place_of(rule)) is None:
        return 0
    columns = ("driver", "pool", "name")
    named = {column: value for column, value in zip(columns, place, strict=True) if value is not None}
    return Device.objects.filter(**named).count()
