"""A device as an expression sees it: `device.driver`, `device.attributes`, `device.capacity` and whether it is shared.

Attributes and capacities lie in maps by domain; a name without a domain has the driver's. Looking up a domain that the
device does not have gives an empty map. An attribute whose value cannot be read (none set, a version that is no
semantic version) makes every expression fail on the device, `true` included. Source:
dynamic-resource-allocation/cel/compile.go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from inventory.kinds.devices import Device, DeviceAttribute
from manciple.cel.kubernetes import Semver, parse_amount, parse_semver
from manciple.cel.types import CelType, TypeKind
from manciple.cel.values import CelMap, DomainMap, EnvironmentValue

UNLIMITED = 2**63 - 1
DEVICE = CelType(TypeKind.STRUCT, "kubernetes.DRADevice")

#: What expressions call the fields of a device -> what `DeviceView` calls them. Past dyn() any key may be asked for.
FIELDS = {
    "driver": "driver",
    "attributes": "attributes",
    "capacity": "capacity",
    "allowMultipleAllocations": "allow_multiple_allocations",
}


class DeviceView(EnvironmentValue):
    """One device, wrapped once and read by any number of expressions and threads. Not changed after it is made."""

    __slots__ = ("allow_multiple_allocations", "attributes", "capacity", "driver", "fault")

    TYPE = DEVICE
    FIELDS = FIELDS

    driver: str
    #: domain -> identifier -> value
    attributes: DomainMap
    capacity: DomainMap
    allow_multiple_allocations: bool
    #: why no expression can be evaluated on this device, "" where they can
    fault: str

    def __init__(
        self,
        *,
        driver: str,
        attributes: Mapping[str, Any] | None = None,
        capacity: Mapping[str, Any] | None = None,
        allow_multiple_allocations: bool = False,
        fault: str = "",
    ) -> None:
        """attributes, capacity: run-time values (see `values`) by qualified name."""
        self.driver = driver
        self.attributes = by_domain(attributes or {}, driver)
        self.capacity = by_domain(capacity or {}, driver)
        self.allow_multiple_allocations = allow_multiple_allocations
        self.fault = fault

    @classmethod
    def of(cls, driver: str, device: Device) -> DeviceView:
        """The view of a published device of this driver."""
        fault = ""
        attributes: dict[str, Any] = {}
        for name, attribute in device.attributes.items():
            try:
                attributes[name] = attribute_value(attribute)
            except ValueError as error:
                fault = fault or f"attribute {name}: {error}"
        try:
            capacity = {name: parse_amount(amount.value) for name, amount in device.capacity.items()}
        except ValueError as error:
            capacity, fault = {}, fault or f"capacity: {error}"
        return cls(
            driver=driver,
            attributes=attributes,
            capacity=capacity,
            allow_multiple_allocations=bool(device.allow_multiple_allocations),
            fault=fault,
        )


def split_name(name: str, driver: str) -> tuple[str, str]:
    """(domain, identifier) of a qualified name; the domain is the driver's where the name has none."""
    domain, slash, identifier = name.partition("/")
    return (domain, identifier) if slash else (driver, name)


def by_domain(values: Mapping[str, Any], driver: str) -> DomainMap:
    domains = DomainMap()
    for name, value in values.items():
        domain, identifier = split_name(name, driver)
        domains.setdefault(domain, CelMap())[identifier] = value
    return domains


def attribute_value(attribute: DeviceAttribute) -> Any:
    """The one value that is set. Raises: ValueError when none is, or a version is not semantic."""
    for values, convert in _lists(attribute):
        if values:
            return [convert(value) for value in values]
    for value in (attribute.int_value, attribute.bool_value, attribute.string_value):
        if value is not None:
            return value
    if attribute.version_value is not None:
        return _version(attribute.version_value)
    raise ValueError("unsupported attribute value")


def is_readable(attribute: DeviceAttribute) -> bool:
    """Whether it has a value that expressions can work with. If not, every expression fails on its device."""
    try:
        attribute_value(attribute)
    except ValueError:
        return False
    return True


def _lists(attribute: DeviceAttribute) -> tuple[tuple[tuple[Any, ...], Callable[[Any], Any]], ...]:
    return (
        (attribute.int_values, int),
        (attribute.bool_values, bool),
        (attribute.string_values, str),
        (attribute.version_values, _version),
    )


def _version(text: str) -> Semver:
    try:
        return parse_semver(text)
    except ValueError as error:
        raise ValueError(f"parse semantic version: {error}") from None
