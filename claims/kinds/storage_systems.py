"""Volume sources of particular storage systems, most of them deprecated upstream and carried only to be kept.

Source: k8s.io/api/core/v1.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from claims.kinds.references import LocalObjectReference
from manciple.wire.base import Int32, Value, pb

PACKAGE = "io.k8s.api.core.v1"


class GCEPersistentDiskVolumeSource(Value):
    """A disk of Google Compute Engine."""

    pd_name: Annotated[str, pb(1)] = ""
    fs_type: Annotated[str, pb(2)] = ""
    partition: Annotated[Int32, pb(3)] = 0
    read_only: Annotated[bool, pb(4)] = False


class AWSElasticBlockStoreVolumeSource(Value):
    """A disk of AWS."""

    volume_id: Annotated[str, pb(1)] = msgspec.field(default="", name="volumeID")
    fs_type: Annotated[str, pb(2)] = ""
    partition: Annotated[Int32, pb(3)] = 0
    read_only: Annotated[bool, pb(4)] = False


class GitRepoVolumeSource(Value):
    """A checkout of a git repository."""

    repository: Annotated[str, pb(1)] = ""
    revision: Annotated[str, pb(2)] = ""
    directory: Annotated[str, pb(3)] = ""


class NFSVolumeSource(Value):
    """An NFS export."""

    server: Annotated[str, pb(1)] = ""
    path: Annotated[str, pb(2)] = ""
    read_only: Annotated[bool, pb(3)] = False


class ISCSIVolumeSource(Value):
    """An iSCSI disk."""

    target_portal: Annotated[str, pb(1)] = ""
    iqn: Annotated[str, pb(2)] = ""
    lun: Annotated[Int32, pb(3)] = 0
    iscsi_interface: Annotated[str, pb(4)] = ""
    fs_type: Annotated[str, pb(5)] = ""
    read_only: Annotated[bool, pb(6)] = False
    portals: Annotated[tuple[str, ...], pb(7)] = ()
    chap_auth_discovery: Annotated[bool, pb(8)] = False
    chap_auth_session: Annotated[bool, pb(11)] = False
    secret_ref: Annotated[LocalObjectReference | None, pb(10)] = None
    initiator_name: Annotated[str | None, pb(12)] = None


class GlusterfsVolumeSource(Value):
    """A Glusterfs volume."""

    endpoints: Annotated[str, pb(1)] = ""
    path: Annotated[str, pb(2)] = ""
    read_only: Annotated[bool, pb(3)] = False


class RBDVolumeSource(Value):
    """A Ceph block device."""

    monitors: Annotated[tuple[str, ...], pb(1)] = ()
    image: Annotated[str, pb(2)] = ""
    fs_type: Annotated[str, pb(3)] = ""
    pool: Annotated[str, pb(4)] = ""
    user: Annotated[str, pb(5)] = ""
    keyring: Annotated[str, pb(6)] = ""
    secret_ref: Annotated[LocalObjectReference | None, pb(7)] = None
    read_only: Annotated[bool, pb(8)] = False


class FlexVolumeSource(Value):
    """A volume of an exec-based plugin."""

    driver: Annotated[str, pb(1)] = ""
    fs_type: Annotated[str, pb(2)] = ""
    secret_ref: Annotated[LocalObjectReference | None, pb(3)] = None
    read_only: Annotated[bool, pb(4)] = False
    options: Annotated[dict[str, str], pb(5)] = {}


class CinderVolumeSource(Value):
    """A volume of OpenStack."""

    volume_id: Annotated[str, pb(1)] = msgspec.field(default="", name="volumeID")
    fs_type: Annotated[str, pb(2)] = ""
    read_only: Annotated[bool, pb(3)] = False
    secret_ref: Annotated[LocalObjectReference | None, pb(4)] = None


class CephFSVolumeSource(Value):
    """A Ceph filesystem."""

    monitors: Annotated[tuple[str, ...], pb(1)] = ()
    path: Annotated[str, pb(2)] = ""
    user: Annotated[str, pb(3)] = ""
    secret_file: Annotated[str, pb(4)] = ""
    secret_ref: Annotated[LocalObjectReference | None, pb(5)] = None
    read_only: Annotated[bool, pb(6)] = False


class FlockerVolumeSource(Value):
    """A Flocker dataset."""

    dataset_name: Annotated[str, pb(1)] = ""
    dataset_uuid: Annotated[str, pb(2)] = msgspec.field(default="", name="datasetUUID")


class FCVolumeSource(Value):
    """A Fibre Channel disk."""

    target_wwns: Annotated[tuple[str, ...], pb(1)] = msgspec.field(default=(), name="targetWWNs")
    lun: Annotated[Int32 | None, pb(2)] = None
    fs_type: Annotated[str, pb(3)] = ""
    read_only: Annotated[bool, pb(4)] = False
    wwids: Annotated[tuple[str, ...], pb(5)] = ()


class AzureFileVolumeSource(Value):
    """An Azure file share."""

    secret_name: Annotated[str, pb(1)] = ""
    share_name: Annotated[str, pb(2)] = ""
    read_only: Annotated[bool, pb(3)] = False


class VsphereVirtualDiskVolumeSource(Value):
    """A disk of vSphere."""

    volume_path: Annotated[str, pb(1)] = ""
    fs_type: Annotated[str, pb(2)] = ""
    storage_policy_name: Annotated[str, pb(3)] = ""
    storage_policy_id: Annotated[str, pb(4)] = msgspec.field(default="", name="storagePolicyID")


class QuobyteVolumeSource(Value):
    """A Quobyte volume."""

    registry: Annotated[str, pb(1)] = ""
    volume: Annotated[str, pb(2)] = ""
    read_only: Annotated[bool, pb(3)] = False
    user: Annotated[str, pb(4)] = ""
    group: Annotated[str, pb(5)] = ""
    tenant: Annotated[str, pb(6)] = ""


class AzureDiskVolumeSource(Value):
    """An Azure disk."""

    disk_name: Annotated[str, pb(1)] = ""
    disk_uri: Annotated[str, pb(2)] = msgspec.field(default="", name="diskURI")
    caching_mode: Annotated[str | None, pb(3)] = None
    fs_type: Annotated[str | None, pb(4)] = None
    read_only: Annotated[bool | None, pb(5)] = None
    kind: Annotated[str | None, pb(6)] = None


class PhotonPersistentDiskVolumeSource(Value):
    """A disk of Photon Controller."""

    pd_id: Annotated[str, pb(1)] = msgspec.field(default="", name="pdID")
    fs_type: Annotated[str, pb(2)] = ""


class PortworxVolumeSource(Value):
    """A Portworx volume."""

    volume_id: Annotated[str, pb(1)] = msgspec.field(default="", name="volumeID")
    fs_type: Annotated[str, pb(2)] = ""
    read_only: Annotated[bool, pb(3)] = False


class ScaleIOVolumeSource(Value):
    """A ScaleIO volume."""

    gateway: Annotated[str, pb(1)] = ""
    system: Annotated[str, pb(2)] = ""
    secret_ref: Annotated[LocalObjectReference | None, pb(3)] = None
    ssl_enabled: Annotated[bool, pb(4)] = False
    protection_domain: Annotated[str, pb(5)] = ""
    storage_pool: Annotated[str, pb(6)] = ""
    storage_mode: Annotated[str, pb(7)] = ""
    volume_name: Annotated[str, pb(8)] = ""
    fs_type: Annotated[str, pb(9)] = ""
    read_only: Annotated[bool, pb(10)] = False


class StorageOSVolumeSource(Value):
    """A StorageOS volume."""

    volume_name: Annotated[str, pb(1)] = ""
    volume_namespace: Annotated[str, pb(2)] = ""
    fs_type: Annotated[str, pb(3)] = ""
    read_only: Annotated[bool, pb(4)] = False
    secret_ref: Annotated[LocalObjectReference | None, pb(5)] = None
