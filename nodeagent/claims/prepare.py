"""Prepares the claims of pods through their drivers, and unprepares them; a crash at any instruction loses nothing.

Preparing a pod's claims:
1. read the claims and check them; nothing has changed yet, so a refused pod can simply be deleted;
2. record the intent in the checkpoint, with the pod among the claim's users;
3. call the drivers, once each for all claims of the pod;
4. write the CDI files;
5. record the claims as prepared.
Unpreparing runs the other way: record the intent, call the drivers, remove the files, remove the record. A claim is
prepared once however many pods use it, and unprepared with its last one. A crash leaves a record in state Preparing or
Unpreparing; the next run repeats the step, for which drivers are idempotent.

A new claim waits while another one is still prepared on the same device: the force-deleted pod that used it may still
be running here, whatever the API says. Unpreparing wakes the waiting pods. And nothing is undone under a running
container: if preparing again fails, as after the loss of a record or a CDI file, the devices stay prepared.

A device is named by its first CDI device id, or by driver, pool and name if it has none.
Source: kubernetes pkg/kubelet/cm/dra/manager.go and staging/src/k8s.io/dynamic-resource-allocation/resourceclaim;
KEP-4680 for health.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from claims.kinds.containers import Container
from claims.kinds.pod_groups import is_made_for_group_of, is_reserved_for_group_of
from claims.kinds.pod_rules import HEALTH_MESSAGE_MAX
from claims.kinds.pods import ContainerExtendedResourceRequest, Pod, ResourceHealth, ResourceStatus
from claims.kinds.resource_claims import DeviceRequestAllocationResult, ResourceClaim
from inventory.kinds import gates
from inventory.kinds.nodes import Node
from manciple.wire.base import ApiObject
from manciple.wire.resources import FINISHED_PHASES
from manciple.wire.selectors import node_selector_matches
from nodeagent.cdi import CdiFolder
from nodeagent.claims.checkpoint import Checkpoint, ClaimRecord, DriverRecord, Quarantined
from nodeagent.drivers.preparing import handles_for, handles_of, names_devices, request_matches
from nodeagent.drivers.protocol import (
    ClaimDriver,
    ClaimIdentity,
    DeviceHealth,
    Failed,
    HandlingDriver,
    Prepared,
    PreparedDevice,
)
from nodeagent.early import names_used
from nodeagent.failures import (
    AgentError,
    ApiFailure,
    ContainerFailed,
    PrepareFailed,
    PrepareRefused,
    StorageFailed,
    UnprepareFailed,
)
from nodeagent.http.metrics import AgentMetrics, Operation
from nodeagent.storage import is_file_name
from nodeagent.work import NamedLocks

log = logging.getLogger(__name__)

#: (namespace, name) -> the claim; raises ApiFailure
FetchClaim = Callable[[str, str], ResourceClaim]
#: claim uid -> the uids of the pods whose running containers use it, by the runtime
RunningPods = Callable[[str], tuple[str, ...]]


class Preparer:
    """Prepares and unprepares the claims on one node. Thread-safe; two pods that share a claim wait for each other."""

    def __init__(
        self,
        *,
        node: Callable[[], Node],
        drivers: DriverRegistry,
        checkpoint: Checkpoint,
        folder: CdiFolder,
        fetch: FetchClaim,
        fetch_draft: FetchClaim,
        read_handles: Callable[[ResourceClaim], ResourceClaim],
        running: RunningPods,
        metrics: AgentMetrics,
        boot: str = "",
    ) -> None:
        self._node = node
        self._drivers = drivers
        self._calls = DriverCalls(drivers, node=node().metadata.name, metrics=metrics)
        self._metrics = metrics
        self._checkpoint = checkpoint
        self._folder = folder
        self._fetch = fetch
        self._fetch_draft = fetch_draft
        self._read_handles = read_handles
        self._running = running
        self._boot = boot
        self._claim_locks = NamedLocks()
        self._reserving = threading.Lock()
        #: pods that wait for devices that are still prepared for other claims
        self._blocked: set[str] = set()
        self._freed: Callable[[str], None] = lambda _pod_uid: None
        #: every damaged checkpoint file since the start
        self.quarantined: tuple[Quarantined, ...] = ()

    def subscribe(self, freed: Callable[[str], None]) -> None:
        """Call `freed` with the uid of each pod that waits for devices, whenever some are unprepared."""
        self._freed = freed

    def recover(self) -> tuple[Quarantined, ...]:
        """Read the checkpoint and recover lost claims. Before anything else; retried until it works.

        A CDI file without a record, or an unreadable record, becomes a claim of unknown state: it is prepared again if
        its pod is still here, and unprepared otherwise. Returns the newly quarantined records. Raises: StorageFailed;
        pods keep running meanwhile.
        """
        try:
            self._folder.sweep()
            damaged = self._checkpoint.load()
            new = tuple(case for case in damaged if case not in self.quarantined)
            self.quarantined += new
            self._recover_lost(damaged)
            for case in damaged:
                self._checkpoint.close(case)
        except OSError as error:
            raise StorageFailed(f"the node's directories cannot be used: {error}") from error
        return new

    def _recover_lost(self, damaged: Sequence[Quarantined]) -> None:
        """Give a record to every claim that has a file on the disk. Raises: StorageFailed."""
        drivers: dict[str, set[str]] = {case.claim_uid: set(case.drivers) for case in damaged}
        for file in self._folder.files():
            drivers.setdefault(file.claim_uid, set()).add(file.driver)
        for uid, named in sorted(drivers.items()):
            record = self._checkpoint.get(uid)
            if record is None:
                log.warning("claim %s has no readable record; it is handled as one of unknown state", uid)
                record = unknown_record(uid, pods=self._running(uid), drivers=named.union(self._drivers.names()))
                self._checkpoint.put(record)
            elif extra := named - {driver.driver for driver in record.drivers}:
                added = tuple(DriverRecord(driver=name) for name in sorted(extra))
                self._checkpoint.put(replace(record, drivers=(*record.drivers, *added)))

    def records(self) -> tuple[ClaimRecord, ...]:
        return self._checkpoint.records()

    def pod_uids(self) -> frozenset[str]:
        """The pods for which anything is prepared or being prepared."""
        return frozenset(uid for record in self.records() for uid in record.pods)

    def prepare(self, pod: Pod) -> Mapping[str, ClaimRecord]:
        """Prepare every claim of `pod`; returns their records by entry.

        Raises: PrepareRefused if the pod may not use a claim (yet), PrepareFailed if a driver failed, StorageFailed.
        After any of them, call again or `unprepare`.
        """
        uses = claims_used(pod)
        names = {use.entry: (pod.metadata.namespace, use.claim) for use in uses}
        prepared = {(r.namespace, r.name): r for r in self._used_by(pod.metadata.uid) if self._is_prepared(r)}
        if prepared.keys() >= set(names.values()):  # by the checkpoint alone
            return {entry: prepared[name] for entry, name in names.items()}
        with self._metrics.operation("PrepareResources"):
            checked = [self._checked_claim(pod, use) for use in uses]
            claims, intents = [claim for claim, _ in checked], [intent for _, intent in checked]
            with self._claim_locks.hold(intent.uid for intent in intents):
                self._unprepare_outdated(pod.metadata.uid, intents)
                self._record_intent(pod.metadata.uid, intents)
                self._prepare_claims(claims)
                return {use.entry: self._record(intent.uid) for use, intent in zip(uses, intents, strict=True)}

    def unprepare(self, pod_uid: str) -> None:
        """Remove the pod from the users of its claims, and unprepare the claims without other users on this node.

        Raises: UnprepareFailed, StorageFailed; the pod must not be deleted before a later call succeeds.
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
            self._unprepare([record for record in mine if len(record.pods) == 1])

    def unprepare_unused(self) -> None:
        """Unprepare the claims without pods, which `recover` may find. Raises: UnprepareFailed, StorageFailed."""
        with self._claim_locks.hold(record.uid for record in self.records() if not record.pods):
            self._unprepare([record for record in self.records() if not record.pods])

    # Preparing.

    def _is_prepared(self, record: ClaimRecord) -> bool:
        """By the record, and by the CDI files that the agent wrote: a reboot undoes preparing, and may delete them."""
        if record.state != "Prepared" or record.boot != self._boot:
            return False
        try:
            for driver in record.drivers:
                ids = [id_ for device in driver.devices for id_ in device.cdi_device_ids]
                if driver.cdi_file and not self._folder.has(driver.driver, record.uid, ids):
                    return False
        except OSError as error:
            log.warning("%s: its CDI file cannot be read: %s; it is prepared again", record.label, error)
            return False
        return True

    def _checked_claim(self, pod: Pod, use: ClaimUse) -> tuple[ResourceClaim, ClaimRecord]:
        """The claim, and the record of the intent to prepare it. Raises: PrepareRefused, PrepareFailed, ApiFailure."""
        namespace = pod.metadata.namespace
        try:
            claim = (self._fetch_draft if use.draft else self._fetch)(namespace, use.claim)
        except ApiFailure as failure:
            if failure.not_found:
                raise PrepareRefused(f"ResourceClaim {use.claim} does not exist") from failure
            raise
        check_claim(pod, use, claim, node=self._node())
        if not use.draft and self._calls.need_handles(claim):
            claim = self._read_handles(claim)
        if invalid := [name for name in names_on_disk(claim) if not is_file_name(name)]:
            raise PrepareRefused(f"ResourceClaim {use.claim}: {invalid[0]!r} cannot be a file's name")
        intent = intended_record(claim)
        for record in intent.drivers:
            if isinstance(driver := self._calls.find(record.driver, "PrepareResources"), Failed):
                raise PrepareFailed(driver.reason)
        return claim, intent

    def _unprepare_outdated(self, pod_uid: str, intents: Sequence[ClaimRecord]) -> None:
        """Unprepare earlier allocations of the claims that no other pod uses. Raises: PrepareFailed."""
        records = [(intent, self._checkpoint.get(intent.uid)) for intent in intents]
        outdated = [r for intent, r in records if r is not None and is_outdated(r, intent, pod=pod_uid)]
        try:
            self._unprepare([record for record in outdated if not self._running(record.uid)])
        except UnprepareFailed as error:
            raise PrepareFailed(f"what was prepared before cannot be unprepared: {error}") from error

    def _record_intent(self, pod_uid: str, intents: Sequence[ClaimRecord]) -> None:
        with self._reserving:
            records: list[ClaimRecord] = []
            for intent in intents:
                try:
                    refuse_conflict(intent, (*self._checkpoint.records(), *records))
                except PrepareFailed:
                    self._blocked.add(pod_uid)
                    raise
                self._blocked.discard(pod_uid)
                records.append(with_pod(self._checkpoint.get(intent.uid), intent, pod=pod_uid))
            self._checkpoint.reserve(records)
        self._checkpoint.put(*records)

    def _prepare_claims(self, claims: Sequence[ResourceClaim]) -> None:
        """Steps 3 to 5. Raises: PrepareFailed naming every claim that failed; the others are prepared."""
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
        prepared = {driver: answer for driver, answer in answers.items() if isinstance(answer, Prepared)}
        failed = [f"driver {name}: {a.reason}" for name, a in answers.items() if isinstance(a, Failed)]
        if failed:
            raise PrepareFailed(", ".join(failed))
        for driver, answer in prepared.items():
            if answer.spec is not None:
                self._folder.write(driver, record.uid, answer.spec)
        self._checkpoint.put(prepared_record(record, prepared, boot=self._boot), survival="rebuilt")

    def _roll_back(self, record: ClaimRecord) -> None:
        """Undo what some drivers did. The intent stays recorded, so the next attempt retries a failed rollback."""
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

    # Unpreparing.

    def _unprepare(self, records: Sequence[ClaimRecord]) -> None:
        self._checkpoint.put(*(replace(record, state="Unpreparing") for record in records), survival="rebuilt")
        failed = self._undo(records)
        for record in records:
            if record.uid not in failed:
                self._checkpoint.remove(record.uid)
        if len(failed) < len(records):
            # The records are removed before the lock is taken: a pod that still finds them is among the blocked.
            with self._reserving:
                blocked, self._blocked = self._blocked, set()
            for uid in blocked:
                self._freed(uid)
        if failed:
            raise UnprepareFailed("; ".join(failed.values()))

    def _undo(self, records: Sequence[ClaimRecord]) -> dict[str, str]:
        """Call the drivers, then remove the files. Returns claim uid -> reason of each failure."""
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
        """Of registered, departed and expected drivers: each may have prepared claims."""
        with self._lock:
            return self._expected | self._drivers.keys() | self._departed.keys()

    def all(self) -> tuple[ClaimDriver, ...]:
        with self._lock:
            return tuple(self._drivers.values())

    def expect(self, names: Iterable[str]) -> None:
        """Note drivers that were registered before the agent's last start, and may have prepared claims."""
        self._expected = frozenset(names)

    def health_sources(self) -> tuple[ClaimDriver, ...]:
        """Includes departed drivers: their last reports stay valid for a while."""
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
        """Call `changed`, from any thread, whenever a driver registers or departs, or its health changes."""
        self._subscribers.append(changed)

    def announce(self) -> None:
        """Notify the subscribers of a change."""
        for changed in self._subscribers:
            changed()


