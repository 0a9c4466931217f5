"""Rules of ResourceSlice: what a driver may publish.

Source: pkg/apis/resource/validation/go (ValidateResourceSlice and below) of Kubernetes 1.36.
"""

from __future__ import annotations

import re

from inventory.kinds.device_rules import (
    TAINTS_MAX,
    validate_binding_conditions,
    validate_counter,
    validate_device_name,
    validate_driver_name,
    validate_exclusive_capacity,
    validate_fully_qualified_name,
    validate_node_allocatable,
    validate_node_mappings,
    validate_pool_name,
    validate_qualified_name,
    validate_shared_capacity,
    validate_skipped_operations,
    validate_taint,
)
from inventory.kinds.devices import (
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCounterConsumption,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from inventory.kinds.node_rules import validate_node_selector
from manciple.wire.errors import FieldError, invalid, required, too_long
from manciple.wire.validation import (
    IDENTIFIER_DOMAIN_MAX,
    IDENTIFIER_MAX,
    SPEC,
    Path,
    check_dns_label,
    check_dns_subdomain,
    each,
    required_or,
    validate_immutable,
    validate_list,
    validate_map,
    validate_object_meta,
    validate_object_meta_update,
    validate_set,
)

DEVICES_MAX = 128
#: Where any device has taints, consumes counters or has a list for an attribute.
DEVICES_WITH_ADVANCED_FEATURES_MAX = 64
ATTRIBUTES_AND_CAPACITIES_MAX = 32
#: Every element of a list counts.
ATTRIBUTE_VALUES_MAX = 48
#: Text and versions, in bytes.
ATTRIBUTE_TEXT_MAX = 64
COUNTER_SETS_MAX = 8
COUNTERS_MAX = 32
#: How many counter sets one device may draw from.
CONSUMED_COUNTER_SETS_MAX = 2

_QUALIFIED_NAME_MAX = IDENTIFIER_DOMAIN_MAX + len("/") + IDENTIFIER_MAX
_NUMBER = r"(0|[1-9]\d*)"
_PRERELEASE = r"(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
_BUILD = r"[0-9a-zA-Z-]+"
_SEMANTIC_VERSION = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-{_PRERELEASE}(\.{_PRERELEASE})*)?(\+{_BUILD}(\.{_BUILD})*)?", re.ASCII
)
_PLACEMENTS = "`nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection`"
_DEVICE_PLACEMENT_RULE = (
    "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true "
    "in the ResourceSlice spec"
)

Errors = list[FieldError]


def validate_slice(resource_slice: ResourceSlice) -> Errors:
    found = validate_object_meta(resource_slice.metadata, namespaced=False)
    return found + _validate_spec(resource_slice.spec, None)


def validate_slice_update(new: ResourceSlice, old: ResourceSlice) -> Errors:
    """Driver, pool name and node name cannot change; unchanged taints and capacities are not judged again."""
    return validate_object_meta_update(new.metadata, old.metadata) + _validate_spec(new.spec, old.spec)


def _validate_spec(spec: ResourceSliceSpec, old: ResourceSliceSpec | None) -> Errors:
    found = validate_driver_name(spec.driver, SPEC.child("driver")) + _validate_pool(spec.pool, SPEC.child("pool"))
    if old is not None:
        found += validate_immutable(spec.pool.name, old.pool.name, SPEC.child("pool", "name"))
        found += validate_immutable(spec.driver, old.driver, SPEC.child("driver"))
        found += validate_immutable(spec.node_name, old.node_name, SPEC.child("nodeName"))
    found += _validate_placement(spec)
    if spec.shared_counters and spec.devices:
        found.append(invalid(SPEC, "", "only one of `sharedCounters` or `devices` is allowed"))
    found += _validate_devices(spec, old)
    found += validate_set(
        spec.shared_counters,
        SPEC.child("sharedCounters"),
        _validate_counter_set,
        key=lambda counter_set: counter_set.name,
        maximum=COUNTER_SETS_MAX,
    )
    found += _validate_partition_type(spec)
    return found + validate_skipped_operations(spec.skip_node_operations, SPEC.child("skipNodeOperations"))


def _validate_pool(pool: ResourcePool, path: Path) -> Errors:
    found = validate_pool_name(pool.name, path.child("name"))
    if pool.resource_slice_count <= 0:
        found.append(invalid(path.child("resourceSliceCount"), pool.resource_slice_count, "must be greater than zero"))
    if pool.generation < 0:
        message = "must be greater than or equal to zero"
        found.append(invalid(path.child("generation"), pool.generation, message))
    return found


# Where devices are available -----------------------------------------------------------------------------------------


def _validate_node_name(name: str, path: Path, *, empty_message: str) -> Errors:
    return each(check_dns_subdomain(name), path, name) if name else [invalid(path, name, empty_message)]


