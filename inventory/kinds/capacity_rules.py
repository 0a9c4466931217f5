"""Rules of device capacity: request policies, shared counters, and what an allocation costs its node.

Amounts are text that the decoder has not looked into, so every rule here first reads them. Source:
pkg/apis/resource/validation/validation.go of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from inventory.kinds.devices import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    Counter,
    DeviceCapacity,
    NodeAllocatableMapping,
    NodeAllocatableOverhead,
    NodeAllocatableResource,
)
from manciple.wire.errors import FieldError, duplicate, forbidden, invalid, not_found, required, too_many
from manciple.wire.quantity import MAX_INT64, NEGATIVE_MESSAGE, Quantity, read_quantity
from manciple.wire.validation import Path

#: How many amounts a policy may list.
VALID_VALUES_MAX = 10

Errors = list[FieldError]


def validate_quantity(text: str, path: Path) -> Errors:
    return read_quantity(text, path)[1]


def validate_counter(counter: Counter, path: Path) -> Errors:
    return validate_quantity(counter.value, path.child("value"))


def validate_exclusive_capacity(capacity: DeviceCapacity, path: Path) -> Errors:
    """The capacity of a device that one request gets whole."""
    found = validate_quantity(capacity.value, path.child("value"))
    if capacity.request_policy is not None:
        found.append(forbidden(path.child("requestPolicy"), "allowMultipleAllocations must be true"))
    return found


def validate_shared_capacity(capacity: DeviceCapacity, path: Path) -> Errors:
    """The capacity of a device that several requests share."""
    total, found = read_quantity(capacity.value, path.child("value"))
    if total is None or capacity.request_policy is None:
        return found
    return _validate_policy(capacity.request_policy, total, path.child("requestPolicy"))


def _validate_policy(policy: CapacityRequestPolicy, total: Quantity, path: Path) -> Errors:
    if policy.valid_values and policy.valid_range is not None:
        message = 'exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time'
        return [forbidden(path, message)]
    kind = "validValues" if policy.valid_values else "validRange" if policy.valid_range is not None else ""
    if policy.default is None:
        return [required(path.child("default"), f"required when {kind} is defined")] if kind else []
    default, found = read_quantity(policy.default, path.child("default"))
    if default is None:
        return found
    if policy.valid_range is not None:
        return _validate_range(policy.valid_range, default, total, path.child(kind))
    return _validate_values(policy.valid_values, default, total, path.child(kind)) if kind else []


def _validate_values(texts: Sequence[str], default: Quantity, total: Quantity, path: Path) -> Errors:
    if len(texts) > VALID_VALUES_MAX:
        return [too_many(path, len(texts), VALID_VALUES_MAX)]
    found: Errors = []
    values: list[Quantity] = []
    for position, text in enumerate(texts):
        value, wrong = read_quantity(text, path.at(position))
        found += wrong
        if value is None:
            continue
        if values and values[-1] > value:
            found.append(invalid(path.at(position), text, "values must be sorted in ascending order"))
        if value > total:
            found.append(invalid(path.at(position), text, f"option is larger than capacity value: {total}"))
        if value in values:
            found.append(duplicate(path.at(position), text))
        values.append(value)
    if default not in values:
        found.append(invalid(path, str(default), "default value is not valid according to the requestPolicy"))
    return found


def _validate_range(bounds: CapacityRequestPolicyRange, default: Quantity, total: Quantity, path: Path) -> Errors:
    if bounds.min is None:
        return [required(path.child("min"), "required when validRange is defined")]
    amounts: dict[str, Quantity] = {"default": default}
    found: Errors = []
    for name, text in (("min", bounds.min), ("max", bounds.max), ("step", bounds.step)):
        amount, wrong = (None, []) if text is None else read_quantity(text, path.child(name))
        found += wrong
        if amount is not None:
            amounts[name] = amount
    if found:
        return found
    return _validate_bounds(amounts, total, path) + _validate_step(amounts, total, path)


def _validate_bounds(amounts: Mapping[str, Quantity], total: Quantity, path: Path) -> Errors:
    minimum, maximum, default = amounts["min"], amounts.get("max"), amounts["default"]
    found: Errors = []
    if minimum > total:
        found.append(invalid(path.child("min"), str(minimum), f"min is larger than capacity value: {total}"))
    if default < minimum:
        found.append(invalid(path.child("min"), str(default), f"default is less than min: {minimum}"))
    if maximum is None:
        return found
    if minimum > maximum:
        found.append(invalid(path.child("max"), str(minimum), f"min is larger than max: {maximum}"))
    if maximum > total:
        found.append(invalid(path.child("max"), str(maximum), f"max is larger than capacity value: {total}"))
    if default > maximum:
        found.append(invalid(path.child("max"), str(default), f"default is more than max: {maximum}"))
    return found


def _validate_step(amounts: Mapping[str, Quantity], total: Quantity, path: Path) -> Errors:
    step, minimum = amounts.get("step"), amounts["min"]
    if step is None:
        return []
    if step.sign <= 0:
        return [invalid(path.child("step"), str(step), "must be greater than zero")]
    found: Errors = []
    if minimum + step > total:
        message = f"one step {minimum + step} is larger than capacity value: {total}"
        found.append(invalid(path.child("step"), str(step), message))
    for name, amount in amounts.items():
        if amount.sign < 0:
            found.append(invalid(path.child(name), str(amount), NEGATIVE_MESSAGE))
        elif amount > Quantity.of(MAX_INT64):
            found.append(invalid(path.child(name), str(amount), f"must not be larger than {MAX_INT64}"))
    for name in ("default", "max"):
        amount = amounts.get(name, minimum)
        if (amount.nanos - minimum.nanos) % step.nanos:
            message = f"value is not a multiple of a given step ({step}) from ({minimum})"
            found.append(invalid(path.child("step"), str(amount), message))
    return found


# Node allocatable resources ------------------------------------------------------------------------------------------

_NODE_RESOURCES = ("cpu", "memory", "ephemeral-storage")


def is_node_resource(name: str) -> bool:
    """Whether nodes have it of their own: "cpu", "hugepages-2Mi"."""
    return name in _NODE_RESOURCES or name.startswith("hugepages-")


def validate_node_allocatable(
    resources: Mapping[str, NodeAllocatableResource], capacities: Mapping[str, DeviceCapacity], path: Path
) -> Errors:
    """What an allocation costs its node, by the node's resource."""
    found: Errors = []
    for name, resource in resources.items():
        at = path.key(name)
        if not is_node_resource(name):
            found.append(invalid(at, name, "must be a node allocatable resource name"))
        if resource.mapping is None and resource.overhead is None:
            found.append(required(at, "at least one of mapping or overhead must be set"))
        if resource.mapping is not None:
            found += _validate_mapping(resource.mapping, capacities, at.child("mapping"))
        if resource.overhead is not None:
            found += _validate_overhead(resource.overhead, at.child("overhead"))
    return found


