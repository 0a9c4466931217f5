"""The volumes of a pod: `Volume` with the sources that nodes here know, the projected ones, and those only carried.

Source: k8s.io/api/core/v1.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar

import msgspec

from claims.kinds.containers import (
    KeyToPath,
    ObjectFieldSelector,
    ResourceFieldSelector,
    TypedLocalObjectReference,
    TypedObjectReference,
)
from manciple.wire.base import (
    Int32,
    Int64,
    LabelSelector,
    LocalObjectReference,
    ObjectMeta,
    ObjectReference,
    QuantityText,
    Value,
    always,
    pb,
)

PACKAGE = "io.k8s.api.core.v1"

VOLUME_CLAIMS = "persistentvolumeclaims"
#: Of a volume claim, instead of `spec.storageClassName`, in old manifests.
CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"


class HostPathVolumeSource(Value):
    """A path of the node.

    path: on the node. type: what must be there, such as Directory or Socket; DirectoryOrCreate and FileOrCreate make
    it.
    """

    path: Annotated[str, pb(1)] = ""
    type: Annotated[str | None, pb(2)] = None


class EmptyDirVolumeSource(Value):
    """An empty directory that lives as long as the pod. `medium`: "" or Memory; `mode`: its permission bits.

    size_limit: the pod is evicted when the files take more.
    """

    medium: Annotated[str, pb(1)] = ""
    size_limit: Annotated[QuantityText | None, pb(2, encoding="quantity")] = None
    mode: Annotated[Int32 | None, pb(3)] = None


class SecretVolumeSource(Value):
    """The keys of a Secret as files.

    secret_name: the name of a Secret in the pod's namespace. default_mode: the permission bits of the files; 0644 by
    default. optional: whether the Secret or its keys may be missing. default_user: owner of the files.
    """

    secret_name: Annotated[str, pb(1)] = ""
    items: Annotated[tuple[KeyToPath, ...], pb(2)] = ()
    default_mode: Annotated[Int32 | None, pb(3)] = None
    optional: Annotated[bool | None, pb(4)] = None
    default_user: Annotated[Int64 | None, pb(5)] = None


class ConfigMapVolumeSource(LocalObjectReference):
    """The keys of a ConfigMap as files.

    default_mode: the permission bits of the files; 0644 by default. optional: whether the ConfigMap or its keys may be
    missing. default_user: owner of the files.
    """

    EMBEDS: ClassVar = (LocalObjectReference, 1)

    items: Annotated[tuple[KeyToPath, ...], pb(2)] = ()
    default_mode: Annotated[Int32 | None, pb(3)] = None
    optional: Annotated[bool | None, pb(4)] = None
    default_user: Annotated[Int64 | None, pb(5)] = None


class DownwardAPIVolumeFile(Value):
    """A field of the pod, or a resource amount of a container, as a file.

    path: relative to the volume, without `..`. mode: permission bits. user: owner of the file.
    """

    path: Annotated[str, pb(1)] = ""
    field_ref: Annotated[ObjectFieldSelector | None, pb(2)] = None
    resource_field_ref: Annotated[ResourceFieldSelector | None, pb(3)] = None
    mode: Annotated[Int32 | None, pb(4)] = None
    user: Annotated[Int64 | None, pb(5)] = None


class DownwardAPIVolumeSource(Value):
    """Fields of the pod as files.

    default_mode: the permission bits of the files; 0644 by default. default_user: owner of the files.
    """

    items: Annotated[tuple[DownwardAPIVolumeFile, ...], pb(1)] = ()
    default_mode: Annotated[Int32 | None, pb(2)] = None
    default_user: Annotated[Int64 | None, pb(3)] = None


class SecretProjection(LocalObjectReference):
    """Keys of a Secret among the files of a projected volume.

    optional: whether the Secret or its keys may be missing.
    """

    EMBEDS: ClassVar = (LocalObjectReference, 1)

    items: Annotated[tuple[KeyToPath, ...], pb(2)] = ()
    optional: Annotated[bool | None, pb(4)] = None


class ConfigMapProjection(LocalObjectReference):
    """Keys of a ConfigMap among the files of a projected volume.

    optional: whether the ConfigMap or its keys may be missing.
    """

    EMBEDS: ClassVar = (LocalObjectReference, 1)

    items: Annotated[tuple[KeyToPath, ...], pb(2)] = ()
    optional: Annotated[bool | None, pb(4)] = None


class DownwardAPIProjection(Value):
    """Fields of the pod among the files of a projected volume."""

    items: Annotated[tuple[DownwardAPIVolumeFile, ...], pb(1)] = ()


class ServiceAccountTokenProjection(Value):
    """A token of the pod's service account as a file.

    audience: for whom it is; the API by default. expiration_seconds: how long it is valid, at least 600; it is renewed
    before. path: relative to the volume. user: owner of the file.
    """

    audience: Annotated[str, pb(1)] = ""
    expiration_seconds: Annotated[Int64 | None, pb(2)] = None
    path: Annotated[str, pb(3)] = ""
    user: Annotated[Int64 | None, pb(4)] = None


class ClusterTrustBundleProjection(Value):
    """Trust anchors, chosen by name or by signer and labels, as a file.

    name: the name of one bundle. signer_name: the signer of all bundles. optional: whether there may be none.
    path: relative to the volume. user: owner of the file.
    """

    name: Annotated[str | None, pb(1)] = None
    signer_name: Annotated[str | None, pb(2)] = None
    label_selector: Annotated[LabelSelector | None, pb(3)] = None
    optional: Annotated[bool | None, pb(5)] = None
    path: Annotated[str, pb(4)] = ""
    user: Annotated[Int64 | None, pb(6)] = None


class PodCertificateProjection(Value):
    """A key and a certificate for the pod as files.

    signer_name: who signs it. key_type: such as ED25519 or RSA3072. max_expiration_seconds: how long it may be valid.
    credential_bundle_path: of a file with both. key_path: of a file with the key. certificate_chain_path: of a file
    with the certificates. user_annotations: passed to the signer. user: owner of the files.
    """

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
    """Several sources as the files of one directory.

    default_mode: the permission bits of the files; 0644 by default. default_user: owner of the files.
    """

    sources: Annotated[tuple[VolumeProjection, ...], pb(1)] = always(())
    default_mode: Annotated[Int32 | None, pb(2)] = None
    default_user: Annotated[Int64 | None, pb(3)] = None


class LocalVolumeSource(Value):
    """A folder or device of one node.

    path: on the node. fs_type: of a device; chosen by the node by default.
    """

    path: Annotated[str, pb(1)] = always("")
    fs_type: Annotated[str | None, pb(2)] = msgspec.field(default=None, name="fsType")


class ServedPersistentVolumeSource(Value):
    """What a PersistentVolume is. Exactly one field is set."""

    host_path: Annotated[HostPathVolumeSource | None, pb(3)] = None
    local: Annotated[LocalVolumeSource | None, pb(20)] = None


class ServedVolumeSource(Value):
    """Where a volume comes from. Exactly one field is set."""

    host_path: Annotated[HostPathVolumeSource | None, pb(1)] = None
    empty_dir: Annotated[EmptyDirVolumeSource | None, pb(2)] = None
    secret: Annotated[SecretVolumeSource | None, pb(6)] = None
    downward_api: Annotated[DownwardAPIVolumeSource | None, pb(16)] = msgspec.field(default=None, name="downwardAPI")
    config_map: Annotated[ConfigMapVolumeSource | None, pb(19)] = None
    projected: Annotated[ProjectedVolumeSource | None, pb(26)] = None


class VolumeResourceRequirements(Value):
    """Amounts of storage.

    limits: the most that the volume may have. requests: the least, under `storage`.
    """

    limits: Annotated[dict[str, QuantityText], pb(1, encoding="quantity")] = {}
    requests: Annotated[dict[str, QuantityText], pb(2, encoding="quantity")] = {}


class PersistentVolumeClaimSpec(Value):
    """The storage that is asked for. storage_class_name: None for the default class, "" for none.

    access_modes: ReadWriteOnce, ReadOnlyMany, ReadWriteMany or ReadWriteOncePod. volume_name: the name of the
    PersistentVolume; set when the claim is bound. volume_mode: Filesystem or Block. volume_attributes_class_name:
    carried, of no effect here.
    """

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
    """The PersistentVolumeClaim to be made for the pod.

    metadata: labels and annotations of the claim.
    """

    metadata: Annotated[ObjectMeta, pb(1)] = always(ObjectMeta())
    spec: Annotated[PersistentVolumeClaimSpec, pb(2)] = always(PersistentVolumeClaimSpec())


# What is only carried -------------------------------------------------------------------------------------------------

#: Volume sources that nothing here mounts: read, stored, explained and answered like all others, in JSON and protobuf.
#: A line is a type: its name, its fields as NAME:NUMBER:TYPE (of text where no type is named), what it is.
_CARRIED = """
GCEPersistentDiskVolumeSource pdName:1 fsType:2 partition:3:int32 readOnly:4:bool # A disk of Google Compute Engine.
AWSElasticBlockStoreVolumeSource volumeID:1 fsType:2 partition:3:int32 readOnly:4:bool # A disk of AWS.
GitRepoVolumeSource repository:1 revision:2 directory:3 # A checkout of a git repository.
NFSVolumeSource server:1 path:2 readOnly:3:bool # An NFS export.
ISCSIVolumeSource targetPortal:1 iqn:2 lun:3:int32! iscsiInterface:4 fsType:5 readOnly:6:bool portals:7:[str] \
    chapAuthDiscovery:8:bool chapAuthSession:11:bool secretRef:10:LocalObjectReference? initiatorName:12:str? \
    # An iSCSI disk.
