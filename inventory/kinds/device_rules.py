"""Rules of devices (names, selectors, configuration, taints, capacity and counters), and of DeviceClass.

Rules may not import the CEL environment, which stands above them: its owner registers a checker of expressions when the
process starts (`set_checker`). Until then only the length of expressions is checked.
Source: pkg/apis/resource/validation/validation.go of Kubernetes 1.36.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from inventory.kinds.devices import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    Counter,
    DeviceCapacity,
    DeviceClass,
    DeviceClassConfiguration,
    DeviceClassSpec,
    DeviceConfiguration,
    DeviceSelector,
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintRuleSpec,
    DeviceToleration,
    NodeAllocatableMapping,
    NodeAllocatableOverhead,
    NodeAllocatableResource,
    NodeAllocatableResourceMapping,
)
from inventory.kinds.node_rules import validate_node_selector
from manciple.wire.errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_found,
    not_supported,
    required,
    too_long,
    too_many,
)
from manciple.wire.limits import short_text_cache
from manciple.wire.quantity import MAX_INT64, NEGATIVE_MESSAGE, Quantity, read_quantity
from manciple.wire.validation import (
    DRIVER_NAME_MAX,
    IDENTIFIER_MAX,
    POOL_NAME_MAX,
    SPEC,
    STATUS,
    Path,
    check_c_identifier,
    check_dns_label,
    check_dns_subdomain,
    check_driver_name,
    check_label_key,
    check_label_value,
    each,
    is_extended_resource_name,
    required_or,
    validate_conditions,
    validate_list,
    validate_object_meta,
    validate_object_meta_update,
    validate_set,
)

# Expressions ----------------------------------------------------------------------------------------------------------


#: In bytes (upstream: CELSelectorExpressionMaxLength).
EXPRESSION_MAX = 10 * 1024

#: A checker's error for an expression that compiles and exceeds the cost limit.
TOO_COMPLEX = "too complex, exceeds cost limit"

#: expression -> (error, estimated cost). error: "compilation failed: ERROR: ...", TOO_COMPLEX, or "".
Checker = Callable[[str], tuple[str, int]]


def accept_all(_expression: str) -> tuple[str, int]:
    """The checker of a process without a CEL environment."""
    return "", 0


_checkers: list[Checker] = [accept_all]


def set_checker(checker: Checker) -> Checker:
    """Set the checker of new and changed expressions in this process. Returns the previous one."""
    before = _checkers[0]
    _checkers[:] = [checker]
    return before


def validate_expression(expression: str, path: Path) -> list[FieldError]:
    """At most one error: too long, or else the checker's."""
    return _validate_expression(expression, path)[0]


def _validate_expression(expression: str, path: Path) -> tuple[list[FieldError], int]:
    """(errors, estimated cost)"""
    if len(expression.encode()) > EXPRESSION_MAX:
        return [too_long(path, EXPRESSION_MAX)], 0
    problem, cost = _checkers[0](expression)
    if problem == TOO_COMPLEX:
        return [forbidden(path, problem)], 0
    return ([invalid(path, expression, problem)] if problem else []), cost


SELECTORS_MAX = 32
#: Limits on all expressions of an object together. Equal ones are compiled and counted once. Kubernetes only limits
#: each expression, and its schema allows 8,192 in a claim: half a minute of compiling. The limits allow a claim as
#: many different expressions as 32 requests without alternatives may have, as many bytes as one full list of
#: selectors of a class, and the estimated cost of four such lists at the limit of a single expression.
DISTINCT_EXPRESSIONS_MAX = 32 * SELECTORS_MAX
EXPRESSION_BYTES_MAX = SELECTORS_MAX * EXPRESSION_MAX
TOTAL_COST_MAX = 4 * SELECTORS_MAX * 1_000_000


