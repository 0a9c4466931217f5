"""How a claim's record changes from step to step. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from claims.kinds.resource_claims import ResourceClaim
from nodeagent.checkpoint import ClaimRecord, DriverRecord
from nodeagent.drivers.protocol import Prepared
from nodeagent.failures import PrepareFailed
from nodeagent.podclaims import allocation_digest, driver_records


def unknown(uid: str, *, pods: tuple[str, ...], drivers: Iterable[str]) -> ClaimRecord:
    """A claim of which only the uid is known: any of `drivers` may have prepared it, for any allocation."""
    records = tuple(DriverRecord(driver=name) for name in sorted(drivers))
    return ClaimRecord(uid=uid, namespace="", name="", state="Preparing", pods=pods, drivers=records)


def with_drivers(known: ClaimRecord, drivers: Iterable[str]) -> ClaimRecord:
    """The record of a claim that `drivers` may have prepared too."""
    return replace(known, drivers=(*known.drivers, *(DriverRecord(driver=name) for name in sorted(drivers))))


def with_pod(known: ClaimRecord | None, claim: ResourceClaim, *, pod: str) -> ClaimRecord:
    """The record that says: `claim` is prepared, or about to be, for `pod` too."""
    pods = (*known.pods, pod) if known is not None and pod not in known.pods else known.pods if known else (pod,)
    if known is not None and known.state == "Prepared":
        return replace(known, pods=pods)
    return ClaimRecord(
        uid=claim.metadata.uid,
        namespace=claim.metadata.namespace,
        name=claim.metadata.name,
        state="Preparing",
        pods=pods,
        drivers=driver_records(claim),
        allocation=allocation_digest(claim),
    )


def is_outdated(known: ClaimRecord, claim: ResourceClaim, *, pod: str) -> bool:
    """Whether `known` is not, or not surely, of the allocation that `claim` has now, and no pod but `pod` uses it."""
    same = known.allocation == allocation_digest(claim) and _drivers(known.drivers) == _drivers(driver_records(claim))
    return not same and set(known.pods) <= {pod}


def prepared(record: ClaimRecord, answers: Mapping[str, Prepared], *, boot: str) -> ClaimRecord:
    """The record once every driver has done its part. answers: by driver. boot: that of the machine, now."""
    drivers = (
        replace(d, devices=answers[d.driver].devices, cdi_file=answers[d.driver].spec is not None)
        for d in record.drivers
    )
    return replace(record, state="Prepared", drivers=tuple(drivers), boot=boot)


def refuse_conflict(claim: ResourceClaim, records: Iterable[ClaimRecord]) -> None:
    """Raises: PrepareFailed while what `claim` needs is still prepared for a claim before it.

    The pod of that one was force-deleted, or its claim replaced by one of the same name, or freed and allocated anew,
    and this node is not done with it yet; the API does not know.
    """
    wanted = {(driver.driver, *device) for driver in driver_records(claim) for device in driver.exclusive}
    for other in records:
        if other.uid == claim.metadata.uid:
            _refuse_other_allocation(claim, other)
            continue
        if (other.namespace, other.name) == (claim.metadata.namespace, claim.metadata.name):
            raise PrepareFailed(
                f"an older ResourceClaim {other.name} with uid {other.uid} is still prepared on this node; "
                "waiting until its pod has stopped"
            )
        for driver in other.drivers:
            for pool, device in driver.exclusive:
                if (name := (driver.driver, pool, device)) in wanted:
                    held = f"device {'/'.join(name)} is still prepared for {other.label}"
                    raise PrepareFailed(f"{held}; waiting until its pod has stopped")


def _refuse_other_allocation(claim: ResourceClaim, known: ClaimRecord) -> None:
    """Raises: PrepareFailed."""
    if known.allocation and known.allocation != allocation_digest(claim):
        raise PrepareFailed(
            f"{known.label} is still prepared on this node as it was allocated before, for the pods with the uids "
            f"{', '.join(known.pods)}; waiting until they have stopped"
        )


def _drivers(records: Iterable[DriverRecord]) -> set[str]:
    return {record.driver for record in records}