GlusterfsVolumeSource endpoints:1 path:2 readOnly:3:bool # A Glusterfs volume.
PersistentVolumeClaimVolumeSource claimName:1 readOnly:2:bool # A PersistentVolumeClaim of the pod's namespace.
RBDVolumeSource monitors:1:[str] image:2 fsType:3 pool:4 user:5 keyring:6 secretRef:7:LocalObjectReference? \
    readOnly:8:bool # A Ceph block device.
FlexVolumeSource driver:1 fsType:2 secretRef:3:LocalObjectReference? readOnly:4:bool options:5:{str} \
    # A volume of an exec-based plugin.
CinderVolumeSource volumeID:1 fsType:2 readOnly:3:bool secretRef:4:LocalObjectReference? # A volume of OpenStack.
CephFSVolumeSource monitors:1:[str] path:2 user:3 secretFile:4 secretRef:5:LocalObjectReference? readOnly:6:bool \
    # A Ceph filesystem.
FlockerVolumeSource datasetName:1 datasetUUID:2 # A Flocker dataset.
FCVolumeSource targetWWNs:1:[str] lun:2:int32? fsType:3 readOnly:4:bool wwids:5:[str] # A Fibre Channel disk.
AzureFileVolumeSource secretName:1 shareName:2 readOnly:3:bool # An Azure file share.
VsphereVirtualDiskVolumeSource volumePath:1 fsType:2 storagePolicyName:3 storagePolicyID:4 # A disk of vSphere.
QuobyteVolumeSource registry:1 volume:2 readOnly:3:bool user:4 group:5 tenant:6 # A Quobyte volume.
AzureDiskVolumeSource diskName:1 diskURI:2 cachingMode:3:str? fsType:4:str? readOnly:5:bool? kind:6:str? \
    # An Azure disk.
