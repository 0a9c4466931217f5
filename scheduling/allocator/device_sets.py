"""Sets of published devices across nodes: bits over the generations of their pools, as the search keeps them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from scheduling.allocator.pools import Generation, bits
from scheduling.allocator.published import PublishedDevice


@dataclass(frozen=True, slots=True, eq=False)
class DeviceSet:
    """Never changes. Several nodes may see the same devices: a union counts each once."""

    masks: Mapping[Generation, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return sum(mask.bit_count() for mask in self.masks.values())

    def __iter__(self) -> Iterator[PublishedDevice]:
        for generation, mask in self.masks.items():
            for position in bits(mask):
                yield generation.devices[position]

    def __sub__(self, other: DeviceSet) -> DeviceSet:
        return DeviceSet({key: mask & ~other.masks.get(key, 0) for key, mask in self.masks.items()})

    @classmethod
    def union(cls, sets: Iterable[DeviceSet]) -> DeviceSet:
        masks: dict[Generation, int] = {}
        for one in sets:
            for key, mask in one.masks.items():
                masks[key] = masks.get(key, 0) | mask
        return cls(masks)
