"""The columns of `kubectl get nodes`. Source: pkg/printers/internalversion/printers.go (printNode)."""

from __future__ import annotations

from inventory.kinds.nodes import Node
from manciple.wire.registry import Column
from manciple.wire.tables import AGE_COLUMN, NAME_COLUMN

_ROLE_PREFIX = "node-role.kubernetes.io/"
_ROLE_LABEL = "kubernetes.io/role"


def node_status(node: Node, _now: float = 0) -> str:
    """Ready, NotReady or Unknown; and SchedulingDisabled for a cordoned node."""
    ready = next((condition for condition in node.status.conditions if condition.type == "Ready"), None)
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