class ExpressionBudget:
    """Checks the expressions of an object in their order against the limits on all of them together."""

    def __init__(self, expressions: Iterable[str], path: Path) -> None:
        """path: the field of an error about all of them."""
        self._counted: set[str] = set()
        self._cost = 0
        distinct = set(expressions)
        self.errors: list[FieldError] = []
        if len(distinct) > DISTINCT_EXPRESSIONS_MAX:
            detail = f"must have at most {DISTINCT_EXPRESSIONS_MAX} different selector expressions"
            self.errors = [
                FieldError(type="FieldValueTooMany", field=str(path), detail=detail, bad_value=len(distinct))
            ]
        elif sum(len(text.encode()) for text in distinct) > EXPRESSION_BYTES_MAX:
            detail = f"all different selector expressions together may not be more than {EXPRESSION_BYTES_MAX} bytes"
            self.errors = [FieldError(type="FieldValueTooLong", field=str(path), detail=detail, bad_value="")]
        #: once a limit is exceeded, no more expressions are compiled
        self._exceeded = bool(self.errors)

    def validate(self, expression: str, path: Path) -> list[FieldError]:
        """Like validate_expression; no error once a limit is exceeded."""
        if self._exceeded:
            return []
        found, cost = _validate_expression(expression, path)
        if expression not in self._counted:
            self._counted.add(expression)
            self._cost += cost
        if self._cost <= TOTAL_COST_MAX:
            return found
        self._exceeded = True
        factor = self._cost / TOTAL_COST_MAX
        detail = (
            f"{TOO_COMPLEX}: the estimated cost of all selectors up to this one exceeds the limit for one object by a "
            f"factor of {factor:.1f} (simplify the expressions, or use fewer different ones)"
        )
        return [*found, forbidden(path, detail)]


# Devices --------------------------------------------------------------------------------------------------------------


CONFIGURATIONS_MAX = 32
TOLERATIONS_MAX = 16
TAINTS_MAX = 16
BINDING_CONDITIONS_MAX = 4
#: Opaque parameters, as compact JSON, in bytes.
PARAMETERS_MAX = 10 * 1024

TAINT_EFFECTS = ("NoExecute", "NoSchedule", "None")
TOLERATION_OPERATORS = ("Equal", "Exists")
SKIPPABLE_OPERATIONS = ("*", "NodePrepareResources", "NodeUnprepareResources")

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

Errors = list[FieldError]


# Names ---------------------------------------------------------------------------------------------------------------


def validate_driver_name(name: str, path: Path) -> Errors:
    """A DNS subdomain of at most 63 bytes; upper case is allowed."""
    if not name:
        return [required(path)]
    long = [too_long(path, DRIVER_NAME_MAX)] if len(name.encode()) > DRIVER_NAME_MAX else []
    return long + each(check_driver_name(name), path, name)


def validate_pool_name(name: str, path: Path) -> Errors:
    """DNS subdomains separated by slashes, at most 253 bytes together."""
    if not name:
        return [required(path)]
    long = [too_long(path, POOL_NAME_MAX)] if len(name.encode()) > POOL_NAME_MAX else []
    return long + [error for part in name.split("/") for error in each(check_dns_subdomain(part), path, part)]


def validate_device_name(name: str, path: Path) -> Errors:
    return each(check_dns_label(name), path, name)


def validate_device_class_name(name: str, path: Path) -> Errors:
    return required_or(check_dns_subdomain, name, path)


def validate_label_key(key: str, path: Path) -> Errors:
    return each(check_label_key(key), path, key)


def validate_identifier(identifier: str, path: Path) -> Errors:
    long = [too_long(path, IDENTIFIER_MAX)] if len(identifier.encode()) > IDENTIFIER_MAX else []
    return long + each(check_c_identifier(identifier), path, identifier)


def validate_qualified_name(name: str, path: Path) -> Errors:
    """The name of an attribute or capacity: an identifier, optionally prefixed by `domain/`."""
    return [] if _is_qualified_name(name) else _qualified_name_errors(name, path)