def _validate_mapping(mapping: NodeAllocatableMapping, capacities: Mapping[str, DeviceCapacity], path: Path) -> Errors:
    found: Errors = []
    key, multiplier = mapping.capacity_key, mapping.capacity_multiplier
    if key == "":
        found.append(invalid(path.child("capacityKey"), "", "capacityKey must not be an empty string"))
    elif key is not None and key not in capacities:
        found.append(not_found(path.child("capacityKey"), key))
    if key is not None and multiplier is None:
        found.append(
            required(path.child("capacityMultiplier"), "capacityMultiplier is required when capacityKey is set")
        )
    if key is None and multiplier is not None:
        found.append(required(path.child("capacityKey"), "capacityKey is required when capacityMultiplier is set"))
    for name, text in (("capacityMultiplier", multiplier), ("deviceMultiplier", mapping.device_multiplier)):
        found += [] if text is None else validate_amount(text, path.child(name), zero_allowed=False)
    return found


def _validate_overhead(overhead: NodeAllocatableOverhead, path: Path) -> Errors:
    if overhead.per_pod is None and overhead.per_container is None:
        return [invalid(path, "", "at least one of perPod or perContainer must be set")]
    found: Errors = []
    for name, text in (("perPod", overhead.per_pod), ("perContainer", overhead.per_container)):
        found += [] if text is None else validate_amount(text, path.child(name), zero_allowed=True)
    return found


def validate_amount(text: str, path: Path, *, zero_allowed: bool) -> Errors:
    """A quantity above zero, or at least zero."""
    amount, found = read_quantity(text, path)
    if amount is None or amount.sign > 0 or (zero_allowed and amount.is_zero):
        return found
    return [invalid(path, str(amount), "must be non-negative" if zero_allowed else "must be positive")]
