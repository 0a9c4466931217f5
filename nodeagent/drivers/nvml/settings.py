"""What the drivers file may say of the nvml driver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from manciple.wire.base import Value
from manciple.wire.names import DRIVER_NAME_MAX, check_driver_name
from nodeagent.drivers.nvml.health import APPLICATION_XIDS

DEFAULT_NAME = "gpu.nvidia.com"


class Settings(Value, forbid_unknown_fields=True):
    """name: the driver's. required: refuse to start where NVML does not answer, instead of waiting until it does.

    driver_root: under which NVIDIA's driver is installed; a driver container mounts it at /run/nvidia/driver.
    library_dir: where the driver's libraries go in a container. set_library_path: whether LD_LIBRARY_PATH names it.
    ignored_xids: that leave a GPU healthy, besides those of programs. fatal_xids: programs' that do not.
    publish_mig_parents: a GPU in MIG mode is offered as a whole too. rescan_seconds: between looks at what there is.
    recording: a file to answer in NVML's place.
    """

    name: str = DEFAULT_NAME
    required: bool = False
    driver_root: str = "/"
    library_dir: str = "/usr/local/nvidia/lib64"
    set_library_path: bool = True
    ignored_xids: tuple[int, ...] = ()
    fatal_xids: tuple[int, ...] = ()
    publish_mig_parents: bool = False
    rescan_seconds: Annotated[float, msgspec.Meta(ge=0.1, le=86400)] = 30.0
    recording: str = ""

    @property
    def xids_of_programs(self) -> frozenset[int]:
        return (APPLICATION_XIDS | set(self.ignored_xids)) - set(self.fatal_xids)

    @property
    def library_path(self) -> str:
        """For LD_LIBRARY_PATH; empty to leave it alone. With the directory that NVIDIA's images name first."""
        return f"{self.library_dir}:/usr/local/nvidia/lib" if self.set_library_path else ""


def read_settings(settings: Mapping[str, Any]) -> Settings:
    """Raises: ValueError with the path of the field that is wrong."""
    asked = msgspec.convert(dict(settings), Settings)
    if len(asked.name) > DRIVER_NAME_MAX or check_driver_name(asked.name):
        raise ValueError(
            f"`{asked.name}` is not a name for a driver: a DNS subdomain of at most 63 bytes - at `$.name`"
        )
    for field, path in (("driverRoot", asked.driver_root), ("libraryDir", asked.library_dir)):
        if not path.startswith("/"):
            raise ValueError(f"`{path}` is not an absolute path - at `$.{field}`")
    return asked
