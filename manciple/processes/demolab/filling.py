"""Writes the laboratory into an empty home, in the order in which it came about.

Documents are prepared and checked as the API does; statuses follow in a second write, as controllers and nodes write
them. The pods that wait are looked at by the real scheduler at the end, which says why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import accumulate
from random import Random
from typing import Any
from uuid import UUID

from msgspec import structs

from claims import event_recorder
from claims.causes import messages
from claims.controllers import generated_claims
from claims.devices.published import DeviceKey
from claims.devices.states import DeviceState
from claims.event_recorder import EventNote
from claims.kinds.resource_usage import NONE, QuotaLimits
from claims.models import AllocatedDevice, PastAllocation
from claims.quotas import count_for
from insight.capacity import ClassCount, read_census
from insight.usage import ALL, minute_of, nonzero
from inventory.kinds.devices import ResourceSlice
from manciple.controllers.coordination import utc_now
from manciple.processes.demolab import endings, hardware, incidents, jobs, past
from manciple.processes.demolab.hardware import Document, Machine
from manciple.processes.demolab.jobs import TEAMS, Job, Planner
from manciple.processes.standing import ensure_standing_objects
from manciple.store import objects, sql
from manciple.store.objects import Sources, Writer
from manciple.wire import codec
from manciple.wire.base import ApiObject, timestamp
from manciple.wire.errors import Invalid
from manciple.wire.identity import SYSTEM
from manciple.wire.quantity import Quantity
from manciple.wire.registry import Kind, registry
from scheduling.cycle.scheduler import SchedulingWorker
from scheduling.models import QueuedPod, UsageSample

#: Objects in one transaction.
BATCH = 200
#: The laboratory was set up this long ago.
FOUNDED = timedelta(days=30)
#: Events that are older would be dropped at the next look.
EVENTS_SINCE = timedelta(minutes=55)
SIZES = ("lab", "large")


class NotEmpty(Exception):
    """The home has a cluster already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lab:
    """What there is to write."""

    machines: Sequence[Machine]
    jobs: Sequence[Job]
    now: datetime
    random: Random
    odd: bool  # with what is out of order


def plan(*, size: str, seed: int, now: datetime) -> Lab:
    """The laboratory as it is at `now`."""
    random = Random(seed)  # noqa: S311 - made up, the same every time
    large = size == "large"
    machines = hardware.large_machines() if large else hardware.lab_machines()
    planned = Planner(random).jobs(machines)
    if not large:
        leaked = jobs.LEAKED_AT[0], jobs.SHARED_AT[0]
        planned = [job for job in planned if job.machine.name not in leaked]
    return Lab(machines=machines, jobs=planned, now=now, random=random, odd=not large)


def fill(lab: Lab) -> None:
    """Raises: NotEmpty."""
    if objects.list(registry.by_resource("nodes"), limit=1).items:
        raise NotEmpty("this home has nodes already")
    ensure_standing_objects()
    Filling(lab).run()


