"""What every simulated driver is: devices that exist in memory only, prepared into environment variables.

A driver of this family says which devices there are (`Pool`) and what a container with one of them finds in its
environment; publishing, preparing, health, and everything that can be made to go wrong, is here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from claims.kinds.resource_claims import DeviceAllocationResult, DeviceRequestAllocationResult, ResourceClaim
from inventory.kinds.devices import Device
from nodeagent import cdi
from nodeagent.drivers.opaque import parameters_for
from nodeagent.drivers.preparing import prepare_claim
from nodeagent.drivers.protocol import ClaimIdentity, DeviceHealth, Failed, Pool, Prepared
from nodeagent.drivers.sim_faults import Faults, HealthState, Injector, Operation


class SimulatedDevices(ABC):
    """A `Driver` with one pool. faults: what goes wrong from the start; control: where a person says what does."""

    def __init__(self, pool: Pool, *, name: str, faults: Faults | None = None, control: Path | None = None) -> None:
        self._name = name
        self._pool = pool
        self._health: dict[str, DeviceHealth] = {}
        self._subscribers: list[Callable[[], None]] = []
        self._injector = Injector(faults or Faults(), control, self._announce)

    @abstractmethod
    def environment(
        self, device: Device, result: DeviceRequestAllocationResult, parameters: Sequence[Any]
    ) -> dict[str, str]:
        """What a container with `device` finds in its environment. parameters: opaque ones, the last word last.

        Raises: ValueError for parameters that it cannot read.
        """

    @property
    def name(self) -> str:
        return self._name

    def pools(self) -> Sequence[Pool]:
        pool = self._pool
        return (Pool(name=pool.name, devices=self._devices(), shared_counters=pool.shared_counters),)

    def prepare(self, claims: Sequence[ResourceClaim]) -> Mapping[str, Prepared | Failed]:
        reason = self._injector.meet("prepare")
        wrong = self._injector.faults.prepare
        return {
            claim.metadata.uid: Failed(reason) if reason else self._prepare_claim(claim)
            for claim in claims
            if not wrong.leaves_out(claim.metadata.uid, claim.metadata.name)
        }

    def unprepare(self, claims: Sequence[ClaimIdentity]) -> Mapping[str, Failed | None]:
        reason = self._injector.meet("unprepare")
        wrong = self._injector.faults.unprepare
        answering = (claim for claim in claims if not wrong.leaves_out(claim.uid, claim.name))
        return {claim.uid: Failed(reason) if reason else None for claim in answering}

    def health(self) -> Sequence[DeviceHealth]:
        known = {device.name: self._healthy(device.name) for device in self._devices()}
        wrong = {
            name: DeviceHealth(pool=self._pool.name, device=name, health=fault.health, message=fault.message)
            for name, fault in self._injector.faults.devices.items()
            if name in known and fault.health != "Healthy"
        }
        return tuple((known | self._health | wrong).values())

    def subscribe(self, changed: Callable[[], None]) -> None:
        self._subscribers.append(changed)

    # What a machine's owner does to real devices.

    def set_devices(self, devices: Sequence[Device]) -> None:
        """Exchange the devices: some pulled out, plugged in, tainted."""
        pool = self._pool
        self._pool = Pool(name=pool.name, devices=tuple(devices), shared_counters=pool.shared_counters)
        self._announce()

    def report_health(self, device: str, health: HealthState, message: str = "") -> None:
        self._health[device] = DeviceHealth(pool=self._pool.name, device=device, health=health, message=message)
        self._announce()

    def fail(self, operation: Operation, *, times: int, reason: str = "simulated failure") -> None:
        """Let the next `times` calls of `operation` fail for all their claims."""
        self._injector.fail(operation, times=times, reason=reason)

    def set_faults(self, faults: Faults) -> None:
        """From now on exactly this goes wrong."""
        self._injector.set(faults)
        self._announce()

    def _devices(self) -> tuple[Device, ...]:
        """Those of the pool that are there now, with the taints that they have now."""
        wrong = self._injector.faults.devices
        if not wrong:
            return self._pool.devices
        return tuple(
            replace(device, taints=(*device.taints, *wrong[device.name].taints)) if device.name in wrong else device
            for device in self._pool.devices
            if device.name not in wrong or not wrong[device.name].gone
        )

    def _healthy(self, device: str) -> DeviceHealth:
        return DeviceHealth(pool=self._pool.name, device=device, health="Healthy")

    def _announce(self) -> None:
        for changed in self._subscribers:
            changed()

    def _prepare_claim(self, claim: ResourceClaim) -> Prepared | Failed:
        given = claim.status.allocation.devices if claim.status.allocation is not None else DeviceAllocationResult()

        def edits_of(result: DeviceRequestAllocationResult) -> cdi.ContainerEdits:
            parameters = parameters_for(given, driver=self._name, request=result.request)
            environment = self.environment(self._device(result), result, parameters)
            return cdi.ContainerEdits(env=tuple(f"{key}={value}" for key, value in environment.items()))

        return prepare_claim(claim, driver=self._name, edits_of=edits_of)

    def _device(self, result: DeviceRequestAllocationResult) -> Device:
        """Raises: ValueError for one that is not there (any more)."""
        found = next((d for d in self._devices() if (d.name, self._pool.name) == (result.device, result.pool)), None)
        if found is None:
            raise ValueError(f"device {result.pool}/{result.device} does not exist on this node any more")
        return found
