"""Rules of a pod's volumes: their names and sources, what they and variables read from other objects, and their mounts.

Source: pkg/apis/core/validation/validation.go (ValidateVolumes, validateEnvVarValueFrom, ValidateEnvFrom,
ValidateVolumeMounts, ValidateVolumeDevices and below) of Kubernetes 1.36. Where it names a field by a shorter path than
one would expect, so do we.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import compress, repeat
from operator import is_not
from typing import Any

from msgspec.structs import astuple

from claims.kinds.containers import (
    Container,
    EnvFromSource,
    EnvVarSource,
    FileKeySelector,
    KeyToPath,
    ObjectFieldSelector,
    ResourceFieldSelector,
    VolumeMount,
)
from claims.kinds.pods import PodSpec
from claims.kinds.volumes import (
    ClusterTrustBundleProjection,
    ConfigMapVolumeSource,
    DownwardAPIVolumeFile,
    DownwardAPIVolumeSource,
    EmptyDirVolumeSource,
    HostPathVolumeSource,
    PersistentVolumeClaimSpec,
    PodCertificateProjection,
    ProjectedVolumeSource,
    SecretVolumeSource,
    ServiceAccountTokenProjection,
    Volume,
    VolumeProjection,
    VolumeSource,
)
from manciple.access.kinds.secrets import check_key
from manciple.access.kinds.service_accounts import LONGEST_LIFETIME, SHORTEST_LIFETIME
from manciple.wire.base import ObjectMeta
from manciple.wire.errors import FieldError, duplicate, forbidden, invalid, not_found, not_supported, required, too_long
from manciple.wire.quantity import read_quantity
from manciple.wire.selectors import validate_label_selector
from manciple.wire.validation import (
    DNS_LABEL_MAX,
    DNS_SUBDOMAIN_MAX,
    SPEC,
    Path,
    check_dns_label,
    check_dns_subdomain,
    check_driver_name,
    check_environment_name,
    check_label_key,
    check_object_name,
    each,
    required_or,
    validate_annotations,
    validate_labels,
    validate_list,
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
#: The reference's names of sources in errors inside the source, and in errors about a second source.
_SHOWN_INSIDE = {**_SHOWN, "gcePersistentDisk": "persistentDisk"}
_SHOWN_AS_EXTRA = {**_SHOWN, "cephfs": "cephFS", "downward_api": "downwarAPI"}
#: Sources whose reference to a Secret must name it.
_NAMED_SECRETS = ("cinder", "storageos")
_ISCSI_MAX = 64
_TENANT_MAX = 64
_HOST_AND_PORT = re.compile(r"([^:\[\]]*|\[[^\[\]]*\]):[^:\[\]]*")

# Volumes --------------------------------------------------------------------------------------------------------------


def sources_of(volume: Volume) -> list[str]:
    """The attributes of the volume's sources, of thirty possible ones; a valid volume has exactly one."""
    return [*compress(VolumeSource.__struct_fields__, map(is_not, astuple(volume), repeat(None)))]


def validate_volumes(spec: PodSpec, metadata: ObjectMeta) -> tuple[dict[str, Volume], Errors]:
    """The valid volumes by name, which containers may mount, and the errors of the others."""
    known: dict[str, Volume] = {}
    found: Errors = []
    volumes: Sequence[Any] = spec.volumes if metadata.name else ()
    created = {f"{metadata.name}-{volume.name}" for volume in volumes if volume.ephemeral is not None}
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


def _validate_claim_exists(volume: Any, path: Path, created: Collection[str]) -> Errors:
    """A volume must not use the claim of an ephemeral volume of the same pod."""
    claim = volume.persistentVolumeClaim
    if claim is None or claim.claimName not in created:
        return []
    message = "must not reference a PVC that gets created for an ephemeral volume"
    return [invalid(path.child("persistentVolumeClaim", "claimName"), claim.claimName, message)]


