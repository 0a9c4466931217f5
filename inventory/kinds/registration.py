"""The kinds of the inventory, as the API server serves them: DeviceClass, ResourceSlice, DeviceTaintRule and Node;
ResourcePoolStatusRequest has a module of its own.

How they are stored (defaults, and what an update may take from the client), and the columns of `kubectl get nodes`.
Source: pkg/apis/resource/v1/defaults.go, the strategies below pkg/registry, and
pkg/printers/internalversion/printers.go (printNode) of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from msgspec.structs import replace

from inventory.kinds import device_rules, early, gates, node_rules, slice_rules
from inventory.kinds.conversion import CLASS_VERSIONS, RULE_VERSIONS, SLICE_VERSIONS
from inventory.kinds.devices import (
    Device,
    DeviceClass,
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintRuleStatus,
    ResourceSlice,
)
from inventory.kinds.gates import OF_CLASSES, OF_SLICES, without_disabled
from inventory.kinds.nodes import Node
from inventory.kinds.pool_statuses import RESOURCE_POOL_STATUS_REQUEST
from inventory.kinds.taint_rules import GATE as RULES_GATE
from manciple.wire.base import condition_of, status_metadata, timestamp
from manciple.wire.registry import Column, Kind, Subresource
from manciple.wire.tables import AGE_COLUMN, DEFAULT_COLUMNS, NAME_COLUMN, NONE, age, listed

# How they are stored --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SlicePreparation:
    """Taints without a time get that of the write; one that stood there before keeps its time.

    now: the current time as RFC 3339 text with whole seconds.
    """

    now: Callable[[], str]

    def create(self, new: ResourceSlice) -> ResourceSlice:
        return self.update(new, None)

    def update(self, new: ResourceSlice, old: ResourceSlice | None) -> ResourceSlice:
        new = without_disabled(new, old, OF_SLICES)
        if all(taint.time_added for device in new.spec.devices for taint in device.taints):
            return new
        known = {device.name: device for device in old.spec.devices} if old is not None else {}
        devices = tuple(self._dated(device, known.get(device.name)) for device in new.spec.devices)
        return replace(new, spec=replace(new.spec, devices=devices))

    def _dated(self, device: Device, old: Device | None) -> Device:
        times = {_identity(taint): taint.time_added for taint in old.taints} if old is not None else {}

        def dated(taint: DeviceTaint) -> DeviceTaint:
            return replace(taint, time_added=taint.time_added or times.get(_identity(taint)) or self.now())

        return replace(device, taints=tuple(map(dated, device.taints))) if device.taints else device


def _identity(taint: DeviceTaint) -> tuple[str, str, str]:
    return taint.key, taint.value, taint.effect


@dataclass(frozen=True, slots=True)
class RulePreparation:
    """A rule's taint without a time gets that of the write; so does one whose effect changes, unless the write says
    another: what is tolerated for a while is tolerated from then on.
    """

    now: Callable[[], str]

    def create(self, new: DeviceTaintRule) -> DeviceTaintRule:
        return replace(self._dated(new, ""), status=DeviceTaintRuleStatus())

    def update(self, new: DeviceTaintRule, old: DeviceTaintRule) -> DeviceTaintRule:
        before, taint = old.spec.taint, new.spec.taint
        if taint.effect != before.effect and taint.time_added == before.time_added:
            new = replace(new, spec=replace(new.spec, taint=replace(taint, time_added=None)))
        kept = before.time_added if _identity(taint) == _identity(before) else None
        return replace(self._dated(new, kept or ""), status=old.status)

    def _dated(self, rule: DeviceTaintRule, known: str) -> DeviceTaintRule:
        if rule.spec.taint.time_added:
            return rule
        return replace(rule, spec=replace(rule.spec, taint=replace(rule.spec.taint, time_added=known or self.now())))


def update_rule_status(new: DeviceTaintRule, old: DeviceTaintRule) -> DeviceTaintRule:
    return replace(old, metadata=status_metadata(new.metadata, old.metadata), status=new.status)


def create_node(new: Node) -> Node:
    """What a node can allocate is what it has, unless it says otherwise."""
    status = new.status
    if status.capacity and not status.allocatable:
        return replace(new, status=replace(status, allocatable=status.capacity))
    return new


def update_node(new: Node, old: Node) -> Node:
    return replace(new, status=old.status)


def update_node_status(new: Node, old: Node) -> Node:
    """The status, and the labels, annotations and taints that a node reports with it, are the node's to write."""
    return create_node(replace(old, metadata=new.metadata, status=new.status))


