"""DeviceClass in v1alpha3, the form in which KEP-3063 was left: as today, and with `suitableNodes`. PURE.

Source: KEP-3063 (DeviceClass extensions); k8s.io/api/resource/v1alpha3 of Kubernetes 1.31.
"""

from __future__ import annotations

from typing import Annotated, Any

from inventory.kinds.conversion import map_field, renamed
from inventory.kinds.devices import DeviceClassConfiguration, DeviceSelector
from inventory.kinds.nodes import NodeSelector
from manciple.wire.base import ApiObject, Value, always, pb

PACKAGE = "io.k8s.api.resource.v1alpha3"


class DeviceClassSpec(Value):
    """Which devices belong to the class, and how they are configured.

    selectors: all must hold; at most 32. config: passed to the drivers, ignored by the allocator; at most 32.
    suitable_nodes: the only nodes for pods whose claims a driver's controller has yet to allocate.
    extended_resource_name: the name by which containers may request these devices among their resources.
    """

    selectors: Annotated[tuple[DeviceSelector, ...], pb(1)] = ()
    config: Annotated[tuple[DeviceClassConfiguration, ...], pb(2)] = ()
    suitable_nodes: Annotated[NodeSelector | None, pb(3)] = None
    extended_resource_name: Annotated[str | None, pb(4)] = None


class DeviceClass(ApiObject):
    """Devices that claims can request by name: selectors and configuration, set by an administrator. Cluster scoped."""

    spec: Annotated[DeviceClassSpec, pb(2)] = always(DeviceClassSpec())


def class_to_storage(document: dict[str, Any]) -> dict[str, Any]:
    return map_field(document, ("spec",), lambda spec: renamed(spec, {"suitableNodes": "~suitableNodes"}))


def class_from_storage(document: dict[str, Any]) -> dict[str, Any]:
    return map_field(document, ("spec",), lambda spec: renamed(spec, {"~suitableNodes": "suitableNodes"}))
