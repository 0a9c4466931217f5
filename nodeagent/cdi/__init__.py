"""CDI, the Container Device Interface: what a container runtime must do to a container that gets a device.

`spec` holds the values, the lowest version they need and the strict validator; `files` reads, finds and writes files.
"""

from nodeagent.cdi.files import CdiFolder, file_name
from nodeagent.cdi.spec import (
    CdiDevice,
    ContainerEdits,
    DeviceNode,
    Spec,
    minimum_version,
    qualified_name,
    validate_spec,
)

__all__ = [
    "CdiDevice",
    "CdiFolder",
    "ContainerEdits",
    "DeviceNode",
    "Spec",
    "file_name",
    "minimum_version",
    "qualified_name",
    "validate_spec",
]