class Filling:
    """Writes one laboratory; the clock and the uids of what it writes are its own."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._moment = lab.now
        self._sources = Sources(now=lambda: self._moment, new_uid=self._uid, name_from=self._name)
        #: (machine, device) -> since when it is held
        self._begun: dict[tuple[str, str], datetime] = {}

    def run(self) -> None:
        lab, founded = self._lab, self._lab.now - FOUNDED
        heard = timestamp(lab.now)
        fixed = [*map(jobs.namespace, TEAMS), *hardware.device_classes(), *self._templates()]
        for machine in lab.machines:
            fixed.append(hardware.node(machine, heard=heard, since=timestamp(founded)))
            fixed.append(hardware.lease(machine.name, renewed=lab.now.strftime("%Y-%m-%dT%H:%M:%S.%fZ")))
            fixed.extend(hardware.slices(replace(machine, taints=()), since=""))
        self._write(fixed, at=founded)
        # One by one the log tells when each step was; in the large laboratory that would take too long.
        for chunk in sql.chunks(sorted(lab.jobs, key=lambda job: job.age, reverse=True), 1 if lab.odd else BATCH):
            self._jobs(chunk)
        tainted = [machine for machine in lab.machines if machine.taints]
        for machine in sorted(tainted, key=lambda one: one.tainted_for, reverse=True):
            self._taint(machine, at=lab.now - machine.tainted_for)
        if lab.odd:
            self._odd()
            incidents.keep(lab.now)
            endings.keep(lab.now)
        past.keep_past(lab.machines, self._begun, now=lab.now, random=lab.random)
        keep_usage(lab.now)

    # Writing ---------------------------------------------------------------------------------------------------------

    def _uid(self) -> str:
        return str(UUID(int=self._lab.random.getrandbits(128), version=4))

    def _name(self, base: str) -> str:
        return base + "".join(self._lab.random.choices("bcdfghjklmnpqrstvwxz2456789", k=5))

    def _write(self, made: Iterable[Document], *, at: datetime) -> None:
        for chunk in sql.chunks(made, BATCH):
            with objects.writing(identity=SYSTEM, sources=self._sources) as writer:
                for document in chunk:
                    self._create(writer, document, at=at)

    def _create(self, writer: Writer, document: Document, *, at: datetime) -> Document:
        """As the API would. Returns the document as stored."""
        self._moment = at
        kind, obj = _typed(document)
        prepared = kind.prepare_create(obj)
        if errors := kind.validate_create(prepared):
            raise Invalid.of(kind=kind.kind, group=kind.group, name=prepared.metadata.name, errors=errors)
        return codec.to_builtins(writer.create(kind, prepared))

    def _update(self, writer: Writer, document: Document, *, at: datetime) -> ApiObject:
        self._moment = at
        return writer.update(*_typed(document))

    def _tell(self, writer: Writer, about: ApiObject, *, at: datetime, **said: Any) -> None:
        """An Event, where it is not too old to be kept."""
        if at > self._lab.now - EVENTS_SINCE:
            self._moment = at
            event_recorder.record(writer, EventNote(regarding=about, **said), now=at)

    def _taint(self, machine: Machine, *, at: datetime) -> None:
        """Its driver publishes it with its taints."""
        self._moment = at
        with objects.writing(identity=SYSTEM, sources=self._sources) as writer:
            for document in hardware.slices(machine, since=timestamp(at)):
                kind, tainted = _typed(document)
                known = writer.get(kind, "", tainted.metadata.name)
                if isinstance(known, ResourceSlice) and isinstance(tainted, ResourceSlice):
                    writer.update(kind, structs.replace(known, spec=tainted.spec))

    # Jobs ------------------------------------------------------------------------------------------------------------

    def _templates(self) -> list[Document]:
        found = {(job.namespace, job.template): jobs.claim_spec(job) for job in self._lab.jobs}
        for one in jobs.waiting() if self._lab.odd else ():
            found[one.namespace, one.template] = {"devices": {"requests": [one.request]}}
        return [jobs.template(*key, spec) for key, spec in sorted(found.items())]

    def _jobs(self, chunk: Sequence[Job]) -> None:
        """Their pods and claims are made, then they are given devices and a node, then they run."""
        with objects.writing(identity=SYSTEM, sources=self._sources) as writer:
            made = [(job, *self._ask(writer, job)) for job in chunk]
        with objects.writing(identity=SYSTEM, sources=self._sources) as writer:
            bound = [(job, self._place(writer, job, pod, claim)) for job, pod, claim in made]
        with objects.writing(identity=SYSTEM, sources=self._sources) as writer:
            for job, pod in bound:
                if not job.preparing:
                    self._start(writer, pod, at=self._given(job))

    def _given(self, job: Job) -> datetime:
        return self._lab.now - job.age + timedelta(seconds=2)

    def _ask(self, writer: Writer, job: Job) -> tuple[Document, Document]:
        """Its pod and claim."""
        created = self._lab.now - job.age
        asked = jobs.pod(job.namespace, job.name, entry={"resourceClaimTemplateName": job.template}, cpu=job.cpu)
        pod = self._create(writer, asked, at=created)
        wanted = jobs.claim(
            job.namespace, f"{job.name}-{jobs.ENTRY}-", jobs.claim_spec(job),
            made_for=(job.name, pod["metadata"]["uid"]),
        )  # fmt: skip
        return pod, self._create(writer, wanted, at=created)

    def _place(self, writer: Writer, job: Job, pod: Document, claim: Document) -> ApiObject:
        """Devices for its claim, a node for its pod."""
        given = self._given(job)
        status = {
            "allocation": jobs.allocation(job.machine.name, jobs.results(job, claim["metadata"]["uid"]), at=given),
            "reservedFor": [jobs.reservation(job.name, pod["metadata"]["uid"])],
            "devices": jobs.reports(job, at=given),
        }
        self._update(writer, jobs.protected(claim, status), at=given)
        self._begun |= dict.fromkeys(((job.machine.name, device) for device in job.devices), given)
        return self._bind(writer, pod, job.machine.name, claim["metadata"]["name"], given)

    def _bind(self, writer: Writer, pod: Document, node: str, claim: str, at: datetime) -> ApiObject:
        """A node for a pod whose claim was given `at`."""
        stored = self._update(writer, jobs.bound(pod, node, claim=claim, at=at), at=at)
        assigned = messages.assigned(f"{stored.metadata.namespace}/{stored.metadata.name}", node)
        self._tell(writer, stored, at=at, reason="Scheduled", message=assigned, component=messages.SCHEDULER_NAME)
        return stored

    def _start(self, writer: Writer, pod: ApiObject, *, at: datetime) -> None:
        """Its node runs it. at: when it was bound."""
        started = at + timedelta(seconds=9)
        stored = self._update(writer, jobs.running(codec.to_builtins(pod), at=at), at=started)
        self._tell(
            writer, stored, at=started, reason="Started", message="Started container main",
            component="manciple-nodeagent",
        )  # fmt: skip

    def _run(self, writer: Writer, pod: Document, node: str, claim: str, at: datetime) -> None:
        self._start(writer, self._bind(writer, pod, node, claim, at), at=at)

    # What is out of order --------------------------------------------------------------------------------------------

    def _odd(self) -> None:
        steps: list[Callable[[Writer], None]] = [
            self._leaked, self._kept, self._spare, self._shared, self._monitor, self._ended, self._endless
        ]  # fmt: skip
        waiting = sorted(jobs.waiting(), key=lambda pod: pod.age, reverse=True)
        steps += [partial(self._wait, one=one) for one in waiting]
        for step in steps:
            with objects.writing(identity=SYSTEM, sources=self._sources) as writer:
                step(writer)
        self._quotas()
        self._workloads()
        self._write([hardware.taint_rule()], at=self._lab.now - timedelta(hours=3))
        self._moment = self._lab.now
        SchedulingWorker(utc_now).run()

    def _quotas(self) -> None:
        """Limits a little above what is used, or just that; a pod comes too late, and its claim is refused."""
        for (space, name), (keys, more) in jobs.QUOTAS.items():
            counted = count_for(space, QuotaLimits(name=name, hard=dict.fromkeys(keys, NONE)))
            hard = {key: (counted[key] + Quantity.of(more)).canonical() for key in keys}
            self._write([jobs.quota(space, name, hard)], at=self._lab.now - timedelta(days=2))

    def _workloads(self) -> None:
        """What makes no pods: the laboratory has no controllers that would."""
        stopped = [jobs.deployment(space, name) for space, name in jobs.DEPLOYMENTS]
        scaled = [jobs.autoscaler(space, name) for space, name in jobs.DEPLOYMENTS]
        self._write([*stopped, *scaled, jobs.stopped_job(), jobs.cron_job()], at=self._lab.now - timedelta(days=3))
        space, pod = jobs.REFUSED_POD
        asked = jobs.template(space, jobs.REFUSED_TEMPLATE, {"devices": {"requests": [jobs.request("gpu-l40s")]}})
        self._write([asked], at=self._lab.now - timedelta(days=1))
        entry = {"resourceClaimTemplateName": jobs.REFUSED_TEMPLATE}
        self._write([jobs.pod(space, pod, entry=entry)], at=self._lab.now - jobs.REFUSED_SINCE)
        generated_claims.sync([jobs.REFUSED_POD])

    def _wait(self, writer: Writer, *, one: jobs.UnplacedJob) -> None:
        """A pod that nobody has placed, with the claim that was made for it."""
        at = self._lab.now - one.since
        entry = {"resourceClaimTemplateName": one.template}
        asked = jobs.pod(one.namespace, one.name, entry=entry, selector=one.node_selector)
        pod = self._create(writer, asked, at=at)
        claim = self._create(
            writer,
            jobs.claim(
                one.namespace, f"{one.name}-{jobs.ENTRY}-", {"devices": {"requests": [one.request]}},
                made_for=(one.name, pod["metadata"]["uid"]),
            ),
            at=at,
        )  # fmt: skip
        statuses = [{"name": jobs.ENTRY, "resourceClaimName": claim["metadata"]["name"]}]
        self._update(writer, pod | {"status": pod.get("status", {}) | {"resourceClaimStatuses": statuses}}, at=at)

    def _own_claim(
        self, writer: Writer, key: tuple[str, str], spec: Document, *, at: datetime, **status: Any
    ) -> Document:
        """A claim that somebody made by hand; with a status when one is given."""
        claim = self._create(writer, jobs.claim(*key, spec), at=at)
        if status:
            stored = self._update(writer, jobs.protected(claim, status), at=at)
            return codec.to_builtins(stored)
        return claim

    def _gpus(self, node: str, count: int, *, at: datetime, driver: str = hardware.NVIDIA, **more: Any) -> Document:
        given = [
            {"request": jobs.GPU_REQUEST, "driver": driver, "pool": node, "device": f"gpu-{index}", **more}
            for index in range(count)
        ]
        if not more:
            self._begun |= dict.fromkeys(((node, one["device"]) for one in given), at)
        return jobs.allocation(node, given, at=at)

    def _leaked(self, writer: Writer) -> None:
        at, (node, count) = self._lab.now - jobs.LEAKED_SINCE, jobs.LEAKED_AT
        spec = {"devices": {"requests": [jobs.request("gpu-a100", count=count)]}}
        job = {"apiGroup": "batch", "resource": "jobs", "name": jobs.LEAKED_JOB, "uid": self._uid()}
        given = self._gpus(node, count, at=at)
        self._own_claim(writer, jobs.LEAKED_CLAIM, spec, at=at, allocation=given, reservedFor=[job])

    def _shared(self, writer: Writer) -> None:
        at, (node, count) = self._lab.now - timedelta(hours=2, minutes=14), jobs.SHARED_AT
        space, name = jobs.SHARED_CLAIM
        pods = [
            self._create(writer, jobs.pod(space, one, entry={"resourceClaimName": name}), at=at)
            for one in jobs.SHARED_BY
        ]
        spec = {"devices": {"requests": [jobs.request("gpu-l40s", count=count)]}}
        users = [jobs.reservation(pod["metadata"]["name"], pod["metadata"]["uid"]) for pod in pods]
        given = self._gpus(node, count, at=at)
        self._own_claim(writer, jobs.SHARED_CLAIM, spec, at=at, allocation=given, reservedFor=users)
        for pod in pods:
            self._run(writer, pod, node, name, at)

    def _kept(self, writer: Writer) -> None:
        at = self._lab.now - jobs.KEPT_SINCE
        space, name = jobs.KEPT_CLAIM
        document = jobs.claim(space, name, {"devices": {"requests": [jobs.request("gpu-a100", count=2)]}})
        document["metadata"]["finalizers"] = [jobs.KEPT_BY]
        self._create(writer, document, at=at - timedelta(days=1))
        self._moment = at
        writer.delete(registry.by_resource("resourceclaims.resource.k8s.io"), space, name)

    def _spare(self, writer: Writer) -> None:
        spec = {"devices": {"requests": [jobs.request("gpu-l40s")]}}
        self._own_claim(writer, jobs.SPARE_CLAIM, spec, at=self._lab.now - timedelta(hours=7))

    def _monitor(self, writer: Writer) -> None:
        at = self._lab.now - timedelta(days=12)
        space, name, node = jobs.MONITOR
        exactly = {"deviceClassName": "gpu-hopper", "allocationMode": "All", "adminAccess": True}
        spec = {"devices": {"requests": [{"name": jobs.GPU_REQUEST, "exactly": exactly}]}}
        pod = self._create(writer, jobs.pod(space, name, entry={"resourceClaimName": name}), at=at)
        given = self._gpus(node, hardware.GPUS_PER_NODE, at=at, adminAccess=True)
        user = jobs.reservation(name, pod["metadata"]["uid"])
        self._own_claim(writer, (space, name), spec, at=at, allocation=given, reservedFor=[user])
        self._run(writer, pod, node, name, at)

    def _ended(self, writer: Writer) -> None:
        for space, name, phase, minutes in jobs.ENDED:
            at = self._lab.now - timedelta(minutes=minutes)
            entry = {
                "resourceClaimTemplateName": next(job.template for job in self._lab.jobs if job.namespace == space)
            }
            pod = self._create(writer, jobs.pod(space, name, entry=entry), at=at - timedelta(hours=2))
            placed = jobs.bound(pod, "gpu-a02", claim=f"{name}-{jobs.ENTRY}-gone1", at=at)
            ended = placed | {"status": placed["status"] | {"phase": phase}}
            self._update(writer, ended, at=at)

    def _endless(self, writer: Writer) -> None:
        """A pod was told to end; its node is being worked on and never says that it did."""
        job = next(job for job in self._lab.jobs if job.machine.name == jobs.ENDLESS_MACHINE)
        self._moment = self._lab.now - min(jobs.ENDLESS_SINCE, job.age)
        writer.delete(registry.by_resource("pods"), job.namespace, job.name)


def _typed(document: Document) -> tuple[Kind, ApiObject]:
    kind = registry.find_kind(document["apiVersion"], document["kind"])
    if kind is None:
        raise LookupError(f"the demo has a {document['kind']} that is not served")
    return kind, codec.decode_value(kind.type, document)


# The samples of usage of the last day, as they would have been taken: from who held what, and who waits since when.

MINUTES = 24 * 60

Stay = tuple[str, DeviceKey, datetime, datetime]  # class, device, from when, until when


def keep_usage(now: datetime) -> None:
    """Write the day that ends at `now`; this minute is left to the worker."""
    UsageSample.objects.bulk_create(_samples(minute_of(now)), batch_size=past.ROWS)


def _samples(now: datetime) -> Iterator[UsageSample]:
    census = read_census()
    begin = now - timedelta(minutes=MINUTES)
    stays = list(_stays(begin, now))
    waiting = _at_each_minute([(since, now) for since in _waiting_since()], begin)
    everything = ClassCount(name=ALL, counts=census.totals, by_use=census.snapshot.by_use, waiting=census.waiting)
    # In all, a card that is cut counts once, and not what it is cut into.
    cut = {one.key for pool in census.snapshot.pools.values() for unit in pool.units for one in unit.candidates[1:]}
    for one in (everything, *census.classes):
        counted = [stay for stay in stays if (stay[1] not in cut if one.name == ALL else stay[0] == one.name)]
        spans = [(since, until) for _, _, since, until in counted]
        held = _at_each_minute(spans, begin)
        for minute in range(MINUTES):
            at = begin + timedelta(minutes=minute)
            counts = _counts(one.by_use, held[minute])
            queue = waiting[minute] if one.name == ALL else 0
            yield UsageSample(at=at, device_class=one.name, counts=counts, waiting=queue)


def _counts(now: Mapping[str, int], held: int) -> dict[str, int]:
    """What is fenced off, broken or shared now has been so all day. Agents reported all day, although their Leases are
    old while the home is filled.
    """
    given = ("reserved", "alloc", "prep", "free", DeviceState.UNREACHABLE)
    others = {state: count for state, count in now.items() if state not in given}
    room = max(0, sum(now.values()) - sum(others.values()))
    return nonzero({**others, "reserved": min(held, room), "free": max(0, room - held)})


def _stays(begin: datetime, now: datetime) -> Iterator[Stay]:
    ended = PastAllocation.objects.filter(ended_at__gt=begin, admin_access=False)
    for name, driver, pool, device, node, since, until in ended.values_list(
        *_DEVICE, "began_at", "ended_at"
    ).iterator():
        yield name, (driver, pool, device, node), since, until
    current = AllocatedDevice.objects.filter(exclusive=True).values_list(*_DEVICE, "claim__allocated_at")
    for name, driver, pool, device, node, since in current:
        yield name, (driver, pool, device, node), since or begin, now


_DEVICE = ("device_class", "driver", "pool", "device", "node")


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
