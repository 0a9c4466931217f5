"""The kinds of the inventory, as the API server serves them: DeviceClass, ResourceSlice and Node."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from inventory.kinds import class_rules, node_rules, preparation, slice_rules
from inventory.kinds.classes import DeviceClass
from inventory.kinds.conversion import CLASS_VERSIONS, SLICE_VERSIONS
from inventory.kinds.node_columns import NODE_COLUMNS
from inventory.kinds.nodes import Node
from inventory.kinds.preparation import SlicePreparation
from inventory.kinds.slices import ResourceSlice
from manciple.wire.registry import Column, Kind, Subresource
from manciple.wire.tables import AGE_COLUMN, DEFAULT_COLUMNS, NAME_COLUMN

GROUP, VERSION = "resource.k8s.io", "v1"


def current_time() -> str:
    """Now, as RFC 3339 text in UTC with whole seconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


DEVICE_CLASS = Kind(
    group=GROUP,
    version=VERSION,
    kind="DeviceClass",
    plural="deviceclasses",
    singular="deviceclass",
    namespaced=False,
    type=DeviceClass,
    prepare_create=preparation.unchanged,
    prepare_update=preparation.take_new,
    validate_create=class_rules.validate_class,
    validate_update=class_rules.validate_class_update,
    columns=DEFAULT_COLUMNS,
    generation_of=lambda device_class: device_class.spec,
    served_versions=CLASS_VERSIONS,
    description="What an administrator offers for claiming: device selectors and configuration under one name.",
)


def declare_slice(now: Callable[[], str]) -> Kind:
    """The ResourceSlice kind with the clock that dates new taints."""
    preparing = SlicePreparation(now)
    return Kind(
        group=GROUP,
        version=VERSION,
        kind="ResourceSlice",
        plural="resourceslices",
        singular="resourceslice",
        namespaced=False,
        type=ResourceSlice,
        prepare_create=preparing.create,
        prepare_update=preparing.update,
        validate_create=slice_rules.validate_slice,
        validate_update=slice_rules.validate_slice_update,
        selectable=lambda one: {"spec.nodeName": one.spec.node_name or "", "spec.driver": one.spec.driver},
        columns=(
            NAME_COLUMN,
            Column(name="Node", cell=lambda one, _now: one.spec.node_name or "<unset>"),
            Column(name="Driver", cell=lambda one, _now: one.spec.driver),
            Column(name="Pool", cell=lambda one, _now: one.spec.pool.name),
            AGE_COLUMN,
        ),
        generation_of=lambda one: one.spec,
        served_versions=SLICE_VERSIONS,
        description="A part of a driver's pool of devices, as the driver published it.",
    )


RESOURCE_SLICE = declare_slice(current_time)

NODE = Kind(
    group="",
    version="v1",
    kind="Node",
    plural="nodes",
    singular="node",
    short_names=("no",),
    namespaced=False,
    type=Node,
    prepare_create=preparation.create_node,
    prepare_update=preparation.update_node,
    validate_create=node_rules.validate_node,
    validate_update=node_rules.validate_node_update,
    subresources={
        "status": Subresource(
            name="status",
            prepare_update=preparation.update_node_status,
            validate_update=node_rules.validate_node_status_update,
        )
    },
    selectable=lambda node: {"spec.unschedulable": "true" if node.spec.unschedulable else "false"},
    columns=NODE_COLUMNS,
    description="A machine that runs pods, and what it has besides devices.",
)

KINDS: tuple[Kind, ...] = (DEVICE_CLASS, RESOURCE_SLICE, NODE)
