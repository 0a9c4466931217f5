"""Answers NodePrepareResources and NodeUnprepareResources with a driver object.

Nothing is remembered between calls: what is prepared is what the driver keeps, and CDI files whose names carry the
claim's uid. So a driver that was killed at any instruction prepares again what it is asked to, and gives back what it
does not know any more.

Source: kubernetes staging/src/k8s.io/dynamic-resource-allocation/kubeletplugin/draplugin.go; unlike there, a claim that
cannot be read fails alone and not together with the others of the call.
"""

from __future__ import annotations

import fcntl
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from claims.kinds.resource_claims import DeviceRequestAllocationResult, ResourceClaim
from inventory.kinds.named_resources import ResourceHandle
from nodeagent.cdi import CdiFolder
from nodeagent.drivers.preparing import base_request, handles_for, names_devices
from nodeagent.drivers.protocol import ClaimDriver, ClaimIdentity, Failed, Prepared, PreparedDevice
from nodeagent.early import with_handles
from nodeagent.failures import AgentError, ApiFailure
from nodeagent.plugins.protocol import (
    Claim,
    ClaimsRequest,
    Device,
    Empty,
    HandledClaim,
    HandledResponse,
    PreparedClaim,
    PrepareResponse,
    UnpreparedClaim,
    UnprepareResponse,
)
from nodeagent.plugins.services import handled_claim
from nodeagent.serving.sockets import CallRefused
from nodeagent.storage import TEMPORARY


# One call of the driver at a time, as drivers may expect of the kubelet's library unless they opt out.
class Serializer:
    """enabled: False lets calls run side by side. lock_file: shared with the other instances of the driver, if any."""

    def __init__(self, *, enabled: bool = True, lock_file: Path | None = None) -> None:
        self._lock = threading.Lock() if enabled else nullcontext()
        self._lock_file = lock_file if enabled else None

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Waits for its turn. Raises: OSError for a lock file that cannot be used."""
        with self._lock:
            if self._lock_file is None:
                yield
                return
            with self._lock_file.open("ab") as file:
                fcntl.flock(file, fcntl.LOCK_EX)  # given back when the file is closed, however the process ends
                yield


log = logging.getLogger(__name__)

_UNANSWERED = Failed("the driver did not answer for this claim")


class NodeService:
    """The calls of one driver. folder: where its CDI files go.

    fetch: a claim by namespace and name; raises ApiFailure. read_handles: a claim with its resource handles.
    """

    def __init__(
        self,
        driver: ClaimDriver,
        *,
        folder: CdiFolder,
        fetch: Callable[[str, str], ResourceClaim],
        read_handles: Callable[[ResourceClaim], ResourceClaim],
        serializer: Serializer,
    ) -> None:
        self._driver = driver
        self._folder = folder
        self._fetch = fetch
        self._read_handles = read_handles
        self._serializer = serializer

    def sweep(self) -> None:
        """Remove what a predecessor left half-written; the directory may be shared with other drivers."""
        if not self._folder.path.is_dir():
            return
        name = self._driver.name
        with self._serializer.hold():
            for pattern in (f".k8s.{name}-claim_*{TEMPORARY}", f".{name}_metadata_*{TEMPORARY}"):
                for path in self._folder.path.glob(pattern):
                    with suppress(OSError):  # nobody reads it
                        path.unlink(missing_ok=True)

    def prepare(self, asked: ClaimsRequest) -> PrepareResponse:
        """Answers for every claim that it was asked for."""
        answers: dict[str, Prepared | Failed] = {}
        claims: list[ResourceClaim] = []
        for one in asked.claims:
            try:
                claims.append(self._claim(one))
            except AgentError as error:
                answers[one.uid] = Failed(str(error))
        with self._serializer.hold():
            given = self._ask_to_prepare(claims)
            for claim in claims:
                uid = claim.metadata.uid
                answers[uid] = self._written(uid, given.get(uid, _UNANSWERED))
        _log_failures("prepare", asked.claims, answers)
        results = {claim.metadata.uid: self._results(claim) for claim in claims}
        return PrepareResponse(claims={uid: _prepared(answer, results.get(uid, ())) for uid, answer in answers.items()})

    def unprepare(self, asked: ClaimsRequest) -> UnprepareResponse:
        """Answers for every claim that it was asked for."""
        claims = [ClaimIdentity(one.uid, one.namespace, one.name, handles=self._handles(one)) for one in asked.claims]
        with self._serializer.hold():
            given = self._ask_to_unprepare(claims)
            answers = {claim.uid: self._removed(claim.uid, given.get(claim.uid, _UNANSWERED)) for claim in claims}
        _log_failures("unprepare", asked.claims, answers)
        return UnprepareResponse(
            claims={uid: UnpreparedClaim(error=answer.reason if answer else "") for uid, answer in answers.items()}
        )

    # The same, as kubelets up to 1.31 ask.

    def prepare_handled(self, asked: ClaimsRequest) -> HandledResponse:
        """Answers for every claim that it was asked for."""
        return HandledResponse(claims={uid: handled_claim(one) for uid, one in self.prepare(asked).claims.items()})

    def prepare_one(self, claim: Claim) -> HandledClaim:
        """Raises: CallRefused."""
        (answer,) = self.prepare_handled(ClaimsRequest(claims=(claim,))).claims.values()
        if answer.error:
            raise CallRefused(answer.error)
        return answer

    def unprepare_one(self, claim: Claim) -> Empty:
        """Raises: CallRefused."""
        (answer,) = self.unprepare(ClaimsRequest(claims=(claim,))).claims.values()
        if answer.error:
            raise CallRefused(answer.error)
        return Empty()

    def _claim(self, asked: Claim) -> ResourceClaim:
        """Raises: AgentError in the words of the kubelet's library."""
        name = f"{asked.namespace}/{asked.name}"
        try:
            claim = self._fetch(asked.namespace, asked.name)
        except ApiFailure as failure:
            raise AgentError(f"retrieve claim {name}: {failure}") from failure
        if claim.status.allocation is None:
            raise AgentError(f"claim {name} not allocated")
        if claim.metadata.uid != asked.uid:
            raise AgentError(f"claim {name} got replaced")
        return claim if names_devices(claim) else self._with_handles(claim, asked)

    def _with_handles(self, claim: ResourceClaim, asked: Claim) -> ResourceClaim:
        """All that the claim has for the driver, also where it is asked for each by itself: the CDI file is one.

        Raises: AgentError.
        """
        read = self._read_handles(claim)
        mine = handles_for(read, self._driver.name)
        return with_handles(claim, mine or self._handles(asked))

    def _handles(self, asked: Claim) -> tuple[ResourceHandle, ...]:
        """What the call itself says."""
        structured = next(iter(asked.structured_resource_handle), None)
        handle = ResourceHandle(driver_name=self._driver.name, data=asked.resource_handle, structured_data=structured)
        return (handle,) if asked.resource_handle or structured is not None else ()

    def _results(self, claim: ResourceClaim) -> Sequence[DeviceRequestAllocationResult]:
        allocation = claim.status.allocation
        results = allocation.devices.results if allocation is not None else ()
        return [result for result in results if result.driver == self._driver.name]

    def _ask_to_prepare(self, claims: Sequence[ResourceClaim]) -> Mapping[str, Prepared | Failed]:
        try:
            return self._driver.prepare(claims) if claims else {}
        except Exception as error:  # whatever a driver raises, it must go on serving
            log.exception("driver %s failed to prepare %d claims", self._driver.name, len(claims))
            return {claim.metadata.uid: Failed(f"prepare resource claims: {error}") for claim in claims}

    def _ask_to_unprepare(self, claims: Sequence[ClaimIdentity]) -> Mapping[str, Failed | None]:
        try:
            return self._driver.unprepare(claims)
        except Exception as error:  # whatever a driver raises, it must go on serving
            log.exception("driver %s failed to unprepare %d claims", self._driver.name, len(claims))
            return {claim.uid: Failed(f"unprepare resource claims: {error}") for claim in claims}

    def _written(self, uid: str, answer: Prepared | Failed) -> Prepared | Failed:
        if isinstance(answer, Failed) or answer.spec is None:
            return answer
        try:
            self._folder.write(self._driver.name, uid, answer.spec)
        except (AgentError, OSError) as error:
            return Failed(f"its CDI file cannot be written: {error}")
        return answer

    def _removed(self, uid: str, answer: Failed | None) -> Failed | None:
        if answer is not None:
            return answer
        try:
            self._folder.remove(self._driver.name, uid)
        except OSError as error:
            return Failed(f"its CDI file cannot be removed: {error}")
        return None


