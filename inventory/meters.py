"""Readings of devices' meters: how they come in, and the time series that keeps them.

    the agent, every three minutes   POST /api/v1/nodes/NAME/devicereadings    -> `receive`
    `receive`                        the latest of each device (`DeviceMeter`), and its slot of the node's `MeterBlock`
    `insight.meters`, a controller   a slot of each namespace's block, of what it holds; deletes old rows
    pages                            `history`

A block holds one hour of all devices of a node in one row: 20 slots of 7 bytes for each device, compressed. 500 nodes
with 8 GPUs make 96,000 rows in 8 days, whatever happens, and four statements for each report. A report costs no event,
no revision and no audit entry. Who may post it: the node's agent, and whoever a role lets create
`nodes/devicereadings`. Readings of devices that the node does not publish are ignored.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec
from django.conf import settings
from django.db import transaction

from inventory.kinds.device_readings import GROUP, SUBRESOURCE, VERSION, DeviceReadings, Meters, validate_readings
from inventory.models import Device, DeviceMeter, MeterBlock
from manciple.api import requests
from manciple.api.answers import success
from manciple.api.requests import ResourcePath, WriteOptions
from manciple.api.subresources import Connected
from manciple.store import objects, sql
from manciple.wire.errors import Invalid, NotFound, TooManyRequests
from manciple.wire.identity import Identity
from manciple.wire.registry import Kind, Served

#: The time that one slot of a block stands for, and that a block does.
SLOT, HOUR = timedelta(minutes=3), timedelta(hours=1)
SLOTS = HOUR // SLOT
#: How long blocks are kept.
KEPT_FOR = timedelta(days=8)
#: After so long without a reading nobody knows what the device does.
FRESH = timedelta(minutes=10)
#: A node that reports more often is refused.
LEAST_INTERVAL = timedelta(seconds=15)

#: utilization (percent), memory (255ths of all), temperature (°C above -55), power (watts); all ones: unknown
_SLOT = struct.Struct("<BBBI")
_NO_BYTE, _NO_POWER = 0xFF, 0xFFFFFFFF
_MOST_BYTE, _COLDEST = 0xFE, -55
_UNKNOWN = _SLOT.pack(_NO_BYTE, _NO_BYTE, _NO_BYTE, _NO_POWER)

_KIND = requests.virtual_kind(DeviceReadings, group=GROUP, version=VERSION)

DeviceKey = tuple[str, str, str]  # (driver, pool, device)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeterPoint:
    """What was read in one slot. None: unknown. memory: percent of all."""

    at: datetime
    utilization: float | None
    memory: float | None
    temperature: float | None
    power: float | None


# Blocks ---------------------------------------------------------------------------------------------------------------


def put(owner: MeterBlock.Owner, name: str, now: datetime, slots: Mapping[str, bytes]) -> None:
    """Fill the slot of this moment. slots: by the key of the series."""
    begin, place = _place(now)
    of_block = (owner.value, name, sql.adapted(begin))
    stored = sql.fetch(
        "SELECT id, data FROM inventory_meterblock WHERE owner = %s AND name = %s AND begin = %s", of_block
    )
    series = _unpacked(stored[0][1]) if stored else {}
    start = place * _SLOT.size
    for key, slot in slots.items():
        before = series.get(key, _UNKNOWN * SLOTS)
        series[key] = before[:start] + slot + before[start + _SLOT.size :]
    data = zlib.compress(msgspec.msgpack.encode(series), 1)
    if stored:
        sql.execute("UPDATE inventory_meterblock SET data = %s WHERE id = %s", (data, stored[0][0]))
    else:  # unless another process has begun the block meanwhile
        inserting = "INSERT INTO inventory_meterblock (owner, name, begin, data) VALUES (%s, %s, %s, %s)"
        sql.execute(f"{inserting} ON CONFLICT DO NOTHING", (*of_block, data))


def put_many(
    owner: MeterBlock.Owner, name: str, moments: Sequence[datetime], slots: Mapping[str, Sequence[bytes]]
) -> None:
    """New blocks of the past. slots: by the key of the series, one for each of the moments."""
    blocks: dict[datetime, dict[str, bytearray]] = {}
    for number, moment in enumerate(moments):
        begin, place = _place(moment)
        series = blocks.setdefault(begin, {key: bytearray(_UNKNOWN * SLOTS) for key in slots})
        for key, given in slots.items():
            series[key][place * _SLOT.size : (place + 1) * _SLOT.size] = given[number]
    packed = ((begin, zlib.compress(msgspec.msgpack.encode(series), 1)) for begin, series in blocks.items())
    MeterBlock.objects.bulk_create(MeterBlock(owner=owner, name=name, begin=begin, data=data) for begin, data in packed)


def history(
    owner: MeterBlock.Owner, names: Iterable[str], *, since: datetime, until: datetime
) -> Mapping[tuple[str, str], list[MeterPoint]]:
    """(name, key of the series) -> its known points in chronological order."""
    found: dict[tuple[str, str], list[MeterPoint]] = {}
    blocks = MeterBlock.objects.filter(owner=owner, name__in=list(names), begin__gt=since - HOUR, begin__lte=until)
    for name, begin, data in blocks.order_by("begin").values_list("name", "begin", "data").iterator():
        for key, slots in _unpacked(data).items():
            points = (one for one in _points(begin, slots) if since <= one.at <= until)
            found.setdefault((name, key), []).extend(points)
    return {series: points for series, points in found.items() if points}


def series_of(key: DeviceKey) -> str:
    """The key of a device's series in the blocks of its node."""
    return "/".join(key)