# A driver may be missing, raise, answer with a failure, or not answer for a claim: each becomes `Failed` for the claims
# concerned, and the claims of other drivers proceed.

Answer = TypeVar("Answer")
Claim = TypeVar("Claim")

_UNANSWERED = Failed("it did not answer for this claim")


class DriverCalls:
    """Batched calls of a node's drivers."""

    def __init__(self, drivers: DriverRegistry, *, node: str, metrics: AgentMetrics) -> None:
        self._drivers = drivers
        self._node = node
        self._metrics = metrics

    def find(self, name: str, operation: Operation) -> ClaimDriver | Failed:
        """The driver; Failed, and counted as a failed call, if it is not registered."""
        driver = self._drivers.get(name)
        if driver is None:
            self._metrics.driver_missing(name, operation)
            return Failed(f"DRA driver {name} is not registered on node {self._node}")
        return driver

    def need_handles(self, claim: ResourceClaim) -> bool:
        """Whether a driver needs the claim's resource handles, which only v1alpha2 has."""
        if not names_devices(claim):
            return True
        drivers = map(self._drivers.get, {result.driver for result in _to_prepare(claim)})
        return any(isinstance(driver, HandlingDriver) and driver.wants_handles for driver in drivers)

    def prepare(self, claims: Sequence[tuple[ResourceClaim, ClaimRecord]]) -> dict[str, dict[str, Prepared | Failed]]:
        """Call each driver once for all its claims. Returns claim uid -> driver -> answer."""
        answers: dict[str, dict[str, Prepared | Failed]] = {record.uid: {} for _, record in claims}
        for name in _driver_names(record for _, record in claims):
            its = {record.uid: claim for claim, record in claims if _uses(record, name)}
            for uid, answer in self._call(name, "PrepareResources", its, lambda driver: driver.prepare).items():
                answers[uid][name] = answer
        return answers

    def unprepare(self, records: Sequence[ClaimRecord]) -> dict[str, str]:
        """Call each driver once for all its claims. Returns claim uid -> reason of each failure."""
        failed: dict[str, str] = {}
        for name in _driver_names(records):
            its = {record.uid: record for record in records if _uses(record, name)}
            identities = {
                uid: ClaimIdentity(
                    uid,
                    record.namespace,
                    record.name,
                    tuple(handle for driver in record.drivers if driver.driver == name for handle in driver.handles),
                )
                for uid, record in its.items()
            }
            answers = self._call(name, "UnprepareResources", identities, lambda driver: driver.unprepare)
            failed |= {u: f"{its[u].label}: driver {name}: {answer.reason}" for u, answer in answers.items() if answer}
        return failed

    def _call(
        self,
        name: str,
        operation: Operation,
        claims: Mapping[str, Claim],
        call_of: Callable[[ClaimDriver], Callable[[Sequence[Claim]], Mapping[str, Answer | Failed]]],
    ) -> Mapping[str, Answer | Failed]:
        """One call for `claims`, by uid, with its duration measured. Answers for every claim in any case."""
        driver = self.find(name, operation)
        if isinstance(driver, Failed):
            return dict.fromkeys(claims, driver)
        started = time.perf_counter()
        raw: Mapping[str, Answer | Failed]
        try:
            raw = call_of(driver)(list(claims.values()))
        except Exception as error:  # no driver may stop the agent
            what = operation.removesuffix("Resources").lower()
            log.exception("driver %s failed to %s %d claims; they are retried", name, what, len(claims))
            raw = dict.fromkeys(claims, Failed(str(error)))
        answers = {uid: raw.get(uid, _UNANSWERED) for uid in claims}
        failed = any(isinstance(answer, Failed) for answer in answers.values())
        self._metrics.driver_called(name, operation, time.perf_counter() - started, failed=failed)
        return answers


