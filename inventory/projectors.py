"""How DeviceClasses, Nodes and ResourceSlices become index rows.

Classes and nodes are one row an object. Slices meet in pools: `PublishedSlice` remembers every slice, the pools that a
transaction touches are gathered anew from it, and only the devices of slices that came, changed or went are rewritten.
A pool is what its highest generation publishes; see `inventory.kinds.pools`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from inventory import impairments
from inventory.kinds.devices import DeviceClass as DeviceClassObject
from inventory.kinds.devices import ResourceSlice
from inventory.kinds.nodes import LIFECYCLE_TAINTS, version_of
from inventory.kinds.nodes import Node as NodeObject
from inventory.kinds.pools import PoolKey, SliceTally
from inventory.models import DepartedNode, Device, DeviceClass, Node, Pool, PublishedSlice
from manciple.store import hooks, objects, sql
from manciple.store.records import Change
from manciple.wire.base import condition_of
from manciple.wire.registry import registry
from manciple.wire.validation import natural_text

CLASSES = "deviceclasses.resource.k8s.io"
NODES = "nodes"
SLICES = "resourceslices.resource.k8s.io"
TAINT_RULES = "devicetaintrules.resource.k8s.io"

#: What stands in the index for a device without any.
NO_TAINTS = "[]"
#: Seconds for which it is known when a Node was deleted.
REMEMBERED = 24 * 3600.0


def register() -> None:
    hooks.register_projector(CLASSES, project_classes, clear=lambda: sql.clear(DeviceClass))
    hooks.register_projector(NODES, project_nodes, clear=lambda: sql.clear(Node))
    hooks.register_projector(SLICES, project_slices, clear=_clear_slices)
    # What rules did is history, which stays when the index is rebuilt.
    hooks.register_projector(TAINT_RULES, impairments.record_rules, clear=lambda: None)


# Classes and nodes ---------------------------------------------------------------------------------------------------


class ClassIndexRow(NamedTuple):
    uid: str
    name: str
    selectors: str
    config: str
    extended_resource_name: str


class NodeIndexRow(NamedTuple):
    uid: str
    name: str
    ready: bool
    unschedulable: bool
    labels: str
    taints: str
    capacity: str
    allocatable: str
    condition: str
    tainted: bool
    created_at: datetime | None
    position: str
    searched: str


def class_row(obj: DeviceClassObject) -> ClassIndexRow:
    spec, meta = obj.spec, obj.metadata
    return ClassIndexRow(
        meta.uid, meta.name, sql.as_json(spec.selectors), sql.as_json(spec.config), spec.extended_resource_name or ""
    )


def node_row(obj: NodeObject) -> NodeIndexRow:
    meta, ready = obj.metadata, condition_of(obj.status.conditions, "Ready")
    labels = (f"{key}={value}" for key, value in sorted(meta.labels.items()))
    searched = (meta.name, version_of(obj), *(address.address for address in obj.status.addresses), *labels)
    return NodeIndexRow(
        meta.uid,
        meta.name,
        ready is not None and ready.status == "True",
        obj.spec.unschedulable,
        sql.as_json(meta.labels),
        sql.as_json(obj.spec.taints),
        sql.as_json(obj.status.capacity),
        sql.as_json(obj.status.allocatable),
        ready.status if ready is not None else "",
        any(taint.key not in LIFECYCLE_TAINTS for taint in obj.spec.taints),
        datetime.fromisoformat(meta.creation_timestamp) if meta.creation_timestamp else None,
        natural_text(meta.name),
        "\n".join(searched).lower(),
    )


def project_classes(changes: Sequence[Change]) -> None:
    removed, written = hooks.differences(changes, class_row)
    sql.delete(DeviceClass, ["uid"], [(row.uid,) for row in removed])
    sql.insert(DeviceClass, ClassIndexRow._fields, written)


def project_nodes(changes: Sequence[Change]) -> None:
    removed, written = hooks.differences(changes, node_row)
    sql.delete(Node, ["uid"], [(row.uid,) for row in removed])
    sql.insert(Node, NodeIndexRow._fields, written)
    came = [(change.object.metadata.name,) for change in changes if change.type == "ADDED"]
    gone = [(change.object.metadata.name, time.time()) for change in changes if change.type == "DELETED"]
    if came or gone:
        sql.delete(DepartedNode, ["name"], [*came, *((name,) for name, _ in gone)])
    if gone:
        sql.execute("DELETE FROM inventory_departednode WHERE at < %s", [time.time() - REMEMBERED])
        sql.insert(DepartedNode, ("name", "at"), gone)


# Slices, pools and devices -------------------------------------------------------------------------------------------


class SliceRow(NamedTuple):
    name: str
    driver: str
    pool: str
    generation: int
    slices_expected: int
    node_name: str
    device_count: int

    @property
    def key(self) -> PoolKey:
        return PoolKey(self.driver, self.pool, self.node_name)


class PoolRow(NamedTuple):
    driver: str
    name: str
    generation: int
    slices_expected: int
    slices_seen: int
    complete: bool
    node_name: str
    device_count: int


class PublishedDeviceRow(NamedTuple):
    driver: str
    pool: str
    name: str
    position: int
    slice_name: str
    node_name: str
    attributes: str
    capacity: str
    taints: str
    shared: bool
    evicting: bool


def slice_row(obj: ResourceSlice) -> SliceRow:
    spec = obj.spec
    return SliceRow(
        obj.metadata.name,
        spec.driver,
        spec.pool.name,
        spec.pool.generation,
        spec.pool.resource_slice_count,
        spec.node_name or "",
        len(spec.devices),
    )


def device_rows(obj: ResourceSlice) -> Iterator[PublishedDeviceRow]:
    spec = obj.spec
    for position, device in enumerate(spec.devices):
        yield PublishedDeviceRow(
            spec.driver,
            spec.pool.name,
            device.name,
            position,
            obj.metadata.name,
            device.node_name or spec.node_name or "",
            sql.as_json(device.attributes),
            sql.as_json(device.capacity),
            sql.as_json(device.taints),
            bool(device.allow_multiple_allocations),
            any(taint.effect == "NoExecute" for taint in device.taints),
        )


def newest(slices: Iterable[SliceRow]) -> list[SliceRow]:
    """The slices of the highest generation among those of one pool, by name."""
    known = list(slices)
    highest = max(known, key=lambda row: row.generation, default=None)
    return sorted(row for row in known if highest is not None and row.generation == highest.generation)


def count_of(current: Sequence[SliceRow]) -> SliceTally:
    """Of the `newest` slices (at least one) of a pool."""
    return SliceTally(current[0].generation, current[0].slices_expected, len(current))


def gather_pool(current: Sequence[SliceRow], namesakes: Iterable[SliceTally] = ()) -> PoolRow:
    """The pool that `newest` slices (at least one) make up. namesakes: the pools with its driver and name."""
    first, count = current[0], count_of(current)
    return PoolRow(
        first.driver,
        first.pool,
        first.generation,
        first.slices_expected,
        len(current),
        count.is_complete(namesakes),
        first.node_name,
        sum(row.device_count for row in current),
    )


def project_slices(changes: Sequence[Change]) -> None:
    """Three steps: remember the slices, see which of them count now, bring pools and devices in line."""
    names = {(change.object.metadata.name,) for change in changes}
    live: dict[str, Any] = {c.object.metadata.name: c.object for c in changes if c.type != "DELETED"}
    touched = {slice_row(obj).key for c in changes for obj in (c.object, c.previous) if isinstance(obj, ResourceSlice)}
    before = _current_slices(touched)
    sql.delete(PublishedSlice, ["name"], names)
    sql.insert(PublishedSlice, SliceRow._fields, [slice_row(obj) for obj in live.values()])
    after = _current_slices(touched)
    pools = _write_pools(touched, before, after)
    names_before, names_after = ({row.name for row in _all(slices)} for slices in (before, after))
    written = _write_devices(changes, before=names_before, after=names_after)
    complete = {PoolKey(pool.driver, pool.name, pool.node_name) for pool in pools if pool.complete}
    complete |= touched - after.keys()
    impairments.record_taints(
        touched, complete=complete, tainted=any(row.taints != NO_TAINTS for row in written), at=changes[0].at
    )


def _all(pools: dict[PoolKey, list[SliceRow]]) -> Iterator[SliceRow]:
    for slices in pools.values():
        yield from slices


def _current_slices(keys: Iterable[PoolKey]) -> dict[PoolKey, list[SliceRow]]:
    """The slices that count, of each pool that has any."""
    pools: dict[PoolKey, list[SliceRow]] = {}
    for values in sql.select(PublishedSlice, SliceRow._fields, ["driver", "pool", "node_name"], keys):
        row = SliceRow(*values)
        pools.setdefault(row.key, []).append(row)
    return {key: newest(slices) for key, slices in pools.items()}


def _write_pools(
    touched: Iterable[PoolKey], before: dict[PoolKey, list[SliceRow]], after: dict[PoolKey, list[SliceRow]]
) -> list[PoolRow]:
    """The rows of the touched pools, and of those that are parts of one pool with them."""
    short = {key[:2] for pools in (before, after) for key, slices in pools.items() if not count_of(slices).adds_up}
    keys, current = set(touched), after
    if short:
        found = sql.select(PublishedSlice, ["driver", "pool", "node_name"], ["driver", "pool"], short)
        keys |= {PoolKey(*values) for values in found}
        current = _current_slices(keys)
    counts: dict[tuple[str, str], list[SliceTally]] = {}
    for key, slices in current.items():
        counts.setdefault(key[:2], []).append(count_of(slices))
    written = []
    for key, slices in current.items():
        namesakes = list(counts[key[:2]])
        namesakes.remove(count_of(slices))
        written.append(gather_pool(slices, namesakes))
    sql.delete(Pool, ["driver", "name", "node_name"], keys)
    sql.insert(Pool, PoolRow._fields, written)
    return written


def _write_devices(changes: Sequence[Change], *, before: set[str], after: set[str]) -> list[PublishedDeviceRow]:
    """`before`, `after`: the names of the slices that counted and count now. Returns the rows that are new."""
    live: dict[str, Any] = {c.object.metadata.name: c.object for c in changes if c.type != "DELETED"}
    unchanged = {change.object.metadata.name for change in changes if _same_devices(change)}
    stale = (before - after) | ({change.object.metadata.name for change in changes} - unchanged)
    sql.delete(Device, ["slice_name"], [(name,) for name in stale & before])
    wanted = after - (before - stale)
    again = _read_slices(wanted - live.keys())
    fresh = [live[name] for name in sorted(wanted & live.keys())]
    written = [row for obj in (*fresh, *again) for row in device_rows(obj)]
    sql.insert(Device, PublishedDeviceRow._fields, written)
    return written


def _same_devices(change: Change) -> bool:
    """Whether a slice's device rows stay as they are (its metadata, or the pool's slice count, changed alone)."""
    old, new = change.previous, change.object
    if change.type != "MODIFIED" or not isinstance(old, ResourceSlice) or not isinstance(new, ResourceSlice):
        return False
    return (old.spec.driver, old.spec.pool.name, old.spec.node_name, old.spec.devices) == (
        new.spec.driver,
        new.spec.pool.name,
        new.spec.node_name,
        new.spec.devices,
    )


def _read_slices(names: Iterable[str]) -> list[Any]:
    """Slices that count again because a newer generation went away."""
    wanted = sorted(names)
    if not wanted:
        return []
    kind = registry.by_resource(SLICES)
    return [objects.decode(kind, stored.text) for stored in objects.get_many(kind, [("", name) for name in wanted])]


def _clear_slices() -> None:
    for model in (PublishedSlice, Pool, Device):
        sql.clear(model)
