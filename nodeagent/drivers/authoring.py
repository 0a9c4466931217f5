"""The base of a driver that prepares its devices one by one: say which there are and what a container gets of each.

    class Blinkenlights(NodeDriver):
        name = "lights.example.com"

        def devices(self) -> Sequence[Device]:
            return [Device(name="red"), Device(name="green")]

        def edits(self, given: Given) -> cdi.ContainerEdits:
            return cdi.ContainerEdits(env=(f"LIGHT={given.device.name}",))

Everything else has a default that a subclass may replace. A driver that knows better than one pool and one device at a
time implements `nodeagent.drivers.protocol.Driver` itself.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

import msgspec

from claims.kinds.resource_claims import DeviceRequestAllocationResult, ResourceClaim
from inventory.kinds.devices import CounterSet, Device
from inventory.kinds.named_resources import ResourceHandle
from nodeagent import cdi
from nodeagent.cdi import kind_of
from nodeagent.drivers.preparing import DeviceGone, handles_for, parameters_for, prepare_claim
from nodeagent.drivers.protocol import (
    ClaimIdentity,
    DeviceHealth,
    DeviceMetadata,
    Failed,
    Pool,
    Prepared,
    PreparedDevice,
)

log = logging.getLogger(__name__)

Config = TypeVar("Config")


@dataclass(frozen=True, slots=True)
class Given:
    """One device that a claim was given.

    device: as published now. result: what the allocation says (request, consumed capacity, share, admin access).
    parameters: the opaque configuration that applies to it, the one with the last word last.
    """

    claim: ClaimIdentity
    device: Device
    result: DeviceRequestAllocationResult
    parameters: tuple[Any, ...]

    def config(self, type_: type[Config]) -> Config:
        """The parameters with the last word; `type_()` where none apply. Raises: ValueError saying what is wrong."""
        if not self.parameters:
            return type_()
        try:
            return msgspec.convert(self.parameters[-1], type_)
        except msgspec.ValidationError as error:
            raise ValueError(f"its configuration is not valid: {error}") from error


class _ClaimByClaim(ABC):
    """What drivers have in common that see to one claim after the other."""

    #: The DNS name of the driver.
    name: str

    def release(self, claim: ClaimIdentity) -> None:  # noqa: B027 - many drivers have nothing to undo
        """Undo `edits` for all devices of the claim; nothing to undo is fine. Raises: anything that must be retried."""

    def health(self) -> Sequence[DeviceHealth]:
        return ()

    def unprepare(self, claims: Sequence[ClaimIdentity]) -> Mapping[str, Failed | None]:
        return {claim.uid: self._release(claim) for claim in claims}

    def _release(self, claim: ClaimIdentity) -> Failed | None:
        try:
            self.release(claim)
        except Exception as error:  # a fault with one claim must not fail the others
            return self._failed(claim, error)
        return None

    def _failed(self, claim: ClaimIdentity, error: Exception) -> Failed:
        """Call it where the error is handled."""
        log.exception("driver %s: claim %s/%s", self.name, claim.namespace, claim.name)
        return Failed(str(error) or type(error).__name__)


class HandleDriver(_ClaimByClaim):
    """A `Driver` that publishes nothing: a controller allocates (`manciple.controller_kit`), and leaves it handles."""

    def __init__(self, node_name: str) -> None:
        self.node_name = node_name

    @abstractmethod
    def edits(self, claim: ClaimIdentity, handle: ResourceHandle) -> cdi.ContainerEdits:
        """Make what `handle` stands for ready, again if it is already; returns what a container needs: not nothing.

        Raises: ValueError, with a sentence for the pod's owner, where it cannot be done now.
        """

    def pools(self) -> Sequence[Pool]:
        return ()

    def subscribe(self, _changed: Callable[[], None]) -> None:
        """Nothing that is published ever changes."""

    def prepare(self, claims: Sequence[ResourceClaim]) -> Mapping[str, Prepared | Failed]:
        return {claim.metadata.uid: self._prepare(claim) for claim in claims}

    def _prepare(self, claim: ResourceClaim) -> Prepared | Failed:
        handles = handles_for(claim, self.name)
        meta = claim.metadata
        identity = ClaimIdentity(meta.uid, meta.namespace, meta.name, handles)
        try:
            devices = tuple(
                cdi.CdiDevice(name=f"{meta.uid}-{number}", container_edits=self.edits(identity, handle))
                for number, handle in enumerate(handles)
            )
        except Exception as error:  # a fault with one claim must not fail the others
            return self._failed(identity, error)
        kind = kind_of(self.name)
        ids = (cdi.qualified_name(kind, device.name) for device in devices)
        given = tuple(PreparedDevice(requests=(), pool="", device="", cdi_device_ids=(one,)) for one in ids)
        return Prepared(given, cdi.Spec.of(kind, devices))


class NodeDriver(_ClaimByClaim):
    """A `Driver` with one pool, named after the node."""

    #: Whether containers find a file with the published attributes of their devices (KEP-5304).
    metadata: ClassVar[bool] = False

    def __init__(self, node_name: str) -> None:
        self.node_name = node_name
        self._subscribers: list[Callable[[], None]] = []

    @abstractmethod
    def devices(self) -> Sequence[Device]:
        """What this node publishes now, in the order in which the scheduler tries them."""

    @abstractmethod
    def edits(self, given: Given) -> cdi.ContainerEdits:
        """Make the device ready, again if it is already; returns what a container needs to use it: not nothing.

        Raises: ValueError, with a sentence for the pod's owner, where it cannot be done now.
        """

    def shared_counters(self) -> Sequence[CounterSet]:
        """What devices of which only some can be used together draw from (partitionable devices)."""
        return ()

    def announce(self) -> None:
        """Call it when `devices` or `health` would answer differently than before."""
        for changed in self._subscribers:
            changed()

    def pools(self) -> Sequence[Pool]:
        return (
            Pool(name=self.node_name, devices=tuple(self.devices()), shared_counters=tuple(self.shared_counters())),
        )

    def subscribe(self, changed: Callable[[], None]) -> None:
        self._subscribers.append(changed)

    def prepare(self, claims: Sequence[ResourceClaim]) -> Mapping[str, Prepared | Failed]:
        devices = {device.name: device for device in self.devices()}
        return {claim.metadata.uid: self._prepare(claim, devices) for claim in claims}

    def _prepare(self, claim: ResourceClaim, devices: Mapping[str, Device]) -> Prepared | Failed:
        try:
            answer = prepare_claim(
                claim, driver=self.name, edits_of=lambda result: self.edits(self._given(claim, result, devices))
            )
        except Exception as error:  # a fault with one claim must not fail the others
            meta = claim.metadata
            return self._failed(ClaimIdentity(meta.uid, meta.namespace, meta.name), error)
        if isinstance(answer, Failed) or not self.metadata:
            return answer
        told = {
            (one.pool, one.device): DeviceMetadata(attributes=devices[one.device].attributes) for one in answer.devices
        }
        return replace(answer, metadata=told)

    def _given(
        self, claim: ResourceClaim, result: DeviceRequestAllocationResult, devices: Mapping[str, Device]
    ) -> Given:
        """Raises: ValueError for a device that is not here."""
        device = devices.get(result.device)
        allocation = claim.status.allocation
        if device is None or allocation is None or result.pool != self.node_name:
            raise DeviceGone(result.pool, result.device)
        meta = claim.metadata
        parameters = parameters_for(allocation.devices, driver=self.name, request=result.request)
        return Given(ClaimIdentity(meta.uid, meta.namespace, meta.name), device, result, parameters)
