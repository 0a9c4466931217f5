"""Rules of what v1alpha2 says of classes, parameters and named resources, in the words of Kubernetes 1.30. PURE.

Source: pkg/apis/resource/validation/validation.go and .../structured/namedresources/validation of Kubernetes 1.30.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from inventory.classic.selectors import problem_of
from inventory.classic.values import (
    DriverRequests,
    NamedResourcesFilter,
    NamedResourcesRequest,
    ResourceClaimParameters,
    ResourceClass,
    ResourceClassParameters,
    ResourceClassParametersReference,
    ResourceFilter,
    ResourceRequest,
    ResourceSlice,
    VendorParameters,
)
from inventory.drafts.structured import rules as drafts
from inventory.kinds.named_resources import (
    NamedResourcesAttribute,
    NamedResourcesInstance,
    ResourceClaimParametersReference,
)
from inventory.kinds.node_rules import validate_node_selector
from manciple.wire.errors import FieldError, duplicate, forbidden, invalid, required
from manciple.wire.validation import (
    DRIVER_NAME_MAX,
    Path,
    check_dns_label,
    check_dns_subdomain,
    each,
    validate_immutable,
    validate_object_meta,
    validate_object_meta_update,
)

Errors = list[FieldError]
ItemT = TypeVar("ItemT")

_MODEL_RULE = "exactly one structured model field must be set"
_NUMBER = r"(0|[1-9]\d*)"
_PRERELEASE = r"(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
_BUILD = r"[0-9a-zA-Z-]+"
_SEMANTIC_VERSION = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-{_PRERELEASE}(\.{_PRERELEASE})*)?(\+{_BUILD}(\.{_BUILD})*)?", re.ASCII
)

# Words of 1.30 --------------------------------------------------------------------------------------------------------


def too_long_bytes(path: Path, maximum: int) -> FieldError:
    return FieldError(type="FieldValueTooLong", field=path, detail=f"must have at most {maximum} bytes", bad_value="")


def longer_than(path: Path, maximum: int) -> FieldError:
    """Of lists as well as of texts."""
    return FieldError(type="FieldValueTooLong", field=path, detail=f"may not be longer than {maximum}", bad_value="")


def validate_driver_name(name: str, path: Path) -> Errors:
    """Whoever names none is told both that it is required and what it would have to look like."""
    found = [] if name else [required(path)]
    if len(name.encode()) > DRIVER_NAME_MAX:
        found.append(too_long_bytes(path, DRIVER_NAME_MAX))
    return found + each(check_dns_subdomain(name.lower()), path, name)


def validate_name(name: str, path: Path) -> Errors:
    """Of a node, an instance, a class."""
    return each(check_dns_subdomain(name), path, name)


# References -----------------------------------------------------------------------------------------------------------


def validate_claim_reference(reference: ResourceClaimParametersReference | None, path: Path) -> Errors:
    if reference is None:
        return []
    return [required(path.child(name)) for name in ("kind", "name") if not getattr(reference, name)]


def validate_class_reference(reference: ResourceClassParametersReference | None, path: Path) -> Errors:
    if reference is None:
        return []
    found = [required(path.child(name)) for name in ("kind", "name") if not getattr(reference, name)]
    if reference.namespace:
        found += each(check_dns_label(reference.namespace), path.child("namespace"), reference.namespace)
    return found


# Classes --------------------------------------------------------------------------------------------------------------


def validate_class(new: ResourceClass) -> Errors:
    found = validate_object_meta(new.metadata, namespaced=False)
    found += validate_driver_name(new.driver_name, Path("driverName"))
    found += validate_class_reference(new.parameters_ref, Path("parametersRef"))
    if new.suitable_nodes is not None:
        found += validate_node_selector(new.suitable_nodes, Path("suitableNodes"))
    return found


# Parameters -----------------------------------------------------------------------------------------------------------


def validate_claim_parameters(new: ResourceClaimParameters) -> Errors:
    found = validate_object_meta(new.metadata, namespaced=True)
    found += validate_claim_reference(new.generated_from, Path("generatedFrom"))
    if new.driver_requests and new.requests:
        found.append(forbidden(Path("requests"), "must not be set besides `driverRequests`"))
    found += drafts.validate_requests(new.requests, Path("requests"))
    return found + _one_for_each_driver(new.driver_requests, Path("driverRequests"), _validate_requests)


def validate_class_parameters(new: ResourceClassParameters) -> Errors:
    found = validate_object_meta(new.metadata, namespaced=True)
    found += validate_class_reference(new.generated_from, Path("generatedFrom"))
    found += _one_for_each_driver(new.filters, Path("filters"), _validate_model)
    if isinstance(new.vendor_parameters, dict):
        return found  # as the first draft of KEP-4381 has them
    return found + _one_for_each_driver(new.vendor_parameters, Path("vendorParameters"), lambda _one, _path: [])


DriverT = TypeVar("DriverT", DriverRequests, ResourceFilter, VendorParameters)


def _one_for_each_driver(
    entries: Sequence[DriverT], path: Path, validate_rest: Callable[[DriverT, Path], Errors]
) -> Errors:
    found: Errors = []
    seen: set[str] = set()
    for number, entry in enumerate(entries):
        here, name = path.at(number), entry.driver_name
        found += validate_driver_name(name, here.child("driverName"))
        if name in seen:
            found.append(duplicate(here.child("driverName"), name))
        seen.add(name)
        found += validate_rest(entry, here)
    return found


def _validate_requests(entry: DriverRequests, path: Path) -> Errors:
    here = path.child("requests")
    if not entry.requests:
        return [required(here, "empty entries with no requests are not allowed")]
    return [
        error for number, request in enumerate(entry.requests) for error in _validate_model(request, here.at(number))
    ]


def _validate_model(entry: ResourceRequest | ResourceFilter, path: Path) -> Errors:
    if isinstance(entry, ResourceFilter) and entry.named_resources_with_attributes is not None:
        selector, where = entry.named_resources_with_attributes.selector, path.child(drafts.MODEL, "selector")
        several = [invalid(path, "", _MODEL_RULE)] if entry.named_resources is not None else []
        return several + drafts.validate_selector(selector, where, entry.driver_name)
    if entry.named_resources is None:
        return [required(path, _MODEL_RULE)]
    return _validate_selector(entry.named_resources, path.child("namedResources", "selector"))


def _validate_selector(model: NamedResourcesRequest | NamedResourcesFilter, path: Path) -> Errors:
    if not model.selector:
        return [required(path)]
    problem = problem_of(model.selector)
    return [invalid(path, model.selector, problem)] if problem else []


# Slices ---------------------------------------------------------------------------------------------------------------


def validate_slice(new: ResourceSlice) -> Errors:
    found = validate_object_meta(new.metadata, namespaced=False)
    if new.node_name:
        found += validate_name(new.node_name, Path("nodeName"))
    found += validate_driver_name(new.driver_name, Path("driverName"))
    if new.named_resources is None:
        return [*found, required(Path("<nil>"), _MODEL_RULE)]
    instances = new.named_resources.instances
    return found + _named_set(instances, Path("namedResources").child("instances"), _validate_instance)


def validate_slice_update(new: ResourceSlice, old: ResourceSlice) -> Errors:
    return [
        *validate_object_meta_update(new.metadata, old.metadata),
        *validate_slice(new),
        *validate_immutable(new.node_name, old.node_name, Path("nodeName")),
        *validate_immutable(new.driver_name, old.driver_name, Path("driverName")),
    ]


NamedT = TypeVar("NamedT", NamedResourcesInstance, NamedResourcesAttribute)


def _named_set(items: Sequence[NamedT], path: Path, validate_rest: Callable[[NamedT, Path], Errors]) -> Errors:
    found: Errors = []
    seen: set[str] = set()
    for number, item in enumerate(items):
        here = path.at(number)
        found += validate_name(item.name, here.child("name"))
        if item.name in seen:
            found.append(duplicate(here.child("name"), item.name))
        seen.add(item.name)
        found += validate_rest(item, here)
    return found


def _validate_instance(instance: NamedResourcesInstance, path: Path) -> Errors:
    return _named_set(instance.attributes, path.child("attributes"), _validate_attribute)


def _validate_attribute(attribute: NamedResourcesAttribute, path: Path) -> Errors:
    found: Errors = []
    version = attribute.version_value
    if version is not None and not _SEMANTIC_VERSION.fullmatch(version):
        rule = "must be a string compatible with semver.org spec 2.0.0"
        found.append(invalid(path.child("version"), version, rule))
    values = values_of(attribute)
    if not values:
        found.append(required(path, "exactly one value must be set"))
    elif len(values) > 1:
        found.append(invalid(path, values, "exactly one field must be set, not several"))
    return found


_VALUES = {
    "bool": "bool_value",
    "int": "int_value",
    "intSlice": "int_slice",
    "quantity": "quantity",
    "string": "string_value",
    "stringSlice": "string_slice",
    "version": "version_value",
}


def values_of(attribute: NamedResourcesAttribute) -> list[str]:
    """Which values are set, by their names in JSON, in the order of the alphabet."""
    return [name for name, member in _VALUES.items() if getattr(attribute, member) is not None]
