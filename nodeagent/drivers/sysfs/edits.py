"""What a container gets of a device: its nodes, and its name in the environment."""

from __future__ import annotations

from nodeagent import cdi
from nodeagent.cdi.spec import NetDevice
from nodeagent.drivers.sysfs.found import Found
from nodeagent.drivers.sysfs.tree import Roots


def container_edits(found: Found, roots: Roots, *, move_interfaces: bool) -> cdi.ContainerEdits:
    """Raises: ValueError where a device node is missing."""
    moved = move_interfaces and found.kind in ("net", "virtual-net")
    return cdi.ContainerEdits(
        env=(f"{variable(found.device_name)}={found.value}",),
        device_nodes=tuple(_node(found, node, roots) for node in found.nodes),
        net_devices=(NetDevice(host_interface_name=found.name, name=found.name),) if moved else (),
    )


def variable(device: str) -> str:
    """ "SYSFS_DEVICE_LOOP4": of each device its own, so that a container may have several."""
    return f"SYSFS_DEVICE_{device.replace('-', '_').upper()}"


def _node(found: Found, node: str, roots: Roots) -> cdi.DeviceNode:
    """Type and number are left to the runtime, which looks at the node when the container starts."""
    inside, outside = f"/dev/{node}", str(roots.dev / node)
    if not (roots.dev / node).exists():
        raise ValueError(
            f"device {found.device_name}: its node {outside} does not exist; load the module that makes it"
        )
    return cdi.DeviceNode(
        path=inside, host_path="" if outside == inside else outside, permissions="r" if found.read_only else "rw"
    )