def _driver_names(records: Iterable[ClaimRecord]) -> list[str]:
    return sorted({driver.driver for record in records for driver in record.drivers})


def _uses(record: ClaimRecord, name: str) -> bool:
    return any(driver.driver == name for driver in record.drivers)


# The claims of a pod --------------------------------------------------------------------------------------------------


#: The entry of a pod's claim for extended resources, which has no name in the pod's spec.
EXTENDED_RESOURCES = ""


@dataclass(frozen=True, slots=True)
class ClaimUse:
    """One claim of a pod. entry: its name in spec.resourceClaims. generated: from a template, for this pod.

    draft: of cdi.k8s.io, named in the pod's spec.resources.
    """

    entry: str
    claim: str
    generated: bool
    draft: bool = False


def is_terminal(pod: Pod) -> bool:
    """Whether the pod has run to its end; it no longer uses its claims."""
    return pod.status.phase in FINISHED_PHASES


def claims_used(pod: Pod) -> tuple[ClaimUse, ...]:
    """The claims to prepare before the pod's containers start, whether a container names them or not.

    Empty while the feature is off: containers that start then get no devices (KEP-4381, "Feature Enablement and
    Rollback"); claims that are prepared already stay so until the pod has ended.
    Raises: PrepareRefused while a claim from a template does not exist yet.
    """
    if not gates.enabled(gates.DYNAMIC_RESOURCE_ALLOCATION):
        return ()
    uses = [use for entry in pod.spec.resource_claims if (use := _use(pod, entry.name, entry.resource_claim_name))]
    if isinstance(pod.spec.resources, tuple):
        uses += (ClaimUse(entry, claim, generated, draft=True) for entry, claim, generated in names_used(pod))
    extended = pod.status.extended_resource_claim_status
    if extended is not None:
        uses.append(ClaimUse(EXTENDED_RESOURCES, extended.resource_claim_name, generated=True))
    return tuple(uses)


