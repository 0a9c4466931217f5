"""Who holds the devices that a waiting pod could use: by pool and holder, since when, and when they must let go.

Nobody guesses: a device is free again at a known time only where every pod that has it says so by
activeDeadlineSeconds. Of holders in namespaces that the person may not see, nothing is told.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from claims.devices.holdings import Other
from claims.kinds.pods import Pod
from claims.models import AllocatedDevice, Reservation
from inventory.models import Device, Pool
from manciple.pages.durations import duration, moment
from manciple.pages.people import Person
from manciple.store import objects
from manciple.wire.names import natural
from scheduling.resources import PODS, decoded, kind

#: (driver, pool, device)
DeviceKey = tuple[str, str, str]

#: Lines that are shown.
NAMED_HELD = 20
#: Devices of a pool that are drawn; of a larger pool only those that are asked for.
DRAWN = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """One claim that holds some of the devices. hidden: the person may not know who it is."""

    namespace: str
    claim: str
    pods: tuple[str, ...]
    since: datetime | None
    others: tuple[str, ...] = ()  # who else it is reserved for: "jobs.batch train"
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """A device as a small mark: `wanted` where it is one of those that are asked for."""

    name: str
    state: str
    wanted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldLine:
    """Devices of one pool that the same claims hold. free_again: in words, "" where nobody knows."""

    driver: str
    pool: str
    node: str  # "" where the pool is not one node's
    devices: tuple[str, ...]
    holders: tuple[Holder, ...]
    marks: tuple[Mark, ...]
    free_again: str

    @property
    def label(self) -> str:
        return ", ".join(self.devices)


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """lines: the first so many, `more` are left out; count: devices in all."""

    lines: tuple[HeldLine, ...]
    more: int
    count: int

    @property
    def anybody_tells(self) -> bool:
        """Whether any of the holders says when it lets go."""
        return any(line.free_again for line in self.lines)


NOBODY = Held(lines=(), more=0, count=0)


def read_held(keys: Collection[DeviceKey], person: Person, *, now: datetime | None = None) -> Held:
    """Those who hold most devices first. Six queries, whatever the number of devices."""
    if not keys:
        return NOBODY
    holders = _holders(keys)
    grouped: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for driver, pool, device in sorted(keys, key=lambda key: natural("/".join(key))):
        by = tuple(sorted(holders.get((driver, pool, device), {})))
        grouped.setdefault((driver, pool, by), []).append(device)
    ordered = sorted(grouped.items(), key=lambda item: (-len(item[1]), natural(item[0][1]), item[1]))
    shown = ordered[:NAMED_HELD]
    claims = {uid: one for found in holders.values() for uid, one in found.items()}
    pods = _pods(claims[uid] for (_, _, by), _ in shown for uid in by)
    drawing = _Drawing({(driver, pool) for (driver, pool, _), _ in shown})
    lines = tuple(
        HeldLine(
            driver=driver,
            pool=pool,
            node=drawing.nodes.get((driver, pool), ""),
            devices=tuple(devices),
            holders=tuple(_seen(claims[uid], person) for uid in by),
            marks=drawing.marks(driver, pool, devices),
            free_again=_free_again([claims[uid] for uid in by], pods, now or datetime.now(UTC)),
        )
        for (driver, pool, by), devices in shown
    )
    return Held(lines=lines, more=len(ordered) - len(shown), count=len(keys))


def _holders(keys: Collection[DeviceKey]) -> dict[DeviceKey, dict[str, Holder]]:
    """device -> claim uid -> who it is. Admin access looks on and holds nothing."""
    rows = AllocatedDevice.objects.filter(admin_access=False, device__in={name for _, _, name in keys})
    columns = ("driver", "pool", "device", "claim_id", "claim__namespace", "claim__name", "claim__allocated_at")
    found: dict[DeviceKey, dict[str, tuple[str, str, datetime | None]]] = {}
    for driver, pool, device, uid, namespace, name, since in rows.values_list(*columns):
        if (driver, pool, device) in keys:
            found.setdefault((driver, pool, device), {})[uid] = (namespace, name, since)
    uids = {uid for by in found.values() for uid in by}
    pods: dict[str, list[str]] = {}
    others: dict[str, list[str]] = {}
    reserved = Reservation.objects.filter(claim_id__in=uids).order_by("name")
    for uid, resource, name in reserved.values_list("claim_id", "resource", "name"):
        if resource == PODS:
            pods.setdefault(uid, []).append(name)
        else:
            others.setdefault(uid, []).append(str(Other(resource, name)))
    return {
        key: {
            uid: Holder(
                namespace=namespace,
                claim=name,
                pods=tuple(pods.get(uid, ())),
                others=tuple(others.get(uid, ())),
                since=since,
            )
            for uid, (namespace, name, since) in by.items()
        }
        for key, by in found.items()
    }


def _seen(holder: Holder, person: Person) -> Holder:
    if person.sees(holder.namespace):
        return holder
    return Holder(namespace="", claim="", pods=(), since=holder.since, hidden=True)


def _pods(holders: Iterable[Holder]) -> dict[tuple[str, str], Pod]:
    keys = {(one.namespace, name) for one in holders for name in one.pods}
    found = (decoded(stored, Pod) for stored in objects.get_many(kind(PODS), keys))
    return {(pod.metadata.namespace, pod.metadata.name): pod for pod in found}


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


class _Drawing:
    """The devices of some pools as marks. Three queries."""

    def __init__(self, pools: Collection[tuple[str, str]]) -> None:
        names = {name for _, name in pools}
        known = Pool.objects.filter(name__in=names).values_list("driver", "name", "node_name")
        self.nodes = {(driver, name): node for driver, name, node in known}
        self._devices: dict[tuple[str, str], list[str]] = {}
        rows = Device.objects.filter(pool__in=names).values_list("driver", "pool", "name")
        for driver, pool, name in rows:
            if (driver, pool) in pools:
                self._devices.setdefault((driver, pool), []).append(name)
        self._taken = set(AllocatedDevice.objects.filter(pool__in=names).values_list("driver", "pool", "device"))

    def marks(self, driver: str, pool: str, wanted: Sequence[str]) -> tuple[Mark, ...]:
        names = sorted(self._devices.get((driver, pool), ()), key=natural)
        if len(names) > DRAWN:
            names = list(wanted)[:DRAWN]
        return tuple(Mark(name, self._state(driver, pool, name), name in wanted) for name in names)

    def _state(self, driver: str, pool: str, name: str) -> str:
        return "reserved" if (driver, pool, name) in self._taken else "free"