PhotonPersistentDiskVolumeSource pdID:1 fsType:2 # A disk of Photon Controller.
PortworxVolumeSource volumeID:1 fsType:2 readOnly:3:bool # A Portworx volume.
ScaleIOVolumeSource gateway:1 system:2 secretRef:3:LocalObjectReference? sslEnabled:4:bool protectionDomain:5 \
    storagePool:6 storageMode:7 volumeName:8 fsType:9 readOnly:10:bool # A ScaleIO volume.
StorageOSVolumeSource volumeName:1 volumeNamespace:2 fsType:3 readOnly:4:bool secretRef:5:LocalObjectReference? \
    # A StorageOS volume.
CSIVolumeSource driver:1 readOnly:2:bool? fsType:3:str? volumeAttributes:4:{str} \
    nodePublishSecretRef:5:LocalObjectReference? # A volume that a CSI driver makes for the pod.
EphemeralVolumeSource volumeClaimTemplate:1:PersistentVolumeClaimTemplate? \
    # A volume that a storage driver makes for the pod and removes with it.
ImageVolumeSource reference:1 pullPolicy:2 # The files of an image.
VolumeSource gcePersistentDisk:3:GCEPersistentDiskVolumeSource? \
    awsElasticBlockStore:4:AWSElasticBlockStoreVolumeSource? gitRepo:5:GitRepoVolumeSource? nfs:7:NFSVolumeSource? \
    iscsi:8:ISCSIVolumeSource? glusterfs:9:GlusterfsVolumeSource? \
    persistentVolumeClaim:10:PersistentVolumeClaimVolumeSource? rbd:11:RBDVolumeSource? \
    flexVolume:12:FlexVolumeSource? cinder:13:CinderVolumeSource? \
    cephfs:14:CephFSVolumeSource? flocker:15:FlockerVolumeSource? fc:17:FCVolumeSource? \
    azureFile:18:AzureFileVolumeSource? vsphereVolume:20:VsphereVirtualDiskVolumeSource? \
    quobyte:21:QuobyteVolumeSource? azureDisk:22:AzureDiskVolumeSource? \
    photonPersistentDisk:23:PhotonPersistentDiskVolumeSource? portworxVolume:24:PortworxVolumeSource? \
    scaleIO:25:ScaleIOVolumeSource? storageos:27:StorageOSVolumeSource? csi:28:CSIVolumeSource? \
    ephemeral:29:EphemeralVolumeSource? image:30:ImageVolumeSource? # Where a volume comes from: one field is set.