def _validate_placement(spec: ResourceSliceSpec) -> Errors:
    found: Errors = []
    chosen: list[str] = []
    if spec.node_name is not None:
        chosen += ["`nodeName`"] if spec.node_name else []
        message = "must be either unset or set to a non-empty string"
        found += _validate_node_name(spec.node_name, SPEC.child("nodeName"), empty_message=message)
    if spec.node_selector is not None:
        chosen.append("`nodeSelector`")
        found += validate_node_selector(spec.node_selector, SPEC.child("nodeSelector"))
        terms = spec.node_selector.node_selector_terms
        if len(terms) != 1:
            at = SPEC.child("nodeSelector", "nodeSelectorTerms")
            found.append(invalid(at, terms, "must have exactly one node selector term"))
    for name, flag in (("allNodes", spec.all_nodes), ("perDeviceNodeSelection", spec.per_device_node_selection)):
        chosen += [f"`{name}`"] if flag else []
        if flag is False:
            found.append(invalid(SPEC.child(name), flag, "must be either unset or set to true"))
    if not chosen:
        found.append(required(SPEC, f"exactly one of {_PLACEMENTS} is required"))
    elif len(chosen) > 1:
        message = f"exactly one of {_PLACEMENTS} is required, but multiple fields are set"
        found.append(invalid(SPEC, f"{{{', '.join(chosen)}}}", message))
    return found


def _validate_device_placement(device: Device, path: Path, *, per_device: bool) -> Errors:
    if not per_device:
        if device.node_name is None and device.node_selector is None and device.all_nodes is None:
            return []
        message = (
            "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true "
            "in the ResourceSlice spec"
        )
        return [invalid(path, None, message)]
    found: Errors = []
    chosen: list[str] = []
    if device.node_name is not None:
        chosen += ["`nodeName`"] if device.node_name else []
        found += _validate_node_name(device.node_name, path.child("nodeName"), empty_message="must not be empty")
    if device.node_selector is not None:
        chosen.append("`nodeSelector`")
        found += validate_node_selector(device.node_selector, path.child("nodeSelector"))
    if device.all_nodes is not None:
        chosen += ["`allNodes`"] if device.all_nodes else []
        wrong = invalid(path.child("allNodes"), device.all_nodes, "must be either unset or set to true")
        found += [] if device.all_nodes else [wrong]
    if not chosen:
        found.append(required(path, _DEVICE_PLACEMENT_RULE))
    elif len(chosen) > 1:
        found.append(invalid(path, f"{{{', '.join(chosen)}}}", _DEVICE_PLACEMENT_RULE))
    return found


# Devices -------------------------------------------------------------------------------------------------------------


def _has_advanced_features(spec: ResourceSliceSpec) -> bool:
    return any(
        device.taints or device.consumes_counters or any(_lists_of(one) for one in device.attributes.values())
        for device in spec.devices
    )


def _lists_of(attribute: DeviceAttribute) -> int:
    """How many elements the attribute's lists have."""
    lists = (attribute.int_values, attribute.bool_values, attribute.string_values, attribute.version_values)
    return sum(len(values) for values in lists)


def _validate_devices(spec: ResourceSliceSpec, old: ResourceSliceSpec | None) -> Errors:
    known = {device.name: device for device in old.devices} if old is not None else {}
    maximum = DEVICES_WITH_ADVANCED_FEATURES_MAX if _has_advanced_features(spec) else DEVICES_MAX

    def validate_device(device: Device, path: Path) -> Errors:
        per_device = bool(spec.per_device_node_selection)
        return _validate_device(device, path, old=known.get(device.name), per_device=per_device)

    return validate_set(
        spec.devices, SPEC.child("devices"), validate_device, key=lambda device: device.name, maximum=maximum
    )


def _validate_device(device: Device, path: Path, *, old: Device | None, per_device: bool) -> Errors:
    found = validate_device_name(device.name, path.child("name")) + _validate_sizes(device, path)
    found += validate_map(
        device.attributes,
        path.child("attributes"),
        validate_key=validate_qualified_name,
        validate_item=_validate_attribute,
        longest_key=_QUALIFIED_NAME_MAX,
    )
    shared = bool(device.allow_multiple_allocations)
    if old is None or (old.capacity, bool(old.allow_multiple_allocations)) != (device.capacity, shared):
        found += validate_map(
            device.capacity,
            path.child("capacity"),
            validate_key=validate_qualified_name,
            validate_item=validate_shared_capacity if shared else validate_exclusive_capacity,
            longest_key=_QUALIFIED_NAME_MAX,
        )
    if old is None or old.taints != device.taints:
        found += validate_list(device.taints, path.child("taints"), validate_taint, maximum=TAINTS_MAX)
    found += validate_set(
        device.consumes_counters,
        path.child("consumesCounters"),
        _validate_consumption,
        key=lambda consumption: consumption.counter_set,
        maximum=CONSUMED_COUNTER_SETS_MAX,
    )
    found += _validate_device_placement(device, path, per_device=per_device)
    found += validate_binding_conditions(device.binding_conditions, device.binding_failure_conditions, path)
    mapped = path.child("nodeAllocatableResourceMappings")
    found += validate_node_mappings(device.node_allocatable_resource_mappings, device.capacity, mapped)
    at = path.child("nodeAllocatableResources")
    return found + validate_node_allocatable(device.node_allocatable_resources, device.capacity, at)


