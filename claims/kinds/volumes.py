"""The volumes of a pod: `Volume` with the sources that every node knows, and the projected ones.

The sources of particular storage systems are in `claims.kinds.storage_systems`. Source: k8s.io/api/core/v1.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from claims.kinds import storage_systems as storage
from claims.kinds.references import (
    KeyToPath,
    LocalObjectReference,
    ObjectFieldSelector,
    ResourceFieldSelector,
    TypedLocalObjectReference,
    TypedObjectReference,
)
from manciple.wire.base import Int32, Int64, ObjectMeta, QuantityText, Value, always, pb
from manciple.wire.conditions import LabelSelector

PACKAGE = "io.k8s.api.core.v1"


class HostPathVolumeSource(Value):
    """A path of the node."""

    path: Annotated[str, pb(1)] = ""
    type: Annotated[str | None, pb(2)] = None


class EmptyDirVolumeSource(Value):
    """An empty directory that lives as long as the pod. `medium`: "" or Memory; `mode`: its permission bits."""

    medium: Annotated[str, pb(1)] = ""
    size_limit: Annotated[QuantityText | None, pb(2, encoding="quantity")] = None
    mode: Annotated[Int32 | None, pb(3)] = None


class SecretVolumeSource(Value):
    """The keys of a Secret as files."""

    secret_name: Annotated[str, pb(1)] = ""
    items: Annotated[tuple[KeyToPath, ...], pb(2)] = ()
    default_mode: Annotated[Int32 | None, pb(3)] = None
    optional: Annotated[bool | None, pb(4)] = None
    default_user: Annotated[Int64 | None, pb(5)] = None


class ConfigMapVolumeSource(LocalObjectReference):
    """The keys of a ConfigMap as files."""

    EMBEDS: ClassVar = (LocalObjectReference, 1)

    items: Annotated[tuple[KeyToPath, ...], pb(2)] = ()
    default_mode: Annotated[Int32 | None, pb(3)] = None
    optional: Annotated[bool | None, pb(4)] = None
    default_user: Annotated[Int64 | None, pb(5)] = None


class DownwardAPIVolumeFile(Value):
    """A field of the pod, or a resource amount of a container, as a file."""

    path: Annotated[str, pb(1)] = ""
    field_ref: Annotated[ObjectFieldSelector | None, pb(2)] = None
    resource_field_ref: Annotated[ResourceFieldSelector | None, pb(3)] = None
    mode: Annotated[Int32 | None, pb(4)] = None
    user: Annotated[Int64 | None, pb(5)] = None


class DownwardAPIVolumeSource(Value):
    """Fields of the pod as files."""

    items: Annotated[tuple[DownwardAPIVolumeFile, ...], pb(1)] = ()
    default_mode: Annotated[Int32 | None, pb(2)] = None
    default_user: Annotated[Int64 | None, pb(3)] = None


class SecretProjection(LocalObjectReference):
    """Keys of a Secret among the files of a projected volume."""

    EMBEDS: ClassVar = (LocalObjectReference, 1)

    items: Annotated[tuple[KeyToPath, ...], pb(2)] = ()
    optional: Annotated[bool | None, pb(4)] = None


class ConfigMapProjection(LocalObjectReference):
    """Keys of a ConfigMap among the files of a projected volume."""

    EMBEDS: ClassVar = (LocalObjectReference, 1)

    items: Annotated[tuple[KeyToPath, ...], pb(2)] = ()
    optional: Annotated[bool | None, pb(4)] = None


class DownwardAPIProjection(Value):
    """Fields of the pod among the files of a projected volume."""

    items: Annotated[tuple[DownwardAPIVolumeFile, ...], pb(1)] = ()


class ServiceAccountTokenProjection(Value):
    """A token of the pod's service account as a file."""

    audience: Annotated[str, pb(1)] = ""
    expiration_seconds: Annotated[Int64 | None, pb(2)] = None
    path: Annotated[str, pb(3)] = ""
    user: Annotated[Int64 | None, pb(4)] = None


class ClusterTrustBundleProjection(Value):
    """Trust anchors, chosen by name or by signer and labels, as a file."""

    name: Annotated[str | None, pb(1)] = None
    signer_name: Annotated[str | None, pb(2)] = None
    label_selector: Annotated[LabelSelector | None, pb(3)] = None
    optional: Annotated[bool | None, pb(5)] = None
    path: Annotated[str, pb(4)] = ""
    user: Annotated[Int64 | None, pb(6)] = None


class PodCertificateProjection(Value):
    """A key and a certificate for the pod as files."""

    signer_name: Annotated[str, pb(1)] = ""
    key_type: Annotated[str, pb(2)] = ""
    max_expiration_seconds: Annotated[Int32 | None, pb(3)] = None
    credential_bundle_path: Annotated[str, pb(4)] = ""
    key_path: Annotated[str, pb(5)] = ""
    certificate_chain_path: Annotated[str, pb(6)] = ""
    user_annotations: Annotated[dict[str, str], pb(7)] = {}
    user: Annotated[Int64 | None, pb(8)] = None


class VolumeProjection(Value):
    """One part of a projected volume. Exactly one field is set."""

    secret: Annotated[SecretProjection | None, pb(1)] = None
    downward_api: Annotated[DownwardAPIProjection | None, pb(2)] = msgspec.field(default=None, name="downwardAPI")
    config_map: Annotated[ConfigMapProjection | None, pb(3)] = None
    service_account_token: Annotated[ServiceAccountTokenProjection | None, pb(4)] = None
    cluster_trust_bundle: Annotated[ClusterTrustBundleProjection | None, pb(5)] = None
    pod_certificate: Annotated[PodCertificateProjection | None, pb(6)] = None