def _use(pod: Pod, entry: str, direct: str | None) -> ClaimUse | None:
    if direct:
        return ClaimUse(entry, direct, generated=False)
    for status in pod.status.resource_claim_statuses:
        if status.name == entry:
            # A status without a name says that no claim is needed.
            return ClaimUse(entry, status.resource_claim_name, generated=True) if status.resource_claim_name else None
    raise PrepareRefused(f"the ResourceClaim for entry {entry} of the pod has not been created yet")


def check_claim(pod: Pod, use: ClaimUse, claim: ResourceClaim, *, node: Node) -> None:
    """Raises: PrepareRefused unless `claim` is allocated for this node and reserved for this pod."""
    name = claim.metadata.name
    allocation = claim.status.allocation
    if use.generated and not (is_made_for(claim, pod) or is_made_for_group_of(claim, pod)):
        raise PrepareRefused(f"ResourceClaim {name} was not created for pod {pod.metadata.name}")
    if allocation is None:
        raise PrepareRefused(f"ResourceClaim {name} is not allocated")
    # For itself, or for its group: the control plane reserves claims for groups only with their gate on.
    by_itself = any(r.is_pod and r.uid == pod.metadata.uid for r in claim.status.reserved_for)
    if not (by_itself or is_reserved_for_group_of(claim, pod)):
        raise PrepareRefused(
            f"pod {pod.metadata.name} ({pod.metadata.uid}) is not allowed to use ResourceClaim {name} "
            f"({claim.metadata.uid}): it is not reserved for it"
        )
    selector = allocation.node_selector
    if selector is not None and not node_selector_matches(selector, node.metadata.name, node.metadata.labels):
        raise PrepareRefused(f"ResourceClaim {name} is allocated for other nodes than {node.metadata.name}")
    check_requests(pod, use, claim)