def _validate_sizes(device: Device, path: Path) -> Errors:
    found: Errors = []
    total = len(device.attributes) + len(device.capacity)
    if total > ATTRIBUTES_AND_CAPACITIES_MAX:
        message = f"the total number of attributes and capacities must not exceed {ATTRIBUTES_AND_CAPACITIES_MAX}"
        found.append(invalid(path, total, message))
    values = sum(max(_lists_of(attribute), 1) for attribute in device.attributes.values())
    if values > ATTRIBUTE_VALUES_MAX:
        message = f"the total number of attribute values must not exceed {ATTRIBUTE_VALUES_MAX}"
        found.append(invalid(path, values, message))
    return found


def _validate_attribute(attribute: DeviceAttribute, path: Path) -> Errors:
    """Exactly one field; absent and empty lists are the same value here, so both count as not set."""
    found: Errors = []
    if attribute.string_value is not None:
        found += _validate_text(attribute.string_value, path.child("string"))
    if attribute.version_value is not None:
        found += _validate_version(attribute.version_value, path.child("version"))
    found += validate_list(attribute.string_values, path.child("strings"), _validate_text)
    found += validate_list(attribute.version_values, path.child("versions"), _validate_version)
    scalars = (attribute.int_value, attribute.bool_value, attribute.string_value, attribute.version_value)
    lists = (attribute.int_values, attribute.bool_values, attribute.string_values, attribute.version_values)
    count = sum(value is not None for value in scalars) + sum(bool(values) for values in lists)
    if count != 1:
        found.append(invalid(path, attribute if count else "", "exactly one value must be specified"))
    return found


def _validate_text(text: str, path: Path) -> Errors:
    return [too_long(path, ATTRIBUTE_TEXT_MAX)] if len(text.encode()) > ATTRIBUTE_TEXT_MAX else []


def _validate_version(version: str, path: Path) -> Errors:
    found: Errors = []
    if not _SEMANTIC_VERSION.fullmatch(version):
        found.append(invalid(path, version, "must be a string compatible with semver.org spec 2.0.0"))
    return found + _validate_text(version, path)


# Counters ------------------------------------------------------------------------------------------------------------


def _validate_counter_set(counter_set: CounterSet, path: Path) -> Errors:
    found = required_or(check_dns_label, counter_set.name, path.child("name"))
    return found + _validate_counters(counter_set, path.child("counters"))


def _validate_consumption(consumption: DeviceCounterConsumption, path: Path) -> Errors:
    found = required_or(check_dns_label, consumption.counter_set, path.child("counterSet"))
    return found + _validate_counters(consumption, path.child("counters"))


def _validate_counters(holder: CounterSet | DeviceCounterConsumption, path: Path) -> Errors:
    if not holder.counters:
        return [required(path)]
    return validate_map(
        holder.counters,
        path,
        validate_key=validate_device_name,
        validate_item=validate_counter,
        maximum=COUNTERS_MAX,
    )


def _validate_partition_type(spec: ResourceSliceSpec) -> Errors:
    """Every device that consumes counters has the attribute, as text."""
    name, path = spec.partition_type_attribute, SPEC.child("partitionTypeAttribute")
    if name is None:
        return []
    if not any(device.consumes_counters for device in spec.devices):
        return [invalid(path, name, "may only be set on a slice which declares devices that consume counters")]
    if found := validate_fully_qualified_name(name, path):
        return found
    bare = name.removeprefix(f"{spec.driver}/")
    for position, device in enumerate(spec.devices):
        if not device.consumes_counters:
            continue
        attribute = device.attributes.get(name) or device.attributes.get(bare)
        at = SPEC.child("devices").at(position).child("attributes").key(name)
        if attribute is None:
            message = "device consumes counters and `partitionTypeAttribute` names this attribute, so it must be set"
            found.append(required(at, message))
        elif attribute.string_value is None:
            message = "must be a string value because `partitionTypeAttribute` names this attribute"
            found.append(invalid(at, attribute, message))
    return found
