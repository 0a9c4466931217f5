"""DeviceClass: a named selection of devices with their configuration, which claims ask for.

The selectors and configurations here are also those of claims. Source: k8s.io/api/resource/v1.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from manciple.wire.base import ApiObject, Raw, Value, always, pb

PACKAGE = "io.k8s.api.resource.v1"


class CELDeviceSelector(Value):
    """A CEL expression over one `device`.

    expression: true selects the device. At most 10 KiB, at a bounded cost. It sees device.driver,
    device.attributes[DOMAIN].NAME, device.capacity[DOMAIN].NAME and device.allowMultipleAllocations.
    """

    expression: Annotated[str, pb(1)] = ""


class DeviceSelector(Value):
    """One test of a device. Exactly one field is set."""

    cel: Annotated[CELDeviceSelector | None, pb(1)] = None


class OpaqueDeviceConfiguration(Value):
    """Parameters that only the named driver understands.

    driver: whose parameters these are. parameters: any JSON object, at most 10 KiB.
    """

    driver: Annotated[str, pb(1)] = ""
    parameters: Annotated[Raw, pb(2, encoding="raw")] = None


class DeviceConfiguration(Value):
    """What a driver is told when it prepares a device. Exactly one field is set."""

    opaque: Annotated[OpaqueDeviceConfiguration | None, pb(1)] = None


class DeviceClassConfiguration(DeviceConfiguration):
    """A configuration for every device that is claimed through the class."""

    EMBEDS: ClassVar = (DeviceConfiguration, 1)


class DeviceClassSpec(Value):
    """Which devices belong to the class, and how they are configured.

    selectors: all must hold; at most 32. config: passed to the drivers, not looked at while allocating; at most 32.
    extended_resource_name: the name by which containers may request these devices among their resources.
    """

    selectors: Annotated[tuple[DeviceSelector, ...], pb(1)] = ()
    config: Annotated[tuple[DeviceClassConfiguration, ...], pb(2)] = ()
    extended_resource_name: Annotated[str | None, pb(4)] = None


class DeviceClass(ApiObject):
    """What an administrator offers for claiming: selectors and configuration under one name. Cluster scoped."""

    spec: Annotated[DeviceClassSpec, pb(2)] = always(DeviceClassSpec())