@short_text_cache(16384)
def _is_qualified_name(name: str) -> bool:
    """Cached: drivers repeat the same few names on every device."""
    return not _qualified_name_errors(name, Path())


def _qualified_name_errors(name: str, path: Path) -> Errors:
    domain, slash, identifier = name.partition("/")
    if not slash:
        return validate_identifier(name, path)
    if "/" in identifier:
        return [invalid(path, name, "must not contain more than one slash")]
    found = validate_driver_name(domain, path) if domain else [invalid(path, "", "the domain must not be empty")]
    if not identifier:
        return [*found, invalid(path, "", "the name must not be empty")]
    return found + validate_identifier(identifier, path)


def validate_fully_qualified_name(name: str, path: Path) -> Errors:
    """A qualified name with a domain."""
    found = validate_qualified_name(name, path)
    if "/" not in name:
        found.append(invalid(path, name, "a fully qualified name must be a domain and a name separated by a slash"))
    return found


def validate_uid(uid: str, path: Path) -> Errors:
    if _UUID.fullmatch(uid):
        return []
    form = "`xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal characters"
    return [invalid(path, uid, f"uid must be in RFC 4122 normalized form, {form}")]


# Selectors and configurations ----------------------------------------------------------------------------------------


def validate_selectors(selectors: Sequence[DeviceSelector], path: Path, *, budget: ExpressionBudget | None) -> Errors:
    """budget: the object's. None for stored selectors, which are not compiled again."""

    def validate_selector(selector: DeviceSelector, at: Path) -> Errors:
        if selector.cel is None:
            return [required(at.child("cel"))]
        return [] if budget is None else budget.validate(selector.cel.expression, at.child("cel", "expression"))

    return validate_list(selectors, path, validate_selector, maximum=SELECTORS_MAX)


def expressions_of(selectors: Iterable[DeviceSelector]) -> Iterator[str]:
    return (selector.cel.expression for selector in selectors if selector.cel is not None)


def validate_configuration(configuration: DeviceConfiguration, path: Path, *, stored: bool = False) -> Errors:
    """stored: the parameters were accepted before, so their size is not checked again."""
    if configuration.opaque is None:
        return [required(path.child("opaque"))]
    opaque, at = configuration.opaque, path.child("opaque")
    found = validate_driver_name(opaque.driver, at.child("driver"))
    return found + validate_raw(opaque.parameters, at.child("parameters"), maximum=None if stored else PARAMETERS_MAX)


def validate_raw(value: Any, path: Path, *, maximum: int | None) -> Errors:
    """A JSON object of at most `maximum` bytes."""
    if value is None:
        return [required(path)]
    if maximum is not None and len(msgspec.json.encode(value)) > maximum:
        return [too_long(path, maximum)]
    return [] if isinstance(value, dict) else [invalid(path, "<value omitted>", "must be a valid JSON object")]


# Taints and tolerations ----------------------------------------------------------------------------------------------


def validate_taint(taint: DeviceTaint, path: Path, *, old: DeviceTaint | None = None) -> Errors:
    """An unchanged effect is not validated again."""
    found = validate_label_key(taint.key, path.child("key"))
    found += each(check_label_value(taint.value), path.child("value"), taint.value)
    if old is not None and old.effect == taint.effect:
        return found
    if not taint.effect:
        found.append(required(path.child("effect")))
    elif taint.effect not in TAINT_EFFECTS:
        found.append(not_supported(path.child("effect"), taint.effect, TAINT_EFFECTS))
    return found


def validate_tolerations(tolerations: Sequence[DeviceToleration], path: Path) -> Errors:
    return validate_list(tolerations, path, _validate_toleration, maximum=TOLERATIONS_MAX)


