"""Publishes the drivers' devices as ResourceSlices, and keeps them as they should be.

The slices of a pool carry its generation and how many there are; a reader takes the pool for complete when it has seen
that many of the highest generation. So a change writes every slice of the pool anew with a higher generation: until
the last is written the new generation is incomplete, and the old one no longer counts, so that no reader ever takes a
mixture for the pool. What somebody else deletes or changes is published anew the same way.

Where a single slice of several says all that changed, as with a taint on one device of ten thousand, that slice alone
is written, its generation kept: one write is the old pool or the new one, never a mixture. But only while every slice
is as this publisher itself wrote it last. After a write whose outcome is not known, after a restart, or after a write
by somebody else, another write may still be under way whose change would join ours; so the next change is written as a
new generation, whose first slice (the same for all, written only if it is as it was read) lets one writer through.

Names of slices are not the agent's alone: anybody who may write slices can take one first. Then the slices that are
missing get a random suffix, and the generation rises by a random number: two publishers that both avoid a taken name
never write one generation together.

Source: kubernetes staging/src/k8s.io/dynamic-resource-allocation/resourceslice/resourceslicecontroller.go, syncPool.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import msgspec

from inventory.kinds.devices import (
    HARD_EFFECTS,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintRuleSpec,
    DeviceTaintSelector,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from manciple.wire.base import ObjectMeta, OwnerReference
from nodeagent.api.client import SLICES, ApiResource, Client
from nodeagent.drivers.protocol import DeviceHealth, Driver, Pool, UnhealthyEffect
from nodeagent.early import NODE_SLICES
from nodeagent.failures import ApiFailure

log = logging.getLogger(__name__)

#: The limits of resource.k8s.io/v1 on one slice; the lower one where devices have taints, consume counters or have
#: an attribute with several values.
DEVICES_PER_SLICE, RICH_DEVICES_PER_SLICE, COUNTER_SETS_PER_SLICE = 128, 64, 8

#: `spec.pool.generation` is an int64. After it the pool is deleted and published again from generation 1.
MAX_GENERATION = 2**63 - 1

#: What leaves room for a number and a suffix in the 253 characters of an object's name.
LONGEST_BASE = 238

#: By how much a generation rises, at most, where the name of a slice was taken.
LONGEST_JUMP = 2**31

Item = TypeVar("Item")
_PoolKey = tuple[str, str]  # (driver, pool)


def slices_of(
    pool: Pool, *, driver: str, owner: OwnerReference, generation: int, rich: bool = False
) -> tuple[ResourceSlice, ...]:
    """The slices of one pool: first those with counters, then those with devices; one even of an empty pool.

    owner: the Node that the devices are on. rich: cut as if there were devices that need the lower limit.
    """
    size = RICH_DEVICES_PER_SLICE if rich or is_rich(pool) else DEVICES_PER_SLICE
    counters = [(part, ()) for part in _parts(pool.shared_counters, COUNTER_SETS_PER_SLICE)]
    devices = [((), part) for part in _parts(pool.devices, size)]
    contents: list[tuple[tuple[CounterSet, ...], tuple[Device, ...]]] = [*counters, *devices] or [((), ())]
    of_pool = ResourcePool(name=pool.name, generation=generation, resource_slice_count=len(contents))
    return tuple(
        ResourceSlice(
            metadata=ObjectMeta(name=slice_name(owner.name, driver, pool.name, index), owner_references=(owner,)),
            spec=ResourceSliceSpec(
                driver=driver, pool=of_pool, node_name=owner.name, devices=part, shared_counters=counter_sets
            ),
        )
        for index, (counter_sets, part) in enumerate(contents)
    )


def is_rich(pool: Pool) -> bool:
    """Whether the lower limit of devices in a slice applies."""
    return any(
        device.taints or device.consumes_counters or any(_is_list(one) for one in device.attributes.values())
        for device in pool.devices
    )


def _is_list(attribute: DeviceAttribute) -> bool:
    return bool(attribute.int_values or attribute.bool_values or attribute.string_values or attribute.version_values)


def slice_name(node: str, driver: str, pool: str, index: int) -> str:
    """A name that is the same at every start and sorts in the order of the slices."""
    base = f"{node}-{driver}"
    if pool != node or len(base) > LONGEST_BASE:
        base = f"{base[: LONGEST_BASE - 9]}-{hashlib.sha256(f'{node}/{driver}/{pool}'.encode()).hexdigest()[:8]}"
    return f"{base}-{index:03d}"


def _parts(items: Sequence[Item], size: int) -> list[tuple[Item, ...]]:
    return [tuple(items[start : start + size]) for start in range(0, len(items), size)]


def unhealthy(effect: UnhealthyEffect) -> DeviceTaint:
    return DeviceTaint(key="manciple.dev/unhealthy", effect=effect)


UNHEALTHY = unhealthy("NoSchedule")


def fenced_off(
    pools: Iterable[Pool], healths: Iterable[DeviceHealth], taint: DeviceTaint = UNHEALTHY
) -> Sequence[Pool]:
    """The pools of a driver with `taint` on each unhealthy device, unless the driver has tainted it as hard itself."""
    ill = {(one.pool, one.device) for one in healths if one.health == "Unhealthy"}
    if not ill:
        return tuple(pools)
    return tuple(
        replace(
            pool,
            devices=tuple(_fenced(one, taint) if (pool.name, one.name) in ill else one for one in pool.devices),
        )
        for pool in pools
    )


def _fenced(device: Device, taint: DeviceTaint) -> Device:
    as_hard = {"NoExecute"} if taint.effect == "NoExecute" else HARD_EFFECTS
    if any(own.effect in as_hard for own in device.taints):
        return device
    return msgspec.structs.replace(device, taints=(*device.taints, taint))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Published:
    """A pool as it stands on the server.

    versions: slice name -> resourceVersion. own: whether this publisher wrote every slice of it.
    """

    pool: Pool
    generation: int
    wanted: Mapping[str, ResourceSlice]
    versions: Mapping[str, str]
    own: bool


class Publisher:
    """The slices of one node. One thread at a time publishes one driver.

    owner: the Node as the slices' owner, as it is now. effect: of the taint on unhealthy devices.
    """

    def __init__(
        self,
        client: Client,
        *,
        node: str,
        owner: Callable[[], OwnerReference],
        effect: UnhealthyEffect = "NoSchedule",
    ) -> None:
        self._client = client
        self._unhealthy = unhealthy(effect)
        self._node = node
        self._owner = owner
        #: the highest generation that anybody may have seen
        self._generations: dict[_PoolKey, int] = {}
        #: what is known to be published; nothing while a publication is under way or has failed
        self._published: dict[_PoolKey, _Published] = {}
        #: what the next slices that are created add to their names, where somebody else had taken one
        self._suffixes: dict[_PoolKey, str] = {}
        #: pools that once needed small slices keep them, so that the next taint moves no device to another slice
        self._rich: set[_PoolKey] = set()

    def publishing_drivers(self) -> frozenset[str]:
        """The drivers with slices on the node, whoever wrote them. Raises: ApiFailure."""
        existing = self._existing()
        for slice_ in existing:
            self._note_generation(slice_)
        return frozenset((*(one.spec.driver for one in existing), *self._drivers_of_draft()))

    def remove(self, driver: str) -> None:
        """Delete every slice of a driver on the node. Raises: ApiFailure."""
        self._client.delete_collection(SLICES, field_selector=f"spec.nodeName={self._node},spec.driver={driver}")
        if driver in self._drivers_of_draft():
            selector = f"spec.nodeName={self._node},spec.driverName={driver}"
            self._client.delete_collection(NODE_SLICES, field_selector=selector)

    def _drivers_of_draft(self) -> frozenset[str]:
        """Those that publish as the KEP-4381 draft has it; none while its gate is off. Raises: ApiFailure."""
        try:
            found = self._client.list(NODE_SLICES, field_selector=f"spec.nodeName={self._node}").items
        except ApiFailure as failure:
            if failure.not_found:
                return frozenset()
            raise
        return frozenset(one.spec.driver_name for one in found)

    def publish(self, driver: Driver) -> None:
        """Make the API show exactly the driver's pools, what is unhealthy fenced off.

        Raises: ApiFailure; call again later.
        """
        try:
            self._publish(driver)
        except ApiFailure as failure:
            if not failure.already_exists:
                raise
            self._publish(driver)

    def _publish(self, driver: Driver) -> None:
        existing = sorted((s for s in self._existing() if s.spec.driver == driver.name), key=lambda s: s.metadata.name)
        by_pool = {name: list(group) for name, group in itertools.groupby(sorted(existing, key=_pool), _pool)}
        pools = fenced_off(driver.pools(), driver.health(), self._unhealthy)
        wanted = [(pool, by_pool.pop(pool.name, [])) for pool in pools]
        for name, obsolete in by_pool.items():
            self._published.pop((driver.name, name), None)
            self._delete(obsolete)
        for pool, slices in wanted:
            self._publish_pool(driver.name, pool, slices)

    def _existing(self) -> tuple[ResourceSlice, ...]:
        return self._client.list(SLICES, field_selector=f"spec.nodeName={self._node}").items

    def _publish_pool(self, driver: str, pool: Pool, existing: Sequence[ResourceSlice]) -> None:
        key = (driver, pool.name)
        for slice_ in existing:
            self._note_generation(slice_)
        if is_rich(pool):
            self._rich.add(key)
        current = {slice_.metadata.name: slice_ for slice_ in existing}
        known = self._published.pop(key, None)
        if known is not None and known.versions != _versions(current):
            known = None
        if known is not None and known.pool == pool:
            self._published[key] = known
        else:
            written = (self._change_one(key, pool, current, known) if known else self._adopted(key, pool, current)) or (
                self._write_all(key, pool, current)
            )
            self._published[key] = written

    def _slices(
        self, key: _PoolKey, pool: Pool, generation: int, current: Iterable[str], suffix: str = ""
    ) -> dict[str, ResourceSlice]:
        """By name: as the slice in the same place is called, of those that the pool has (`current`)."""
        slices = slices_of(pool, driver=key[0], owner=self._owner(), generation=generation, rich=key in self._rich)
        usual = {slice_.metadata.name for slice_ in slices}
        in_place = {name if name in usual else name.rpartition("-")[0]: name for name in sorted(current, reverse=True)}
        found = {}
        for slice_ in slices:
            name = in_place.get(slice_.metadata.name, slice_.metadata.name + suffix)
            metadata = msgspec.structs.replace(slice_.metadata, name=name)
            found[name] = msgspec.structs.replace(slice_, metadata=metadata)
        return found

    def _adopted(self, key: _PoolKey, pool: Pool, current: Mapping[str, ResourceSlice]) -> _Published | None:
        """What a predecessor published, if it is this very pool, complete; nothing is written then."""
        generation = self._generations.get(key, 0)
        wanted = self._slices(key, pool, generation, current)
        if {name: slice_.spec for name, slice_ in wanted.items()} != {n: s.spec for n, s in current.items()}:
            return None
        log.info("pool %s of driver %s: already published, generation %d", pool.name, key[0], generation)
        return _Published(pool=pool, generation=generation, wanted=wanted, versions=_versions(current), own=False)

    def _change_one(
        self, key: _PoolKey, pool: Pool, current: Mapping[str, ResourceSlice], known: _Published
    ) -> _Published | None:
        """Write the one slice that differs, if it is one and nobody else can be writing on the same ground."""
        wanted = self._slices(key, pool, known.generation, current)
        if len(wanted) == 1 or not known.own or wanted.keys() != known.wanted.keys():
            return None
        changed = [name for name, slice_ in wanted.items() if slice_.spec != known.wanted[name].spec]
        if len(changed) > 1:
            return None
        versions = dict(known.versions)
        for name in changed:
            versions[name] = self._write(wanted[name], current[name]).metadata.resource_version
            log.info("published pool %s of driver %s: slice %s", pool.name, key[0], name)
        return replace(known, pool=pool, wanted=wanted, versions=versions)

    def _write_all(self, key: _PoolKey, pool: Pool, current: Mapping[str, ResourceSlice]) -> _Published:
        if self._generations.get(key, 0) >= MAX_GENERATION:
            log.warning("pool %s of driver %s: no generation is left, starting over at 1", pool.name, key[0])
            self._delete(current.values())
            current = {}
            self._generations[key] = 0
        generation = self._generations[key] = self._generations.get(key, 0) + 1
        wanted = self._slices(key, pool, generation, current, self._suffixes.pop(key, ""))
        answers = {name: self._write(slice_, current.get(name)) for name, slice_ in wanted.items()}
        self._delete(slice_ for name, slice_ in current.items() if name not in wanted)
        log.info("published pool %s of driver %s: generation %d, %d slices", pool.name, key[0], generation, len(wanted))
        return _Published(pool=pool, generation=generation, wanted=wanted, versions=_versions(answers), own=True)

    def _write(self, wanted: ResourceSlice, old: ResourceSlice | None) -> ResourceSlice:
        if old is None:
            return self._create(wanted)
        metadata = msgspec.structs.replace(old.metadata, owner_references=wanted.metadata.owner_references)
        return self._client.update(SLICES, msgspec.structs.replace(wanted, metadata=metadata))

    def _create(self, wanted: ResourceSlice) -> ResourceSlice:
        try:
            return self._client.create(SLICES, wanted)
        except ApiFailure as failure:
            if failure.already_exists:
                key = (wanted.spec.driver, wanted.spec.pool.name)
                log.warning("slice name %s is taken: trying another one", wanted.metadata.name)
                self._suffixes[key] = f"-{secrets.token_hex(4)}"
                risen = self._generations.get(key, 0) + 1 + secrets.randbelow(LONGEST_JUMP)
                self._generations[key] = min(risen, MAX_GENERATION)
            raise

    def _delete(self, slices: Iterable[ResourceSlice]) -> None:
        """The oldest generation first: what is left never looks like a complete older pool."""
        for slice_ in sorted(slices, key=lambda one: one.spec.pool.generation):
            self._note_generation(slice_)
            try:
                self._client.delete_by_name(SLICES, slice_.metadata.name)
            except ApiFailure as failure:
                if not failure.not_found:
                    raise

    def _note_generation(self, slice_: ResourceSlice) -> None:
        key = (slice_.spec.driver, slice_.spec.pool.name)
        self._generations[key] = max(self._generations.get(key, 0), slice_.spec.pool.generation)


def _pool(slice_: ResourceSlice) -> str:
    return slice_.spec.pool.name


def _versions(slices: Mapping[str, ResourceSlice]) -> dict[str, str]:
    return {name: slice_.metadata.resource_version for name, slice_ in slices.items()}


# Keeps pods off unhealthy devices of drivers that publish their slices themselves: one DeviceTaintRule per device.
#
#     a driver behind a socket reports a device Unhealthy  -> create a rule with the taint
#     it reports the device Healthy                        -> delete the rule
#     its health is Unknown, after the driver crashed, say -> keep the rule: the device may still be broken
#
# The Node owns the rules, so they are deleted with it; the agent finds those of its earlier runs by their owner. Only
# with `--taint-unhealthy-plugins`: the agent needs a right that Kubernetes gives to no node (docs/how-to/drivers.md).

TAINT_RULES = ApiResource(DeviceTaintRule, "resource.k8s.io/v1beta2", "devicetaintrules", namespaced=False)
#: (driver, pool, device)
Place = tuple[str, str, str]


class HealthRules:
    """owner: returns the Node as an owner. taint: of unhealthy devices."""

    def __init__(self, client: Client, *, owner: Callable[[], OwnerReference], taint: DeviceTaint) -> None:
        self._client, self._owner, self._taint = client, owner, taint
        #: the names of the existing rules by device; None until they are read
        self._rules: dict[Place, str] | None = None

    def sync(self, reported: Mapping[str, Sequence[DeviceHealth]]) -> None:
        """reported: by driver. Raises: ApiFailure; call again later."""
        rules = self._known()
        states = {
            (driver, device.pool, device.device): device.health
            for driver, devices in reported.items()
            for device in devices
        }
        for place in sorted(place for place, health in states.items() if health == "Unhealthy" and place not in rules):
            rules[place] = self._create(place)
        for place in sorted(place for place in rules if states.get(place) == "Healthy"):
            self._delete(rules[place])
            del rules[place]

    def _known(self) -> dict[Place, str]:
        if self._rules is None:
            found = {_place_of(rule): rule for rule in self._own()}
            for place, rule in found.items():
                if rule.spec.taint.effect != self._taint.effect:  # the agent was started with another effect
                    self._delete(rule.metadata.name)
                    self._create(place)
            self._rules = {place: rule.metadata.name for place, rule in found.items()}
        return self._rules

    def _own(self) -> Iterable[DeviceTaintRule]:
        uid = self._owner().uid
        for rule in self._client.list(TAINT_RULES).items:
            ours = any(one.uid == uid for one in rule.metadata.owner_references)
            if ours and rule.metadata.name == _rule_name(uid, _place_of(rule)):
                yield rule

    def _create(self, place: Place) -> str:
        owner, (driver, pool, device) = self._owner(), place
        name = _rule_name(owner.uid, place)
        rule = DeviceTaintRule(
            api_version=TAINT_RULES.api_version,
            kind=TAINT_RULES.kind,
            metadata=ObjectMeta(name=name, owner_references=(owner,)),
            spec=DeviceTaintRuleSpec(
                device_selector=DeviceTaintSelector(driver=driver, pool=pool, device=device), taint=self._taint
            ),
        )
        try:
            self._client.create(TAINT_RULES, rule)
        except ApiFailure as failure:
            if failure.reason != "AlreadyExists":
                raise
        log.warning("device %s/%s/%s is unhealthy: DeviceTaintRule %s keeps pods off it", *place, name)
        return name

    def _delete(self, name: str) -> None:
        try:
            self._client.delete_by_name(TAINT_RULES, name)
        except ApiFailure as failure:
            if not failure.not_found:
                raise


def _place_of(rule: DeviceTaintRule) -> Place:
    selector = rule.spec.device_selector or DeviceTaintSelector()
    return selector.driver or "", selector.pool or "", selector.device or ""


def _rule_name(node_uid: str, place: Place) -> str:
    """Of the rule for a device: the same for the same device of a Node, so it is made once."""
    return f"unhealthy-{hashlib.sha256(chr(0).join((node_uid, *place)).encode()).hexdigest()[:20]}"
