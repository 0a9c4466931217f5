"""What was out of order in the laboratory before, as `inventory.impairments` would keep it; who saw to what is now."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from inventory.models import Impairment, Incident
from manciple.processes.demolab.hardware import AMD, NVIDIA
from manciple.processes.demolab.pages import CLOSED_INCIDENT, OPEN_INCIDENT

BY = "admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class PastIncident:
    """Devices of one machine that failed together. times: (how long ago it began, how long it lasted), each time."""

    id: str
    driver: str = NVIDIA
    machine: str
    devices: tuple[int, ...]
    key: str
    value: str
    unhealthy: bool = True
    rule: str = ""
    times: tuple[tuple[timedelta, timedelta], ...]
    note: str = ""


_DAY, _HOUR, _MINUTE = timedelta(days=1), timedelta(hours=1), timedelta(minutes=1)
PAST = (
    PastIncident(
        id=CLOSED_INCIDENT,
        machine="gpu-a03",
        devices=(2, 3),
        key=f"{NVIDIA}/unhealthy",
        value="xid-74",
        times=((3 * _DAY + 2 * _HOUR, 47 * _MINUTE),),
        note="NVLink error between 2 and 3. Reset both, no ticket yet.",
    ),
    PastIncident(
        id="b8210c6d94ef7a35",
        machine="gpu-b08",
        devices=(0,),
        key=f"{NVIDIA}/unhealthy",
        value="xid-13",
        times=((2 * _DAY + _HOUR, 6 * _MINUTE), (2 * _DAY + 48 * _MINUTE, 4 * _MINUTE), (2 * _DAY, 31 * _MINUTE)),
        note="Comes and goes. Riser reseated.",
    ),
    PastIncident(
        id="5d0f28b3e6417ac9",
        driver=AMD,
        machine="gpu-d02",
        devices=tuple(range(8)),
        key="lab.example.org/maintenance",
        value="firmware",
        unhealthy=False,
        rule="firmware-gpu-d02",
        times=((_DAY + 3 * _HOUR, 2 * _HOUR + 5 * _MINUTE),),
        note="Firmware of all eight.",
    ),
    PastIncident(
        id="e4a7930b1c5d82f6",
        machine="gpu-c02",
        devices=(5,),
        key=f"{NVIDIA}/unhealthy",
        value="ecc-uncorrectable",
        times=((6 * _DAY, 26 * _HOUR),),
    ),
)


def keep(now: datetime) -> None:
    for past in PAST:
        _write(past, now)
    _show(OPEN_INCIDENT, machine="gpu-a09")
    maintained = Incident.objects.filter(pool="gpu-a12")
    maintained.update(acknowledged_by=BY, acknowledged_at=now - 5 * _HOUR, note="Driver upgrade, done by this evening.")


def _write(past: PastIncident, now: datetime) -> None:
    spans = [(now - ago, now - ago + lasted) for ago, lasted in past.times]
    seen = {"acknowledged_by": BY, "acknowledged_at": spans[0][0] + 9 * _MINUTE, "note": past.note} if past.note else {}
    Incident.objects.create(
        id=past.id, unhealthy=past.unhealthy, driver="" if past.rule else past.driver,
        pool="" if past.rule else past.machine, key=past.key, value=past.value, began_at=spans[0][0],
        ended_at=spans[-1][1], touched_at=spans[-1][1], **seen,
    )  # fmt: skip
    Impairment.objects.bulk_create(
        Impairment(
            incident_id=past.id, source="rule" if past.rule else "driver", reporter=past.rule, driver=past.driver,
            pool=past.machine, device="" if past.rule else f"gpu-{device}", node=past.machine, key=past.key,
            value=past.value, effect="NoSchedule", message="", unhealthy=past.unhealthy, began_at=began, ended_at=ended,
        )
        for began, ended in spans
        for device in (past.devices[:1] if past.rule else past.devices)
    )  # fmt: skip


def _show(name: str, *, machine: str) -> None:
    """Give the machine's incident a name that is known beforehand."""
    Impairment.objects.filter(pool=machine, ended_at=None).update(incident_id=name)
    Incident.objects.filter(pool=machine, ended_at=None).update(id=name)
