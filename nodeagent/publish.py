"""Publishes the drivers' devices as ResourceSlices, and keeps them as they should be.

The slices of a pool carry its generation and how many there are; a reader takes the pool for complete when it has seen
that many of the highest generation. So a change writes every slice of the pool anew with a higher generation: until
the last is written the new generation is incomplete, and the old one no longer counts, so that no reader ever takes a
mixture for the pool. What somebody else deletes or changes is published anew the same way.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from inventory.kinds.slices import CounterSet, Device, ResourcePool, ResourceSlice, ResourceSliceSpec
from manciple.wire.base import ObjectMeta, OwnerReference
from nodeagent.client import Client
from nodeagent.drivers.protocol import Driver, Pool
from nodeagent.failures import ApiFailure
from nodeagent.resources import SLICES

log = logging.getLogger(__name__)

#: The limits of resource.k8s.io/v1 on one slice; the lower one where devices have taints or consume counters.
DEVICES_PER_SLICE, RICH_DEVICES_PER_SLICE, COUNTER_SETS_PER_SLICE = 128, 64, 8

#: What leaves room for a number in the 253 characters of an object's name.
LONGEST_BASE = 240

Item = TypeVar("Item")
_PoolKey = tuple[str, str]  # (driver, pool)


def slices_of(pool: Pool, *, driver: str, owner: OwnerReference, generation: int) -> tuple[ResourceSlice, ...]:
    """The slices of one pool: first those with counters, then those with devices; one even of an empty pool.

    owner: the Node that the devices are on.
    """
    rich = any(device.taints or device.consumes_counters for device in pool.devices)
    counters = [(part, ()) for part in _parts(pool.shared_counters, COUNTER_SETS_PER_SLICE)]
    devices = [((), part) for part in _parts(pool.devices, RICH_DEVICES_PER_SLICE if rich else DEVICES_PER_SLICE)]
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


def slice_name(node: str, driver: str, pool: str, index: int) -> str:
    """A name that is the same at every start and sorts in the order of the slices."""
    base = f"{node}-{driver}"
    if pool != node or len(base) > LONGEST_BASE:
        base = f"{base[: LONGEST_BASE - 9]}-{hashlib.sha256(f'{node}/{driver}/{pool}'.encode()).hexdigest()[:8]}"
    return f"{base}-{index:03d}"


def _parts(items: Sequence[Item], size: int) -> list[tuple[Item, ...]]:
    return [tuple(items[start : start + size]) for start in range(0, len(items), size)]


class Publisher:
    """The slices of one node. One thread at a time publishes one driver.

    owner: the Node as the slices' owner, as it is now.
    """

    def __init__(self, client: Client, *, node: str, owner: Callable[[], OwnerReference]) -> None:
        self._client = client
        self._node = node
        self._owner = owner
        #: the highest generation that anybody may have seen
        self._generations: dict[_PoolKey, int] = {}
        #: what was wanted and how the server answered when it was last written, by slice name
        self._published: dict[_PoolKey, tuple[Pool, dict[str, ResourceSlice]]] = {}

    def wipe(self) -> None:
        """Delete every slice of the node, whoever's: no pod is to count on devices whose driver is not back yet."""
        for slice_ in self._existing():
            self._note_generation(slice_)
        self._client.delete_collection(SLICES, field_selector=f"spec.nodeName={self._node}")

    def publish(self, driver: Driver) -> None:
        """Make the API show exactly the driver's pools. Raises: ApiFailure; call again later."""
        existing = sorted((s for s in self._existing() if s.spec.driver == driver.name), key=lambda s: s.metadata.name)
        by_pool = {name: list(group) for name, group in itertools.groupby(sorted(existing, key=_pool), _pool)}
        pools = driver.pools()
        for pool in pools:
            self._publish_pool(driver.name, pool, by_pool.pop(pool.name, []))
        for name, obsolete in by_pool.items():
            self._published.pop((driver.name, name), None)
            self._delete(obsolete)

    def _existing(self) -> tuple[ResourceSlice, ...]:
        return self._client.list(SLICES, field_selector=f"spec.nodeName={self._node}").items

    def _publish_pool(self, driver: str, pool: Pool, existing: Sequence[ResourceSlice]) -> None:
        key = (driver, pool.name)
        current = {slice_.metadata.name: slice_ for slice_ in existing}
        if self._is_published(key, pool, current):
            return
        for slice_ in existing:
            self._note_generation(slice_)
        generation = self._generations[key] = self._generations.get(key, 0) + 1
        answers = {}
        for wanted in slices_of(pool, driver=driver, owner=self._owner(), generation=generation):
            name = wanted.metadata.name
            answers[name] = self._write(wanted, current.pop(name, None))
        self._delete(current.values())
        self._published[key] = (pool, answers)
        log.info(
            "published pool %s of driver %s: generation %d, %d slices", pool.name, driver, generation, len(answers)
        )

    def _is_published(self, key: _PoolKey, pool: Pool, current: dict[str, ResourceSlice]) -> bool:
        """Compared with the server's own answers: it may fill in defaults and write quantities in its own way."""
        known_pool, known = self._published.get(key, (None, {}))
        return known_pool == pool and {n: s.spec for n, s in known.items()} == {n: s.spec for n, s in current.items()}

    def _write(self, wanted: ResourceSlice, old: ResourceSlice | None) -> ResourceSlice:
        if old is None:
            return self._client.create(SLICES, wanted)
        metadata = replace(old.metadata, owner_references=wanted.metadata.owner_references)
        return self._client.update(SLICES, replace(wanted, metadata=metadata))

    def _delete(self, slices: Iterable[ResourceSlice]) -> None:
        for slice_ in slices:
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