def _validate_toleration(toleration: DeviceToleration, path: Path) -> Errors:
    found = validate_label_key(toleration.key, path.child("key")) if toleration.key else []
    if toleration.operator == "Exists":
        if toleration.value:
            found.append(invalid(path.child("value"), toleration.value, "must be empty for operator `Exists`"))
    elif toleration.operator == "Equal":
        found += each(check_label_value(toleration.value), path.child("value"), toleration.value)
    elif not toleration.operator:
        found.append(required(path.child("operator")))
    else:
        found.append(not_supported(path.child("operator"), toleration.operator, TOLERATION_OPERATORS))
    if toleration.effect and toleration.effect not in TAINT_EFFECTS:
        found.append(not_supported(path.child("effect"), toleration.effect, TAINT_EFFECTS))
    return found


# What devices and allocation results have in common ------------------------------------------------------------------


def validate_binding_conditions(conditions: Sequence[str], failures: Sequence[str], path: Path) -> Errors:
    """Either both lists or neither is set, and no condition is listed twice."""
    at, failures_at = path.child("bindingConditions"), path.child("bindingFailureConditions")
    found: Errors = []
    for listed, where in ((conditions, at), (failures, failures_at)):
        found += validate_set(listed, where, validate_label_key, key=str, maximum=BINDING_CONDITIONS_MAX)
    for position, condition in enumerate(failures):
        if condition in conditions:
            message = "bindingFailureConditions must not overlap with bindingConditions"
            found.append(invalid(failures_at.at(position), condition, message))
    if failures and not conditions:
        found.append(invalid(at, conditions, "bindingConditions are required to use bindingFailureConditions"))
    if conditions and not failures:
        found.append(invalid(failures_at, failures, "bindingFailureConditions are required to use bindingConditions"))
    return found


def validate_skipped_operations(operations: Sequence[str], path: Path) -> Errors:
    """Known operations, each once. Skipping preparation requires skipping unpreparation."""
    found = [
        not_supported(path.at(position), operation, SKIPPABLE_OPERATIONS)
        for position, operation in enumerate(operations)
        if operation not in SKIPPABLE_OPERATIONS
    ]
    for position, operation in enumerate(operations):
        if operation in operations[:position]:
            found.append(duplicate(path.at(position), operation))
    skipped = set(operations)
    if "NodePrepareResources" in skipped and not skipped & {"NodeUnprepareResources", "*"}:
        message = "NodePrepareResources cannot be skipped unless NodeUnprepareResources is also skipped"
        found.append(invalid(path, operations, message))
    return found


# Taint rules ----------------------------------------------------------------------------------------------------------


#: The maximum of conditions in the status of a rule.
RULE_CONDITIONS_MAX = 8


def validate_rule(rule: DeviceTaintRule) -> Errors:
    return validate_object_meta(rule.metadata, namespaced=False) + _validate_rule_spec(rule.spec, None)


def validate_rule_update(new: DeviceTaintRule, old: DeviceTaintRule) -> Errors:
    return validate_object_meta_update(new.metadata, old.metadata) + _validate_rule_spec(new.spec, old.spec)


def validate_rule_status(new: DeviceTaintRule, old: DeviceTaintRule) -> Errors:
    path, conditions = STATUS.child("conditions"), new.status.conditions
    found = validate_object_meta_update(new.metadata, old.metadata) + validate_conditions(conditions, path)
    if len(conditions) > RULE_CONDITIONS_MAX:
        found.append(too_many(path, len(conditions), RULE_CONDITIONS_MAX))
    return found


def _validate_rule_spec(spec: DeviceTaintRuleSpec, old: DeviceTaintRuleSpec | None) -> Errors:
    found, selector, path = Errors(), spec.device_selector, SPEC.child("deviceSelector")
    if selector is not None:
        found += [] if selector.driver is None else validate_driver_name(selector.driver, path.child("driver"))
        found += [] if selector.pool is None else validate_pool_name(selector.pool, path.child("pool"))
        found += [] if selector.device is None else validate_device_name(selector.device, path.child("device"))
    return found + validate_taint(spec.taint, SPEC.child("taint"), old=None if old is None else old.taint)


