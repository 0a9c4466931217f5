"""Who holds the devices that a waiting pod could use: by pool and holder, since when, and when they must let go.

Nobody guesses: a device is free again at a known time only where every pod that has it says so by
activeDeadlineSeconds. Of holders in namespaces that the person may not see, nothing is told.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from claims.devices.cache import read_devices
from claims.devices.holdings import Holder
from claims.devices.pools import DeviceSnapshot
from claims.devices.published import DeviceKey, pool_of
from claims.devices.states import DeviceState
from claims.kinds.pods import Pod
from dashboard.inventory.devices.grid import holders_for
from inventory.kinds.pools import PoolKey
from manciple.durations import duration, moment
from manciple.people import Person
from manciple.store import objects
from manciple.store.objects import decoded
from manciple.wire.resources import PODS, kind
from manciple.wire.validation import natural

#: Lines that are shown.
NAMED_HELD = 20
#: Devices of a pool that are drawn; of a larger pool only those that are asked for.
DRAWN = 16


@dataclass(frozen=True, slots=True)
class DeviceMark:
    """A device as a small mark: `wanted` where it is one of those that are asked for."""

    name: str
    state: DeviceState
    wanted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldLine:
    """Devices of one pool that the same claims hold. free_again: in words, "" where nobody knows."""

    driver: str
    pool: str
    node: str  # "" where the pool is not one node's
    devices: tuple[str, ...]
    holders: tuple[Holder, ...]
    marks: tuple[DeviceMark, ...]
    free_again: str

    @property
    def label(self) -> str:
        return ", ".join(self.devices)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldDevices:
    """lines: the first so many, `more` are left out; count: devices in all."""

    lines: tuple[HeldLine, ...]
    more: int
    count: int

    @property
    def anybody_tells(self) -> bool:
        """Whether any of the holders says when it lets go."""
        return any(line.free_again for line in self.lines)


NOBODY = HeldDevices(lines=(), more=0, count=0)


def read_held(keys: Collection[DeviceKey], person: Person, *, now: datetime | None = None) -> HeldDevices:
    """Those who hold most devices first. Two queries, whatever the number of devices."""
    if not keys:
        return NOBODY
    snapshot = read_devices()
    grouped: dict[tuple[PoolKey, tuple[Holder, ...]], list[str]] = {}
    for key in sorted(keys, key=lambda key: natural("/".join(key))):
        by = tuple(sorted(set(snapshot.held_by(key)), key=lambda holder: holder.claim_uid))
        grouped.setdefault((pool_of(key), by), []).append(key[2])
    ordered = sorted(grouped.items(), key=lambda item: (-len(item[1]), natural(item[0][0][1]), _uids(item[0][1])))
    shown = ordered[:NAMED_HELD]
    pods = _pods(holder for (_, by), _ in shown for holder in by)
    lines = tuple(
        HeldLine(
            driver=pool[0],
            pool=pool[1],
            node=pool.node,
            devices=tuple(devices),
            holders=holders_for(person, by),
            marks=_marks(snapshot, pool, devices),
            free_again=_free_again(by, pods, now or datetime.now(UTC)),
        )
        for (pool, by), devices in shown
    )
    return HeldDevices(lines=lines, more=len(ordered) - len(shown), count=len(keys))


def _uids(holders: Iterable[Holder]) -> tuple[str, ...]:
    return tuple(holder.claim_uid for holder in holders)


def _pods(holders: Iterable[Holder]) -> dict[tuple[str, str], Pod]:
    keys = {(one.namespace, name) for one in holders for name in one.pods}
    found = (decoded(stored, Pod) for stored in objects.get_many(kind(PODS), keys))
    return {pod.key: pod for pod in found}


def _free_again(holders: Sequence[Holder], pods: Mapping[tuple[str, str], Pod], now: datetime) -> str:
    """When the last of the holders must have let go; "" where one of them does not say."""
    ends = []
    for holder in holders:
        if holder.others:
            return ""
        for name in holder.pods or ("",):
            end = _end(pods.get((holder.namespace, name)))
            if end is None:
                return ""
            ends.append(end)
    if not ends:
        return ""
    left = (max(ends) - now).total_seconds()
    return f"in {duration(left)} at the latest" if left > 0 else "any moment"


def _end(pod: Pod | None) -> datetime | None:
    """When the pod is stopped by its own deadline."""
    if pod is None or pod.spec.active_deadline_seconds is None:
        return None
    started = moment(pod.status.start_time)
    return started + timedelta(seconds=pod.spec.active_deadline_seconds) if started else None


def _marks(snapshot: DeviceSnapshot, pool: PoolKey, wanted: Sequence[str]) -> tuple[DeviceMark, ...]:
    state = snapshot.pools.get(pool)
    names = sorted((one.name for one in state.candidates), key=natural) if state is not None else []
    if len(names) > DRAWN:
        names = list(wanted)[:DRAWN]
    return tuple(
        DeviceMark(name, snapshot.state((pool.driver, pool.name, name, pool.node)), name in wanted) for name in names
    )
