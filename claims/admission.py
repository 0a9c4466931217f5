"""Who may ask for admin access to devices: only namespaces that an administrator labelled for it.

Checked where a claim or template is created, and where an allocation with admin access is written.
Upstream: pkg/registry/resource/utils.go (AuthorizedForAdmin, AuthorizedForAdminStatus).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from claims.kinds.requests import DeviceRequest
from claims.kinds.resource_claims import ResourceClaim, ResourceClaimTemplate
from manciple.api.admission import AdmissionRequest
from manciple.store import objects
from manciple.wire.errors import FieldError, Invalid, forbidden
from manciple.wire.registry import registry

ADMIN_ACCESS_LABEL = "resource.kubernetes.io/admin-access"
REFUSAL = f"admin access to devices requires the `{ADMIN_ACCESS_LABEL}: true` label on the containing namespace"


def check_admin_access(request: AdmissionRequest) -> None:
    """Raises: Invalid when `request` brings admin access into a namespace that is not labelled for it."""
    if request.operation == "DELETE" or not isinstance(request.new, ResourceClaim | ResourceClaimTemplate):
        return
    errors = refusals(request.new, request.old)
    if errors and not is_admin_namespace(labels_of(request.new.metadata.namespace)):
        kind, name = request.kind, request.new.metadata.name
        raise Invalid.of(kind=kind.kind, group=kind.group, name=name, errors=errors)


def refusals(new: ResourceClaim | ResourceClaimTemplate, old: object = None) -> list[FieldError]:
    """What to say, outside of labelled namespaces, to each field of `new` that asks for admin access anew."""
    found: list[FieldError] = []
    if isinstance(new, ResourceClaimTemplate):
        return [] if old is not None else _requested(new.spec.spec.devices.requests, "spec.spec.devices.requests")
    if old is None:
        found += _requested(new.spec.devices.requests, "spec.devices.requests")
    if new.status.allocation != (old.status.allocation if isinstance(old, ResourceClaim) else None):
        found += _given(new)
    return found


def _requested(requests: Sequence[DeviceRequest], path: str) -> list[FieldError]:
    return [
        forbidden(f"{path}[{position}].exactly.adminAccess", REFUSAL)
        for position, request in enumerate(requests)
        if request.exactly is not None and request.exactly.admin_access
    ]


def _given(claim: ResourceClaim) -> list[FieldError]:
    results = claim.status.allocation.devices.results if claim.status.allocation else ()
    return [
        forbidden(f"status.allocation.devices.results[{position}].adminAccess", REFUSAL)
        for position, result in enumerate(results)
        if result.admin_access
    ]


def is_admin_namespace(labels: Mapping[str, str]) -> bool:
    return labels.get(ADMIN_ACCESS_LABEL) == "true"


def labels_of(namespace: str) -> Mapping[str, str]:
    """The namespace's labels; none when it does not exist."""
    stored = objects.get(registry.by_resource("namespaces"), "", namespace)
    return {} if stored is None else stored.labels