def check_requests(pod: Pod, use: ClaimUse, claim: ResourceClaim) -> None:
    """Raises: PrepareRefused if a container, or the pod's status for it, names a request that the claim lacks.

    A kubelet starts the container without a device, and without a message.
    """
    requests = {request.name for request in claim.spec.devices.requests}
    requests |= {
        f"{request.name}/{subrequest.name}"
        for request in claim.spec.devices.requests
        for subrequest in request.first_available
    }
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        for entry, request in _named(pod, container):
            if entry == use.entry and request and request not in requests:
                raise PrepareRefused(
                    f"container {container.name} names request {request} of ResourceClaim {claim.metadata.name}, "
                    f"which has {', '.join(sorted(requests)) or 'none'}; the container would start without a device"
                )


def is_made_for(obj: ApiObject, pod: Pod) -> bool:
    """Whether the pod is the object's controller."""
    return any(owner.controller and owner.uid == pod.metadata.uid for owner in obj.metadata.owner_references)


def driver_records(claim: ResourceClaim) -> tuple[DriverRecord, ...]:
    """One empty record for each driver that must prepare the claim, sorted by name."""
    results = _to_prepare(claim)
    drivers = {result.driver for result in results}
    if not names_devices(claim):
        drivers = {handle.driver_name for handle in handles_of(claim)}
    return tuple(
        DriverRecord(
            driver=driver,
            exclusive=tuple(
                sorted(
                    {
                        (r.pool, r.device)
                        for r in results
                        if r.driver == driver and not r.admin_access and r.share_id is None
                    }
                )
            ),
            handles=handles_for(claim, driver),
        )
        for driver in sorted(drivers)
    )