SecretReference name:1 namespace:2 # A Secret of any namespace.
GlusterfsPersistentVolumeSource endpoints:1 path:2 readOnly:3:bool endpointsNamespace:4:str? # A Glusterfs volume.
RBDPersistentVolumeSource monitors:1:[str] image:2 fsType:3 pool:4 user:5 keyring:6 secretRef:7:SecretReference? \
    readOnly:8:bool # A Ceph block device.
ISCSIPersistentVolumeSource targetPortal:1 iqn:2 lun:3:int32! iscsiInterface:4 fsType:5 readOnly:6:bool \
    portals:7:[str] chapAuthDiscovery:8:bool chapAuthSession:11:bool secretRef:10:SecretReference? \
    initiatorName:12:str? # An iSCSI disk.
CinderPersistentVolumeSource volumeID:1 fsType:2 readOnly:3:bool secretRef:4:SecretReference? \
    # A volume of OpenStack.
CephFSPersistentVolumeSource monitors:1:[str] path:2 user:3 secretFile:4 secretRef:5:SecretReference? \
    readOnly:6:bool # A Ceph filesystem.
FlexPersistentVolumeSource driver:1 fsType:2 secretRef:3:SecretReference? readOnly:4:bool options:5:{str} \
    # A volume of an exec-based plugin.
AzureFilePersistentVolumeSource secretName:1 shareName:2 readOnly:3:bool secretNamespace:4:str? # An Azure file share.
ScaleIOPersistentVolumeSource gateway:1 system:2 secretRef:3:SecretReference? sslEnabled:4:bool protectionDomain:5 \
    storagePool:6 storageMode:7 volumeName:8 fsType:9 readOnly:10:bool # A ScaleIO volume.
StorageOSPersistentVolumeSource volumeName:1 volumeNamespace:2 fsType:3 readOnly:4:bool secretRef:5:ObjectReference? \
    # A StorageOS volume.
