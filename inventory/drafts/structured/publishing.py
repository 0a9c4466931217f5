"""NodeResourceSlices of the draft, and ResourceSlices of Kubernetes 1.30, as the pools of today's that the allocator
knows. PURE.

What a driver publishes on a node, in however many objects, is one pool, named as the node, in one ResourceSlice. Its
generation is below all of those that drivers write themselves: where a driver publishes ResourceSlices for that pool,
too, those count, and nothing is there twice. A ResourceSlice of 1.30 is a pool already; its instances become devices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from inventory.drafts.structured.dialect import tolerant_version
from inventory.drafts.structured.values import NamedResourceAttribute, NamedResourceWithAttributes, NodeResourceSlice
from inventory.kinds.devices import (
    Device,
    DeviceAttribute,
    DeviceCapacity,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from inventory.kinds.early import Translate
from inventory.kinds.named_resources import NamedResourcesInstance
from inventory.kinds.pools import DRAFT_GENERATION
from manciple.wire.base import ObjectMeta
from manciple.wire.resources import NODE_SLICES, SLICES

#: (driver, node)
Place = tuple[str, str]


@dataclass(slots=True, eq=False, repr=False)
class NodeResources:
    """The draft's slices as they come and go, and the ResourceSlice of each driver and node."""

    _by_name: dict[str, NodeResourceSlice] = field(default_factory=dict)
    _at: dict[Place, dict[str, NodeResourceSlice]] = field(default_factory=dict)

    def put(self, published: NodeResourceSlice) -> tuple[ResourceSlice, ...]:
        """Returns what the pools are now that it concerns."""
        before = self.remove(published)
        name, place = published.metadata.name, place_of(published)
        self._by_name[name] = published
        self._at.setdefault(place, {})[name] = published
        return (
            *(one for one in before if one.spec.pool.name != place[1] or one.spec.driver != place[0]),
            self._of(place),
        )

    def remove(self, published: NodeResourceSlice) -> tuple[ResourceSlice, ...]:
        """The same; one without devices is no more."""
        known = self._by_name.pop(published.metadata.name, None)
        if known is None:
            return ()
        place = place_of(known)
        self._at[place].pop(known.metadata.name)
        if not self._at[place]:
            del self._at[place]
        return (self._of(place),)

    def _of(self, place: Place) -> ResourceSlice:
        return as_pool(place, self._at.get(place, {}))


def translations() -> Mapping[str, Translate]:
    """See `inventory.kinds.early.slice_translations`. A pool of NodeResourceSlices without devices is gone."""
    node_resources = NodeResources()

    def of_node_slice(published: NodeResourceSlice, gone: bool) -> Iterator[tuple[ResourceSlice, bool]]:
        for pool in node_resources.remove(published) if gone else node_resources.put(published):
            yield pool, not pool.spec.devices

    def of_slice(published: ResourceSlice, gone: bool) -> Iterator[tuple[ResourceSlice, bool]]:
        yield with_instances(published), gone

    return {NODE_SLICES: of_node_slice, SLICES: of_slice}


def place_of(published: NodeResourceSlice) -> Place:
    return published.spec.driver_name, published.spec.node_name


def as_pool(place: Place, slices: Mapping[str, NodeResourceSlice]) -> ResourceSlice:
    """Of two resources with one name the first counts, by the names of their slices."""
    driver, node = place
    devices: dict[str, Device] = {}
    for name in sorted(slices):
        for resource in slices[name].spec.named_resources_with_attributes or ():
            devices.setdefault(resource.name, as_device(resource))
    spec = ResourceSliceSpec(
        driver=driver,
        pool=ResourcePool(name=node, generation=DRAFT_GENERATION, resource_slice_count=1),
        node_name=node,
        devices=tuple(devices.values()),
    )
    # No object can have this name.
    metadata = ObjectMeta(name=f"noderesourceslices/{driver}/{node}", uid=f"noderesourceslices/{driver}/{node}")
    return ResourceSlice(api_version="resource.k8s.io/v1", kind="ResourceSlice", metadata=metadata, spec=spec)


def as_device(resource: NamedResourceWithAttributes) -> Device:
    """A quantity is a capacity, everything else an attribute; so `dialect` finds them. An empty list is not there."""
    amounts = {one.name: DeviceCapacity(value=one.quantity) for one in resource.attributes if one.quantity is not None}
    others = {one.name: as_attribute(one) for one in resource.attributes if one.quantity is None}
    said = {name: one for name, one in others.items() if one != DeviceAttribute()}
    return Device(name=resource.name, attributes=said, capacity=amounts)


def with_instances(published: ResourceSlice) -> ResourceSlice:
    """A ResourceSlice that was written in v1alpha2 with its instances as devices; the same value for any other."""
    named = published.spec.named_resources
    if named is None or not named.instances or published.spec.devices:
        return published
    devices = tuple(as_device(_in_the_draft(instance)) for instance in named.instances)
    return replace(published, spec=replace(published.spec, devices=devices))


def _in_the_draft(instance: NamedResourcesInstance) -> NamedResourceWithAttributes:
    """Kubernetes 1.30 put lists into objects of their own."""
    attributes = tuple(
        NamedResourceAttribute(
            name=one.name,
            quantity=one.quantity,
            bool_value=one.bool_value,
            int_value=one.int_value,
            int_slice=None if one.int_slice is None else one.int_slice.ints,
            string_value=one.string_value,
            string_slice=None if one.string_slice is None else one.string_slice.strings,
            version_value=one.version_value,
        )
        for one in instance.attributes
    )
    return NamedResourceWithAttributes(name=instance.name, attributes=attributes)


def as_attribute(attribute: NamedResourceAttribute) -> DeviceAttribute:
    version = attribute.version_value
    return DeviceAttribute(
        int_value=attribute.int_value,
        bool_value=attribute.bool_value,
        string_value=attribute.string_value,
        version_value=None if version is None else tolerant_version(version) or version,
        int_values=attribute.int_slice or (),
        string_values=attribute.string_slice or (),
    )
