"""core/v1 ResourceQuota: how much the objects of a namespace may add up to.

What is counted is named by keys: "count/RESOURCE.GROUP" (how many objects there are), "pods", "requests.cpu",
"CLASS.deviceclass.resource.k8s.io/devices" (devices that claims may be given at most), "requests.NAME" (an extended
resource), "manciple.dev/allocated.CLASS" (devices that claims hold: ours). How much an object counts is
`claims.kinds.resource_usage`'s business.

Sources: k8s.io/api/core/v1, ValidateResourceQuota* of pkg/apis/core/validation, pkg/apis/core/helper/helpers.go,
pkg/registry/core/resourcequota and pkg/printers/internalversion/printers.go of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, ClassVar

from msgspec.structs import replace

from claims.kinds.allocated_usage import is_allocated_key, read_key
from inventory.kinds.early import classes_are_served
from manciple.wire.base import ApiObject, QuantityText, Value, always, pb, status_metadata
from manciple.wire.errors import FieldError, immutable, invalid, required
from manciple.wire.quantity import read_amounts
from manciple.wire.registry import Column, Kind, Subresource
from manciple.wire.tables import AGE_COLUMN, NAME_COLUMN
from manciple.wire.validation import (
    SPEC,
    STATUS,
    Path,
    check_label_key,
    each,
    is_extended_resource_name,
    validate_object_meta,
    validate_object_meta_update,
)

PACKAGE = "io.k8s.api.core.v1"

Errors = list[FieldError]


class ScopedResourceSelectorRequirement(Value):
    """A scope that the counted objects must, or must not, be in. `operator`: In, NotIn, Exists or DoesNotExist.

    scope_name: such as PriorityClass. values: for In and NotIn.
    """

    ATOMIC: ClassVar = True

    scope_name: Annotated[str, pb(1)] = ""
    operator: Annotated[str, pb(2)] = ""
    values: Annotated[tuple[str, ...], pb(3)] = ()


class ScopeSelector(Value):
    """Scopes that must all hold."""

    ATOMIC: ClassVar = True

    match_expressions: Annotated[tuple[ScopedResourceSelectorRequirement, ...], pb(1)] = ()


class ResourceQuotaSpec(Value):
    """What is limited, and for which objects.

    hard: the limits, by the name of what is counted ("gpu.example.com.deviceclass.resource.k8s.io/devices").
    scopes: only objects in all of these count. scope_selector: the same, with values.
    """

    hard: Annotated[dict[str, QuantityText], pb(1, encoding="quantity")] = {}
    scopes: Annotated[tuple[str, ...], pb(2)] = ()
    scope_selector: Annotated[ScopeSelector | None, pb(3)] = None


class ResourceQuotaStatus(Value):
    """The limits in force, and what is used of them.

    hard: the limits in force. used: what the objects of the namespace add up to.
    """

    hard: Annotated[dict[str, QuantityText], pb(1, encoding="quantity")] = {}
    used: Annotated[dict[str, QuantityText], pb(2, encoding="quantity")] = {}


class ResourceQuota(ApiObject):
    """Limits on the totals of the objects in a namespace. Namespaced."""

    spec: Annotated[ResourceQuotaSpec, pb(2)] = always(ResourceQuotaSpec())
    status: Annotated[ResourceQuotaStatus, pb(3)] = always(ResourceQuotaStatus())


# How they are stored --------------------------------------------------------------------------------------------------


def create_quota(new: ResourceQuota) -> ResourceQuota:
    return replace(new, status=ResourceQuotaStatus())


def update_quota(new: ResourceQuota, old: ResourceQuota) -> ResourceQuota:
    return replace(new, status=old.status)


def update_quota_status(new: ResourceQuota, old: ResourceQuota) -> ResourceQuota:
    return replace(old, metadata=status_metadata(new.metadata, old.metadata), status=new.status)


# Rules ----------------------------------------------------------------------------------------------------------------


#: Keys without a slash that count whole objects.
OBJECT_COUNTS = frozenset(
    {
        "configmaps",
        "persistentvolumeclaims",
        "pods",
        "replicationcontrollers",
        "resourcequotas",
        "secrets",
        "services",
        "services.loadbalancers",
        "services.nodeports",
    }
)
#: How many claims there are, in the words of KEP-3063; a key while its kinds are served.
RESOURCE_CLAIMS = "resourceclaims"
COMPUTE = frozenset({"cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"})
STANDARD_KEYS = (
    OBJECT_COUNTS
    | COMPUTE
    | {
        "ephemeral-storage",
        "limits.ephemeral-storage",
        "requests.ephemeral-storage",
        "requests.storage",
    }
)
#: Not a key of a quota, but the name of a resource: two errors tell these apart.
STORAGE = "storage"
HUGE_PAGES = ("hugepages-", "requests.hugepages-")

POD_SCOPES = frozenset({"Terminating", "NotTerminating", "NotBestEffort", "PriorityClass", "CrossNamespacePodAffinity"})
BEST_EFFORT, VOLUME_CLASS = "BestEffort", "VolumeAttributesClass"
SCOPES = POD_SCOPES | {BEST_EFFORT, VOLUME_CLASS}
#: Scopes that an object is in or not, without values.
PLAIN_SCOPES = frozenset({"Terminating", "NotTerminating", BEST_EFFORT, "NotBestEffort", "CrossNamespacePodAffinity"})
CONFLICTING_SCOPES = ({BEST_EFFORT, "NotBestEffort"}, {"Terminating", "NotTerminating"})

_NOT_PLAIN = (
    "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, "
    "ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
)


def is_standard_key(key: str) -> bool:
    if key == RESOURCE_CLAIMS:
        return classes_are_served()
    return key in STANDARD_KEYS or key.startswith(HUGE_PAGES)


def validate_quota(quota: ResourceQuota) -> Errors:
    return validate_object_meta(quota.metadata, namespaced=True) + _validate_spec(quota.spec)


def validate_quota_update(new: ResourceQuota, old: ResourceQuota) -> Errors:
    found = validate_object_meta_update(new.metadata, old.metadata)
    if new.spec != old.spec:  # it may have keys of a feature that is off by now
        found += _validate_spec(new.spec)
    if set(new.spec.scopes) != set(old.spec.scopes):
        found.append(immutable(SPEC.child("scopes"), new.spec.scopes))
    return found


def validate_quota_status(new: ResourceQuota, old: ResourceQuota) -> Errors:
    found = validate_object_meta_update(new.metadata, old.metadata)
    found += _validate_amounts(new.status.hard, STATUS.child("hard"))
    return found + _validate_amounts(new.status.used, STATUS.child("used"))


def _validate_spec(spec: ResourceQuotaSpec) -> Errors:
    found = _validate_amounts(spec.hard, SPEC.child("hard"))
    path = SPEC.child("scopes")
    for scope in spec.scopes:
        if scope not in SCOPES:
            found.append(invalid(path, spec.scopes, "unsupported scope"))
        found += [invalid(path, spec.scopes, "unsupported scope applied to resource") for _ in _unfit(spec.hard, scope)]
    found += _validate_conflicts(spec.scopes, path, spec.scopes)
    return found + (_validate_selector(spec, spec.scope_selector) if spec.scope_selector is not None else [])


def _validate_amounts(amounts: Mapping[str, str], path: Path) -> Errors:
    return read_amounts(amounts, path, validate_name=_validate_key, is_counted=_counts_whole_things)[1]


def _counts_whole_things(key: str) -> bool:
    if is_allocated_key(key):
        return "_" not in key  # what is consumed and drawn may be fractions
    return key in OBJECT_COUNTS or key == RESOURCE_CLAIMS or is_extended_resource_name(key)


def validate_resource_name(name: str, path: Path) -> Errors:
    """What holds for the names of resources of quotas, pods and containers alike."""
    found = each(check_label_key(name), path, name)
    if not found and "/" not in name and name != STORAGE and not is_standard_key(name):
        found.append(invalid(path, name, "must be a standard resource type or fully qualified"))
    return found


def _validate_key(key: str, path: Path) -> Errors:
    found = validate_resource_name(key, path)
    if "/" in key:
        return found or _validate_allocated_key(key, path)
    if not is_standard_key(key):
        found.append(invalid(path, key, "must be a standard resource for quota"))
    return found


def _validate_allocated_key(key: str, path: Path) -> Errors:
    try:
        if is_allocated_key(key):
            read_key(key)
    except ValueError as error:
        return [invalid(path, key, str(error))]
    return []


def _unfit(hard: Iterable[str], scope: str) -> list[str]:
    """The keys that objects in `scope` cannot count for."""
    return [key for key in hard if is_standard_key(key) and not _fits(key, scope)]


def _fits(key: str, scope: str) -> bool:
    if scope == BEST_EFFORT:
        return key == "pods"
    if scope == VOLUME_CLASS:
        return key in ("persistentvolumeclaims", "requests.storage")
    return scope not in POD_SCOPES or key == "pods" or key in COMPUTE


def _validate_conflicts(scopes: Iterable[str], path: Path, shown: object) -> Errors:
    return [invalid(path, shown, "conflicting scopes") for pair in CONFLICTING_SCOPES if pair <= set(scopes)]


def _validate_selector(spec: ResourceQuotaSpec, selector: ScopeSelector) -> Errors:
    path = SPEC.child("scopeSelector", "matchExpressions")
    found: Errors = []
    for wanted in selector.match_expressions:
        if wanted.scope_name not in SCOPES:
            found.append(invalid(path.child("scopeName"), wanted.scope_name, "unsupported scope"))
        for _ in _unfit(spec.hard, wanted.scope_name):
            found.append(invalid(path, selector, "unsupported scope applied to resource"))
        found += _validate_operator(wanted, path)
    scopes = [wanted.scope_name for wanted in selector.match_expressions]
    return found + _validate_conflicts(scopes, path, spec.scopes)


def _validate_operator(wanted: ScopedResourceSelectorRequirement, path: Path) -> Errors:
    operator, found = wanted.operator, Errors()
    if wanted.scope_name in PLAIN_SCOPES and operator != "Exists":
        found.append(invalid(path.child("operator"), operator, _NOT_PLAIN))
    if operator in ("In", "NotIn"):
        if not wanted.values:
            message = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
            found.append(required(path.child("values"), message))
    elif operator in ("Exists", "DoesNotExist"):
        if wanted.values:
            message = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
            found.append(invalid(path.child("values"), wanted.values, message))
    else:
        found.append(invalid(path.child("operator"), operator, "not a valid selector operator"))
    return found


# Columns and kind -----------------------------------------------------------------------------------------------------


def _usage_cell(quota: ResourceQuota, *, limits: bool) -> str:
    status = quota.status
    return ", ".join(
        f"{key}: {status.used.get(key, '0')}/{hard}"
        for key, hard in sorted(status.hard.items())
        if key.startswith("limits.") == limits
    )


RESOURCE_QUOTA = Kind(
    group="",
    version="v1",
    plural="resourcequotas",
    short_names=("quota",),
    type=ResourceQuota,
    prepare_create=create_quota,
    prepare_update=update_quota,
    validate_create=validate_quota,
    validate_update=validate_quota_update,
    subresources={"status": Subresource(prepare_update=update_quota_status, validate_update=validate_quota_status)},
    policy_of=lambda quota: quota.spec,
    columns=(
        NAME_COLUMN,
        Column(
            name="Request",
            description="Usage of each limit on requests and counts",
            cell=lambda quota, _now: _usage_cell(quota, limits=False),
        ),
        Column(
            name="Limit",
            description="Usage of each limit on limits",
            cell=lambda quota, _now: _usage_cell(quota, limits=True),
        ),
        AGE_COLUMN,
    ),
    description="Limits on the totals of the objects in a namespace.",
)