# Classes --------------------------------------------------------------------------------------------------------------


def validate_class(device_class: DeviceClass) -> Errors:
    return validate_object_meta(device_class.metadata, namespaced=False) + _validate_spec(device_class.spec, None)


def validate_class_update(new: DeviceClass, old: DeviceClass) -> Errors:
    """Unchanged selectors and configuration are not validated again."""
    return validate_object_meta_update(new.metadata, old.metadata) + _validate_spec(new.spec, old.spec)


def _validate_spec(spec: DeviceClassSpec, old: DeviceClassSpec | None) -> Errors:
    kept_config = old is not None and old.config == spec.config

    def validate_config(configuration: DeviceClassConfiguration, path: Path) -> Errors:
        return validate_configuration(configuration, path, stored=kept_config)

    selectors = SPEC.child("selectors")
    kept_selectors = old is not None and old.selectors == spec.selectors
    budget = None if kept_selectors else ExpressionBudget(expressions_of(spec.selectors), selectors)
    found = [*budget.errors] if budget is not None else []
    found += validate_selectors(spec.selectors, selectors, budget=budget)
    found += validate_list(spec.config, SPEC.child("config"), validate_config, maximum=CONFIGURATIONS_MAX)
    if spec.suitable_nodes is not None:
        found += validate_node_selector(spec.suitable_nodes, SPEC.child("suitableNodes"))
    name = spec.extended_resource_name
    if name is not None and not is_extended_resource_name(name):
        found.append(invalid(SPEC.child("extendedResourceName"), name, "must be a valid extended resource name"))
    return found


# Capacity: request policies, shared counters, and what an allocation costs its node -----------------------------------


#: The maximum of valid values in a policy.
VALID_VALUES_MAX = 10


def validate_quantity(text: str, path: Path) -> Errors:
    return read_quantity(text, path)[1]


def validate_counter(counter: Counter, path: Path) -> Errors:
    return validate_quantity(counter.value, path.child("value"))


def validate_exclusive_capacity(capacity: DeviceCapacity, path: Path) -> Errors:
    """The capacity of a device that only one request can get."""
    found = validate_quantity(capacity.value, path.child("value"))
    if capacity.request_policy is not None:
        found.append(forbidden(path.child("requestPolicy"), "allowMultipleAllocations must be true"))
    return found


def validate_shared_capacity(capacity: DeviceCapacity, path: Path) -> Errors:
    """The capacity of a device that several requests can share."""
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
    """Whether it is a native resource of nodes, like "cpu" or "hugepages-2Mi"."""
    return name in _NODE_RESOURCES or name.startswith("hugepages-")


def validate_node_allocatable(
    resources: Mapping[str, NodeAllocatableResource], capacities: Mapping[str, DeviceCapacity], path: Path
) -> Errors:
    """What an allocation takes of its node, by node resource."""
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


def validate_node_mappings(
    mappings: Mapping[str, NodeAllocatableResourceMapping], capacities: Mapping[str, DeviceCapacity], path: Path
) -> Errors:
    """The same as Kubernetes 1.36 has it."""
    found: Errors = []
    for name, mapping in mappings.items():
        at, key = path.key(name), mapping.capacity_key
        if not is_node_resource(name):
            found.append(invalid(at, name, "must be a node allocatable resource name"))
        if key is not None and key not in capacities:
            found.append(not_found(at.child("capacityKey"), key))
        if mapping.allocation_multiplier is not None:
            where = at.child("allocationMultiplier")
            found += validate_amount(mapping.allocation_multiplier, where, zero_allowed=False)
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
    """A positive quantity, or zero if allowed."""
    amount, found = read_quantity(text, path)
    if amount is None or amount.sign > 0 or (zero_allowed and amount.is_zero):
        return found
    return [invalid(path, str(amount), "must be non-negative" if zero_allowed else "must be positive")]