def _prepared(answer: Prepared | Failed, results: Sequence[DeviceRequestAllocationResult]) -> PreparedClaim:
    if isinstance(answer, Failed):
        return PreparedClaim(error=answer.reason)
    return PreparedClaim(
        devices=tuple(
            Device(
                request_names=tuple(base_request(request) for request in device.requests),
                pool_name=device.pool,
                device_name=device.device,
                cdi_device_ids=device.cdi_device_ids,
                share_id=_share(device, answer.devices[:index], results),
            )
            for index, device in enumerate(answer.devices)
        )
    )


def _share(
    device: PreparedDevice, before: Sequence[PreparedDevice], results: Sequence[DeviceRequestAllocationResult]
) -> str | None:
    """The share that a container gets with `device`; a claim may have several of one device, told in their order."""

    def named(one: PreparedDevice) -> tuple[str, str, tuple[str, ...]]:
        return one.pool, one.device, one.requests

    shares = [
        result.share_id
        for result in results
        if (result.pool, result.device) == (device.pool, device.device)
        and (not device.requests or result.request in device.requests)
    ]
    position = sum(named(one) == named(device) for one in before)
    return shares[position] if position < len(shares) else None


def _log_failures(what: str, asked: Sequence[Claim], answers: Mapping[str, Prepared | Failed | None]) -> None:
    for claim in asked:
        if isinstance(answer := answers.get(claim.uid), Failed):
            log.warning("%s claim %s/%s: %s", what, claim.namespace, claim.name, answer.reason)
