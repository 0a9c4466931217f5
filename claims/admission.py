"""Who may ask for admin access to devices: only namespaces that an administrator labelled for it.

A rule of the writer: asked where a claim or template is created, also by a controller, and where an allocation with
admin access is written, also by the scheduler.
Upstream: pkg/registry/resource/utils.go (AuthorizedForAdmin, AuthorizedForAdminStatus).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from claims.kinds.resource_claims import DeviceRequest, ResourceClaim, ResourceClaimTemplate
from manciple.store import hooks
from manciple.store.hooks import Write
from manciple.store.objects import Writer
from manciple.wire.errors import FieldError, Invalid, forbidden
from manciple.wire.registry import registry

ADMIN_ACCESS_LABEL = "resource.kubernetes.io/admin-access"
REFUSAL = f"admin access to devices requires the `{ADMIN_ACCESS_LABEL}: true` label on the containing namespace"


def register() -> None:
    hooks.register_rule(
        check_admin_access,
        operations={"CREATE", "UPDATE"},
        resources={"resourceclaims.resource.k8s.io", "resourceclaimtemplates.resource.k8s.io"},
    )


def check_admin_access(writer: Writer, write: Write) -> None:
    """Raises: Invalid when `write` brings admin access into a namespace that is not labelled for it."""
    errors = refusals(write.new, write.old)
    if errors and not is_admin_namespace(_labels_of(writer, write.new.metadata.namespace)):
        kind, name = write.kind, write.new.metadata.name
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


def _labels_of(writer: Writer, namespace: str) -> Mapping[str, str]:
    """The namespace's labels; none when it does not exist."""
    found = writer.get(registry.by_resource("namespaces"), "", namespace)
    return {} if found is None else found.metadata.labels