CSIPersistentVolumeSource driver:1 volumeHandle:2 readOnly:3:bool fsType:4 volumeAttributes:5:{str} \
    controllerPublishSecretRef:6:SecretReference? nodeStageSecretRef:7:SecretReference? \
    nodePublishSecretRef:8:SecretReference? controllerExpandSecretRef:9:SecretReference? \
    nodeExpandSecretRef:10:SecretReference? # A volume of a CSI driver.
PersistentVolumeSource gcePersistentDisk:1:GCEPersistentDiskVolumeSource? \
    awsElasticBlockStore:2:AWSElasticBlockStoreVolumeSource? glusterfs:4:GlusterfsPersistentVolumeSource? \
    nfs:5:NFSVolumeSource? rbd:6:RBDPersistentVolumeSource? iscsi:7:ISCSIPersistentVolumeSource? \
    cinder:8:CinderPersistentVolumeSource? cephfs:9:CephFSPersistentVolumeSource? fc:10:FCVolumeSource? \
    flocker:11:FlockerVolumeSource? flexVolume:12:FlexPersistentVolumeSource? \
    azureFile:13:AzureFilePersistentVolumeSource? vsphereVolume:14:VsphereVirtualDiskVolumeSource? \
    quobyte:15:QuobyteVolumeSource? azureDisk:16:AzureDiskVolumeSource? \
    photonPersistentDisk:17:PhotonPersistentDiskVolumeSource? portworxVolume:18:PortworxVolumeSource? \
    scaleIO:19:ScaleIOPersistentVolumeSource? storageos:21:StorageOSPersistentVolumeSource? \
    csi:22:CSIPersistentVolumeSource? # What a PersistentVolume is: one field is set.
