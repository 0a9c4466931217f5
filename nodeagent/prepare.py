"""Prepares the claims of pods, and gives them back, so that a crash at any instruction loses nothing.

Preparing a pod's claims:
1. read the claims and check them; nothing has been touched, so a refused pod can simply go away;
2. record the intent in the checkpoint, with the pod among the claim's users;
3. ask the drivers, once each for all claims of the pod;
4. write the CDI files;
5. record the claims as prepared.
Giving back runs the other way: record the intent, ask the drivers, remove the files, remove the record. A claim is
prepared once however many pods use it, and given back with its last one. What a crash leaves is a record that says
Preparing or Unpreparing; the next run repeats the step, which drivers must bear.

A new claim waits while another one is still prepared on the same device: the force-deleted pod that held it may still
be running here, whatever the API says. Who subscribes is told of the pods that wait so when something is given back.
And nothing is undone under a running container: where preparing once more fails, as after the loss of a record or a CDI
file, what is there is left as it is.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from msgspec.structs import replace

from claims.drafts.cdi.values import ResourceClaim as DraftClaim
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import ResourceClaim
from nodeagent.cdi import CdiFolder
from nodeagent.checkpoint import Checkpoint, ClaimRecord, DriverRecord, Quarantined
from nodeagent.disk import is_file_name
from nodeagent.draft_claims import SUFFIX, as_allocated
from nodeagent.drivers.protocol import ClaimDriver, ClaimIdentity, Failed, HandlingDriver, Prepared
from nodeagent.failures import (
    AgentError,
    ApiFailure,
    ContainerFailed,
    PrepareFailed,
    PrepareRefused,
    StorageFailed,
    UnprepareFailed,
)
from nodeagent.handles import FetchClassic, read_handles
from nodeagent.metrics import AgentMetrics, Operation
from nodeagent.podclaims import (
    ClaimUse,
    NodeFacts,
    check_claim,
    claims_used,
    driver_records,
    is_outdated,
    names_devices,
    names_on_disk,
    prepared_record,
    refuse_conflict,
    unknown_record,
    with_drivers,
    with_pod,
)
from nodeagent.work import NamedLocks

log = logging.getLogger(__name__)

#: (namespace, name) -> the claim; raises ApiFailure
FetchClaim = Callable[[str, str], ResourceClaim]
#: claim uid -> the uids of the pods whose containers run with it, as the runtime knows
RunningPods = Callable[[str], tuple[str, ...]]


class Preparer:
    """The claims on one node. Thread-safe; two pods that share a claim wait for each other."""

    def __init__(
        self,
        *,
        node: Callable[[], NodeFacts],
        drivers: DriverRegistry,
        checkpoint: Checkpoint,
        folder: CdiFolder,
        fetch: FetchClaim,
        fetch_classic: FetchClassic,
        fetch_draft: Callable[[str, str], DraftClaim],
        running: RunningPods,
        metrics: AgentMetrics,
        boot: str = "",
    ) -> None:
        self._node = node
        self._drivers = drivers
        self._calls = DriverCalls(drivers, node=node().name, metrics=metrics)
        self._metrics = metrics
        self._checkpoint = checkpoint
        self._folder = folder
        self._fetch = fetch
        self._fetch_classic = fetch_classic
        self._fetch_of_draft = fetch_draft
        self._running = running
        self._boot = boot
        self._claim_locks = NamedLocks()
        self._reserving = threading.Lock()
        #: the pods that wait for what is still prepared for others
        self._blocked: set[str] = set()
        self._freed: Callable[[str], None] = lambda _pod_uid: None
        #: every damaged checkpoint file met since the start
        self.quarantined: tuple[Quarantined, ...] = ()

    def subscribe(self, freed: Callable[[str], None]) -> None:
        """Have `freed` called with the uid of a pod that waited for devices, when some are given back."""
        self._freed = freed

    def recover(self) -> tuple[Quarantined, ...]:
        """Read the checkpoint; take up claims that it lost. Before anything else, and again until it works.

        A CDI file without a record, or a record that cannot be read, becomes a claim whose state is unknown: it is
        prepared again if its pod is still here, and given back otherwise. Returns the damaged records met for the
        first time. Raises: StorageFailed; pods run on meanwhile.
        """
        try:
            self._folder.sweep()
            damaged = self._checkpoint.load()
            new = tuple(one for one in damaged if one not in self.quarantined)
            self.quarantined += new
            self._take_up_lost(damaged)
            for one in damaged:
                self._checkpoint.close(one)
        except OSError as error:
            raise StorageFailed(f"the node's directories cannot be used: {error}") from error
        return new

    def _take_up_lost(self, damaged: Sequence[Quarantined]) -> None:
        """Give every claim a record of which something is left on the disk. Raises: StorageFailed."""
        drivers: dict[str, set[str]] = {one.claim_uid: set(one.drivers) for one in damaged}
        for file in self._folder.files():
            drivers.setdefault(file.claim_uid, set()).add(file.driver)
        for uid, named in sorted(drivers.items()):
            known = self._checkpoint.get(uid)
            if known is None:
                log.warning("claim %s has no readable record; it is handled as one of unknown state", uid)
                its = named.union(self._drivers.names())
                self._checkpoint.put(unknown_record(uid, pods=self._running(uid), drivers=its))
            elif extra := named - {driver.driver for driver in known.drivers}:
                self._checkpoint.put(with_drivers(known, extra))

    def records(self) -> tuple[ClaimRecord, ...]:
        return self._checkpoint.records()

    def pod_uids(self) -> frozenset[str]:
        """The pods for which anything is prepared or being prepared."""
        return frozenset(uid for record in self.records() for uid in record.pods)

    def prepare(self, pod: Pod) -> Mapping[str, ClaimRecord]:
        """Make every claim of `pod` ready; returns their records by entry.

        Raises: PrepareRefused when a claim may not be used by the pod (now), PrepareFailed when a driver failed,
        StorageFailed. All leave everything such that calling again, or `unprepare`, is right.
        """
        uses = claims_used(pod)
        if (ready := self._ready(pod, uses)) is not None:
            return ready
        with self._metrics.operation("PrepareResources"):
            return self._prepare_pod(pod, uses)

    def _prepare_pod(self, pod: Pod, uses: Sequence[ClaimUse]) -> Mapping[str, ClaimRecord]:
        claims = [self._checked_claim(pod, use) for use in uses]
        with self._claim_locks.hold(claim.metadata.uid for claim in claims):
            self._give_back_outdated(pod.metadata.uid, claims)
            self._record_intent(pod.metadata.uid, claims)
            self._prepare_claims(claims)
            return {use.entry: self._record(claim.metadata.uid) for use, claim in zip(uses, claims, strict=True)}

    def unprepare(self, pod_uid: str) -> None:
        """Take the pod out of its claims and give back those that nobody else here uses.

        Raises: UnprepareFailed, StorageFailed; the pod must not go away before a later call succeeds.
        """
        if not self._used_by(pod_uid):
            return
        with (
            self._metrics.operation("UnprepareResources"),
            self._claim_locks.hold(record.uid for record in self._used_by(pod_uid)),
        ):
            mine = self._used_by(pod_uid)
            shared = [record for record in mine if len(record.pods) > 1]
            left = [replace(r, pods=tuple(uid for uid in r.pods if uid != pod_uid)) for r in shared]
            self._checkpoint.put(*left, survival="rebuilt")
            self._give_back([record for record in mine if len(record.pods) == 1])

    def unprepare_unused(self) -> None:
        """Give back the claims that no pod uses: those that `recover` found. Raises: UnprepareFailed, StorageFailed."""
        with self._claim_locks.hold(record.uid for record in self.records() if not record.pods):
            self._give_back([record for record in self.records() if not record.pods])

    # Preparing.

    def _ready(self, pod: Pod, uses: Sequence[ClaimUse]) -> Mapping[str, ClaimRecord] | None:
        """The records by entry, if nothing is left to do for the pod; without asking the API."""
        mine = {(r.namespace, r.name): r for r in self._used_by(pod.metadata.uid) if self._is_prepared(r)}
        names = {use.entry: (pod.metadata.namespace, use.claim) for use in uses}
        return {entry: mine[n] for entry, n in names.items()} if mine.keys() >= set(names.values()) else None

    def _is_prepared(self, record: ClaimRecord) -> bool:
        """By the record and by its files. A reboot undoes what was prepared, and may empty the files' directory."""
        return record.state == "Prepared" and record.boot == self._boot and self._has_files(record)

    def _has_files(self, record: ClaimRecord) -> bool:
        """Whether every CDI file is there that the agent wrote for the claim; one that cannot be read is not."""
        try:
            return all(self._has_file(record.uid, driver) for driver in record.drivers if driver.cdi_file)
        except OSError as error:
            log.warning("%s: its CDI file cannot be read: %s; it is prepared again", record.label, error)
            return False

    def _has_file(self, claim_uid: str, driver: DriverRecord) -> bool:
        devices = [name for device in driver.devices for name in device.cdi_device_ids]
        return self._folder.has(driver.driver, claim_uid, devices)

    def _checked_claim(self, pod: Pod, use: ClaimUse) -> ResourceClaim:
        try:
            claim = self._fetch_draft(pod, use) if use.draft else self._fetch(pod.metadata.namespace, use.claim)
        except ApiFailure as failure:
            if failure.not_found:
                raise PrepareRefused(f"ResourceClaim {use.claim} does not exist") from failure
            raise
        check_claim(pod, use, claim, node=self._node())
        if not use.draft and self._calls.need_handles(claim):
            claim = read_handles(claim, self._fetch_classic)
        if strange := [name for name in names_on_disk(claim) if not is_file_name(name)]:
            raise PrepareRefused(f"ResourceClaim {use.claim}: {strange[0]!r} cannot be a file's name")
        for driver in driver_records(claim):
            if isinstance(found := self._calls.find(driver.driver, "PrepareResources"), Failed):
                raise PrepareFailed(found.reason)
        return claim

    def _fetch_draft(self, pod: Pod, use: ClaimUse) -> ResourceClaim:
        return as_allocated(self._fetch_of_draft(pod.metadata.namespace, use.claim.removesuffix(SUFFIX)))

    def _give_back_outdated(self, pod_uid: str, claims: Sequence[ResourceClaim]) -> None:
        """What is left of an earlier allocation of the claims, where nobody uses it. Raises: PrepareFailed."""
        known = [(claim, self._checkpoint.get(claim.metadata.uid)) for claim in claims]
        outdated = [r for claim, r in known if r is not None and is_outdated(r, claim, pod=pod_uid)]
        try:
            self._give_back([record for record in outdated if not self._running(record.uid)])
        except UnprepareFailed as error:
            raise PrepareFailed(f"what was prepared before cannot be unprepared: {error}") from error

    def _record_intent(self, pod_uid: str, claims: Sequence[ResourceClaim]) -> None:
        with self._reserving:
            wanted: list[ClaimRecord] = []
            for claim in claims:
                self._refuse_conflict(pod_uid, claim, wanted)
                known = self._checkpoint.get(claim.metadata.uid)
                wanted.append(with_pod(known, claim, pod=pod_uid))
            self._checkpoint.reserve(wanted)
        self._checkpoint.put(*wanted)

    def _refuse_conflict(self, pod_uid: str, claim: ResourceClaim, wanted: Sequence[ClaimRecord]) -> None:
        """Raises: PrepareFailed, and remembers who is to be looked at once it may go on."""
        try:
            refuse_conflict(claim, (*self._checkpoint.records(), *wanted))
        except PrepareFailed:
            self._blocked.add(pod_uid)
            raise
        self._blocked.discard(pod_uid)

    def _prepare_claims(self, claims: Sequence[ResourceClaim]) -> None:
        """Drivers, files, record. Raises: PrepareFailed naming every claim that failed; the others are prepared."""
        open_claims = [(c, r) for c in claims if not self._is_prepared(r := self._record(c.metadata.uid))]
        answers = self._calls.prepare(open_claims)
        reasons = []
        for _, record in open_claims:
            try:
                self._finish(record, answers[record.uid])
            except (AgentError, OSError) as error:
                reasons.append(f"{record.label}: {error}")
                self._roll_back(record)
        if reasons:
            raise PrepareFailed("; ".join(reasons))

    def _finish(self, record: ClaimRecord, answers: Mapping[str, Prepared | Failed]) -> None:
        given = {driver: answer for driver, answer in answers.items() if isinstance(answer, Prepared)}
        failed = [f"driver {name}: {a.reason}" for name, a in answers.items() if isinstance(a, Failed)]
        if failed:
            raise PrepareFailed(", ".join(failed))
        for driver, answer in given.items():
            if answer.spec is not None:
                self._folder.write(driver, record.uid, answer.spec)
        self._checkpoint.put(prepared_record(record, given, boot=self._boot), survival="rebuilt")

    def _roll_back(self, record: ClaimRecord) -> None:
        """Undo what some drivers did; the intent stays recorded, so a failure here is made good by the next attempt."""
        try:
            if pods := self._running(record.uid):
                log.warning("%s: not rolled back, containers of the pods %s run with it", record.label, ", ".join(pods))
                return
            self._checkpoint.put(replace(record, state="Preparing"), survival="rebuilt")
        except (StorageFailed, ContainerFailed) as error:
            log.warning("not rolled back: %s; it is prepared again or unprepared later", error)
            return
        for reason in self._undo([record]).values():
            log.warning("rolling back: %s; it is prepared again or unprepared later", reason)

    # Giving back.

    def _give_back(self, records: Sequence[ClaimRecord]) -> None:
        self._checkpoint.put(*(replace(record, state="Unpreparing") for record in records), survival="rebuilt")
        failed = self._undo(records)
        for record in records:
            if record.uid not in failed:
                self._checkpoint.remove(record.uid)
        if len(failed) < len(records):
            self._wake_blocked()
        if failed:
            raise UnprepareFailed("; ".join(failed.values()))

    def _wake_blocked(self) -> None:
        """The records are gone before the lock is taken: who finds them still there is among those who are woken."""
        with self._reserving:
            blocked, self._blocked = self._blocked, set()
        for uid in blocked:
            self._freed(uid)

    def _undo(self, records: Sequence[ClaimRecord]) -> dict[str, str]:
        """Drivers, then files. Returns claim uid -> why it failed; empty when all went well."""
        failed = self._calls.unprepare(records)
        for record in records:
            if record.uid in failed:
                continue
            try:
                for driver in record.drivers:
                    self._folder.remove(driver.driver, record.uid)
            except OSError as error:
                failed[record.uid] = f"{record.label}: its CDI file cannot be removed: {error}"
        return failed

    # The checkpoint.

    def _used_by(self, pod_uid: str) -> list[ClaimRecord]:
        return [record for record in self.records() if pod_uid in record.pods]

    def _record(self, uid: str) -> ClaimRecord:
        record = self._checkpoint.get(uid)
        if record is None:
            raise KeyError(f"claim {uid} has no record")
        return record


