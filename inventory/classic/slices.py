"""ResourceSlice between the stored form and v1alpha2 of Kubernetes 1.30, which knows instances and no pools. PURE.

What a driver of 1.30 publishes is kept aside in the stored slice, whole. To the other versions such a slice is a pool
of its own without devices: their selectors and limits know other attributes than it has; the scheduler reads it by
`inventory.drafts.structured.publishing`. Devices that were published through the other versions are not shown in
v1alpha2, and stay where they are when a slice is written through it.
"""

from __future__ import annotations

import hashlib
from typing import Any

import orjson

from inventory.classic import rules, values
from inventory.kinds.conversion import STORAGE_VERSION, with_version
from inventory.kinds.devices import ResourceSlice
from manciple.wire import codec
from manciple.wire.registry import Column, Conversion, VersionRules
from manciple.wire.tables import AGE_COLUMN, NAME_COLUMN

Document = dict[str, Any]

VERSION = "resource.k8s.io/v1alpha2"
_NODE, _DRIVER, _RESOURCES = "nodeName", "driverName", "namedResources"
_STORED_RESOURCES = "~namedResources"
_OWN = (_NODE, _DRIVER, _RESOURCES)
#: What of a stored slice v1alpha2 has no place for, by attributes.
KEPT = tuple(
    ("spec", name)
    for name in (
        "pool",
        "node_selector",
        "all_nodes",
        "devices",
        "per_device_node_selection",
        "shared_counters",
        "partition_type_attribute",
        "skip_node_operations",
    )
)


def to_storage(document: Document) -> Document:
    """A slice for no node in particular is for every one. What is applied may be metadata alone."""
    if not document.keys() & set(_OWN):
        return with_version(document, STORAGE_VERSION)
    node, resources = document.get(_NODE), document.get(_RESOURCES)
    spec: Document = {"driver": document.get(_DRIVER, ""), "pool": _pool_of(document)}
    spec |= {_NODE: node} if node else {"allNodes": True}
    spec |= {_STORED_RESOURCES: resources} if resources is not None else {}
    rest = {name: value for name, value in document.items() if name not in _OWN}
    return with_version({**rest, "spec": spec}, STORAGE_VERSION)


def from_storage(document: Document) -> Document:
    spec: Document = document.get("spec") or {}
    rest = {name: value for name, value in document.items() if name != "spec"}
    node = {_NODE: spec[_NODE]} if spec.get(_NODE) else {}
    own = node | {_DRIVER: spec.get("driver", ""), _RESOURCES: spec.get(_STORED_RESOURCES, {"instances": []})}
    return with_version(rest | own, VERSION)


def _pool_of(document: Document) -> Document:
    """A pool of its own; of a slice that has no name yet, by what is in it."""
    metadata = document.get("metadata") or {}
    content = orjson.dumps([document.get(name) for name in _OWN], option=orjson.OPT_SORT_KEYS)
    name = metadata.get("name") or f"{metadata.get('generateName', '')}{hashlib.sha256(content).hexdigest()[:10]}"
    return {"name": name, "generation": 1, "resourceSliceCount": 1}


def _in_1_30(stored: ResourceSlice) -> values.ResourceSlice:
    document = from_storage(codec.to_builtins(stored))
    if stored.spec.named_resources is None:
        document.pop(_RESOURCES)
    return codec.decode_value(values.ResourceSlice, document)


CONVERSION = Conversion(
    to_storage=to_storage,
    from_storage=from_storage,
    type=values.ResourceSlice,
    keeps=KEPT,
    rules=VersionRules(
        validate_create=lambda new: rules.validate_slice(_in_1_30(new)),
        validate_update=lambda new, old: rules.validate_slice_update(_in_1_30(new), _in_1_30(old)),
    ),
    columns=(
        NAME_COLUMN,
        Column(name="NodeName", description="The one node that has them", cell=lambda one, _now: one.spec.node_name),
        Column(name="DriverName", description="Who published them", cell=lambda one, _now: one.spec.driver),
        AGE_COLUMN,
    ),
    selectable={"nodeName": "spec.nodeName", "driverName": "spec.driver"},
)
