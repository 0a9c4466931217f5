"""The days before: who held which device, as `claims.projectors` keeps it, and the samples of usage of the last day."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import accumulate
from random import Random
from uuid import UUID

from claims.devices.published import DeviceKey
from claims.models import AllocatedDevice, PastAllocation
from manciple.processes.demolab.hardware import A100_MIG, Machine
from manciple.processes.demolab.jobs import CLASS_AND_USE, TEAMS
from scheduling.capacity import ClassCount, read_census
from scheduling.models import QueuedPod, UsageSample
from scheduling.usage import ALL, minute_of, nonzero

#: How far back it goes.
DAYS = 7
#: Rows of one insert.
BATCH = 2000

#: (machine, device) -> since when it is held now
Begun = Mapping[tuple[str, str], datetime]


def keep_past(machines: Sequence[Machine], begun: Begun, *, now: datetime, random: Random) -> None:
    PastAllocation.objects.bulk_create(past(machines, begun, now=now, random=random), batch_size=BATCH)


def past(machines: Sequence[Machine], begun: Begun, *, now: datetime, random: Random) -> Iterator[PastAllocation]:
    """Jobs that came before, on every whole GPU of `machines`."""
    for machine in machines:
        if machine.model is not A100_MIG:
            yield from _on(machine, begun, now=now, random=random)


def _on(machine: Machine, begun: Begun, *, now: datetime, random: Random) -> Iterator[PastAllocation]:
    """Walks back in time: the device that was given last gets the job before."""
    device_class, use = CLASS_AND_USE[machine.model]
    ends = {device: begun.get((machine.name, device), now) for device in machine.gpus}
    oldest = now - timedelta(days=DAYS)
    while (latest := max(ends.values())) > oldest:
        at = next(index for index, device in enumerate(machine.gpus) if ends[device] == latest)
        size = random.choices((1, 2, 4, 8), (4, 3, 3, 2))[0]
        first = min(at, len(machine.gpus) - size)
        devices = machine.gpus[first : first + size]
        pause = timedelta(minutes=random.expovariate(1 / 60) * (1 - use) * 10 + 2)
        ended = min(ends[device] for device in devices) - pause
        began = ended - timedelta(hours=0.3 + random.expovariate(1 / (14 if size > 2 else 6)))  # noqa: PLR2004
        ends |= dict.fromkeys(devices, began)
        yield from _rows(machine, devices, device_class, began=began, ended=ended, random=random)


def _rows(
    machine: Machine, devices: Sequence[str], device_class: str, *, began: datetime, ended: datetime, random: Random
) -> Iterator[PastAllocation]:
    namespace = random.choice(tuple(TEAMS))
    pod = f"{random.choice(TEAMS[namespace])}-{random.randint(100, 999)}"
    uid = str(UUID(int=random.getrandbits(128), version=4))
    claim = f"{pod}-gpus-{uid[:5]}"
    for device in devices:
        yield PastAllocation(
            driver=machine.model.driver,
            pool=machine.name,
            device=device,
            device_class=device_class,
            claim_uid=uid,
            namespace=namespace,
            claim=claim,
            pods=[pod],
            admin_access=False,
            share_id="",
            consumed_capacity={},
            began_at=began,
            ended_at=ended,
        )


# The samples of usage of the last day, as they would have been taken: from who held what, and who waits since when.


MINUTES = 24 * 60

Stay = tuple[str, DeviceKey, datetime, datetime]  # class, device, from when, until when


def keep_usage(now: datetime) -> None:
    """Write the day that ends at `now`; this minute is left to the worker."""
    UsageSample.objects.bulk_create(_samples(minute_of(now)), batch_size=BATCH)


def _samples(now: datetime) -> Iterator[UsageSample]:
    census = read_census()
    begin = now - timedelta(minutes=MINUTES)
    stays = list(_stays(begin, now))
    waiting = _at_each_minute([(since, now) for since in _waiting_since()], begin)
    everything = ClassCount(name=ALL, counts=census.totals, waiting=census.waiting)
    # In all, a card that is cut counts once, and not what it is cut into.
    cut = {one.key for pool in census.snapshot.pools.values() for unit in pool.units for one in unit.candidates[1:]}
    for one in (everything, *census.classes):
        counted = [stay for stay in stays if (stay[1] not in cut if one.name == ALL else stay[0] == one.name)]
        spans = [(since, until) for _, _, since, until in counted]
        held = _at_each_minute(spans, begin)
        for minute in range(MINUTES):
            at = begin + timedelta(minutes=minute)
            counts = _counts(one.counts, held[minute])
            queue = waiting[minute] if one.name == ALL else 0
            yield UsageSample(at=at, device_class=one.name, counts=counts, waiting=queue)


def _counts(now: Mapping[str, int], held: int) -> dict[str, int]:
    """What is fenced off, broken or shared now has been so all day."""
    others = {state: count for state, count in now.items() if state not in ("reserved", "alloc", "prep", "free")}
    room = max(0, sum(now.values()) - sum(others.values()))
    return nonzero({**others, "reserved": min(held, room), "free": max(0, room - held)})


def _stays(begin: datetime, now: datetime) -> Iterator[Stay]:
    past = PastAllocation.objects.filter(ended_at__gt=begin, admin_access=False)
    for name, driver, pool, device, since, until in past.values_list(*_DEVICE, "began_at", "ended_at").iterator():
        yield name, (driver, pool, device), since, until
    current = AllocatedDevice.objects.filter(exclusive=True).values_list(*_DEVICE, "claim__allocated_at")
    for name, driver, pool, device, since in current:
        yield name, (driver, pool, device), since or begin, now


_DEVICE = ("device_class", "driver", "pool", "device")


def _waiting_since() -> Iterable[datetime]:
    return QueuedPod.objects.values_list("created_at", flat=True)


def _at_each_minute(spans: Iterable[tuple[datetime, datetime]], begin: datetime) -> list[int]:
    """How many of the spans cover each minute of the day."""
    changes: Counter[int] = Counter()
    for since, until in spans:
        first = max(0, int((since - begin) / timedelta(minutes=1)))
        last = min(MINUTES, int((until - begin) / timedelta(minutes=1)) + 1)
        if first < last:
            changes[first] += 1
            changes[last] -= 1
    return list(accumulate(changes[minute] for minute in range(MINUTES)))
