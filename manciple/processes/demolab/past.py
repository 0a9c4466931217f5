"""The days before: who held which device, as `claims.projectors` keeps it, and how some of these were used."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from random import Random
from uuid import UUID

from msgspec import structs

from claims.models import PastAllocation, UseSpell
from inventory import meters
from inventory.kinds.device_readings import Meters
from inventory.models import DeviceMeter, MeterBlock
from manciple.processes.demolab import hardware
from manciple.processes.demolab.hardware import A100_MIG, Machine
from manciple.processes.demolab.jobs import CLASS_AND_USE, TEAMS

#: How far back it goes.
DAYS = 7
#: Rows of one insert.
ROWS = 2000
#: (machine, device) -> since when it is held now
Begun = Mapping[tuple[str, str], datetime]


def keep_past(machines: Sequence[Machine], begun: Begun, *, now: datetime, random: Random) -> None:
    rows = PastAllocation.objects.bulk_create(past(machines, begun, now=now, random=random), batch_size=ROWS)
    spells = UseSpell.objects.bulk_create(uses(rows, random), batch_size=ROWS)
    keep_meters(machines, begun, spells, now=now, random=random)


#: How far back meters are read.
METERED = timedelta(hours=24)


def keep_meters(
    machines: Sequence[Machine], begun: Begun, spells: Iterable[UseSpell], *, now: datetime, random: Random
) -> None:
    """What the GPUs read whose use is told. One device in eight has been idle since it is held."""
    worked = defaultdict(list)
    for spell in spells:
        if not spell.idle and spell.ended_at is not None and spell.ended_at > now - METERED:
            worked[spell.pool, spell.device].append((spell.began_at, spell.ended_at))
    first = (now - METERED).replace(minute=0, second=0, microsecond=0)
    moments = [first + step * meters.SLOT for step in range((now - first) // meters.SLOT + 1)]
    for machine in machines:
        if machine.model is not hardware.H100:
            continue
        series, latest = {}, []
        for index, device in enumerate(machine.gpus):
            since = begun.get((machine.name, device))
            if since is not None and index % 8 != 7:  # noqa: PLR2004
                worked[machine.name, device].append((since, now + meters.SLOT))
            read = [_read(at, worked[machine.name, device], random) for at in moments]
            series["/".join((machine.model.driver, machine.name, device))] = [meters.slot_of(one) for one in read]
            quiet = None if read[-1].utilization else max([*(end for _, end in worked[machine.name, device]), first])
            row = {"node": machine.name, "driver": machine.model.driver, "pool": machine.name, "device": device}
            latest.append(DeviceMeter(**row, at=now, quiet_since=quiet, **structs.asdict(read[-1])))
        DeviceMeter.objects.bulk_create(latest)
        meters.put_many(MeterBlock.Owner.NODE, machine.name, moments, series)


def _read(at: datetime, worked: Iterable[tuple[datetime, datetime]], random: Random) -> Meters:
    busy = any(began <= at <= ended for began, ended in worked)
    utilization = random.randint(78, 99) if busy else 0
    return Meters(
        utilization=utilization,
        memory_used=(random.randint(58, 66) if busy else 1) << 30,
        memory_total=80 << 30,
        temperature=(38 + utilization // 3 if busy else 31) + random.randint(0, 3),
        power=(150 + 5 * utilization if busy else 70) + random.randint(0, 20),
    )


#: Of these classes the driver tells whether a device is used.
TELLING = frozenset({CLASS_AND_USE[hardware.H100][0]})


def uses(held: Iterable[PastAllocation], random: Random) -> Iterator[UseSpell]:
    """Jobs that compute from their beginning on and are left standing for a while at their end."""
    for one in held:
        if one.device_class not in TELLING:
            continue
        done = one.ended_at - (one.ended_at - one.began_at) * random.random() * 0.4
        for idle, began, ended in ((False, one.began_at, done), (True, done, one.ended_at)):
            yield UseSpell(
                driver=one.driver,
                pool=one.pool,
                device=one.device,
                share_id="",
                device_class=one.device_class,
                claim_uid=one.claim_uid,
                namespace=one.namespace,
                idle=idle,
                began_at=began,
                ended_at=ended,
            )


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
    asked = began - timedelta(seconds=random.lognormvariate(4, 2.2))
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
            asked_at=asked,
            began_at=began,
            ended_at=ended,
        )
