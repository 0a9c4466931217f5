"""Reports for a served driver whether the devices of its prepared claims are in use (docs/how-to/drivers.md, Use).

The kubelet asks for a claim once, and knows nothing of it when the driver is started anew. So what is prepared is kept
in a small file for each claim; one that is lost costs no more than what would have been told of that claim.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from claims.kinds.resource_claims import ResourceClaim
from nodeagent.api.client import Client
from nodeagent.claims.checkpoint import Checkpoint, ClaimRecord, DriverRecord
from nodeagent.claims.use_reports import UseReports, UseTellingDriver
from nodeagent.drivers.protocol import ClaimDriver, ClaimIdentity, DeviceHealth, Failed, Prepared
from nodeagent.failures import AgentError
from nodeagent.storage import Disk

log = logging.getLogger(__name__)

#: The folder of the files, in the driver's own.
FOLDER = "claims"
#: Seconds between looks though the driver announces nothing.
USE_SECONDS = 10.0


class UseKeeper:
    """Passes calls on to `driver`, remembers what is prepared, and tells of its use from `start` to `stop`.

    telling: who knows the use, the driver itself or what it wraps. folder: the driver's own. seconds: between looks.
    """

    def __init__(
        self,
        driver: ClaimDriver,
        telling: UseTellingDriver,
        client: Client,
        *,
        folder: Path,
        disk: Disk,
        seconds: float = USE_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._driver = driver
        self._telling = telling
        self._records = Checkpoint(folder / FOLDER, disk)
        self._reports = UseReports(client, clock=clock)
        self._seconds = seconds
        self._wake, self._stopping = threading.Event(), False
        self._thread = threading.Thread(target=self._work, name="uses", daemon=True)

    @property
    def name(self) -> str:
        return self._driver.name

    def health(self) -> Sequence[DeviceHealth]:
        return self._driver.health()

    def prepare(self, claims: Sequence[ResourceClaim]) -> Mapping[str, Prepared | Failed]:
        answers = self._driver.prepare(claims)
        for claim in claims:
            if isinstance(answer := answers.get(claim.metadata.uid), Prepared):
                self._remember(claim, answer)
        return answers

    def unprepare(self, claims: Sequence[ClaimIdentity]) -> Mapping[str, Failed | None]:
        answers = self._driver.unprepare(claims)
        for claim in claims:
            if claim.uid in answers and answers[claim.uid] is None and self._records.get(claim.uid) is not None:
                self._forget(claim.uid)
        return answers

    def start(self) -> None:
        """Raises: OSError."""
        for damaged in self._records.load():
            self._records.close(damaged)
        self._thread.start()

    def changed(self) -> None:
        """Something is prepared, or used otherwise: look now."""
        self._wake.set()

    def stop(self, *, seconds: float) -> None:
        """The files stay: whoever serves the driver next tells of the claims."""
        self._stopping = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(seconds)

    def _remember(self, claim: ResourceClaim, prepared: Prepared) -> None:
        meta = claim.metadata
        record = ClaimRecord(
            uid=meta.uid,
            namespace=meta.namespace,
            name=meta.name,
            state="Prepared",
            pods=(),
            drivers=(DriverRecord(driver=self.name, devices=prepared.devices),),
        )
        try:
            self._records.put(record, survival="rebuilt")
        except AgentError as error:  # a pod does not wait for what is told of it
            log.warning("%s: after a restart the use of its devices will not be told: %s", record.label, error)
        self.changed()

    def _forget(self, uid: str) -> None:
        try:
            self._records.remove(uid)
        except AgentError as error:
            log.warning("%s", error)

    def _work(self) -> None:
        while not self._stopping:
            self._wake.clear()
            try:
                self._reports.sync(self._records.records(), [self._telling])
            except AgentError as error:
                log.warning("use of the devices of %s: %s; trying again in %.0f s", self.name, error, self._seconds)
            except Exception:  # a fault of the driver must not stop it for good
                log.exception("use of the devices of %s; trying again in %.0f s", self.name, self._seconds)
            if not self._stopping:
                self._wake.wait(self._seconds)
