"""How a pod refers to other objects, to its own fields and to keys in them. Source: k8s.io/api/core/v1."""

from __future__ import annotations

from typing import Annotated, ClassVar

from manciple.wire.base import Int32, Int64, QuantityText, Value, pb

PACKAGE = "io.k8s.api.core.v1"


class LocalObjectReference(Value):
    """An object of the pod's namespace."""

    name: Annotated[str, pb(1)] = ""


class TypedLocalObjectReference(Value):
    """An object of the same namespace, of any kind. No `api_group` means core."""

    api_group: Annotated[str | None, pb(1)] = None
    kind: Annotated[str, pb(2)] = ""
    name: Annotated[str, pb(3)] = ""


class TypedObjectReference(TypedLocalObjectReference):
    """An object of any kind in any namespace."""

    namespace: Annotated[str | None, pb(4)] = None


class ConfigMapEnvSource(LocalObjectReference):
    """A ConfigMap that may be missing when `optional` is true."""

    EMBEDS: ClassVar = (LocalObjectReference, 1)

    optional: Annotated[bool | None, pb(2)] = None


class SecretEnvSource(LocalObjectReference):
    """A Secret that may be missing when `optional` is true."""

    EMBEDS: ClassVar = (LocalObjectReference, 1)

    optional: Annotated[bool | None, pb(2)] = None


class ConfigMapKeySelector(LocalObjectReference):
    """One key of a ConfigMap."""

    EMBEDS: ClassVar = (LocalObjectReference, 1)

    key: Annotated[str, pb(2)] = ""
    optional: Annotated[bool | None, pb(3)] = None


class SecretKeySelector(LocalObjectReference):
    """One key of a Secret."""

    EMBEDS: ClassVar = (LocalObjectReference, 1)

    key: Annotated[str, pb(2)] = ""
    optional: Annotated[bool | None, pb(3)] = None


class FileKeySelector(Value):
    """One key of a file with environment variables that lies in a volume."""

    volume_name: Annotated[str, pb(1)] = ""
    path: Annotated[str, pb(2)] = ""
    key: Annotated[str, pb(3)] = ""
    optional: Annotated[bool | None, pb(4)] = None


class ObjectFieldSelector(Value):
    """A field of the pod itself: metadata.name, status.podIP, ..."""

    api_version: Annotated[str, pb(1)] = ""
    field_path: Annotated[str, pb(2)] = ""


class ResourceFieldSelector(Value):
    """A resource amount of a container: limits.cpu, requests.memory, ...; in units of `divisor`."""

    container_name: Annotated[str, pb(1)] = ""
    resource: Annotated[str, pb(2)] = ""
    divisor: Annotated[QuantityText | None, pb(3, encoding="quantity")] = None


class KeyToPath(Value):
    """Which key becomes which file. `mode`: permission bits; `user`: owner of the file."""

    key: Annotated[str, pb(1)] = ""
    path: Annotated[str, pb(2)] = ""
    mode: Annotated[Int32 | None, pb(3)] = None
    user: Annotated[Int64 | None, pb(4)] = None
