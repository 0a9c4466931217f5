"""A driver whose devices are all that a device can be to a container: variables, a device node, a mounted directory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from inventory.kinds.devices import Device
from nodeagent import cdi
from nodeagent.cdi import DeviceNode, Mount
from nodeagent.drivers.authoring import Given, NodeDriver

NAME = "box.example.com"
#: What is inside each box: box-0 is the node's /dev/null, box-1 its /dev/zero, under names of their own.
NODES = {"box-0": "/dev/null", "box-1": "/dev/zero"}


class BoxDriver(NodeDriver):
    """`root`: where the boxes' directories are made; each holds a file with its box's name."""

    name = NAME

    def __init__(self, node_name: str, root: str) -> None:
        super().__init__(node_name)
        self._root = Path(root)

    def devices(self) -> Sequence[Device]:
        return [Device(name=name) for name in NODES]

    def edits(self, given: Given) -> cdi.ContainerEdits:
        box = given.device.name
        folder = self._root / box
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "label").write_text(f"{box}\n")
        return cdi.ContainerEdits(
            env=(f"{box.upper().replace('-', '_')}=yes",),
            device_nodes=(DeviceNode(path=f"/dev/{box}", host_path=NODES[box], permissions="rw"),),
            mounts=(Mount(host_path=str(folder), container_path=f"/boxes/{box}", options=("bind", "ro")),),
        )