def slot_of(meters: Meters) -> bytes:
    used, total = meters.memory_used, meters.memory_total
    warm = None if meters.temperature is None else min(max(meters.temperature - _COLDEST, 0), _MOST_BYTE)
    return _SLOT.pack(
        _NO_BYTE if meters.utilization is None else meters.utilization,
        _NO_BYTE if used is None or not total else round(_MOST_BYTE * min(used / total, 1.0)),
        _NO_BYTE if warm is None else warm,
        _NO_POWER if meters.power is None else min(meters.power, _NO_POWER - 1),
    )


def _place(now: datetime) -> tuple[datetime, int]:
    """The block of a moment and its slot there."""
    begin = now.replace(minute=0, second=0, microsecond=0)
    return begin, (now - begin) // SLOT


def _unpacked(data: Any) -> dict[str, bytes]:
    return msgspec.msgpack.decode(zlib.decompress(bytes(data)), type=dict[str, bytes])


def _points(begin: datetime, slots: bytes) -> Iterator[MeterPoint]:
    for place, (utilization, memory, temperature, power) in enumerate(_SLOT.iter_unpack(slots)):
        point = MeterPoint(
            at=begin + place * SLOT,
            utilization=None if utilization == _NO_BYTE else utilization,
            memory=None if memory == _NO_BYTE else 100 * memory / _MOST_BYTE,
            temperature=None if temperature == _NO_BYTE else temperature + _COLDEST,
            power=None if power == _NO_POWER else power,
        )
        if (point.utilization, point.memory, point.temperature, point.power) != (None,) * 4:
            yield point


def prune(now: datetime) -> int:
    """Delete blocks and readings that no page shows. Returns how many."""
    blocks = MeterBlock.objects.filter(begin__lt=now - KEPT_FOR).delete()[0]
    return blocks + DeviceMeter.objects.filter(at__lt=now - KEPT_FOR).delete()[0]


# What agents post -----------------------------------------------------------------------------------------------------


def receive(
    kind: Kind,
    where: ResourcePath,
    body: bytes,
    *,
    content_type: str,
    identity: Identity,  # noqa: ARG001 - what it may post was decided by its path
    options: WriteOptions,
) -> dict[str, Any]:
    """Keep the readings of a node. Raises: Invalid; NotFound; TooManyRequests."""
    served = Served(_KIND, VERSION)
    readings: DeviceReadings = requests.decode_object(
        served, body, content_type=content_type, strictness=options.strictness
    ).object
    if wrong := validate_readings(readings):
        raise Invalid.of(kind=_KIND.kind, group=GROUP, name=where.name, errors=wrong)
    if objects.get(kind, "", where.name) is None:
        raise NotFound.of(kind.resource, where.name)
    if not options.dry_run:
        keep(where.name, {(one.driver, one.pool, one.device): one.meters for one in readings.devices})
    return success(code=201)


READINGS = Connected(name=SUBRESOURCE, kind=_KIND.kind, group=GROUP, version=VERSION, post=receive, audited=False)


def keep(node: str, readings: Mapping[DeviceKey, Meters], *, now: datetime | None = None) -> None:
    """Raises: TooManyRequests for a node that has just reported."""
    now = now or datetime.now(UTC)
    # In SQL, as in `put`: 500 nodes report, and Django's queries would cost twice as much.
    found = sql.fetch(
        "SELECT driver, pool, device, id, at, quiet_since FROM inventory_devicemeter WHERE node = %s", [node]
    )
    before = {(one[0], one[1], one[2]): _Before(one[3], _moment(one[4]) or now, _moment(one[5])) for one in found}
    latest = max((one.at for one in before.values()), default=now - HOUR)
    if timedelta(0) <= now - latest < LEAST_INTERVAL:  # a clock that was set back keeps nobody waiting
        raise TooManyRequests(
            f"the node has reported its devices {(now - latest).total_seconds():.0f} s ago",
            details={"retryAfterSeconds": int(LEAST_INTERVAL.total_seconds())},
        )
    if not readings.keys() <= before.keys():
        published = set(Device.objects.filter(node_name=node).values_list("driver", "pool", "name"))
        readings = {key: meters for key, meters in readings.items() if key in published or key in before}
    columns = ("at", *Meters.__struct_fields__, "quiet_since")
    values = {
        key: (now, *msgspec.structs.astuple(meters), _quiet_since(meters, before.get(key), now))
        for key, meters in readings.items()
    }
    new = [
        DeviceMeter(node=node, driver=key[0], pool=key[1], device=key[2], **dict(zip(columns, row, strict=True)))
        for key, row in values.items()
        if key not in before
    ]
    with transaction.atomic():
        sql.update(DeviceMeter, "id", columns, [(before[key].pk, *row) for key, row in values.items() if key in before])
        if new:
            DeviceMeter.objects.bulk_create(new, ignore_conflicts=True)
        if readings:
            slots = {series_of(key): slot_of(meters) for key, meters in readings.items()}
            put(MeterBlock.Owner.NODE, node, now, slots)


def _moment(stored: datetime | None) -> datetime | None:
    """SQLite has moments in UTC, without saying so."""
    return stored.replace(tzinfo=UTC) if stored is not None and stored.tzinfo is None else stored


class _Before(NamedTuple):
    """The previous reading of a device."""

    pk: int
    at: datetime
    quiet_since: datetime | None


def _quiet_since(meters: Meters, before: _Before | None, now: datetime) -> datetime | None:
    """A gap in the readings ends a quiet time: a job may have come and gone."""
    if meters.utilization is None or meters.utilization >= settings.IDLE_PERCENT:
        return None
    if before is None or before.quiet_since is None or now - before.at > FRESH:
        return now
    return before.quiet_since