def _validate_sources(volume: Any, path: Path, metadata: ObjectMeta) -> Errors:
    """Exactly one source; only the first is validated."""
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
    """The template of the claim that is created for the pod."""
    template = source.volumeClaimTemplate
    if template is None:
        return []
    at = path.child("volumeClaimTemplate")
    metadata = template.metadata
    found = validate_labels(metadata.labels, at.child("metadata", "labels"))
    found += validate_annotations(metadata.annotations, at.child("metadata", "annotations"))
    shown = zip(type(metadata).__struct_fields__, type(metadata).__struct_encode_fields__, strict=True)
    found += [
        forbidden(at.child("metadata", "uID" if name == "uid" else field), "cannot be set")
        for name, field in shown
        if name not in ("labels", "annotations") and getattr(metadata, name) not in (None, "", 0, (), {})
    ]
    return found + validate_claim_spec(template.spec, at.child("spec"))


def validate_claim_spec(spec: PersistentVolumeClaimSpec, path: Path) -> Errors:
    """What a PersistentVolumeClaim asks for, wherever it is written (upstream: ValidatePersistentVolumeClaimSpec)."""
    found = validate_access_modes(spec.access_modes, path.child("accessModes"))
    found += _validate_storage(spec.resources.requests.get("storage"), path.child("resources").key("storage"))
    found += validate_label_selector(spec.selector, path.child("selector"))
    if spec.storage_class_name:
        name = spec.storage_class_name
        found += each(check_dns_subdomain(name), path.child("storageClassName"), name)
    if spec.volume_mode is not None and spec.volume_mode not in VOLUME_MODES:
        found.append(not_supported(path.child("volumeMode"), spec.volume_mode, VOLUME_MODES))
    if spec.volume_attributes_class_name:
        name = spec.volume_attributes_class_name
        found += each(check_dns_subdomain(name), path.child("volumeAttributesClassName"), name)
    return found + _validate_data_sources(spec, path)


def validate_access_modes(modes: Sequence[str], path: Path) -> Errors:
    found = [] if modes else [required(path, "at least 1 access mode is required")]
    found += [not_supported(path, mode, ACCESS_MODES) for mode in modes if mode not in ACCESS_MODES]
    if "ReadWriteOncePod" in modes and len(set(modes)) > 1:
        found.append(forbidden(path, "may not use ReadWriteOncePod with other access modes"))
    return found


def _validate_data_sources(spec: PersistentVolumeClaimSpec, path: Path) -> Errors:
    """What the claim is filled with: `dataSource`, `dataSourceRef`, or both with the same reference."""
    old, new = spec.data_source, spec.data_source_ref
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


# Files and variables from Secrets, ConfigMaps, the pod, tokens and certificates ---------------------------------------


MODE_MAX = 0o777
KEY_TYPES = ("ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519", "RSA3072", "RSA4096")
#: Lifetimes of a pod's certificate: from an hour to 91 days, or to a day for signers of Kubernetes.
_CERTIFICATE_SECONDS_MIN, _CERTIFICATE_SECONDS_MAX = 60 * 60, 91 * 24 * 60 * 60
_KUBERNETES_SECONDS_MAX = 24 * 60 * 60
#: A domain, a namespace and a name, with separators.
_SIGNER_MAX = DNS_SUBDOMAIN_MAX + DNS_LABEL_MAX + DNS_SUBDOMAIN_MAX + 2
#: The fields of a pod that variables and files can refer to.
VARIABLE_FIELDS = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
FILE_FIELDS = ("metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid")
RESOURCES = (
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
)
_HUGE_PAGES = ("limits.hugepages-", "requests.hugepages-")
_KNOWN_FIELDS = frozenset({*VARIABLE_FIELDS, *FILE_FIELDS, "spec.restartPolicy", "spec.schedulerName", "status.phase"})
#: Names of fields in the API's first versions -> their names now.
_OLD_FIELDS = {"spec.host": "spec.nodeName"}
_SUBSCRIPT = re.compile(r"(?P<map>metadata\.(?:labels|annotations))\['(?P<key>.*)'\]", re.DOTALL)
#: resource -> the divisors that it supports
_DIVISORS = {
    "cpu": ("1m", "1"),
    "memory": ("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"),
}