def allocation_digest(claim: ResourceClaim) -> str:
    """Differs between two allocations of a claim; "" without one."""
    allocation = claim.status.allocation
    if allocation is None:
        return ""
    devices: list[object] = [(r.request, r.driver, r.pool, r.device, r.share_id) for r in allocation.devices.results]
    return hashlib.sha256(msgspec.json.encode(devices or list(handles_of(claim)))).hexdigest()[:32]


def names_on_disk(claim: ResourceClaim) -> Iterator[str]:
    """The strings of the claim that become parts of file names."""
    yield from (claim.metadata.uid, claim.metadata.namespace, claim.metadata.name)
    for result in _to_prepare(claim):
        yield from (result.driver, *result.request.split("/"))
    yield from (handle.driver_name for handle in handles_of(claim))


def _to_prepare(claim: ResourceClaim) -> tuple[DeviceRequestAllocationResult, ...]:
    allocation = claim.status.allocation
    if allocation is None:
        return ()
    skips = {"NodePrepareResources", "*"}
    return tuple(r for r in allocation.devices.results if not skips.intersection(r.skip_node_operations))


def container_devices(pod: Pod, container: Container, prepared: Mapping[str, ClaimRecord]) -> tuple[str, ...]:
    """The CDI device ids that `container` gets: of the requests it names, in order and without repeats.

    prepared: the records of the pod's claims by entry.
    """
    ids = (
        id_
        for entry, request in _named(pod, container)
        if (record := prepared.get(entry)) is not None
        for device in record.devices
        if serves(device, request)
        for id_ in device.cdi_device_ids
    )
    return tuple(dict.fromkeys(ids))


def _named(pod: Pod, container: Container) -> Iterator[tuple[str, str]]:
    """(entry, request) for each use by the container; an empty request means all of the claim."""
    for use in container.resources.claims:
        yield use.name, use.request
    for name in container.pod_resources:
        yield name, ""
    for mapping in _mappings(pod, container):
        yield EXTENDED_RESOURCES, mapping.request_name


def serves(device: PreparedDevice, request: str) -> bool:
    """Whether a container that names `request` of the claim, or the whole claim (""), gets the device."""
    return not request or not device.requests or any(request_matches(request, own) for own in device.requests)


# Records of claims ----------------------------------------------------------------------------------------------------


def unknown_record(uid: str, *, pods: tuple[str, ...], drivers: Iterable[str]) -> ClaimRecord:
    """The record of a claim of unknown state: any of `drivers` may have prepared it, for any allocation."""
    records = tuple(DriverRecord(driver=name) for name in sorted(drivers))
    return ClaimRecord(uid=uid, namespace="", name="", state="Preparing", pods=pods, drivers=records)


def intended_record(claim: ResourceClaim) -> ClaimRecord:
    """The record of a claim that is to be prepared, without its pods."""
    return ClaimRecord(
        uid=claim.metadata.uid,
        namespace=claim.metadata.namespace,
        name=claim.metadata.name,
        state="Preparing",
        pods=(),
        drivers=driver_records(claim),
        allocation=allocation_digest(claim),
    )


def with_pod(record: ClaimRecord | None, intent: ClaimRecord, *, pod: str) -> ClaimRecord:
    """The record with `pod` among its users; `intent` replaces it unless the claim is prepared."""
    pods = record.pods if record is not None else ()
    if pod not in pods:
        pods = (*pods, pod)
    return replace(record if record is not None and record.state == "Prepared" else intent, pods=pods)


def is_outdated(record: ClaimRecord, intent: ClaimRecord, *, pod: str) -> bool:
    """Whether `record` may be of an earlier allocation than `intent`, and no pod but `pod` uses it."""
    same = record.allocation == intent.allocation and (
        {driver.driver for driver in record.drivers} == {driver.driver for driver in intent.drivers}
    )
    return not same and set(record.pods) <= {pod}