"""
#: The types of which some fields are served.
_SERVED = {"VolumeSource": ServedVolumeSource, "PersistentVolumeSource": ServedPersistentVolumeSource}

_Types = dict[str, tuple[Any, Any]]  # name -> (type, default)


def _declare(table: str) -> _Types:
    """The types of such a table, each of which may name those above it."""
    types: _Types = {
        "str": (str, ""),
        "bool": (bool, False),
        "int32": (Int32, 0),
        "[str]": (tuple[str, ...], ()),
        "{str}": (dict[str, str], {}),
    }
    known = (LocalObjectReference, ObjectReference, PersistentVolumeClaimTemplate)
    types |= {type_.__name__: (type_, type_()) for type_ in known}
    for line in table.strip().splitlines():
        declared, _, description = line.partition(" # ")
        name, *fields = declared.split()
        base = _SERVED.get(name, Value)
        made = msgspec.defstruct(
            name,
            [_field(text, types) for text in fields],
            bases=(base,),
            module=__name__,
            namespace={"__doc__": f"{description}\n\n{_texts(fields)}"},
        )
        types[name] = (made, made())
    return types


def _texts(fields: Iterable[str]) -> str:
    """As docstrings of types describe their fields."""
    names = (field.partition(":")[0] for field in fields)
    return " ".join(f"{name}: {_DESCRIBED[name]}" for name in names if name in _DESCRIBED)


#: Fields of carried types, which mean the same in each of them.
_DESCRIBED = {
    "cachingMode": "None, ReadOnly or ReadWrite.",
    "chapAuthDiscovery": "whether discovery asks for a password.",
    "chapAuthSession": "whether sessions ask for a password.",
    "claimName": "the name of a claim in the pod's namespace.",
    "datasetName": "the name of the dataset.",
    "datasetUUID": "the id of the dataset.",
    "directory": "the path below the volume's root; `.` for the root itself.",
    "diskName": "the name of the disk.",
    "diskURI": "the address of the disk.",
    "driver": "the driver, which mounts it.",
    "endpoints": "the Endpoints with the servers' addresses.",
    "endpointsNamespace": "the namespace of these Endpoints; the claim's by default.",
    "fsType": "the file system, such as ext4.",
    "gateway": "address of the storage system's API.",
    "group": "the group that the volume is mounted for.",
    "image": "the image in the pool.",
    "initiatorName": "the node's name, in place of its own.",
    "iqn": "the name of the target.",
    "iscsiInterface": "by which it is reached; default by default.",
    "keyring": "path of the keys on the node.",
    "kind": "Shared, Dedicated or Managed.",
    "lun": "the number of the unit.",
    "monitors": "addresses of the Ceph monitors.",
    "name": "the name of the Secret.",
    "namespace": "the namespace of the Secret.",
    "options": "options for the driver.",
    "partition": "the partition's number; none for the whole volume.",
    "path": "the path in the export or file system.",
    "pdID": "the id of the disk.",
    "pdName": "the name of the disk.",
    "pool": "the pool of Ceph.",
    "portals": "further addresses of the target.",
    "protectionDomain": "the domain in which the volume is.",
    "pullPolicy": "Always, IfNotPresent or Never.",
    "readOnly": "whether nothing may be written to it.",
    "reference": "the reference of the image.",
    "registry": "addresses of the registries, separated by commas.",
    "repository": "the repository's URL.",
    "revision": "the commit.",
    "secretFile": "path of the key on the node.",
    "secretName": "the Secret with the account's name and key.",
    "secretNamespace": "the namespace of this Secret; the claim's by default.",
    "server": "name or address of the server.",
    "shareName": "the name of the share.",
    "sslEnabled": "whether the API is asked over TLS.",
    "storageMode": "ThickProvisioned or ThinProvisioned.",
    "storagePolicyID": "the id of the storage policy.",
    "storagePolicyName": "the name of the storage policy.",
    "storagePool": "the pool in which the volume is.",
    "system": "name of the storage system.",
    "targetPortal": "address of the target.",
    "targetWWNs": "world-wide names of the target.",
    "tenant": "the tenant that owns the volume.",
    "user": "the user in whose name it is mounted.",
    "volume": "name of the volume.",
    "volumeAttributes": "what the driver is told.",
    "volumeHandle": "what the driver calls the volume.",
    "volumeID": "the id of the volume at its provider.",
    "volumeName": "name of the volume.",
    "volumeNamespace": "the namespace of the volume; the pod's by default.",
    "volumePath": "the path of the disk.",
    "wwids": "world-wide identifiers of the volume.",
}


def _field(text: str, types: _Types) -> tuple[str, Any, Any]:
    """`TYPE?` may be absent, `TYPE!` is served even when it is empty."""
    name, number, type_ = (*text.split(":"), "str")[:3]
    declared, default = types[type_.rstrip("?!")]
    meta = pb(int(number))
    if type_.endswith("?"):
        return name, Annotated[declared | None, meta], None
    return name, Annotated[declared, meta], always(default) if type_.endswith("!") else default


_TYPES = {} if TYPE_CHECKING else _declare(_CARRIED)
if TYPE_CHECKING:
    VolumeSource = ServedVolumeSource
    PersistentVolumeSource = ServedPersistentVolumeSource
else:
    VolumeSource = _TYPES["VolumeSource"][0]
    PersistentVolumeSource = _TYPES["PersistentVolumeSource"][0]


class Volume(VolumeSource):
    """A volume of a pod; containers mount it by name.

    name: by which containers mount it; unique in the pod.
    """

    EMBEDS: ClassVar = (VolumeSource, 2)

    name: Annotated[str, pb(1)] = ""


def claim_volume(name: str, claim: str) -> Volume:
    """A volume of a PersistentVolumeClaim."""
    source: dict[str, Any] = {"persistentVolumeClaim": _TYPES["PersistentVolumeClaimVolumeSource"][0](claimName=claim)}
    return Volume(name=name, **source)


SpecT = TypeVar("SpecT", bound=ServedPersistentVolumeSource)


def driven_volume(type_: type[SpecT], driver: str, handle: str) -> SpecT:
    """The spec of a PersistentVolume that a driver serves."""
    source: dict[str, Any] = {"csi": _TYPES["CSIPersistentVolumeSource"][0](driver=driver, volumeHandle=handle)}
    return type_(**source)
