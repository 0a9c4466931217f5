"""What a selector looks at of a published device, read off the document: devices alike in it get the same verdict."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

from inventory.kinds.slices import Device
from scheduling.cel import DeviceReference

#: device -> what is looked at; None where that cannot be told apart so simply
Look = Callable[[Device], Hashable | None]


def looking_at(references: Iterable[DeviceReference] | None, driver: str) -> Look | None:
    """None where the expression looks at whole maps, or in a way that cannot be told. driver: the devices' own."""
    if references is None:
        return None
    names: list[tuple[bool, str, str]] = []
    shares = False
    for one in sorted(references):
        if one.field in ("attributes", "capacity"):
            if not one.identifier:
                return None
            short = one.identifier if one.domain == driver else ""
            names.append((one.field == "attributes", f"{one.domain}/{one.identifier}", short))
        elif one.field == "allowMultipleAllocations":
            shares = True
        elif one.field != "driver":
            return None

    def look(device: Device) -> Hashable | None:
        seen: list[Hashable] = [driver, bool(device.allow_multiple_allocations) if shares else False]
        for is_attribute, full, short in names:
            values = device.attributes if is_attribute else device.capacity
            value = values.get(full)
            if short and short in values:
                if value is not None:
                    return None  # under both names: which of them counts depends on their order
                value = values[short]
            seen.append(value)
        return tuple(seen)

    return look
