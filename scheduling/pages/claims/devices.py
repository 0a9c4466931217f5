"""The devices that a claim was given, as its page lists them: model, state, when prepared, which CDI file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from claims.devices.published import FENCING, MODEL_ATTRIBUTES, DeviceKey, is_unhealthy
from claims.kinds.pods import Pod
from claims.kinds.resource_claims import DeviceRequestAllocationResult, ResourceClaim, class_of
from inventory.models import Device
from manciple.pages.durations import moment
from scheduling.pages.claims.reading import ClaimLine
from scheduling.pages.claims.states import User


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """One allocated device."""

    request: str
    driver: str
    pool: str
    device: str
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


@dataclass(frozen=True, slots=True)
class _Published:
    """What the index knows of a device."""

    model: str
    fence: str  # "taint", "bad" or ""


def given_devices(claim: ResourceClaim, line: ClaimLine, pods: Iterable[Pod]) -> list[Given]:
    """One query."""
    results = claim.status.allocation.devices.results if claim.status.allocation else ()
    known = _published(results)
    reported = _prepared_by_driver(claim)
    started = _first_start(pods, line.users)
    return [_given(claim, line, one, known, reported.get(_key(one), started)) for one in results]


def _key(result: DeviceRequestAllocationResult) -> DeviceKey:
    return result.driver, result.pool, result.device


def _given(
    claim: ResourceClaim,
    line: ClaimLine,
    one: DeviceRequestAllocationResult,
    known: Mapping[DeviceKey, _Published],
    prepared: datetime | None,
) -> Given:
    device = known.get(_key(one))
    state, label = _state(line, device, shared=bool(one.share_id))
    consumed = (f"{amount} {name.rpartition('/')[2]}" for name, amount in one.consumed_capacity.items())
    return Given(
        request=one.request,
        driver=one.driver,
        pool=one.pool,
        device=one.device,
        device_class=class_of(claim.spec.devices.requests, one.request),
        model=device.model if device else "",
        state=state,
        label=label,
        share=", ".join(consumed),
        admin=bool(one.admin_access),
        prepared=prepared,
    )


def _published(results: Sequence[DeviceRequestAllocationResult]) -> dict[DeviceKey, _Published]:
    if not results:
        return {}
    rows = Device.objects.filter(pool__in={one.pool for one in results}, name__in={one.device for one in results})
    return {
        (driver, pool, name): _Published(model_of(driver, attributes), _fence(taints))
        for driver, pool, name, attributes, taints in rows.values_list("driver", "pool", "name", "attributes", "taints")
    }


def model_of(driver: str, attributes: Mapping[str, Any]) -> str:
    """The model of a device by the attributes that it was published with; "" where it tells none."""
    found = (attributes.get(name) or attributes.get(f"{driver}/{name}") or {} for name in MODEL_ATTRIBUTES)
    return next((str(value["string"]) for value in found if value.get("string")), "")


def _fence(taints: Iterable[Mapping[str, Any]]) -> str:
    fencing = [taint for taint in taints if taint.get("effect") in FENCING]
    if any(is_unhealthy(taint.get("key", "")) for taint in fencing):
        return "bad"
    return "taint" if fencing else ""


def _state(line: ClaimLine, device: _Published | None, *, shared: bool) -> tuple[str, str]:
    """(mark, word) of a device that this claim holds."""
    if device is None:
        return "gone", "Unpublished"
    if device.fence:
        return device.fence, "Unhealthy" if device.fence == "bad" else "Tainted"
    if line.state == "preparing":
        return "prep", "Preparing"
    if shared:
        return "part", "Shared"
    return ("reserved", "In use") if line.users else ("alloc", "Idle")


def _prepared_by_driver(claim: ResourceClaim) -> dict[DeviceKey, datetime]:
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
