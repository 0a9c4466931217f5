"""What the meters of a node's devices read: utilization, memory, temperature, power.

The node's agent posts them to `/api/v1/nodes/NAME/devicereadings`. They are no API object: no event, no document, no
revision (`inventory.meters` says where they go).
"""

from __future__ import annotations

from typing import Annotated

from manciple.wire.base import ApiObject, Value, pb
from manciple.wire.errors import FieldError, duplicate, invalid, required, too_many
from manciple.wire.validation import Path

GROUP, VERSION = "manciple.dev", "v1alpha1"
#: Of a node.
SUBRESOURCE = "devicereadings"

#: Devices of one report: 16 GPUs with 32 partitions each.
MOST_DEVICES = 512
#: The field -> its least and greatest value.
BOUNDS = {
    "utilization": (0, 100),
    "memory_used": (0, 2**53),
    "memory_total": (0, 2**53),
    "temperature": (-100, 200),
    "power": (0, 100_000),
}


class Meters(Value):
    """What one device's meters read. None: it has no such meter.

    utilization: percent of the last minute in which the device worked. memory: bytes. temperature: °C. power: watts.
    """

    utilization: Annotated[int | None, pb(1)] = None
    memory_used: Annotated[int | None, pb(2)] = None
    memory_total: Annotated[int | None, pb(3)] = None
    temperature: Annotated[int | None, pb(4)] = None
    power: Annotated[int | None, pb(5)] = None


class DeviceReading(Value):
    """The meters of one device."""

    driver: Annotated[str, pb(1)] = ""
    pool: Annotated[str, pb(2)] = ""
    device: Annotated[str, pb(3)] = ""
    meters: Annotated[Meters, pb(4)] = Meters()


class DeviceReadings(ApiObject):
    """The meters of a node's devices at one moment."""

    devices: Annotated[tuple[DeviceReading, ...], pb(2)] = ()


def validate_readings(readings: DeviceReadings) -> list[FieldError]:
    path = Path("devices")
    if len(readings.devices) > MOST_DEVICES:
        return [too_many(path, len(readings.devices), MOST_DEVICES)]
    wrong: list[FieldError] = []
    seen: set[tuple[str, str, str]] = set()
    for index, one in enumerate(readings.devices):
        place = path.at(index)
        key = (one.driver, one.pool, one.device)
        named = zip(("driver", "pool", "device"), key, strict=True)
        wrong += [required(place.child(field)) for field, text in named if not text]
        if key in seen:
            wrong.append(duplicate(place, "/".join(key)))
        seen.add(key)
        wrong += _out_of_bounds(one.meters, place)
    return wrong


def _out_of_bounds(meters: Meters, place: Path) -> list[FieldError]:
    found = []
    for field, (least, most) in BOUNDS.items():
        value = getattr(meters, field)
        if value is not None and not least <= value <= most:
            name = Meters.__struct_encode_fields__[Meters.__struct_fields__.index(field)]
            found.append(
                invalid(place.child("meters").child(name), value, f"must be between {least} and {most}, inclusive")
            )
    return found