# The drivers of a node ------------------------------------------------------------------------------------------------


class DriverRegistry:
    """Thread-safe. A name has at most one driver at a time; putting another replaces it."""

    def __init__(self, drivers: Iterable[ClaimDriver] = ()) -> None:
        self._drivers = {driver.name: driver for driver in drivers}
        self._departed: dict[str, ClaimDriver] = {}
        self._expected: frozenset[str] = frozenset()
        self._lock = threading.Lock()
        self._subscribers: list[Callable[[], None]] = []

    def get(self, name: str) -> ClaimDriver | None:
        with self._lock:
            return self._drivers.get(name)

    def names(self) -> frozenset[str]:
        """Of all that are here, were here, or are expected: each may have prepared claims."""
        with self._lock:
            return self._expected | self._drivers.keys() | self._departed.keys()

    def all(self) -> tuple[ClaimDriver, ...]:
        with self._lock:
            return tuple(self._drivers.values())

    def expect(self, names: Iterable[str]) -> None:
        """Drivers that were here before the agent's last start, and may have prepared claims."""
        self._expected = frozenset(names)

    def health_sources(self) -> tuple[ClaimDriver, ...]:
        """Also those that have left: what they said of their devices holds for a while."""
        with self._lock:
            return (*self._drivers.values(), *self._departed.values())

    def put(self, driver: ClaimDriver) -> None:
        with self._lock:
            self._departed.pop(driver.name, None)
            self._drivers[driver.name] = driver
        self.announce()

    def remove(self, name: str) -> None:
        with self._lock:
            if (driver := self._drivers.pop(name, None)) is not None:
                self._departed[name] = driver
        self.announce()

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call `changed`, from any thread, whenever a driver has come or gone, or its health is different."""
        self._subscribers.append(changed)

    def announce(self) -> None:
        """Something about a driver has changed."""
        for changed in self._subscribers:
            changed()


# Asks drivers about many claims at once, and makes every way of failing the same value. A driver may be missing, raise,
# answer with a failure, or not answer for a claim: all of it becomes `Failed` for the claims concerned, and the claims
# of other drivers go on.

Answer = TypeVar("Answer")
Claim = TypeVar("Claim")

_UNANSWERED = Failed("it did not answer for this claim")


class DriverCalls:
    """The drivers of one node, by name."""

    def __init__(self, drivers: DriverRegistry, *, node: str, metrics: AgentMetrics) -> None:
        self._drivers = drivers
        self._node = node
        self._metrics = metrics

    def find(self, name: str, operation: Operation) -> ClaimDriver | Failed:
        """Failed, and counted as a failed call, while no such driver is registered."""
        driver = self._drivers.get(name)
        if driver is None:
            self._metrics.driver_missing(name, operation)
            return Failed(f"DRA driver {name} is not registered on node {self._node}")
        return driver

    def need_handles(self, claim: ResourceClaim) -> bool:
        """Whether a driver cannot do without what only v1alpha2 shows of the claim."""
        if not names_devices(claim):
            return True
        drivers = (self._drivers.get(record.driver) for record in driver_records(claim))
        return any(isinstance(driver, HandlingDriver) and driver.wants_handles for driver in drivers)

    def prepare(self, claims: Sequence[tuple[ResourceClaim, ClaimRecord]]) -> dict[str, dict[str, Prepared | Failed]]:
        """Ask each driver once for all its claims. Returns claim uid -> driver -> answer."""
        answers: dict[str, dict[str, Prepared | Failed]] = {record.uid: {} for _, record in claims}
        for name in _driver_names(record for _, record in claims):
            its = {record.uid: claim for claim, record in claims if _uses(record, name)}
            for uid, answer in self._ask(name, "PrepareResources", its, lambda driver: driver.prepare).items():
                answers[uid][name] = answer
        return answers

    def unprepare(self, records: Sequence[ClaimRecord]) -> dict[str, str]:
        """Ask each driver once to undo all its claims. Returns claim uid -> why it failed; empty when all went well."""
        failed: dict[str, str] = {}
        for name in _driver_names(records):
            its = {record.uid: record for record in records if _uses(record, name)}
            asked = {uid: _identity(record, name) for uid, record in its.items()}
            answers = self._ask(name, "UnprepareResources", asked, lambda driver: driver.unprepare)
            failed |= {u: f"{its[u].label}: driver {name}: {answer.reason}" for u, answer in answers.items() if answer}
        return failed

    def _ask(
        self,
        name: str,
        operation: Operation,
        claims: Mapping[str, Claim],
        call_of: Callable[[ClaimDriver], Callable[[Sequence[Claim]], Mapping[str, Answer | Failed]]],
    ) -> Mapping[str, Answer | Failed]:
        """One call about `claims`, by uid, timed. Every one of them has an answer, whatever the driver does."""
        driver = self.find(name, operation)
        if isinstance(driver, Failed):
            return dict.fromkeys(claims, driver)
        started = time.perf_counter()
        given: Mapping[str, Answer | Failed]
        try:
            given = call_of(driver)(list(claims.values()))
        except Exception as error:  # whatever a driver raises, it must not take the agent with it
            what = operation.removesuffix("Resources").lower()
            log.exception("driver %s failed to %s %d claims; they are retried", name, what, len(claims))
            given = dict.fromkeys(claims, Failed(str(error)))
        answers = {uid: given.get(uid, _UNANSWERED) for uid in claims}
        failed = any(isinstance(answer, Failed) for answer in answers.values())
        self._metrics.driver_called(name, operation, time.perf_counter() - started, failed=failed)
        return answers


def _identity(record: ClaimRecord, driver: str) -> ClaimIdentity:
    handles = (handle for one in record.drivers if one.driver == driver for handle in one.handles)
    return ClaimIdentity(record.uid, record.namespace, record.name, tuple(handles))


def _driver_names(records: Iterable[ClaimRecord]) -> list[str]:
    return sorted({driver.driver for record in records for driver in record.drivers})


def _uses(record: ClaimRecord, name: str) -> bool:
    return any(driver.driver == name for driver in record.drivers)