# Columns --------------------------------------------------------------------------------------------------------------


_ROLE_PREFIX = "node-role.kubernetes.io/"
_ROLE_LABEL = "kubernetes.io/role"


def node_status(node: Node, _now: float = 0) -> str:
    """Ready, NotReady or Unknown; and SchedulingDisabled for a cordoned node."""
    ready = condition_of(node.status.conditions, "Ready")
    status = "Unknown" if ready is None else "Ready" if ready.status == "True" else "NotReady"
    return f"{status},SchedulingDisabled" if node.spec.unschedulable else status


def node_roles(node: Node, _now: float = 0) -> str:
    roles = {key.removeprefix(_ROLE_PREFIX) for key in node.metadata.labels if key.startswith(_ROLE_PREFIX)}
    roles.add(node.metadata.labels.get(_ROLE_LABEL, ""))
    return ",".join(sorted(roles - {""})) or "<none>"


def _address(node: Node, kind: str) -> str:
    return next((one.address for one in node.status.addresses if one.type == kind), "<none>")


def _system(node: Node, attribute: str) -> str:
    return getattr(node.status.node_info, attribute) or "<unknown>"


NODE_COLUMNS = (
    NAME_COLUMN,
    Column(name="Status", description="The status of the node", cell=node_status),
    Column(name="Roles", description="The roles of the node", cell=node_roles),
    AGE_COLUMN,
    Column(
        name="Version",
        description="Version of the agent on the node",
        cell=lambda node, _now: node.status.node_info.kubelet_version,
    ),
    Column(name="Internal-IP", priority=1, cell=lambda node, _now: _address(node, "InternalIP")),
    Column(name="External-IP", priority=1, cell=lambda node, _now: _address(node, "ExternalIP")),
    Column(name="OS-Image", priority=1, cell=lambda node, _now: _system(node, "os_image")),
    Column(name="Kernel-Version", priority=1, cell=lambda node, _now: _system(node, "kernel_version")),
    Column(name="Container-Runtime", priority=1, cell=lambda node, _now: _system(node, "container_runtime_version")),
)


# Kinds ----------------------------------------------------------------------------------------------------------------


GROUP, VERSION = "resource.k8s.io", "v1"


def current_time() -> str:
    """Now, as RFC 3339 text in UTC with whole seconds."""
    return timestamp(datetime.now(UTC))


#: What `-o wide` adds in these tables, the reference does not have.
CLASS_COLUMNS = (
    *DEFAULT_COLUMNS,
    Column(
        name="Extended-Resource",
        description="The resource that containers may request instead of a claim",
        priority=1,
        cell=lambda one, _now: one.spec.extended_resource_name or NONE,
    ),
    Column(
        name="Config",
        description="The drivers that are given parameters",
        priority=1,
        cell=lambda one, _now: listed(
            dict.fromkeys(part.opaque.driver for part in one.spec.config if part.opaque is not None)
        ),
    ),
    Column(
        name="Selectors",
        description="The CEL expressions that all hold for its devices",
        priority=1,
        cell=lambda one, _now: _shortened(
            " && ".join(part.cel.expression for part in one.spec.selectors if part.cel is not None)
        ),
    ),
)
LONGEST_CELL = 100


def _shortened(text: str) -> str:
    """On one line, and not too long for one."""
    line = " ".join(text.split())
    return (line if len(line) <= LONGEST_CELL else f"{line[: LONGEST_CELL - 3]}...") or NONE


DEVICE_CLASS = Kind(
    group=GROUP,
    version=VERSION,
    plural="deviceclasses",
    namespaced=False,
    type=DeviceClass,
    prepare_create=lambda new: without_disabled(new, None, OF_CLASSES),
    prepare_update=lambda new, old: without_disabled(new, old, OF_CLASSES),
    validate_create=device_rules.validate_class,
    validate_update=device_rules.validate_class_update,
    columns=CLASS_COLUMNS,
    generation_of=lambda device_class: device_class.spec,
    policy_of=lambda device_class: device_class.spec.extended_resource_name,
    served_versions={**CLASS_VERSIONS, **early.CLASS_VERSIONS},
    description="Devices that claims can request by name: selectors and configuration, set by an administrator.",
)


