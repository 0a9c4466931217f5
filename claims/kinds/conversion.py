"""ResourceClaim and ResourceClaimTemplate between resource.k8s.io/v1 and the older versions that clients still write.

v1beta2 has the shape of v1. In v1beta1 the fields of an exact request stand in the request itself; here they move under
`exactly`. Source: pkg/apis/resource/v1beta1/conversion.go of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from claims.kinds import v1beta1
from inventory.kinds.conversion import map_field, map_items, reshaped, same_shape
from manciple.wire.base import ApiObject
from manciple.wire.registry import Conversion

Document = dict[str, Any]

#: What v1beta1 has in the request and v1 under `exactly`.
EXACT_FIELDS = (
    "deviceClassName",
    "selectors",
    "allocationMode",
    "count",
    "adminAccess",
    "tolerations",
    "capacity",
)

_CLAIM_REQUESTS = ("spec", "devices", "requests")
_TEMPLATE_REQUESTS = ("spec", "spec", "devices", "requests")


def _nest(request: Document) -> Document:
    """v1beta1 -> v1: a request that names no alternatives is an exact one (upstream: hasAnyMainRequestFieldsSet)."""
    exact = {key: request[key] for key in EXACT_FIELDS if key in request}
    rest = {key: value for key, value in request.items() if key not in exact}
    if any(value not in (None, "", 0, False, []) for value in exact.values()):
        return {**rest, "exactly": exact}
    return rest


def _flatten(request: Document) -> Document:
    """v1 -> v1beta1."""
    exact = request.get("exactly")
    rest = {key: value for key, value in request.items() if key != "exactly"}
    return {**rest, **exact} if isinstance(exact, dict) else rest


def _requests_at(path: tuple[str, ...], type_: type[ApiObject]) -> Conversion:
    return reshaped(
        "v1beta1",
        to_storage=lambda document: map_field(document, path, map_items(_nest)),
        from_storage=lambda document: map_field(document, path, map_items(_flatten)),
        message=type_,
    )


CLAIM_VERSIONS: Mapping[str, Conversion] = {
    "v1beta2": same_shape("v1beta2"),
    "v1beta1": _requests_at(_CLAIM_REQUESTS, v1beta1.ResourceClaim),
}
TEMPLATE_VERSIONS: Mapping[str, Conversion] = {
    "v1beta2": same_shape("v1beta2"),
    "v1beta1": _requests_at(_TEMPLATE_REQUESTS, v1beta1.ResourceClaimTemplate),
}
