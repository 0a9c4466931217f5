"""CDI, the Container Device Interface: what a container runtime must do to a container that gets a device.

`spec` holds the values and the lowest version they need, `rules` the strict validator, `folder` the directory of
transient files, one per driver and claim.
"""

from nodeagent.cdi.folder import CdiFolder, file_name
from nodeagent.cdi.rules import validate_spec
from nodeagent.cdi.spec import ContainerEdits, Device, DeviceNode, Spec, minimum_version, qualified_name

__all__ = [
    "CdiFolder",
    "ContainerEdits",
    "Device",
    "DeviceNode",
    "Spec",
    "file_name",
    "minimum_version",
    "qualified_name",
    "validate_spec",
]
