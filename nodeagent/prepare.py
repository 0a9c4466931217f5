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
be running here, whatever the API says.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from claims.kinds.pods import Pod
from claims.kinds.resource_claims import ResourceClaim
from nodeagent import records as record_steps
from nodeagent.cdi import CdiFolder
from nodeagent.checkpoint import Checkpoint, ClaimRecord, Quarantined
from nodeagent.drivers.calls import DriverCalls
from nodeagent.drivers.protocol import Failed, Prepared
from nodeagent.drivers.registry import DriverRegistry
from nodeagent.failures import AgentError, ApiFailure, PrepareFailed, PrepareRefused, UnprepareFailed
from nodeagent.locks import StripedLocks
from nodeagent.podclaims import ClaimUse, Node, check_claim, claims_used, driver_records

log = logging.getLogger(__name__)

#: (namespace, name) -> the claim; raises ApiFailure
FetchClaim = Callable[[str, str], ResourceClaim]


class Preparer:
    """The claims on one node. Thread-safe; two pods that share a claim wait for each other."""

    def __init__(
        self,
        *,
        node: Callable[[], Node],
        drivers: DriverRegistry,
        checkpoint: Checkpoint,
        folder: CdiFolder,
        fetch: FetchClaim,
    ) -> None:
        self._node = node
        self._drivers = drivers
        self._calls = DriverCalls(drivers, node=node().name)
        self._checkpoint = checkpoint
        self._folder = folder
        self._fetch = fetch
        self._claim_locks = StripedLocks()
        self._checkpoint_lock = threading.Lock()

    def recover(self, users: Callable[[str], tuple[str, ...]]) -> tuple[Quarantined, ...]:
        """Read the checkpoint; take up claims that it lost. Call once, before anything else.

        users: claim uid -> the uids of the pods whose containers run with it, as the runtime knows.
        A CDI file without a record, or a record that cannot be read, becomes a claim whose state is unknown: it is
        prepared again if its pod is still here, and given back otherwise.
        """
        self._folder.sweep()
        quarantined = self._checkpoint.load()
        lost = {file.claim_uid for file in self._folder.files()} | {one.claim_uid for one in quarantined}
        for uid in sorted(lost):
            if self._checkpoint.get(uid) is None:
                log.warning("claim %s has no readable record; it is taken up as one of unknown state", uid)
                self._put(record_steps.unknown(uid, pods=users(uid), drivers=self._drivers.names()))
        return quarantined

    def records(self) -> tuple[ClaimRecord, ...]:
        with self._checkpoint_lock:
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
        claims = [self._checked_claim(pod, use) for use in uses]
        with self._claim_locks.hold(claim.metadata.uid for claim in claims):
            self._record_intent(pod.metadata.uid, claims)
            self._prepare_claims(claims)
            return {use.entry: self._record(claim.metadata.uid) for use, claim in zip(uses, claims, strict=True)}

    def unprepare(self, pod_uid: str) -> None:
        """Take the pod out of its claims and give back those that nobody else here uses.

        Raises: UnprepareFailed, StorageFailed; the pod must not go away before a later call succeeds.
        """
        with self._claim_locks.hold(record.uid for record in self._used_by(pod_uid)):
            mine = self._used_by(pod_uid)
            shared = [record for record in mine if len(record.pods) > 1]
            for record in shared:
                self._put(replace(record, pods=tuple(uid for uid in record.pods if uid != pod_uid)))
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
        """By the record and by the files that belong to it; a reboot may have emptied their directory."""
        return record.state == "Prepared" and all(
            self._folder.has(driver.driver, record.uid) for driver in record.drivers if driver.cdi_file
        )

    def _checked_claim(self, pod: Pod, use: ClaimUse) -> ResourceClaim:
        try:
            claim = self._fetch(pod.metadata.namespace, use.claim)
        except ApiFailure as failure:
            if failure.not_found:
                raise PrepareRefused(f"ResourceClaim {use.claim} does not exist") from failure
            raise
        check_claim(pod, use, claim, node=self._node())
        for driver in driver_records(claim):
            if reason := self._calls.missing(driver.driver):
                raise PrepareFailed(reason)
        return claim

    def _record_intent(self, pod_uid: str, claims: Sequence[ResourceClaim]) -> None:
        with self._checkpoint_lock:
            for claim in claims:
                record_steps.refuse_conflict(claim, self._checkpoint.records())
            for claim in claims:
                known = self._checkpoint.get(claim.metadata.uid)
                self._checkpoint.put(record_steps.with_pod(known, claim, pod=pod_uid))

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
        self._put(record_steps.prepared(record, given))

    def _roll_back(self, record: ClaimRecord) -> None:
        """Undo what some drivers did; the intent stays recorded, so a failure here is made good by the next attempt."""
        for reason in self._undo([record]).values():
            log.warning("rolling back: %s; it is prepared again or given back later", reason)

    # Giving back.

    def _give_back(self, records: Sequence[ClaimRecord]) -> None:
        for record in records:
            self._put(replace(record, state="Unpreparing"))
        failed = self._undo(records)
        for record in records:
            if record.uid not in failed:
                with self._checkpoint_lock:
                    self._checkpoint.remove(record.uid)
        if failed:
            raise UnprepareFailed("; ".join(failed.values()))

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
        with self._checkpoint_lock:
            record = self._checkpoint.get(uid)
        if record is None:
            raise KeyError(f"claim {uid} has no record")
        return record

    def _put(self, record: ClaimRecord) -> None:
        with self._checkpoint_lock:
            self._checkpoint.put(record)
