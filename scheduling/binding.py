"""Binding conditions (KEP-5007): devices that are given to a pod before it may be bound, because they must be attached.

A device may name conditions; its driver reports them in the claim's status.devices. The commit writes allocation and
reservation as ever, but leaves the pod unbound and nominates its node; the pod waits until the claim changes. When all
conditions hold it is bound. When one of the failure conditions holds, or none of it has come true within the timeout,
its claims are given back and it is tried anew, first without the devices that failed it.
Source: pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go (isClaimReadyForBinding) of 1.36. PURE.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from claims.kinds.pods import Pod
from claims.kinds.resource_claims import AllocatedDeviceStatus, DeviceRequestAllocationResult, ResourceClaim
from manciple.wire.base import Condition
from scheduling.causes import AwaitingBinding, BindingFailed, Hold, Reason, claim_key
from scheduling.pod_claims import is_reserved_for


def is_ready(claim: ResourceClaim) -> bool:
    """Whether every binding condition of its devices holds; also where there are none."""
    return all(
        condition in _true(_status_of(claim, result))
        for result in _conditional(claim)
        for condition in result.binding_conditions
    )


def failure(claim: ResourceClaim, *, now: datetime, timeout: timedelta) -> BindingFailed | None:
    """Why the allocation is given up; None where it is not."""
    for result in _conditional(claim):
        status = _status_of(claim, result)
        for condition in status.conditions if status is not None else ():
            if condition.type in result.binding_failure_conditions and condition.status == "True":
                return BindingFailed(claim.metadata.name, reason=condition.reason, detail=condition.message)
    until = deadline(claim, timeout)
    if until is not None and until < now and not is_ready(claim):
        return BindingFailed(claim.metadata.name, timed_out=True)
    return None


def deadline(claim: ResourceClaim, timeout: timedelta) -> datetime | None:
    """When the wait for a claim's conditions ends; None where it waits for none."""
    allocation = claim.status.allocation
    if allocation is None or allocation.allocation_timestamp is None or not any(_conditional(claim)):
        return None
    return datetime.fromisoformat(allocation.allocation_timestamp) + timeout


def earliest(claims: Iterable[ResourceClaim], timeout: timedelta) -> datetime | None:
    """When the first of these claims is given up."""
    return min(filter(None, (deadline(claim, timeout) for claim in claims)), default=None)


def failures(
    pod: Pod, claims: Iterable[ResourceClaim], *, now: datetime, timeout: timedelta
) -> dict[str, BindingFailed]:
    """claim uid -> why it is given up, of the claims that are reserved for `pod` and for nobody else."""
    found = {}
    for claim in claims:
        if is_reserved_for(claim, pod.metadata.uid) and len(claim.status.reserved_for) == 1:
            failed = failure(claim, now=now, timeout=timeout)
            if failed is not None:
                found[claim.metadata.uid] = failed
    return found


def waiting(pod: Pod, node: str, claims: Iterable[ResourceClaim]) -> Hold:
    """What `pod` waits for on `node`: changes of the claims whose conditions do not hold yet."""
    namespace = pod.metadata.namespace
    awaited = frozenset(claim_key(namespace, claim.metadata.name) for claim in claims)
    return Hold(reasons=Reason.BINDING, awaited=awaited, cause=AwaitingBinding(node))


def _conditional(claim: ResourceClaim) -> Iterator[DeviceRequestAllocationResult]:
    allocation = claim.status.allocation
    for result in allocation.devices.results if allocation is not None else ():
        if result.binding_conditions:
            yield result


def _status_of(claim: ResourceClaim, result: DeviceRequestAllocationResult) -> AllocatedDeviceStatus | None:
    key = (result.driver, result.pool, result.device, result.share_id)
    return next(
        (one for one in claim.status.devices if (one.driver, one.pool, one.device, one.share_id) == key),
        None,
    )


def _true(status: AllocatedDeviceStatus | None) -> frozenset[str]:
    conditions: tuple[Condition, ...] = status.conditions if status is not None else ()
    return frozenset(condition.type for condition in conditions if condition.status == "True")
