"""core/v1 ResourceQuota: how much a namespace may hold. Not served yet. Source: k8s.io/api/core/v1."""

from __future__ import annotations

from typing import Annotated

from manciple.wire.base import ApiObject, QuantityText, Value, pb

PACKAGE = "io.k8s.api.core.v1"


class ScopedResourceSelectorRequirement(Value):
    """A scope that the counted objects must, or must not, be in. `operator`: In, NotIn, Exists or DoesNotExist."""

    scope_name: Annotated[str, pb(1)] = ""
    operator: Annotated[str, pb(2)] = ""
    values: Annotated[tuple[str, ...], pb(3)] = ()


class ScopeSelector(Value):
    """Scopes that must all hold."""

    match_expressions: Annotated[tuple[ScopedResourceSelectorRequirement, ...], pb(1)] = ()


class ResourceQuotaSpec(Value):
    """The limits, by the name of what is counted ("gpu.example.com.deviceclass.resource.k8s.io/devices")."""

    hard: Annotated[dict[str, QuantityText], pb(1, encoding="quantity")] = {}
    scopes: Annotated[tuple[str, ...], pb(2)] = ()
    scope_selector: Annotated[ScopeSelector | None, pb(3)] = None


class ResourceQuotaStatus(Value):
    """The limits in force, and what is used of them."""

    hard: Annotated[dict[str, QuantityText], pb(1, encoding="quantity")] = {}
    used: Annotated[dict[str, QuantityText], pb(2, encoding="quantity")] = {}


class ResourceQuota(ApiObject):
    """Limits on what the objects of a namespace may add up to. Namespaced."""

    spec: Annotated[ResourceQuotaSpec, pb(2)] = ResourceQuotaSpec()
    status: Annotated[ResourceQuotaStatus, pb(3)] = ResourceQuotaStatus()