def validate_secret(source: SecretVolumeSource, path: Path) -> Errors:
    found = [] if source.secret_name else [required(path.child("secretName"))]
    return [*found, *_validate_mode(source.default_mode, path, "defaultMode"), *_items(source.items, path)]


def validate_config_map(source: ConfigMapVolumeSource, path: Path) -> Errors:
    found = [] if source.name else [required(path.child("name"))]
    return [*found, *_validate_mode(source.default_mode, path, "defaultMode"), *_items(source.items, path)]


def validate_downward_api(source: DownwardAPIVolumeSource, path: Path) -> Errors:
    found = _validate_mode(source.default_mode, path, "defaultMode")
    return found + [error for item in source.items for error in _validate_shown_file(item, path)]


def validate_projected(source: ProjectedVolumeSource, path: Path) -> Errors:
    # Sources of certificates and of trust bundles may hold maps, which cannot be hashed.
    is_hashable = all(one.pod_certificate is None and one.cluster_trust_bundle is None for one in source.sources)
    return [] if is_hashable and _is_faultless(source) else _validate_projected(source, path)


def validate_no_tokens(volume: Volume, path: Path) -> Errors:
    """A pod without a service account cannot mount its token."""
    sources = volume.projected.sources if volume.projected is not None else ()
    return [
        forbidden(
            path.child("projected", "sources").at(position).child("serviceAccountToken"),
            "must not be specified when serviceAccountName is not set",
        )
        for position, source in enumerate(sources)
        if source.service_account_token is not None
    ]


def _validate_mode(mode: int | None, path: Path, field: str) -> Errors:
    if mode is None or 0 <= mode <= MODE_MAX:
        return []
    return [invalid(path.child(field), mode, "must be a number between 0 and 0777 (octal), both inclusive")]


def _items(items: tuple[KeyToPath, ...], path: Path) -> Errors:
    return validate_list(items, path.child("items"), _validate_item)


def _validate_item(item: KeyToPath, path: Path) -> Errors:
    found = [] if item.key else [required(path.child("key"))]
    return [*found, *_validate_file_path(item.path, path.child("path")), *_validate_mode(item.mode, path, "mode")]


def validate_local_path(text: str, path: Path) -> Errors:
    """A path below some directory: relative, and never above it."""
    found: Errors = []
    if text.startswith("/"):
        found.append(invalid(path, text, "must be a relative path"))
    if ".." in text.split("/"):
        found.append(invalid(path, text, "must not contain '..'"))
    return found


def _validate_file_path(text: str, path: Path) -> Errors:
    """Where a file stands in its volume: below it, and not where the agent keeps what it needs to replace files."""
    if not text:
        return [required(path)]
    found = validate_local_path(text, path)
    if not found and text.startswith(".."):
        found.append(invalid(path, text, "must not start with '..'"))
    return found


