"""Rules of a pod's volumes: their names, that each has one source, and what each source needs.

Sources made of files of other objects are in `source_rules`. Source: pkg/apis/core/validation/validation.go
(ValidateVolumes, validateVolumeSource and below) of Kubernetes 1.36.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from claims.kinds.pods import PodSpec
from claims.kinds.source_rules import (
    validate_config_map,
    validate_downward_api,
    validate_local_path,
    validate_no_tokens,
    validate_projected,
    validate_secret,
)
from claims.kinds.volumes import EmptyDirVolumeSource, HostPathVolumeSource, Volume, VolumeSource, sources_of
from manciple.wire.base import ObjectMeta
from manciple.wire.errors import FieldError, duplicate, forbidden, invalid, not_supported, required, too_long
from manciple.wire.quantity import read_quantity
from manciple.wire.selectors import validate_label_selector
from manciple.wire.validation import (
    SPEC,
    Path,
    check_dns_label,
    check_dns_subdomain,
    check_driver_name,
    each,
    required_or,
    validate_annotations,
    validate_labels,
)

Errors = list[FieldError]

PULL_POLICIES = ("Always", "IfNotPresent", "Never")
ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
VOLUME_MODES = ("Block", "Filesystem")
HOST_PATH_TYPES = (
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
)
DRIVER_MAX = 63
BYTE_MAX = 255

#: The sources in the order in which the reference looks for them (by attribute), and the fields that they need (in
#: JSON, and so as attributes where nothing here mounts the source).
_SOURCES: Mapping[str, tuple[str, ...]] = {
    "empty_dir": (),
    "host_path": (),
    "gitRepo": ("repository",),
    "gcePersistentDisk": ("pdName",),
    "awsElasticBlockStore": ("volumeID",),
    "secret": (),
    "nfs": ("server", "path"),
    "iscsi": ("targetPortal", "iqn"),
    "glusterfs": ("endpoints", "path"),
    "flocker": (),
    "persistentVolumeClaim": ("claimName",),
    "rbd": ("monitors", "image"),
    "cinder": ("volumeID",),
    "cephfs": ("monitors",),
    "quobyte": ("registry", "volume"),
    "downward_api": (),
    "fc": (),
    "flexVolume": ("driver",),
    "config_map": (),
    "azureFile": ("secretName", "shareName"),
    "vsphereVolume": ("volumePath",),
    "photonPersistentDisk": ("pdID",),
    "portworxVolume": ("volumeID",),
    "azureDisk": ("diskName", "diskURI"),
    "storageos": ("volumeName",),
    "projected": (),
    "scaleIO": ("gateway", "system", "volumeName"),
    "csi": ("driver",),
    "ephemeral": ("volumeClaimTemplate",),
    "image": ("reference",),
}
_ORDER = {name: place for place, name in enumerate(_SOURCES)}
_SHOWN = dict(zip(VolumeSource.__struct_fields__, VolumeSource.__struct_encode_fields__, strict=True))
#: Where the reference names a source differently: what is wrong inside of it, and that it is one too many.
_SHOWN_INSIDE = {**_SHOWN, "gcePersistentDisk": "persistentDisk"}
_SHOWN_AS_EXTRA = {**_SHOWN, "cephfs": "cephFS", "downward_api": "downwarAPI"}
#: Sources whose reference to a Secret must name it.
_NAMED_SECRETS = ("cinder", "storageos")
_ISCSI_MAX = 64
_TENANT_MAX = 64
_HOST_AND_PORT = re.compile(r"([^:\[\]]*|\[[^\[\]]*\]):[^:\[\]]*")

# Volumes --------------------------------------------------------------------------------------------------------------


def validate_volumes(spec: PodSpec, metadata: ObjectMeta) -> tuple[dict[str, Volume], Errors]:
    """The volumes that are fit to be mounted, by name; and what is wrong with the others."""
    known: dict[str, Volume] = {}
    found: Errors = []
    created = {f"{metadata.name}-{one.name}" for one in spec.volumes if metadata.name and _is_ephemeral(one)}
    for position, volume in enumerate(spec.volumes):
        at = SPEC.child("volumes").at(position)
        wrong = required_or(check_dns_label, volume.name, at.child("name"))
        if volume.name in known:
            wrong.append(duplicate(at.child("name"), volume.name))
        wrong += _validate_sources(volume, at, metadata)
        if not wrong:
            known[volume.name] = volume
        found += wrong
        if not spec.service_account_name:
            found += validate_no_tokens(volume, at)
        if created:
            found += _validate_claim_exists(volume, at, created)
    return known, found


def _is_ephemeral(volume: Any) -> bool:
    return volume.ephemeral is not None


def _validate_claim_exists(volume: Any, path: Path, created: Collection[str]) -> Errors:
    """A volume cannot use a claim that is only created for another volume of the pod."""
    claim = volume.persistentVolumeClaim
    if claim is None or claim.claimName not in created:
        return []
    message = "must not reference a PVC that gets created for an ephemeral volume"
    return [invalid(path.child("persistentVolumeClaim", "claimName"), claim.claimName, message)]


def _validate_sources(volume: Any, path: Path, metadata: ObjectMeta) -> Errors:
    """One source; only the first is looked into."""
    chosen = sorted(sources_of(volume), key=_ORDER.__getitem__)
    if not chosen:
        return [required(path, "must specify a volume type")]
    name, *others = chosen
    source, at = getattr(volume, name), path.child(_SHOWN_INSIDE[name])
    found = [required(at.child(field)) for field in _SOURCES[name] if not getattr(source, field)]
    if name in _NAMED_SECRETS and source.secretRef is not None and not source.secretRef.name:
        found.append(required(at.child("secretRef", "name")))
    if name in _RULES:
        found += _RULES[name](source, at)
    if name == "ephemeral" and metadata.name and volume.name:
        claim = f"{metadata.name}-{volume.name}"
        messages = [f'PVC name "{claim}": {message}' for message in check_dns_subdomain(claim)]
        found += each(messages, path.child("name"), volume.name)
    iscsi = volume.iscsi
    if iscsi and iscsi.initiatorName is not None and len(f"{volume.name}:{iscsi.targetPortal}") > _ISCSI_MAX:
        message = (
            "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is "
            "specified."
        )
        found.append(invalid(path.child("name"), volume.name, message))
    message = "may not specify more than 1 volume type"
    return found + [forbidden(path.child(_SHOWN_AS_EXTRA[other]), message) for other in others]


# Sources --------------------------------------------------------------------------------------------------------------


def _validate_empty_dir(source: EmptyDirVolumeSource, path: Path) -> Errors:
    if source.size_limit is None:
        return []
    size, wrong = read_quantity(source.size_limit, path.child("sizeLimit"))
    if size is None or size.sign >= 0:
        return wrong
    return [forbidden(path.child("sizeLimit"), "SizeLimit field must be a valid resource quantity")]


def _validate_host_path(source: HostPathVolumeSource, path: Path) -> Errors:
    if not source.path:
        return [required(path.child("path"))]
    found: Errors = []
    if ".." in source.path.split("/"):
        found.append(invalid(path.child("path"), source.path, "must not contain '..'"))
    if source.type is not None and source.type not in HOST_PATH_TYPES:
        found.append(not_supported(path.child("type"), source.type, HOST_PATH_TYPES))
    return found


def _validate_disk(source: Any, path: Path) -> Errors:
    message = "must be between 0 and 255, inclusive"
    return [] if 0 <= source.partition <= BYTE_MAX else [invalid(path.child("partition"), source.partition, message)]


def _validate_nfs(source: Any, path: Path) -> Errors:
    return [] if source.path.startswith("/") else [invalid(path.child("path"), source.path, "must be an absolute path")]


_ISCSI_NAMES = {
    "iqn": re.compile(r"iqn\.\d{4}-\d{2}\.([a-zA-Z0-9.-]+)(:[^,;*&$|\s]+)"),
    "eui": re.compile(r"eui.[A-Za-z0-9]{16}"),
    "naa": re.compile(r"naa.[A-Za-z0-9]{32}"),
}


def _validate_iscsi(source: Any, path: Path) -> Errors:
    found: Errors = []
    for field, name in (("iqn", source.iqn), ("initiatorname", source.initiatorName)):
        if not name:
            continue
        form = _ISCSI_NAMES.get(name[:3])
        if form is None:
            found.append(invalid(path.child(field), name, "must be valid format starting with iqn, eui, or naa"))
        elif not form.fullmatch(name):
            found.append(invalid(path.child(field), name, "must be valid format"))
    if not 0 <= source.lun <= BYTE_MAX:
        found.append(invalid(path.child("lun"), source.lun, "must be between 0 and 255, inclusive"))
    if (source.chapAuthDiscovery or source.chapAuthSession) and source.secretRef is None:
        found.append(required(path.child("secretRef")))
    return found


def _validate_flocker(source: Any, path: Path) -> Errors:
    found: Errors = []
    if not source.datasetName and not source.datasetUUID:
        found.append(required(path, "one of datasetName and datasetUUID is required"))
    if source.datasetName and source.datasetUUID:
        message = "datasetName and datasetUUID can not be specified simultaneously"
        found.append(invalid(path, "resource", message))
    if "/" in source.datasetName:
        found.append(invalid(path.child("datasetName"), source.datasetName, "must not contain '/'"))
    return found


def _validate_quobyte(source: Any, path: Path) -> Errors:
    if not source.registry:
        return []
    if len(source.tenant) > _TENANT_MAX:
        message = f"must be a UUID and may not exceed a length of {_TENANT_MAX} characters"
        return [required(path.child("tenant"), message)]
    message = "must be a host:port pair or multiple pairs separated by commas"
    return [
        invalid(path.child("registry"), source.registry, message)
        for pair in source.registry.split(",")
        if not _HOST_AND_PORT.fullmatch(pair)
    ]


def _validate_fibre_channel(source: Any, path: Path) -> Errors:
    at = path.child("targetWWNs")
    found: Errors = []
    if not source.targetWWNs and not source.wwids:
        found.append(required(at, "must specify either targetWWNs or wwids, but not both"))
    if source.targetWWNs and source.wwids:
        message = "targetWWNs and wwids can not be specified simultaneously"
        found.append(invalid(at, source.targetWWNs, message))
    if source.targetWWNs:
        if source.lun is None:
            found.append(required(path.child("lun"), "lun is required if targetWWNs is specified"))
        elif not 0 <= source.lun <= BYTE_MAX:
            found.append(invalid(path.child("lun"), source.lun, "must be between 0 and 255, inclusive"))
    return found


def _validate_flex(source: Any, path: Path) -> Errors:
    reserved = [
        key for key in source.options if f".{key.split('/')[0].lower()}".endswith((".kubernetes.io", ".k8s.io"))
    ]
    message = "kubernetes.io and k8s.io namespaces are reserved"
    return [invalid(path.child("options").key(key), key, message) for key in reserved]


def _validate_azure_disk(source: Any, path: Path) -> Errors:
    found: Errors = []
    for field, value, supported in (
        ("cachingMode", source.cachingMode, ("None", "ReadOnly", "ReadWrite")),
        ("kind", source.kind, ("Dedicated", "Managed", "Shared")),
    ):
        if value is not None and value not in supported:
            found.append(not_supported(path.child(field), value, supported))
    if source.kind is not None:
        managed = source.kind == "Managed"
        begin, whole = _AZURE_MANAGED if managed else _AZURE_BLOB
        if not source.diskURI.startswith(begin):
            found.append(not_supported(path.child("diskURI"), source.diskURI, (whole,)))
    return found


_AZURE_MANAGED = (
    "/subscriptions/",
    "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}",
)
_AZURE_BLOB = ("https://", "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd")


def _validate_storage_os(source: Any, path: Path) -> Errors:
    names = (("volumeName", source.volumeName), ("volumeNamespace", source.volumeNamespace))
    return [error for field, name in names if name for error in each(check_dns_label(name), path.child(field), name)]


def _validate_csi(source: Any, path: Path) -> Errors:
    found: Errors = []
    if source.driver:
        if len(source.driver) > DRIVER_MAX:
            found.append(too_long(path.child("driver"), DRIVER_MAX))
        found += each(check_driver_name(source.driver), path.child("driver"), source.driver)
    if source.nodePublishSecretRef is not None:
        name = source.nodePublishSecretRef.name
        if not name:
            found.append(required(path.child("nodePublishSecretRef", "name")))
        else:
            found += each(check_dns_subdomain(name), path.child("name"), name)
    return found


def _validate_image(source: Any, path: Path) -> Errors:
    if source.pullPolicy in PULL_POLICIES:
        return []
    at = path.child("pullPolicy")
    return [not_supported(at, source.pullPolicy, PULL_POLICIES)] if source.pullPolicy else [required(at)]


def _validate_ephemeral(source: Any, path: Path) -> Errors:
    """The claim that is to be made for the pod."""
    template = source.volumeClaimTemplate
    if template is None:
        return []
    at = path.child("volumeClaimTemplate")
    metadata, spec, modes = template.metadata, template.spec, template.spec.accessModes
    found = validate_labels(metadata.labels, at.child("metadata", "labels"))
    found += validate_annotations(metadata.annotations, at.child("metadata", "annotations"))
    shown = zip(type(metadata).__struct_fields__, type(metadata).__struct_encode_fields__, strict=True)
    found += [
        forbidden(at.child("metadata", "uID" if name == "uid" else field), "cannot be set")
        for name, field in shown
        if name not in ("labels", "annotations") and getattr(metadata, name) not in (None, "", 0, (), {})
    ]
    at = at.child("spec")
    if not modes:
        found.append(required(at.child("accessModes"), "at least 1 access mode is required"))
    wrong = [mode for mode in modes if mode not in ACCESS_MODES]
    found += [not_supported(at.child("accessModes"), mode, ACCESS_MODES) for mode in wrong]
    if "ReadWriteOncePod" in modes and len(set(modes)) > 1:
        message = "may not use ReadWriteOncePod with other access modes"
        found.append(forbidden(at.child("accessModes"), message))
    found += _validate_storage(spec.resources.requests.get("storage"), at.child("resources").key("storage"))
    found += validate_label_selector(spec.selector, at.child("selector"))
    if spec.storageClassName:
        found += each(check_dns_subdomain(spec.storageClassName), at.child("storageClassName"), spec.storageClassName)
    if spec.volumeMode is not None and spec.volumeMode not in VOLUME_MODES:
        found.append(not_supported(at.child("volumeMode"), spec.volumeMode, VOLUME_MODES))
    if spec.volumeAttributesClassName:
        name = spec.volumeAttributesClassName
        found += each(check_dns_subdomain(name), at.child("volumeAttributesClassName"), name)
    return found + _validate_data_sources(spec, at)


def _validate_data_sources(spec: Any, path: Path) -> Errors:
    """What the claim is filled with: `dataSource`, `dataSourceRef`, or both with the same reference."""
    old, new = spec.dataSource, spec.dataSourceRef
    found: Errors = []
    for field, source in (("dataSource", old), ("dataSourceRef", new)):
        if source is None:
            continue
        at = path.child(field)
        found += [] if source.name else [required(at.child("name"))]
        found += [] if source.kind else [required(at.child("kind"))]
        if source.api_group:
            found += each(check_dns_subdomain(source.api_group), at.child("apiGroup"), source.api_group)
        elif source.kind != "PersistentVolumeClaim":
            message = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
            found.append(invalid(at, source.kind, message))
    if new is not None and new.namespace:
        found += each(check_dns_label(new.namespace), path.child("dataSourceRef", "namespace"), new.namespace)
        if old is not None:
            message = "may not be specified when dataSourceRef.namespace is specified"
            found.append(invalid(path, path.child("dataSource"), message))
    elif old and new and (old.api_group, old.kind, old.name) != (new.api_group, new.kind, new.name):
        found.append(invalid(path, path.child("dataSource"), "must match dataSourceRef"))
    return found


def _validate_storage(text: str | None, path: Path) -> Errors:
    if text is None:
        return [required(path)]
    amount, found = read_quantity(text, path)
    return [invalid(path, text, "must be greater than zero")] if amount is not None and amount.sign <= 0 else found


_RULES: Mapping[str, Callable[[Any, Path], Errors]] = {
    "empty_dir": _validate_empty_dir,
    "host_path": _validate_host_path,
    "secret": validate_secret,
    "config_map": validate_config_map,
    "downward_api": validate_downward_api,
    "projected": validate_projected,
    "gitRepo": lambda source, path: validate_local_path(source.directory, path.child("directory")),
    "gcePersistentDisk": _validate_disk,
    "awsElasticBlockStore": _validate_disk,
    "nfs": _validate_nfs,
    "iscsi": _validate_iscsi,
    "flocker": _validate_flocker,
    "quobyte": _validate_quobyte,
    "fc": _validate_fibre_channel,
    "flexVolume": _validate_flex,
    "azureDisk": _validate_azure_disk,
    "storageos": _validate_storage_os,
    "csi": _validate_csi,
    "ephemeral": _validate_ephemeral,
    "image": _validate_image,
}
