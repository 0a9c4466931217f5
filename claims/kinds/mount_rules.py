"""Rules of where a pod's volumes appear in a container: as directories (mounts) or as block devices.

Source: pkg/apis/core/validation/validation.go (ValidateVolumeMounts, ValidateVolumeDevices) of Kubernetes 1.36. Where
it leaves the position out of a path, so do we.
"""

from __future__ import annotations

from collections.abc import Mapping

from claims.kinds.containers import Container, VolumeMount
from claims.kinds.source_rules import validate_local_path
from claims.kinds.volumes import Volume
from manciple.wire.errors import FieldError, forbidden, invalid, not_found, not_supported, required
from manciple.wire.validation import Path

Errors = list[FieldError]

PROPAGATIONS = ("Bidirectional", "HostToContainer", "None")
#: What a device may come from.
BLOCK_SOURCES = ("persistentVolumeClaim", "ephemeral")
RECURSIVE_READ_ONLY = ("Disabled", "Enabled", "IfPossible")


def validate_mounts(container: Container, path: Path, volumes: Mapping[str, Volume]) -> Errors:
    devices = {device.name for device in container.volume_devices}
    device_paths = {device.device_path for device in container.volume_devices}
    seen: set[str] = set()
    found: Errors = []
    for position, mount in enumerate(container.volume_mounts):
        at, where = path.at(position), mount.mount_path
        if not mount.name:
            found.append(required(at.child("name")))
        if mount.name not in volumes:
            found.append(not_found(at.child("name"), mount.name))
        if mount.name in devices:
            found.append(invalid(at.child("name"), mount.name, "must not already exist in volumeDevices"))
        if not where:
            found.append(required(at.child("mountPath")))
        if where in seen:
            found.append(invalid(at.child("mountPath"), where, "must be unique"))
        if where in device_paths:
            found.append(invalid(at.child("mountPath"), where, "must not already exist as a path in volumeDevices"))
        seen.add(where)
        found += _validate_sub_paths(mount, path, position)
        found += _validate_propagation(mount, container, path)
    return found


def _validate_sub_paths(mount: VolumeMount, path: Path, position: int) -> Errors:
    found = validate_local_path(mount.sub_path, path.child("subPath")) if mount.sub_path else []
    if mount.sub_path_expr:
        if mount.sub_path:
            at = path.at(position).child("subPathExpr")
            found.append(invalid(at, mount.sub_path_expr, "subPathExpr and subPath are mutually exclusive"))
        found += validate_local_path(mount.sub_path_expr, path.child("subPathExpr"))
    return found


def _validate_propagation(mount: VolumeMount, container: Container, path: Path) -> Errors:
    found: Errors = []
    mode, recursive = mount.mount_propagation, mount.recursive_read_only
    if mode is not None:
        at, security = path.child("mountPropagation"), container.security_context
        if mode not in PROPAGATIONS:
            found.append(not_supported(at, mode, PROPAGATIONS))
        if mode == "Bidirectional" and not (security and security.privileged):
            message = "Bidirectional mount propagation is available only to privileged containers"
            found.append(forbidden(at, message))
    if recursive is not None:
        at = path.child("recursiveReadOnly")
        if recursive not in RECURSIVE_READ_ONLY:
            found.append(not_supported(at, recursive, RECURSIVE_READ_ONLY))
        elif recursive != "Disabled":
            if not mount.read_only:
                found.append(forbidden(at, "may only be specified when readOnly is true"))
            if mode not in (None, "None"):
                message = "may only be specified when mountPropagation is None or not specified"
                found.append(forbidden(at, message))
    return found


def validate_devices(container: Container, path: Path, volumes: Mapping[str, Volume]) -> Errors:
    mounts = {mount.name for mount in container.volume_mounts}
    mount_paths = {mount.mount_path for mount in container.volume_mounts}
    names: set[str] = set()
    paths: set[str] = set()
    found: Errors = []
    for position, device in enumerate(container.volume_devices):
        name, where, at = device.name, device.device_path, path.at(position)
        volume = volumes.get(name)
        if not name:
            found.append(required(at.child("name")))
        if name in names:
            found.append(invalid(at.child("name"), name, "must be unique"))
        if volume is None:
            found.append(not_found(at.child("name"), name))
        elif all(getattr(volume, source) is None for source in BLOCK_SOURCES):
            message = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
            found.append(invalid(at.child("name"), name, message))
        if not where:
            found.append(required(at.child("devicePath")))
        if where in paths:
            found.append(invalid(at.child("devicePath"), where, "must be unique"))
        if ".." in where.split("/"):
            found.append(invalid(at.child("devicePath"), where, "can not contain backsteps ('..')"))
        if name in mounts:
            found.append(invalid(at.child("name"), name, "must not already exist in volumeMounts"))
        if where in mount_paths:
            found.append(invalid(at.child("devicePath"), where, "must not already exist as a path in volumeMounts"))
        names.add(name)
        paths.add(where)
    return found
