"""How a claim's record changes from step to step. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from claims.kinds.resource_claims import ResourceClaim
from nodeagent.checkpoint import ClaimRecord, DriverRecord
from nodeagent.drivers.protocol import Prepared
from nodeagent.failures import PrepareFailed
from nodeagent.podclaims import driver_records


def unknown(uid: str, *, pods: tuple[str, ...], drivers: Iterable[str]) -> ClaimRecord:
    """A claim of which only the uid is known: any of `drivers` may have prepared it."""
    records = tuple(DriverRecord(driver=name) for name in sorted(drivers))
    return ClaimRecord(uid=uid, namespace="", name="", state="Preparing", pods=pods, drivers=records)


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
    )


def prepared(record: ClaimRecord, answers: Mapping[str, Prepared]) -> ClaimRecord:
    """The record once every driver has done its part. answers: by driver."""
    drivers = (
        replace(d, devices=answers[d.driver].devices, cdi_file=answers[d.driver].spec is not None)
        for d in record.drivers
    )
    return replace(record, state="Prepared", drivers=tuple(drivers))


def refuse_conflict(claim: ResourceClaim, records: Iterable[ClaimRecord]) -> None:
    """Raises: PrepareFailed while what `claim` needs is still prepared for a claim before it.

    The pod of that one was force-deleted, or its claim replaced by one of the same name, and this node is not done
    with it yet; the API does not know.
    """
    wanted = {(driver.driver, *device) for driver in driver_records(claim) for device in driver.exclusive}
    for other in records:
        if other.uid == claim.metadata.uid:
            continue
        if (other.namespace, other.name) == (claim.metadata.namespace, claim.metadata.name):
            raise PrepareFailed(
                f"an older ResourceClaim {other.name} with uid {other.uid} is still prepared on this node; "
                "waiting until its pod has stopped"
            )
        held = {(driver.driver, *device) for driver in other.drivers for device in driver.exclusive}
        for driver, pool, device in sorted(wanted & held):
            name = f"{driver}/{pool}/{device}"
            raise PrepareFailed(f"device {name} is still prepared for {other.label}; waiting until its pod has stopped")
