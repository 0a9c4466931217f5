"""What a driver's controller left for the driver's node plugin when it allocated a claim: resource handles (KEP-3063).

They stand in the claim as `resource.k8s.io/v1alpha2` shows it; later versions have none. So a claim is read once more
in that version where its allocation names no device, or where a driver of one that does is of that time and is to be
told what the scheduler allocated in its form.
Source: kubernetes v1.30 pkg/kubelet/cm/dra/{manager, claiminfo}.go.
"""

from __future__ import annotations

from msgspec.structs import replace

from claims.classic import kinds as v1alpha2
from claims.kinds.resource_claims import ResourceClaim
from inventory.kinds.named_resources import ResourceHandle
from nodeagent.api.client import ApiResource, Client
from nodeagent.drivers.preparing import names_devices
from nodeagent.failures import ApiFailure, PrepareFailed, PrepareRefused

#: Claims as Kubernetes 1.30 shows them; NotFound where the feature gate of controllers is off.
CLASSIC_CLAIMS = ApiResource(v1alpha2.ResourceClaim, "resource.k8s.io/v1alpha2", "resourceclaims")
#: The finalizer that a driver's controller puts on the claims that it allocates: DRIVER/deletion-protection.
DRIVER_FINALIZER = "/deletion-protection"


def with_handles(claim: ResourceClaim, handles: tuple[ResourceHandle, ...]) -> ResourceClaim:
    """The claim, which is allocated, as the agent and its drivers read it."""
    if claim.status.allocation is None:
        return claim
    allocation = replace(claim.status.allocation, resource_handles=handles)
    return replace(claim, status=replace(claim.status, allocation=allocation))


def read_handles(client: Client, claim: ResourceClaim) -> ResourceClaim:
    """The claim with its handles. Raises: ApiFailure, PrepareRefused, PrepareFailed."""
    meta = claim.metadata
    try:
        classic = client.get(CLASSIC_CLAIMS, meta.name, namespace=meta.namespace)
    except ApiFailure as failure:
        if not failure.not_found:
            raise
        refuse_unknown(claim)
        return claim
    if classic.metadata.resource_version != meta.resource_version:
        raise PrepareFailed(f"ResourceClaim {meta.name} was changed while it was read")
    return with_handles(claim, allocated_handles(classic))


def refuse_unknown(claim: ResourceClaim) -> None:
    """Raises: PrepareRefused for what a controller allocated, where nobody tells what: v1alpha2 is not served."""
    drivers = [one for one in claim.metadata.finalizers if one.endswith(DRIVER_FINALIZER)]
    if drivers and not names_devices(claim):
        raise PrepareRefused(
            f"ResourceClaim {claim.metadata.name} was allocated by driver {drivers[0].removesuffix(DRIVER_FINALIZER)}, "
            "and the API server does not serve resource.k8s.io/v1alpha2, which says what for: "
            "turn on the feature gate DRAControlPlaneController"
        )


def allocated_handles(claim: v1alpha2.ResourceClaim) -> tuple[ResourceHandle, ...]:
    """Without any, the driver that allocated is to be asked with an empty one."""
    allocation, driver = claim.status.allocation, claim.status.driver_name
    if allocation is None:
        return ()
    named = (replace(one, driver_name=one.driver_name or driver) for one in allocation.resource_handles)
    return tuple(named) or ((ResourceHandle(driver_name=driver),) if driver else ())