def _counted(name: str, description: str, count: Callable[[ResourceSlice], int]) -> Column:
    return Column(name=name, type="integer", description=description, priority=1, cell=lambda one, _now: count(one))


def declare_slice(now: Callable[[], str]) -> Kind:
    """The ResourceSlice kind with the clock that dates new taints."""
    preparing = SlicePreparation(now)
    return Kind(
        group=GROUP,
        version=VERSION,
        plural="resourceslices",
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
            _counted("Devices", "Devices in this slice", lambda one: len(one.spec.devices)),
            _counted(
                "Tainted",
                "Those that their driver has tainted",
                lambda one: sum(bool(device.taints) for device in one.spec.devices),
            ),
            _counted("Generation", "Of the pool; the highest counts", lambda one: one.spec.pool.generation),
            _counted("Slices", "That make the pool complete", lambda one: one.spec.pool.resource_slice_count),
        ),
        generation_of=lambda one: one.spec,
        served_versions={**SLICE_VERSIONS, **early.SLICE_VERSIONS},
        description="A part of a driver's pool of devices, as the driver published it.",
    )


RESOURCE_SLICE = declare_slice(current_time)


def declare_taint_rule(now: Callable[[], str]) -> Kind:
    """The DeviceTaintRule kind with the clock that dates new taints."""
    preparing = RulePreparation(now)
    return Kind(
        group=GROUP,
        version="v1beta2",
        plural="devicetaintrules",
        namespaced=False,
        type=DeviceTaintRule,
        is_served=lambda: gates.enabled(RULES_GATE),
        prepare_create=preparing.create,
        prepare_update=preparing.update,
        validate_create=device_rules.validate_rule,
        validate_update=device_rules.validate_rule_update,
        subresources={
            "status": Subresource(
                prepare_update=update_rule_status,
                validate_update=device_rules.validate_rule_status,
            )
        },
        columns=(
            NAME_COLUMN,
            Column(name="Key", cell=lambda rule, _now: rule.spec.taint.key),
            Column(name="Value", cell=lambda rule, _now: rule.spec.taint.value),
            Column(name="Effect", cell=lambda rule, _now: rule.spec.taint.effect),
            Column(name="TimeAdded", cell=_time_added),
            AGE_COLUMN,
            *(_selected(name) for name in ("Driver", "Pool", "Device")),
        ),
        generation_of=lambda rule: rule.spec,
        served_versions=RULE_VERSIONS,
        description="A taint on every device that the rule's selector names, for as long as the rule exists.",
    )


def _selected(name: str) -> Column:
    """What the rule's selector says; a rule without a selector taints no device."""

    def cell(rule: DeviceTaintRule, _now: float) -> str:
        selector = rule.spec.device_selector
        return NONE if selector is None else getattr(selector, name.lower()) or "<any>"

    return Column(name=name, description=f"The {name.lower()} that it selects", priority=1, cell=cell)


def _time_added(rule: DeviceTaintRule, now: float) -> str:
    added = rule.spec.taint.time_added
    return age(added, now) if added else ""


DEVICE_TAINT_RULE = declare_taint_rule(current_time)

NODE = Kind(
    group="",
    version="v1",
    plural="nodes",
    short_names=("no",),
    namespaced=False,
    type=Node,
    prepare_create=create_node,
    prepare_update=update_node,
    validate_create=node_rules.validate_node,
    validate_update=node_rules.validate_node_update,
    subresources={
        "status": Subresource(
            prepare_update=update_node_status,
            validate_update=node_rules.validate_node_status_update,
        )
    },
    selectable=lambda node: {"spec.unschedulable": "true" if node.spec.unschedulable else "false"},
    columns=NODE_COLUMNS,
    description="A machine that runs pods, with its capacity besides devices.",
)

KINDS: tuple[Kind, ...] = (
    DEVICE_CLASS,
    RESOURCE_SLICE,
    DEVICE_TAINT_RULE,
    RESOURCE_POOL_STATUS_REQUEST,
    NODE,
    *early.KINDS,
)