def prepared_record(record: ClaimRecord, answers: Mapping[str, Prepared], *, boot: str) -> ClaimRecord:
    """The record once every driver has prepared the claim. answers: by driver. boot: the machine's boot ID now."""
    drivers = (
        replace(d, devices=answers[d.driver].devices, cdi_file=answers[d.driver].spec is not None)
        for d in record.drivers
    )
    return replace(record, state="Prepared", drivers=tuple(drivers), boot=boot)


def refuse_conflict(intent: ClaimRecord, records: Iterable[ClaimRecord]) -> None:
    """Raises: PrepareFailed while a device of the claim is still prepared for an earlier claim, or allocation.

    The pod was force-deleted, or the claim replaced by one of the same name, or deallocated and allocated again, and
    this node has not unprepared it yet; the API does not know.
    """
    devices = {(driver.driver, *device) for driver in intent.drivers for device in driver.exclusive}
    for other in records:
        if other.uid == intent.uid:
            if other.allocation and other.allocation != intent.allocation:
                raise PrepareFailed(
                    f"{other.label} is still prepared on this node as it was allocated before, for the pods with the "
                    f"uids {', '.join(other.pods)}; waiting until they have stopped"
                )
            continue
        if (other.namespace, other.name) == (intent.namespace, intent.name):
            raise PrepareFailed(
                f"old ResourceClaim with same name {other.name} and different UID {other.uid} still exists on this "
                "node; waiting until its pod has stopped"
            )
        for driver in other.drivers:
            for pool, device in driver.exclusive:
                if (name := (driver.driver, pool, device)) in devices:
                    held = f"device {'/'.join(name)} is still prepared for {other.label}"
                    raise PrepareFailed(f"{held}; waiting until its pod has stopped")


# The health of devices ------------------------------------------------------------------------------------------------

#: (driver, pool, device) -> its driver's last report
KnownHealth = Mapping[tuple[str, str, str], DeviceHealth]


def known_health(drivers: Iterable[ClaimDriver]) -> KnownHealth:
    """The drivers' reports now."""
    return {(driver.name, device.pool, device.device): device for driver in drivers for device in driver.health()}


def resource_statuses(
    pod: Pod, container: Container, records: Mapping[str, ClaimRecord], reports: KnownHealth
) -> tuple[ResourceStatus, ...]:
    """One status for each use of a claim by the container, and for each extended resource that devices serve, by the
    name of the resource as for those of device plugins (a kubelet reports no health for these). records: the pod's
    claims by entry.

    As in a kubelet, the health of a device without a report is unknown, and of devices with one CDI device id the first
    is listed: the list has one entry for each id.
    """
    uses = [  # (name in the container's status, entry, request)
        *(
            (f"claim:{use.name}/{use.request}" if use.request else f"claim:{use.name}", use.name, use.request)
            for use in container.resources.claims
        ),
        *((f"claim:{name}", name, "") for name in container.pod_resources),
        *((one.resource_name, EXTENDED_RESOURCES, one.request_name) for one in _mappings(pod, container)),
    ]
    statuses: dict[str, dict[str, ResourceHealth]] = {}
    for name, entry, request in uses:
        if (record := records.get(entry)) is None:
            continue
        for driver in record.drivers:
            for device in driver.devices:
                if not serves(device, request):
                    continue
                ids = device.cdi_device_ids
                id_ = ids[0] if ids else f"{driver.driver}/{device.pool}/{device.device}"
                health = ResourceHealth(resource_id=id_, health="Unknown")
                if report := reports.get((driver.driver, device.pool, device.device)):
                    message = report.message[:HEALTH_MESSAGE_MAX] or None
                    health = ResourceHealth(resource_id=id_, health=report.health, message=message)
                statuses.setdefault(name, {}).setdefault(id_, health)
    return tuple(ResourceStatus(name=name, resources=tuple(healths.values())) for name, healths in statuses.items())


def _mappings(pod: Pod, container: Container) -> Iterator[ContainerExtendedResourceRequest]:
    """The container's requests of the claim for the pod's extended resources."""
    extended = pod.status.extended_resource_claim_status
    for mapping in extended.request_mappings if extended is not None else ():
        if mapping.container_name == container.name:
            yield mapping