def _validate_shown_file(item: DownwardAPIVolumeFile, path: Path) -> Errors:
    found = _validate_file_path(item.path, path.child("path"))
    if item.field_ref is not None:
        found += _validate_field(item.field_ref, path.child("fieldRef"), FILE_FIELDS)
        if item.resource_field_ref is not None:
            found.append(invalid(path, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously"))
    elif item.resource_field_ref is not None:
        found += _validate_amount(item.resource_field_ref, path.child("resourceFieldRef"), in_volume=True)
    else:
        found.append(required(path, "one of fieldRef and resourceFieldRef is required"))
    return found + _validate_mode(item.mode, path, "mode")


@lru_cache(maxsize=32)  # entries are as large as a client makes them
def _is_faultless(projected: ProjectedVolumeSource) -> bool:
    """Cached, because nearly every pod has the same one: that of its account's token."""
    return not _validate_projected(projected, Path())


def _validate_projected(projected: ProjectedVolumeSource, path: Path) -> Errors:
    found = _validate_mode(projected.default_mode, path, "defaultMode")
    taken: set[str] = set()
    for position, source in enumerate(projected.sources):
        found += _validate_projection(source, path, path.child("sources").at(position))
        found += _validate_conflicts(source, taken, path)
    return found


def _validate_projection(source: VolumeProjection, volume: Path, path: Path) -> Errors:
    found: Errors = []
    if sum(getattr(source, name) is not None for name in VolumeProjection.__struct_fields__) > 1:
        found.append(forbidden(path, "may not specify more than 1 volume type per source"))
    for name, projection in (("secret", source.secret), ("configMap", source.config_map)):
        if projection is not None:
            at = path.child(name)
            found += [] if projection.name else [required(at.child("name"))]
            found += _items(projection.items, at)
    if source.downward_api is not None:
        at = path.child("downwardAPI")
        found += [error for item in source.downward_api.items for error in _validate_shown_file(item, at)]
    if source.service_account_token is not None:
        found += _validate_token(source.service_account_token, volume, path.child("serviceAccountToken"))
    if source.cluster_trust_bundle is not None:
        found += _validate_bundle(source.cluster_trust_bundle, path.child("clusterTrustBundle"))
    if source.pod_certificate is not None:
        found += _validate_certificate(source.pod_certificate, path.child("podCertificate"))
    return found


def _validate_token(token: ServiceAccountTokenProjection, volume: Path, path: Path) -> Errors:
    seconds, at = token.expiration_seconds or 0, path.child("expirationSeconds")
    found: Errors = []
    if seconds < SHORTEST_LIFETIME:
        found.append(invalid(at, seconds, "may not specify a duration less than 10 minutes"))
    elif seconds > LONGEST_LIFETIME:
        found.append(invalid(at, seconds, "may not specify a duration larger than 2^32 seconds"))
    return found + _validate_file_path(token.path, volume.child("path"))


def _validate_bundle(bundle: ClusterTrustBundleProjection, path: Path) -> Errors:
    found: Errors = []
    if bundle.name is not None and bundle.signer_name is not None:
        found.append(invalid(path, bundle, "only one of name and signerName may be used"))
    elif bundle.name is not None:
        at = path.child("name")
        found += [] if bundle.name else [required(at, "must be a valid object name")]
        signer, colon, name = bundle.name.rpartition(":")
        messages = check_dns_subdomain(name if colon and signer else bundle.name)
        found += [invalid(at, bundle.name, f"not a valid clustertrustbundlename: {message}") for message in messages]
        if bundle.label_selector is not None:
            message = "labelSelector must be unset if name is specified"
            found.append(invalid(path.child("labelSelector"), bundle.label_selector, message))
    elif bundle.signer_name is not None:
        found += _validate_signer(bundle.signer_name, path.child("signerName"))
        found += validate_label_selector(bundle.label_selector, path.child("labelSelector"))
    else:
        found.append(required(path, "either name or signerName must be specified"))
    return found + _validate_file_path(bundle.path, path.child("path"))


def _validate_signer(name: str, path: Path) -> Errors:
    """DOMAIN/PATH, as that of a signing request."""
    if not name:
        return [required(path, "must be a valid signer name")]
    domain, slash, rest = name.partition("/")
    if not slash or "/" in rest:
        message = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        return [invalid(path, name, message)]
    found: Errors = []
    if len(domain) > DNS_SUBDOMAIN_MAX:
        found.append(too_long(path, DNS_SUBDOMAIN_MAX))
    for label in domain.split("."):
        found += [invalid(path, domain, f'validating label "{label}": {one}') for one in check_dns_label(label)]
    if "." not in domain:
        found.append(invalid(path, domain, "should be a domain with at least two segments separated by dots"))
    for label in rest.split("."):
        found += [invalid(path, rest, f'validating label "{label}": {one}') for one in check_dns_subdomain(label)]
    if len(name) > _SIGNER_MAX:
        found.append(too_long(path, _SIGNER_MAX))
    return found


def _validate_user_annotations(annotations: Mapping[str, str], path: Path) -> Errors:
    """As other annotations, and each with a domain."""
    found = validate_annotations(annotations, path)
    message = 'must be a domain-prefixed key (such as "acme.io/foo")'
    return found + [invalid(path, key, message) for key in annotations if "/" not in key]


def _validate_certificate(certificate: PodCertificateProjection, path: Path) -> Errors:
    found = _validate_signer(certificate.signer_name, path.child("signerName"))
    if certificate.key_type not in KEY_TYPES:
        found.append(not_supported(path.child("keyType"), certificate.key_type, KEY_TYPES))
    seconds, at = certificate.max_expiration_seconds, path.child("maxExpirationSeconds")
    is_of_kubernetes = f".{certificate.signer_name.partition('/')[0]}".endswith(".kubernetes.io")
    longest = _KUBERNETES_SECONDS_MAX if is_of_kubernetes else _CERTIFICATE_SECONDS_MAX
    if seconds is not None and seconds < _CERTIFICATE_SECONDS_MIN:
        found.append(invalid(at, seconds, f"if provided, maxExpirationSeconds must be >= {_CERTIFICATE_SECONDS_MIN}"))
    elif seconds is not None and seconds > longest:
        found.append(invalid(at, seconds, f"if provided, maxExpirationSeconds must be <= {longest}"))
    found += _validate_user_annotations(certificate.user_annotations, path.child("userAnnotations"))
    files = (
        ("credentialBundlePath", certificate.credential_bundle_path),
        ("keyPath", certificate.key_path),
        ("certificateChainPath", certificate.certificate_chain_path),
    )
    if not any(text for _, text in files):
        message = "specify at least one of credentialBundlePath, keyPath, and certificateChainPath"
        found.append(required(path, message))
    for shown, text in files:
        found += _validate_file_path(text, path.child(shown)) if text else []
    return found


def _validate_conflicts(source: VolumeProjection, taken: set[str], path: Path) -> Errors:
    """No two files have one path. taken: the files of the sources before it, to which its own are added."""
    found: Errors = []
    for name, file in _files_of(source):
        if file in taken:
            found.append(invalid(path, name, "conflicting duplicate paths"))
        taken.add(file)
    return found


def _files_of(source: VolumeProjection) -> Iterator[tuple[str, str]]:
    """How a message names it, and the path, of each file whose path is compared with those of the others. As in the
    reference, that of a token is not.
    """
    for projection in (source.secret, source.config_map):
        if projection is not None:
            yield from ((projection.name, item.path) for item in projection.items if item.path)
    if source.downward_api is not None:
        yield from ((item.path, item.path) for item in source.downward_api.items if item.path)
    bundle, certificate = source.cluster_trust_bundle, source.pod_certificate
    if bundle is not None:
        yield bundle.path, bundle.path
    if certificate is not None:
        paths = (certificate.credential_bundle_path, certificate.key_path, certificate.certificate_chain_path)
        yield from ((file, file) for file in paths if file)


# Variables ------------------------------------------------------------------------------------------------------------


def validate_variable_source(source: EnvVarSource, path: Path, volumes: Mapping[str, Volume]) -> Errors:
    """What is wrong with the one source that is chosen. volumes: the pod's, by name."""
    found: Errors = []
    if source.field_ref is not None:
        found += _validate_field(source.field_ref, path.child("fieldRef"), VARIABLE_FIELDS)
    if source.resource_field_ref is not None:
        found += _validate_amount(source.resource_field_ref, path.child("resourceFieldRef"), in_volume=False)
    if source.file_key_ref is not None:
        found += _validate_file_key(source.file_key_ref, path.child("fileKeyRef"), volumes)
    for name, key in (("configMapKeyRef", source.config_map_key_ref), ("secretKeyRef", source.secret_key_ref)):
        if key is not None:
            at = path.child(name)
            found += each(check_dns_subdomain(key.name), at.child("name"), key.name)
            found += required_or(check_key, key.key, at.child("key"))
    return found


def _validate_file_key(selector: FileKeySelector, path: Path, volumes: Mapping[str, Volume]) -> Errors:
    """A line of a file in an emptyDir volume; unlike mounts, it may name a volume that is not valid itself."""
    at, name = path.child("volumeName"), selector.volume_name
    volume = volumes.get(name)
    found = required_or(check_dns_label, name, at)
    if volume is None:
        found.append(not_found(at, name))
    elif volume.empty_dir is None:
        found.append(invalid(at, name, "referenced volume must be of type emptyDir"))
    if not selector.path:
        found.append(required(path.child("path")))
    elif ".." in selector.path.split("/"):
        found.append(invalid(path.child("path"), selector.path, "must not contain '..'"))
    return found + required_or(check_environment_name, selector.key, path.child("key"))


def validate_environment_source(source: EnvFromSource, path: Path, collection: Path) -> Errors:
    """A whole ConfigMap or Secret as variables. collection: where all such sources stand."""
    found: Errors = []
    if source.prefix:
        found += each(check_environment_name(source.prefix), path.child("prefix"), source.prefix)
    chosen = [(n, r) for n, r in (("configMapRef", source.config_map_ref), ("secretRef", source.secret_ref)) if r]
    for name, reference in chosen:
        at = path.child(name, "name")
        found += required_or(lambda name: check_object_name(name, prefix=True), reference.name, at)
    if not chosen:
        found.append(invalid(collection, "", "must specify one of: `configMapRef` or `secretRef`"))
    elif len(chosen) > 1:
        found.append(invalid(collection, "", "may not have more than one field specified at a time"))
    return found


# Fields and amounts of the pod ----------------------------------------------------------------------------------------


def _validate_field(selector: ObjectFieldSelector, path: Path, supported: Collection[str]) -> Errors:
    at, shown = path.child("fieldPath"), selector.field_path
    if not selector.api_version:
        return [required(path.child("apiVersion"))]
    if not shown:
        return [required(at)]
    if selector.api_version != "v1":
        return [invalid(at, shown, f"error converting fieldPath: unsupported pod version: {selector.api_version}")]
    if match := _SUBSCRIPT.fullmatch(shown):
        key = match["key"]
        of_annotation = match["map"] == "metadata.annotations"
        return each(check_label_key(key.lower() if of_annotation else key), path, key)
    shown = _OLD_FIELDS.get(shown, shown)
    if shown not in _KNOWN_FIELDS:
        return [invalid(at, shown, f"error converting fieldPath: field label not supported: {shown}")]
    return [] if shown in supported else [not_supported(at, shown, supported)]


def _validate_amount(selector: ResourceFieldSelector, path: Path, *, in_volume: bool) -> Errors:
    found: Errors = []
    if in_volume and not selector.container_name:
        found.append(required(path.child("containerName")))
    elif not selector.resource:
        found.append(required(path.child("resource")))
    elif selector.resource not in RESOURCES and not selector.resource.startswith(_HUGE_PAGES):
        found.append(not_supported(path.child("resource"), selector.resource, RESOURCES))
    return found + _validate_divisor(selector, path.child("divisor"))


def _validate_divisor(selector: ResourceFieldSelector, path: Path) -> Errors:
    """Known resources and huge pages support certain divisors only."""
    resource, divisor = selector.resource.partition(".")[2], selector.divisor or "0"
    known = selector.resource in RESOURCES or selector.resource.startswith(_HUGE_PAGES)
    if not known or divisor in ("0", *_DIVISORS["cpu" if resource == "cpu" else "memory"]):
        return []
    if resource == "cpu":
        message = "only divisor's values 1m and 1 are supported with the cpu resource"
    else:
        values = "1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei"
        name = "local ephemeral storage" if resource == "ephemeral-storage" else resource.partition("-")[0]
        message = f"only divisor's values {values} are supported with the {name} resource"
    return [invalid(path, selector.resource, message)]


# Mounts and block devices ---------------------------------------------------------------------------------------------


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