class ProjectedVolumeSource(Value):
    """Several sources as the files of one directory."""

    sources: Annotated[tuple[VolumeProjection, ...], pb(1)] = ()
    default_mode: Annotated[Int32 | None, pb(2)] = None
    default_user: Annotated[Int64 | None, pb(3)] = None


class PersistentVolumeClaimVolumeSource(Value):
    """A PersistentVolumeClaim of the pod's namespace."""

    claim_name: Annotated[str, pb(1)] = ""
    read_only: Annotated[bool, pb(2)] = False


class VolumeResourceRequirements(Value):
    """Amounts of storage."""

    limits: Annotated[dict[str, QuantityText], pb(1, encoding="quantity")] = {}
    requests: Annotated[dict[str, QuantityText], pb(2, encoding="quantity")] = {}


class PersistentVolumeClaimSpec(Value):
    """The storage that is asked for."""

    access_modes: Annotated[tuple[str, ...], pb(1)] = ()
    selector: Annotated[LabelSelector | None, pb(4)] = None
    resources: Annotated[VolumeResourceRequirements, pb(2)] = VolumeResourceRequirements()
    volume_name: Annotated[str, pb(3)] = ""
    storage_class_name: Annotated[str | None, pb(5)] = None
    volume_mode: Annotated[str | None, pb(6)] = None
    data_source: Annotated[TypedLocalObjectReference | None, pb(7)] = None
    data_source_ref: Annotated[TypedObjectReference | None, pb(8)] = None
    volume_attributes_class_name: Annotated[str | None, pb(9)] = None


class PersistentVolumeClaimTemplate(Value):
    """The PersistentVolumeClaim to be made for the pod."""

    metadata: Annotated[ObjectMeta, pb(1)] = ObjectMeta()
    spec: Annotated[PersistentVolumeClaimSpec, pb(2)] = always(PersistentVolumeClaimSpec())


class EphemeralVolumeSource(Value):
    """A volume that a storage driver makes for the pod and removes with it."""

    volume_claim_template: Annotated[PersistentVolumeClaimTemplate | None, pb(1)] = None


class CSIVolumeSource(Value):
    """A volume that a CSI driver makes for the pod."""

    driver: Annotated[str, pb(1)] = ""
    read_only: Annotated[bool | None, pb(2)] = None
    fs_type: Annotated[str | None, pb(3)] = None
    volume_attributes: Annotated[dict[str, str], pb(4)] = {}
    node_publish_secret_ref: Annotated[LocalObjectReference | None, pb(5)] = None


class ImageVolumeSource(Value):
    """The files of an image."""

    reference: Annotated[str, pb(1)] = ""
    pull_policy: Annotated[str, pb(2)] = ""


class VolumeSource(Value):
    """Where a volume comes from. Exactly one field is set."""

    host_path: Annotated[HostPathVolumeSource | None, pb(1)] = None
    empty_dir: Annotated[EmptyDirVolumeSource | None, pb(2)] = None
    gce_persistent_disk: Annotated[storage.GCEPersistentDiskVolumeSource | None, pb(3)] = None
    aws_elastic_block_store: Annotated[storage.AWSElasticBlockStoreVolumeSource | None, pb(4)] = None
    git_repo: Annotated[storage.GitRepoVolumeSource | None, pb(5)] = None
    secret: Annotated[SecretVolumeSource | None, pb(6)] = None
    nfs: Annotated[storage.NFSVolumeSource | None, pb(7)] = None
    iscsi: Annotated[storage.ISCSIVolumeSource | None, pb(8)] = None
    glusterfs: Annotated[storage.GlusterfsVolumeSource | None, pb(9)] = None
    persistent_volume_claim: Annotated[PersistentVolumeClaimVolumeSource | None, pb(10)] = None
    rbd: Annotated[storage.RBDVolumeSource | None, pb(11)] = None
    flex_volume: Annotated[storage.FlexVolumeSource | None, pb(12)] = None
    cinder: Annotated[storage.CinderVolumeSource | None, pb(13)] = None
    cephfs: Annotated[storage.CephFSVolumeSource | None, pb(14)] = None
    flocker: Annotated[storage.FlockerVolumeSource | None, pb(15)] = None
    downward_api: Annotated[DownwardAPIVolumeSource | None, pb(16)] = msgspec.field(default=None, name="downwardAPI")
    fc: Annotated[storage.FCVolumeSource | None, pb(17)] = None
    azure_file: Annotated[storage.AzureFileVolumeSource | None, pb(18)] = None
    config_map: Annotated[ConfigMapVolumeSource | None, pb(19)] = None
    vsphere_volume: Annotated[storage.VsphereVirtualDiskVolumeSource | None, pb(20)] = None
    quobyte: Annotated[storage.QuobyteVolumeSource | None, pb(21)] = None
    azure_disk: Annotated[storage.AzureDiskVolumeSource | None, pb(22)] = None
    photon_persistent_disk: Annotated[storage.PhotonPersistentDiskVolumeSource | None, pb(23)] = None
    projected: Annotated[ProjectedVolumeSource | None, pb(26)] = None
    portworx_volume: Annotated[storage.PortworxVolumeSource | None, pb(24)] = None
    scale_io: Annotated[storage.ScaleIOVolumeSource | None, pb(25)] = msgspec.field(default=None, name="scaleIO")
    storageos: Annotated[storage.StorageOSVolumeSource | None, pb(27)] = None
    csi: Annotated[CSIVolumeSource | None, pb(28)] = None
    ephemeral: Annotated[EphemeralVolumeSource | None, pb(29)] = None
    image: Annotated[ImageVolumeSource | None, pb(30)] = None


class Volume(VolumeSource):
    """A volume of a pod; containers mount it by name."""

    EMBEDS: ClassVar = (VolumeSource, 2)

    name: Annotated[str, pb(1)] = ""
