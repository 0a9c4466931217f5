"""ResourceClaims and their templates between the stored form and v1alpha2 of Kubernetes 1.30. PURE.

What v1alpha2 says and v1 has no place for is kept aside in the stored object, and what v1 says and v1alpha2 has no
place for (`KEPT`) stays as it is when a claim is written through v1alpha2. Where the nodes are that have the devices is
the same in both. The driver that allocated stands in the allocation, as in the later form of KEP-3063.
Both directions take a whole object as builtins and return a new one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inventory.kinds.conversion import map_field, renamed

Document = dict[str, Any]

#: Names in v1alpha2 -> in the stored form.
SPEC_NAMES = {
    "resourceClassName": "~resourceClassName",
    "parametersRef": "~parametersRef",
    "allocationMode": "~allocationMode",
}
STATUS_NAMES = {"driverName": "~driverName", "deallocationRequested": "~deallocationRequested"}
ALLOCATION_NAMES = {
    "resourceHandles": "~resourceHandles",
    "shareable": "~shareable",
    "availableOnNodes": "nodeSelector",
}

#: What of a stored claim v1alpha2 has no place for, by attributes; of a template it stands in the spec's spec.
KEPT_OF_SPEC = (("devices",), ("controller_name",))
KEPT = (
    *(("spec", *place) for place in KEPT_OF_SPEC),
    ("status", "devices"),
    ("status", "allocation", "devices"),
    ("status", "allocation", "allocation_timestamp"),
    ("status", "allocation", "drawn_counters"),
)
KEPT_OF_TEMPLATE = tuple(("spec", "spec", *place) for place in KEPT_OF_SPEC)


def claim_to_storage(document: Document) -> Document:
    stored = map_field(document, ("spec",), lambda spec: renamed(spec, SPEC_NAMES))
    return map_field(stored, ("status",), _status_to_storage)


def claim_from_storage(document: Document) -> Document:
    shown = map_field(document, ("spec",), _spec_from_storage)
    return map_field(shown, ("status",), _status_from_storage)


def template_to_storage(document: Document) -> Document:
    return map_field(document, ("spec", "spec"), lambda spec: renamed(spec, SPEC_NAMES))


def template_from_storage(document: Document) -> Document:
    return map_field(document, ("spec", "spec"), _spec_from_storage)


def _spec_from_storage(spec: Any) -> Any:
    return {"resourceClassName": ""} | _chosen(spec, SPEC_NAMES) if isinstance(spec, dict) else spec


def _status_to_storage(status: Any) -> Any:
    if not isinstance(status, dict):
        return status
    stored = renamed(status, STATUS_NAMES)
    allocation = stored.get("allocation")
    if not isinstance(allocation, dict):
        return stored
    allocation = renamed(allocation, ALLOCATION_NAMES)
    if _is_structured(allocation):
        return stored | {"allocation": allocation}  # the scheduler allocated, and gives it up; the driver is only named
    driver = stored.pop("~driverName", None)
    return stored | {"allocation": allocation | ({"~controllerName": driver} if driver else {})}


def _is_structured(allocation: Document) -> bool:
    handles = allocation.get("~resourceHandles")
    return isinstance(handles, list) and any(isinstance(one, dict) and one.get("structuredData") for one in handles)


def _status_from_storage(status: Any) -> Any:
    if not isinstance(status, dict):
        return status
    shown = _chosen(status, STATUS_NAMES | {"reservedFor": "reservedFor"})
    allocation = status.get("allocation")
    if not isinstance(allocation, dict):
        return shown
    named, driver = shown.pop("driverName", None), allocation.get("~controllerName")
    told = named if _is_structured(allocation) else driver
    return ({"driverName": told} if told else {}) | shown | {"allocation": _chosen(allocation, ALLOCATION_NAMES)}


def _chosen(document: Mapping[str, Any], names: Mapping[str, str]) -> Document:
    """What of a stored document has a name here."""
    return {name: document[stored] for name, stored in names.items() if stored in document}
