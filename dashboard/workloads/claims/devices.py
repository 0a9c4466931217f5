"""The devices that a claim was given, as its page lists them: model, state, when prepared, which CDI file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from claims.devices.cache import read_devices
from claims.devices.pools import DeviceSnapshot
from claims.devices.published import DeviceKey
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import DeviceRequestAllocationResult, ResourceClaim, class_of, node_of
from dashboard.inventory.devices.grid import STATES
from dashboard.workloads.claims.reading import ClaimRow
from dashboard.workloads.claims.states import User
from manciple.durations import moment


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenDevice:
    """One allocated device."""

    request: str
    driver: str
    pool: str
    device: str
    node: str
    device_class: str
    model: str
    state: str
    label: str
    share: str  # what it consumes, where it is a share
    admin: bool
    prepared: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CdiFile:
    """The file that the node's agent writes for one driver. It lies on the node and nowhere else."""

    name: str
    kind: str
    ids: str  # what the names of its devices begin with


def given_devices(claim: ResourceClaim, line: ClaimRow, pods: Iterable[Pod]) -> list[GivenDevice]:
    """One query, and what the log has since for the devices."""
    if claim.status.allocation is None:
        return []
    snapshot, node = read_devices(), node_of(claim.status.allocation)
    reported = _prepared_by_driver(claim)
    started = _first_start(pods, line.users)
    return [
        _given(
            claim,
            one,
            snapshot,
            snapshot.find(one.driver, one.pool, one.device, node),
            reported.get((one.driver, one.pool, one.device), started),
        )
        for one in claim.status.allocation.devices.results
    ]


def _given(
    claim: ResourceClaim,
    one: DeviceRequestAllocationResult,
    snapshot: DeviceSnapshot,
    key: DeviceKey,
    prepared: datetime | None,
) -> GivenDevice:
    device, state = snapshot.candidate(key), snapshot.state(key)
    consumed = (f"{amount} {name.rpartition('/')[2]}" for name, amount in one.consumed_capacity.items())
    return GivenDevice(
        request=one.request,
        driver=one.driver,
        pool=one.pool,
        device=one.device,
        node=key[3],
        device_class=class_of(claim.spec.devices.requests, one.request),
        model=device.model if device and device.model != one.driver else "",
        state=state,
        label=STATES[state],
        share=", ".join(consumed),
        admin=bool(one.admin_access),
        prepared=prepared,
    )


def _prepared_by_driver(claim: ResourceClaim) -> dict[tuple[str, str, str], datetime]:
    """When drivers reported devices ready."""
    return {
        (report.driver, report.pool, report.device): at
        for report in claim.status.devices
        for condition in report.conditions
        if (condition.type, condition.status) == ("Ready", "True") and (at := moment(condition.last_transition_time))
    }


def _first_start(pods: Iterable[Pod], users: Sequence[User]) -> datetime | None:
    """When the first container of a pod that uses the claim started: its devices were prepared by then."""
    wanted = {user.uid for user in users}
    times = []
    for pod in pods:
        for status in pod.status.container_statuses if pod.metadata.uid in wanted else ():
            ran = status.state.running or status.state.terminated or status.last_state.terminated
            if ran is not None and (at := moment(ran.started_at)):
                times.append(at)
    return min(times, default=None)


def cdi_files(claim: ResourceClaim) -> list[CdiFile]:
    """As the agent names them: one file for each driver, its devices named after the claim's uid."""
    allocation, uid = claim.status.allocation, claim.metadata.uid
    drivers = dict.fromkeys(one.driver for one in allocation.devices.results) if allocation else ()
    return [
        CdiFile(name=f"k8s.{driver}-claim_{uid}.json", kind=f"k8s.{driver}/claim", ids=f"k8s.{driver}/claim={uid}")
        for driver in drivers
    ]
